"""A problem and what was learned of it, as one object that does what its family can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from twinax import conf
from twinax.deploy._evaluation import Evaluation, evaluate, fresh_seed
from twinax.deploy._export import Exported, export
from twinax.errors import TwinaxError, require
from twinax.objects import Objects
from twinax.parts import Use
from twinax.problem import Problem, State
from twinax.train_options import TrainOptions, choose_options


class Trained:
    """What was trained: it samples objects, or acts; what a family cannot do is refused in a sentence.

    >>> import twinax as tx
    >>> problem = tx.ppo.problem(tx.envs.CartPole(), num_envs=4, num_steps=4)
    >>> Trained(problem, problem.init(0)).act(np.zeros((3, 4)), deterministic=True).shape
    (3,)
    """

    def __init__(
        self, problem: Problem, state: State, name: str = "this training", facts: dict[str, Any] | None = None
    ):
        self.problem = problem
        """The problem."""
        self.state = state
        """The whole state of one seed, with NumPy leaves."""
        self.name = name
        self.facts: dict[str, Any] = {"step": int(np.max(state.step)), **(facts or {})}
        """Where it comes from: step, seed, run, configuration."""

    @property
    def networks(self) -> Any:
        """The trained networks, with NumPy leaves."""
        return self.state.networks

    @property
    def step(self) -> int:
        """Steps that were trained."""
        return self.facts["step"]

    def sample(self, number: int, seed: int = 0) -> Objects:
        """Fresh objects by the trained policy, without exploration; equal seeds give equal objects."""
        return self._ability("sample")(self.state, _count("number", number), fresh_seed(seed))

    def top_k(self, k: int = 10) -> Objects:
        """The best distinct objects that training found and still remembers, the best first."""
        return self._ability("top_k")(self.state, _count("k", k))

    def act(self, observation: Any, deterministic: bool = False, *, seed: int | None = None, **options: Any) -> Any:
        """The action for one observation, or actions for a batch of them, in the world's own units.

        seed       decides what is random; None: something else each time
        options    what a family's agents are told besides: `agent` where there are several, `goal` where there are some
        """
        act = self._ability("act", options)
        shape = self.problem.use.observation
        x = np.asarray(observation)
        if x.dtype.kind not in "biuf" or x.shape[x.ndim - len(shape) :] != shape or x.ndim > len(shape) + 1:
            inner = ", ".join(map(str, shape))
            raise TwinaxError(
                f"the observation is {_kind(x)} of shape {x.shape}; {self.name} needs numbers of shape {shape}, or "
                f"(batch, {inner})"
            )
        x = x.astype(np.float32) if x.dtype.kind == "f" or len(shape) == 1 else x
        rows = x if x.ndim > len(shape) else x[None]
        actions = np.asarray(act(self.state, rows, None if deterministic else fresh_seed(seed), **options))
        return actions if x.ndim > len(shape) else actions[0]

    def export(self, path: Path | str, **options: Any) -> Exported:
        """Write the policy as policy.onnx, or as policy.safetensors for PyTorch, checked against this one first.

        `options` are those of `act`: which agent, or which goal.
        """
        return export(self._ability("export", options)(self.state, **options), path, self.facts)

    def torch_module(self, **options: Any) -> Any:
        """The policy as a plain `torch.nn.Module` without gradients, as policy.safetensors holds it."""
        require("torch", "torch", "a policy for PyTorch")
        from twinax.deploy._torch_policy import arrays, make_torch_policy, structure

        policy = self._ability("export", options)(self.state, **options)
        return make_torch_policy(structure(policy), arrays(policy))

    def play(self, seed: int | None = None) -> Any:
        """A world to walk in among the trained agents: `(world, epoch)`, as `twinax play` uses them."""
        return self._ability("play")(self.state, fresh_seed(seed))

    def evaluate(self, seed: int | None = None, **options: Any) -> Evaluation:
        """The family's metrics with fresh draws; `options` are those of `TrainOptions`, such as mode."""
        return evaluate(self.problem, self.state, choose_options(TrainOptions(), options), seed)

    def _ability(self, name: str, options: dict[str, Any] | None = None) -> Any:
        use: Use = self.problem.use
        ability = getattr(use, name)
        if ability is None:
            others = [other for other in conf.experiment_names() if name in conf.find_experiment(other).uses]
            can = ", ".join((*use.names, "evaluate"))
            raise TwinaxError(
                f"{self.name} is of a {type(self.problem).__name__}, which has no {name}; it has {can}; {name} is for "
                f"runs of experiment={' or '.join(others)}"
            )
        for option in options or {}:
            if option not in use.act_options:
                known = f"it takes {', '.join(use.act_options)}" if use.act_options else "it takes none"
                raise TwinaxError(f"{name} of a {type(self.problem).__name__} has no option '{option}'; {known}")
        return ability

    def __repr__(self) -> str:
        can = ", ".join((*self.problem.use.names, "evaluate"))
        return f"<{type(self).__name__} {self.name}: {type(self.problem).__name__}, step {self.step:,}; {can}>"


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise TwinaxError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return int(value)


def _kind(x: np.ndarray) -> str:
    return "an array of numbers" if x.dtype.kind in "biuf" else f"an array of {x.dtype}"
