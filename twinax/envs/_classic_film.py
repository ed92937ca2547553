"""The classic worlds as one sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from twinax.envs._canvas import Canvas
from twinax.episode import View, frame_places

INK, POLE, CART, GROUND, GOAL = "#334155", "#f97316", "#3b82f6", "#cbd5e1", "#10b981"
WIDTH, HEIGHT = 400, 260


def film(world: Any, states: Any) -> View:
    """Frames of states that follow each other."""
    places, seconds = frame_places(len(next(iter(vars(states).values()))), world.seconds)
    draw = DRAWN[world.name]
    frames = np.stack([draw({name: float(x[k]) for name, x in vars(states).items()}) for k in places])
    return View(frames=frames, frame_seconds=seconds, drawn="drawn")


def _cartpole(state: dict[str, float]) -> np.ndarray:
    canvas, x, angle = Canvas(WIDTH, HEIGHT, 75, (0, 0.75)), state["position"], state["angle"]
    canvas.line([(-2.6, 0), (2.6, 0)], 0.02, GROUND)
    for end in (-2.4, 2.4):
        canvas.line([(end, -0.08), (end, 0.08)], 0.03, INK)
    canvas.polygon([(x - 0.25, -0.14), (x + 0.25, -0.14), (x + 0.25, 0.14), (x - 0.25, 0.14)], CART)
    canvas.line([(x, 0.1), (x + np.sin(angle), 0.1 + np.cos(angle))], 0.09, POLE)
    canvas.circle((x, 0.1), 0.03, INK)
    return canvas.array()


def _pendulum(state: dict[str, float]) -> np.ndarray:
    canvas, angle = Canvas(HEIGHT, HEIGHT, 100, (0, 0)), state["angle"]
    canvas.line([(0, 0), (0, 1)], 0.01, GROUND)
    canvas.line([(0, 0), (-np.sin(angle), np.cos(angle))], 0.16, POLE)
    canvas.circle((0, 0), 0.04, INK)
    return canvas.array()


def _acrobot(state: dict[str, float]) -> np.ndarray:
    canvas, first = Canvas(HEIGHT, HEIGHT, 55, (0, 0)), state["first"]
    second = first + state["second"]
    middle = np.array([np.sin(first), -np.cos(first)])
    end = middle + [np.sin(second), -np.cos(second)]
    canvas.line([(-2.2, 1), (2.2, 1)], 0.03, GOAL)
    canvas.line([(0, 0), middle], 0.18, CART)
    canvas.line([middle, end], 0.18, POLE)
    for joint in ((0, 0), middle):
        canvas.circle(joint, 0.06, INK)
    return canvas.array()


def _car(state: dict[str, float]) -> np.ndarray:
    def height(x):
        return 0.45 * np.sin(3 * x) + 0.55

    canvas, x = Canvas(WIDTH, HEIGHT, 190, (-0.3, 0.62)), state["position"]
    track = np.linspace(-1.3, 0.7, 120)
    canvas.polygon([(-1.3, -1), *zip(track, height(track), strict=True), (0.7, -1)], GROUND)
    canvas.line([(0.5, height(0.5)), (0.5, height(0.5) + 0.22)], 0.012, INK)
    canvas.polygon([(0.5, height(0.5) + 0.22), (0.5, height(0.5) + 0.14), (0.6, height(0.5) + 0.18)], GOAL)
    slope = np.array([1.0, 1.35 * np.cos(3 * x)])
    along = slope / np.hypot(*slope)
    up = np.array([-along[1], along[0]])
    place = np.array([x, height(x)])
    canvas.line([place - 0.05 * along + 0.06 * up, place + 0.05 * along + 0.06 * up], 0.05, CART)
    for end in (-0.05, 0.05):
        canvas.circle(place + end * along + 0.025 * up, 0.025, INK)
    return canvas.array()


DRAWN: dict[str, Callable[[dict[str, float]], np.ndarray]] = {
    "cartpole": _cartpole,
    "pendulum": _pendulum,
    "acrobot": _acrobot,
    "mountain_car": _car,
    "mountain_car_continuous": _car,
}
"""One picture of a state, by world."""
