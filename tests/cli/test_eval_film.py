"""`twinax eval --film`."""

from __future__ import annotations

import shutil

import pytest

TINY = [
    "experiment=ppo",
    "ppo.num_envs=4",
    "ppo.num_steps=8",
    "ppo.num_minibatches=2",
    "ppo.hidden=[8]",
    "ppo.episodes=2",
]
TINY += ["ppo.num_epochs=1", "env=pendulum", "env.time_limit=8", "trainer.steps=1", "ppo.film=false"]


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("words", [["trainer.mode=torch"], ["seeds=2"]])
def test_an_episode_is_filmed_when_asked(twinax, tmp_path, words):
    assert twinax("train", "--quiet", *TINY, *words, "run.dir=run").code == 0
    assert not (tmp_path / "run" / "films").exists()
    assert twinax("eval", "run", "--seed", "3").code == 0
    assert not (tmp_path / "run" / "films").exists()
    done = twinax("eval", "run", "--seed", "3", "--film")
    assert done.code == 0 and "still going after 8 steps, return" in done.out
    assert (tmp_path / "run" / "films" / "eval-episode-0000000001.gif").is_file()
    assert (tmp_path / "run" / "plots" / "eval-episode-reward.png").is_file()
    assert (tmp_path / "run" / "plots" / "eval-episode-frames.png").is_file()


def test_what_has_no_episode_says_so(twinax, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    done = twinax("eval", "run", "--film")
    assert done.code == 2
    assert done.err == "error: the run run has no episode that could be filmed; leave --film out\n"
