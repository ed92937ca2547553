"""Objects that a world draws: kept with the run when it ends, and shown by its report."""

from __future__ import annotations

import json

import numpy as np
import pytest

import twinax as tx
from twinax.parts import Picture
from twinax.runs import images, maps, pictures


class Painted(tx.envs.Hypergrid):
    """A cell is a picture with one bright pixel."""

    def draw(self, objects, index):
        image = np.zeros((self.side, self.side, 3), np.uint8)
        image[tuple(objects[index])] = 255
        return image


class Broken(tx.envs.Hypergrid):
    def draw(self, objects, index):
        raise ValueError("no ink")


def run(env, place):
    problem = tx.gflownet.problem(
        env, batch_size=4, policy=tx.gflownet.PolicyOptions(hidden=(8,)), metrics=tx.gflownet.MetricOptions(fifo=40)
    )
    return tx.train(problem, mode="torch", steps=10, run_dir=place)


def test_the_best_objects_are_drawn_when_a_run_ends(tmp_path):
    pytest.importorskip("matplotlib")
    trained = run(Painted(2, 4), tmp_path / "run")
    arrays, told, step = pictures.load(tmp_path / "run" / "plots" / "pictures.safetensors")
    best = trained.summary["tables"]["Best objects"]["rows"]
    assert told["best"].kind == "images" and step == 10
    assert "learned" in arrays, "those of the evaluation stay"
    for k in range(min(8, len(best))):
        assert arrays[f"best/{k}"].dtype == np.uint8 and arrays[f"best/{k}"].sum() == 3 * 255
        assert told["best"].labels[str(k)] == f"log R {best[k][1]:.4g}"
    page = tx.runs.write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "The best objects" in page and (tmp_path / "run" / "plots" / "best.png").is_file()


def test_a_world_that_fails_to_draw_costs_the_drawing_alone(tmp_path):
    trained = run(Broken(2, 4), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert trained.summary["status"] == summary["status"] == "finished"
    assert any("no drawings: no ink" in note for note in summary["notes"])


def test_only_images_are_drawn():
    image = np.zeros((3, 3, 3), np.uint8)
    assert images.drawing({"a": np.zeros((3, 3)), "b": np.zeros((3, 3, 4), np.uint8)}, Picture("x", "images")) is None
    drawn = images.drawing({str(k): image for k in range(30)}, Picture("x", "images"))
    assert drawn is not None and drawn.size == (2.6 * 4, 2.7 * 3), "twelve at most, four in a row"


def test_a_map_of_both_signs_has_nothing_in_the_middle():
    figures = pytest.importorskip("matplotlib.figure")
    for low, wanted in ((-3.0, (-3.0, 3.0)), (0.0, (0.0, 2.0))):
        figure = figures.Figure()
        maps.drawing({"a": np.array([[low, 1.0]]), "b": np.array([[0.0, 2.0]])}, Picture("J")).paint(figure)
        scales = [panel.images[0].get_clim() for panel in figure.axes[:2]]
        assert scales == [wanted, wanted], "all panels have one scale, which leaves nothing out"
