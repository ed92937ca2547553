"""Batches of a dataset: rows by index, next actions, stacked frames and random crops, on the device.

`arrays` is what `Dataset.on` gives. No function here makes random numbers: `batch_draws` says which are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinax import ops
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.ranges import check_range
from twinax.types import Array, Int, Shaped

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class BatchOptions:
    """What is in a batch."""

    batch_size: int = 256
    """Rows, drawn evenly and with repetition."""
    next_actions: bool = False
    """Whether the action of the next step is in the batch."""
    faithful: bool = False
    """Next actions are of the next row, even where that begins another trajectory, as in the released agents."""
    frame_stack: int = 1
    """Images that are seen at once, joined on the last axis."""
    augment: float = 0.0
    """Probability that the images of a batch are cropped at random: one coin for the batch."""
    pad: int = 3
    """Pixels by which a crop may be shifted each way."""

    def __post_init__(self):
        check_range(self, "at least 1", "batch_size", "frame_stack")
        check_range(self, "at least 0", "pad")
        check_range(self, "between 0 and 1", "augment")


def batch_draws(options: BatchOptions, size: int) -> dict[str, Draw]:
    """What `sample_batch` needs for a dataset of which `size` rows may be drawn.

    Rows are integers: a float32 uniform number has only 2^23 values, too coarse to choose among a million rows.
    """
    draws = {"rows": Draw((options.batch_size,), "integers", size)}
    return {**draws, **crop_draws(options, "augment")}


def crop_draws(options: BatchOptions, name: str) -> dict[str, Draw]:
    """The coin and the offsets of a random crop; nothing if there is none."""
    if not options.augment:
        return {}
    offsets = Draw((options.batch_size, 2), "integers", 2 * options.pad + 1)
    return {name: Draw(()), f"{name}_offsets": offsets}


def drawn_rows(arrays: Arrays, integers: Int[Array, " batch"]) -> Int[Array, " batch"]:
    """The rows for integers from 0 to the number of rows that may be drawn."""
    return ops.take(arrays["drawable"], integers) if "drawable" in arrays else integers


def sample_batch(arrays: Arrays, options: BatchOptions, draws: Mapping[str, Any]) -> dict[str, Any]:
    """A batch by name; `rows` says which rows it is made of.

    >>> options = BatchOptions(batch_size=256, next_actions=True)
    >>> draws = noise.key_draws(batch_draws(options, dataset.size), seed=0, step=0)     # doctest: +SKIP
    >>> batch = sample_batch(dataset.on(jnp.zeros(())), options, draws)                 # doctest: +SKIP
    """
    rows = drawn_rows(arrays, draws["rows"])
    batch = batch_of_rows(arrays, options, rows)
    return cropped(batch, ("observations", "next_observations"), options, draws, "augment")


def batch_of_rows(arrays: Arrays, options: BatchOptions, rows: Int[Array, " batch"]) -> dict[str, Any]:
    """The batch of given rows, without crops.

    `next_actions` is the exact action of the next step. The last step of a trajectory has none: there its own action
    is repeated and `next_action_masks` is 0.
    """
    batch = {
        "rows": rows,
        "observations": stacked_frames(arrays, rows, options.frame_stack),
        "actions": ops.take(arrays["actions"], rows),
        "next_observations": next_frames(arrays, rows, options.frame_stack),
        "masks": ops.take(arrays["masks"], rows),
    }
    if "rewards" in arrays:
        batch["rewards"] = ops.take(arrays["rewards"], rows)
    if options.next_actions:
        ends = ops.take(arrays["ends"], rows)
        inside = rows < ends
        if options.faithful:
            following = ops.clip(rows + 1, 0, arrays["actions"].shape[0] - 1)
        else:
            following = ops.where(inside, rows + 1, rows)
        batch["next_actions"] = ops.take(arrays["actions"], following)
        batch["next_action_masks"] = ops.cast(inside, batch["masks"])
    return batch


def stacked_frames(arrays: Arrays, rows: Int[Array, " batch"], frames: int) -> Shaped[Array, "batch ..."]:
    """The observations of rows and of those before them, oldest first, joined on the last axis.

    Before its start a trajectory's first observation is repeated. Nothing is stacked beforehand: the dataset keeps
    each image once.
    """
    images = arrays["observations"]
    if frames == 1:
        return ops.take(images, rows)
    starts = ops.take(arrays["starts"], rows)
    return ops.concat([ops.take(images, ops.maximum(rows - back, starts)) for back in reversed(range(frames))], -1)


def next_frames(arrays: Arrays, rows: Int[Array, " batch"], frames: int) -> Shaped[Array, "batch ..."]:
    """The same for the next observations: the newest frame is the next one."""
    if "next_observations" not in arrays:
        return stacked_frames(arrays, rows + 1, frames)
    newest = ops.take(arrays["next_observations"], rows)
    return newest if frames == 1 else ops.concat([stacked_frames(arrays, rows, frames - 1), newest], -1)


def random_crop(
    images: Shaped[Array, "batch height width channels"], offsets: Int[Array, "batch 2"], pad: int
) -> Shaped[Array, "batch height width channels"]:
    """Images moved by offsets - pad pixels, down and right; the edge is repeated.

    This is padding each side by `pad` copies of the edge and cutting out the old size at (row, column) = offsets.
    """
    batch, height, width = images.shape[:3]
    down = ops.clip(offsets[:, :1] - pad + ops.arange(height, offsets)[None], 0, height - 1)
    right = ops.clip(offsets[:, 1:] - pad + ops.arange(width, offsets)[None], 0, width - 1)
    first = ops.arange(batch, offsets)[:, None, None] * (height * width)
    index = ops.cast(first + down[:, :, None] * width + right[:, None, :], "int32")
    return ops.take(images.reshape(batch * height * width, *images.shape[3:]), index)


def cropped(
    batch: dict[str, Any], names: tuple[str, ...], options: BatchOptions, draws: Mapping[str, Any], coin: str
) -> dict[str, Any]:
    """The batch with some of its images cropped, all by the same offsets; or as it is, if the coin says so."""
    if not options.augment:
        return batch
    for name in names:
        if batch[name].ndim != 4:
            raise TwinaxError(
                f"augment is {options.augment}, but {name} has shape {tuple(batch[name].shape)}; "
                "only images (rows, height, width, channels) can be cropped"
            )
    offsets = draws[f"{coin}_offsets"]
    images = tuple(batch[name] for name in names)
    moved = ops.cond(
        draws[coin] < options.augment,
        lambda: tuple(random_crop(x, offsets, options.pad) for x in images),
        lambda: images,
    )
    return {**batch, **dict(zip(names, moved, strict=True))}
