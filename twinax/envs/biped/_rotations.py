"""Rotations as arrays (..., 3, 3) and quaternions (..., 4), w first."""

from __future__ import annotations

from twinax import ops
from twinax.types import Array, Float


def from_quaternion(q: Float[Array, "*rows 4"]) -> Float[Array, "*rows 3 3"]:
    """The matrix of a quaternion of any length but 0."""
    q = q / ops.sqrt(ops.sum(q * q, -1))[..., None]
    w, x, y, z = (q[..., k] for k in range(4))
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return ops.stack([ops.stack(row, -1) for row in rows], -2)


def rotate_back(a: Float[Array, "... 3 3"], v: Float[Array, "... 3"]) -> Float[Array, "... 3"]:
    """a^T v: the vector as seen from the rotated frame."""
    return a[..., 0, :] * v[..., 0:1] + a[..., 1, :] * v[..., 1:2] + a[..., 2, :] * v[..., 2:3]


def in_heading(rotation: Float[Array, "*rows 3 3"], v: Float[Array, "*rows 3"]) -> Float[Array, "*rows 3"]:
    """A vector of the world as seen from the frame that is level and looks where the body looks.

    Where the body looks straight up or down there is no such direction, and the result is small.
    """
    ahead = rotation[..., 0:2, 0]
    ahead = ahead / ops.sqrt(ops.sum(ahead * ahead, -1) + 1e-12)[..., None]
    c, s = ahead[..., 0], ahead[..., 1]
    return ops.stack([c * v[..., 0] + s * v[..., 1], c * v[..., 1] - s * v[..., 0], v[..., 2]], -1)


def gravity_seen(rotation: Float[Array, "*rows 3 3"]) -> Float[Array, "*rows 3"]:
    """The direction of gravity as seen from the body: (0, 0, -1) when it stands upright."""
    return -rotation[..., 2, :]


def from_roll_pitch(roll: Float[Array, " rows"], pitch: Float[Array, " rows"]) -> Float[Array, "rows 4"]:
    """The quaternion of a turn about y, then about the body's x."""
    cr, sr, cp, sp = ops.cos(roll / 2), ops.sin(roll / 2), ops.cos(pitch / 2), ops.sin(pitch / 2)
    return ops.stack([cr * cp, sr * cp, cr * sp, -sr * sp], -1)


def after(first: Float[Array, "rows 4"], then: Float[Array, "rows 4"]) -> Float[Array, "rows 4"]:
    """The quaternion of a turn, and of another one in the frame that has been turned: their product."""
    a, b, c, d = (first[:, k] for k in range(4))
    w, x, y, z = (then[:, k] for k in range(4))
    parts = (
        a * w - b * x - c * y - d * z,
        a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x,
        a * z + b * y - c * x + d * w,
    )
    return ops.stack(parts, -1)
