"""Training by Brax's own PPO, kept as a run of this library."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinax.brax.exchange import SEEN, WATCHED, brax_env, read_brax
from twinax.brax.habits import refuse_what_brax_cannot
from twinax.errors import TwinaxError
from twinax.networks import activation
from twinax.ppo import PPO
from twinax.problem import State
from twinax.runs import endings
from twinax.runs.bookkeeping import new_run
from twinax.runs.directory import RunDirectory
from twinax.runs.endings import Run
from twinax.train_options import TrainOptions

LOSSES = ("training/policy_loss", "training/v_loss", "training/entropy_loss", "training/total_loss")
"""What Brax says of its learning; the first that is no longer finite is named."""


def train_with_brax(
    subject: PPO,
    steps: int,
    seed: int = 0,
    run_dir: Path | str | None = None,
    config: Mapping[str, Any] | None = None,
    evaluations: int = 10,
    progress: bool | None = None,
    sinks: Sequence[Any] = (),
) -> Run:
    """`brax.training.agents.ppo.train` in the problem's world, with the problem's settings.

    One step is one iteration of Brax: a rollout of all worlds and its updates. Brax evaluates after equal numbers of
    steps, so there are as many evaluations as divide `steps`, at most `evaluations`; when `steps` is a larger prime,
    only at the start and at the end. Settings that Brax cannot follow are refused.

    Networks and normaliser are carried into checkpoints that `twinax eval`, `resume` and `export` read; Brax keeps
    neither its optimizer's memory nor its worlds, so going on from one begins with fresh ones.
    """
    refuse_what_brax_cannot({"ppo": subject, "optimizer": subject.optimizer})
    if subject.num_envs % subject.num_minibatches:
        raise TwinaxError(
            f"Brax puts whole worlds into minibatches, and {subject.num_envs} worlds do not divide into "
            f"{subject.num_minibatches}; change ppo.num_envs or ppo.num_minibatches"
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
    plan = TrainOptions(steps=steps, seed=seed).with_intervals()
    directory = RunDirectory(Path(run_dir)) if run_dir is not None else None
    if directory is not None:
        directory.refuse_if_used()
    first, one = subject.init(seed), subject.num_envs * subject.num_steps
    state = first
    with new_run(subject, plan, directory, first, config, show=progress, label="brax", sinks=sinks) as book:

        def on_parameters(transitions: int, _: Any, params: Any) -> None:
            nonlocal state
            book.done = round(transitions / one)
            book.speed = book.done / max(book.seconds, 1e-9)
            state = carried(subject, first, params, book.done)
            book.save(state)
            stop_if_asked()

        def on_progress(transitions: int, metrics: Mapping[str, Any]) -> None:
            done = round(transitions / one)
            scalars = {name: float(np.asarray(value)) for name, value in metrics.items() if np.ndim(value) == 0}
            losses = {name: scalars[name] for name in LOSSES if name in scalars}
            if bad := [name for name, value in losses.items() if not np.isfinite(value)]:
                raise endings.diverged(book, done, bad[0], f"'{bad[0]}' is no longer finite")
            book.metrics = {
                "episode_return": scalars["eval/episode_reward"],
                "episode_length": scalars["eval/avg_episode_length"],
            }
            row = {"step": done, "loss": scalars.get("training/total_loss", 0.0), "seconds": book.seconds}
            if "training/sps" in scalars:
                row["environment_steps_per_second"] = scalars["training/sps"]
            book.log([{**row, "loss_mean": row["loss"], **book.metrics}])
            book.progress.update(done, row["loss"], book.speed)
            stop_if_asked()

        def stop_if_asked() -> None:
            # Brax gives control at these calls alone. Its first evaluation comes before there is anything to save.
            if stop.requested and book.saved is not None and book.done < steps:
                raise endings.interrupted(book, stop.exit_code, state)

        notice = "stopping at Brax's next evaluation, where it can be saved; Ctrl-C again stops at once"
        with endings.guarded(book, notice) as stop:
            train(
                environment=env,
                num_timesteps=steps * one,
                num_envs=subject.num_envs,
                max_devices_per_host=1,
                episode_length=subject.world.time_limit or subject.evaluation_steps,
                learning_rate=subject.optimizer.learning_rate,
                entropy_cost=subject.ent_coef,
                discounting=subject.gamma,
                unroll_length=subject.num_steps,
                batch_size=subject.num_envs // subject.num_minibatches,
                num_minibatches=subject.num_minibatches,
                num_updates_per_batch=subject.num_epochs,
                normalize_observations=subject.normalise_observations,
                reward_scaling=subject.reward_scale,
                clipping_epsilon=subject.clip,
                gae_lambda=subject.gae_lambda,
                max_grad_norm=subject.optimizer.clip_norm or None,
                vf_loss_coefficient=subject.vf_coef,
                network_factory=factory,
                seed=seed,
                num_evals=evaluations + 1,
                num_eval_envs=subject.episodes,
                deterministic_eval=True,
                progress_fn=on_progress,
                policy_params_fn=on_parameters,
            )
            book.end("finished")
            if not stop.requested:
                book.film(state)
        return book.result(state)


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
