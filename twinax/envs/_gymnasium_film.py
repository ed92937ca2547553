"""One Gymnasium environment on the host that is drawn by Gymnasium itself while it is played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from twinax.envs._control import Moved, Restarting
from twinax.envs._gymnasium_copies import reason, strangers_code
from twinax.envs._seeds import seed_draw, seeds
from twinax.episode import MOST_FRAMES, View
from twinax.errors import TwinaxError
from twinax.noise import Draw
from twinax.tree import record
from twinax.types import Array, Float

MODE = "rgb_array"
MOST_PIXELS = 400
"""Of a frame's longer side; larger pictures are made smaller by a whole number."""


@record
class Seen:
    """What one environment shows."""

    observation: Float[Array, "1 observation"]


class Filmed(Restarting):
    """An environment for one episode. Drawing it may fail at any time, which costs the film and not the episode."""

    def __init__(self, world: Any, make: Callable[..., Any], to_env: Callable[[Any], Any]):
        self.name, self.observation_size, self.actions = world.name, world.observation_size, world.actions
        self.time_limit, self.seconds = world.time_limit, world.seconds
        self.frames: list[np.ndarray] = []
        self.missing = ""
        """Why there are no frames."""
        self.env, self.to_env = make(), to_env
        self._with_pictures(make)
        self.fps = float(self.env.metadata.get("render_fps") or 25)
        self.every, self.at = max(1, round(0.04 * self.fps)), 0

    def _with_pictures(self, make: Callable[..., Any]) -> None:
        """Make the environment once more, so that it can be drawn."""
        if self.env.render_mode == MODE:
            return
        modes = list(self.env.metadata.get("render_modes") or [])
        if MODE not in modes:
            known = f"only {', '.join(map(str, modes))}" if modes else "none at all"
            self.missing = f"{self.name} cannot be drawn: of the render modes it has {known}, and a film needs {MODE}"
            return
        try:
            drawn = make(render_mode=MODE)
        except TwinaxError as error:
            self.missing = f"{self.name} cannot be made with render_mode={MODE}: {error}"
        else:
            self.env.close()
            self.env = drawn

    def reset_draws(self, worlds: int) -> dict[str, Draw]:
        return {"seed": seed_draw(worlds)}

    def step_draws(self, worlds: int) -> dict[str, Draw]:
        return {}

    def reset(self, draws: Mapping[str, Any]) -> Seen:
        with strangers_code(f"{self.name} failed in reset"):
            seen, _ = self.env.reset(seed=int(np.asarray(seeds(draws["seed"]))[0]))
        self._look()
        return Seen(np.array(seen, np.float32)[None])

    def step(self, state: Seen, action: Any, draws: Mapping[str, Any]) -> Moved:
        with strangers_code(f"{self.name} failed in step"):
            seen, reward, terminated, truncated, _ = self.env.step(self.to_env(np.asarray(action))[0])
        self._look()
        row = Seen(np.array(seen, np.float32)[None])
        return Moved(row, np.array([reward], float), np.array([terminated]), {}, np.array([truncated]), row)

    def observe(self, state: Seen) -> Any:
        return state.observation

    def enter(self, state: Any, draws: Mapping[str, Any]) -> tuple[Any, Any]:
        raise TwinaxError(f"{self.name} is being filmed: it is played from its beginning, and not entered")

    def apart(self) -> Filmed:
        return self

    def view(self, states: Any) -> View:
        self.env.close()
        if self.missing or not self.frames:
            return View(drawn=self.missing or f"{self.name} gave no pictures")
        shown = min(max(self.every / self.fps, 0.04), 0.1)
        return View(frames=np.stack(self.frames), frame_seconds=shown, drawn="by Gymnasium")

    def _look(self) -> None:
        """Take a picture of now, if it is time for one; a long episode keeps every second of its pictures."""
        self.at += 1
        if self.missing or (self.at - 1) % self.every:
            return
        try:
            frame = np.asarray(self.env.render())
        except Exception as error:  # a stranger's code
            self.missing, self.frames = f"{self.name} cannot be drawn ({reason(error)})", []
            return
        if frame.ndim != 3 or frame.shape[-1] != 3 or frame.dtype != np.uint8 or not frame.size:
            kind = f"{frame.dtype} of shape {frame.shape}"
            self.missing = f"the pictures of {self.name} are {kind}, and not uint8 of shape (height, width, 3)"
            return
        frame = smaller(frame)
        if self.frames and frame.shape != self.frames[0].shape:
            self.missing = f"the pictures of {self.name} grow from {self.frames[0].shape} to {frame.shape}"
            return
        self.frames.append(frame)
        if len(self.frames) > MOST_FRAMES:
            self.frames, self.every = self.frames[::2], 2 * self.every


def smaller(frame: np.ndarray) -> np.ndarray:
    """A picture of at most `MOST_PIXELS` on its longer side: means over squares of pixels.

    >>> smaller(np.zeros((400, 600, 3), np.uint8)).shape
    (200, 300, 3)
    """
    height, width = frame.shape[:2]
    side = -(-max(height, width) // MOST_PIXELS)
    if side == 1 or min(height, width) < side:
        return frame
    rows, columns = height // side, width // side
    squares = frame[: rows * side, : columns * side].reshape(rows, side, columns, side, 3)
    return squares.mean((1, 3)).astype(np.uint8)
