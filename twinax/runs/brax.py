"""Training by Brax's own PPO, kept as a run of this library."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from twinax.bridge._brax import SEEN, WATCHED, brax_env, read_brax
from twinax.errors import TwinaxError
from twinax.networks import activation
from twinax.ppo import PPO
from twinax.ppo._brax_habits import refuse_what_brax_cannot
from twinax.problem import State
from twinax.runs import checkpoint, episodes
from twinax.runs.directory import RunDirectory
from twinax.runs.logger import Logger
from twinax.runs.metrics import MetricsFile
from twinax.runs.plan import Plan
from twinax.runs.progress import Progress
from twinax.runs.session import Run
from twinax.runs.summary import best, command_line, summarize


def train_with_brax(
    subject: PPO,
    steps: int,
    seed: int = 0,
    run_dir: Path | str | None = None,
    config: Mapping[str, Any] | None = None,
    evaluations: int = 10,
    progress: bool | None = None,
) -> Run:
    """`brax.training.agents.ppo.train` in the problem's world, with the problem's settings.

    One step is one iteration of Brax: a rollout of all worlds and its updates. Brax evaluates after equal numbers of
    steps, so there are as many evaluations as divide `steps`, at most `evaluations`; when `steps` is a larger prime,
    only at the start and at the end. Settings that Brax cannot follow are refused.

    Networks and normaliser are carried into checkpoints that `twinax eval`, `resume` and `export` read; Brax keeps
    neither its optimizer's memory nor its worlds, so going on from one begins with fresh ones.
    """
    refuse_what_brax_cannot({"ppo": subject, "optimizer": subject.optimizer})
    if subject.worlds % subject.minibatches:
        raise TwinaxError(
            f"Brax puts whole worlds into minibatches, and {subject.worlds} worlds do not divide into "
            f"{subject.minibatches}; change ppo.worlds or ppo.minibatches"
        )
    # Brax divides its steps evenly between evaluations, and would do more of them than were asked for.
    evaluations = max(number for number in range(1, max(evaluations, 1) + 1) if steps % number == 0)
    env = brax_env(subject.world)
    from brax.training.agents.ppo import networks as brax_networks
    from brax.training.agents.ppo.train import train

    factory = functools.partial(
        brax_networks.make_ppo_networks,
        policy_hidden_layer_sizes=subject.hidden,
        value_hidden_layer_sizes=subject.hidden,
        activation=activation(subject.activation),
        **({"policy_obs_key": SEEN, "value_obs_key": WATCHED} if subject.world.privileged else {}),
    )
    plan = Plan.make(steps, seed=seed)
    directory = RunDirectory(Path(run_dir)) if run_dir is not None else None
    if directory is not None:
        directory.refuse_if_used()
        directory.create()
        if config is not None:
            directory.write_config(dict(config), subject.sources())
    command = command_line(plan, config is not None)
    logger = Logger(MetricsFile(directory.metrics_path) if directory is not None else None)
    start, one = time.perf_counter(), subject.worlds * subject.steps
    first = subject.init(seed)
    known: dict[str, Any] = {"state": first, "metrics": {}, "summary": {}}

    def facts(status: str, done: int) -> dict[str, Any]:
        timing = {"seconds": time.perf_counter() - start, "steps_per_second": 0.0, "compile_seconds": 0.0}
        own = {"parameters": sum(x.size for x in _leaves(known["state"].networks)), "problem": subject.describe()}
        row = logger.rows[-1] if logger.rows else None
        timing["steps_per_second"] = done / max(timing["seconds"], 1e-9)
        own = {**best(logger.rows, subject.best), **own}
        return summarize(plan, status, done, row, known["metrics"], timing, own, command)

    with closing(logger), Progress("brax", steps, 0, progress) as bar:

        def on_progress(transitions: int, metrics: Mapping[str, Any]) -> None:
            done = round(transitions / one)
            found = {name: float(np.asarray(value)) for name, value in metrics.items() if np.ndim(value) == 0}
            known["metrics"] = {
                "episode_return": found["eval/episode_reward"],
                "episode_length": found["eval/avg_episode_length"],
            }
            row = {"step": done, "loss": found.get("training/total_loss", 0.0), "seconds": time.perf_counter() - start}
            if "training/sps" in found:
                row["environment_steps_per_second"] = found["training/sps"]
            logger.write([{**row, "loss_mean": row["loss"], **known["metrics"]}])
            bar.update(done, row["loss"], done / max(row["seconds"], 1e-9))

        def on_parameters(transitions: int, _: Any, params: Any) -> None:
            done = round(transitions / one)
            known["state"] = carried(subject, first, params, done)
            status = "finished" if done >= steps else "running"
            known["summary"] = facts(status, done)
            if directory is not None:
                meta = {"step": done, "plan": plan.as_dict(), "seconds": time.perf_counter() - start, "config": config}
                meta |= {"parameters": known["summary"]["parameters"], "command": command, "window": None}
                checkpoint.save(checkpoint.place(directory.path, done), known["state"], meta)
                directory.write_summary(known["summary"])

        train(
            environment=env,
            num_timesteps=steps * one,
            num_envs=subject.worlds,
            max_devices_per_host=1,
            episode_length=subject.world.time_limit or subject.evaluation_steps,
            learning_rate=subject.optimizer.learning_rate,
            entropy_cost=subject.entropy_weight,
            discounting=subject.gamma,
            unroll_length=subject.steps,
            batch_size=subject.worlds // subject.minibatches,
            num_minibatches=subject.minibatches,
            num_updates_per_batch=subject.epochs,
            normalize_observations=subject.normalise_observations,
            reward_scaling=subject.reward_scale,
            clipping_epsilon=subject.clip,
            gae_lambda=subject.trace,
            max_grad_norm=subject.optimizer.clip_norm or None,
            vf_loss_coefficient=subject.value_weight,
            network_factory=factory,
            seed=seed,
            num_evals=evaluations + 1,
            num_eval_envs=subject.episodes,
            deterministic_eval=True,
            progress_fn=on_progress,
            policy_params_fn=on_parameters,
        )
        if directory is not None:
            directory.write_csv(logger.rows)
            episodes.show(subject, known["state"], seed, directory, bar.say)
    return Run(known["summary"], known["state"], logger.rows, directory.path if directory else None)


def carried(subject: PPO, first: State, params: Any, done: int) -> State:
    """A state of the problem with Brax's networks and normaliser."""
    agent, observation, critic = read_brax(params, subject.world.privileged, subject.activation)
    carry = first.carry
    if subject.normalise_observations:
        carry = dataclasses.replace(carry, observation=observation, critic=critic)
    networks = {**first.networks, "agent": agent}
    return dataclasses.replace(
        first,
        networks=networks,
        carry=carry,
        optimizer=subject.optimizer.init(networks),
        step=np.array(done, np.int32),
    )


def _leaves(tree: Any) -> list[np.ndarray]:
    import jax.tree_util as jtu

    return jtu.tree_leaves(tree)
