"""Whole training loops with the sampler in PyTorch, for `port.py --loops`: PPO on CartPole and SAC on Pendulum.

    port_loops.py ppo|sac eager|step THREADS     # waits for its turns

They are written as in CleanRL, with agents and losses of `port_cases.py`; eager and with the step they differ in the
update alone. Each turn of the step also says what its profile expects of the loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from measuring import serve
from port_cases import ActorCritic, Case, SoftAgent, adam, eager, ppo_loss, sac_parts

from twinax.port import Step, Update

ENVS, LENGTH, EPOCHS, MINIBATCH = 16, 128, 4, 512
"""Of PPO: environments, steps of each, passes over them, and rows of an update."""
SIZE = 256
"""Rows of an update of SAC."""


class PPO:
    """Sample from all environments, then update over minibatches."""

    def __init__(self):
        self.agent = ActorCritic()
        update = Update(ppo_loss, adam(self.agent.parameters(), 2.5e-4, eps=1e-5), clip_norm=0.5)
        self.case = Case(self.agent, [update], [])
        self.envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(ENVS)])
        self.seen = torch.tensor(self.envs.reset(seed=0)[0])
        self.over = torch.zeros(ENVS)

    def sample(self, length: int) -> dict[str, torch.Tensor]:
        """So many steps of all environments, with advantages."""
        rows: list[dict[str, torch.Tensor]] = []
        with torch.no_grad():
            for _ in range(length):
                action, log_prob, value = self.agent.act(self.seen)
                row = {"observation": self.seen, "action": action, "log_prob": log_prob, "value": value}
                seen, reward, ended, cut, _ = self.envs.step(action.numpy())
                rows.append({**row, "reward": torch.tensor(reward, dtype=torch.float32), "over": self.over})
                self.seen, self.over = torch.tensor(seen), torch.tensor(ended | cut, dtype=torch.float32)
            next_value, over, last = self.agent.critic(self.seen).flatten(), self.over, torch.zeros(ENVS)
            for row in reversed(rows):
                delta = row["reward"] + 0.99 * next_value * (1 - over) - row["value"]
                row["advantage"] = last = delta + 0.99 * 0.95 * (1 - over) * last
                row["return"] = last + row["value"]
                next_value, over = row["value"], row["over"]
        kept = ("observation", "action", "log_prob", "value", "advantage", "return")
        return {name: torch.cat([row[name] for row in rows]) for name in kept}

    def minibatch(self, data: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Some rows of what was sampled."""
        return {name: x[rows] for name, x in data.items()}

    def run(self, update: Callable[[Any], Any]) -> None:
        """One iteration."""
        data = self.sample(LENGTH)
        for _ in range(EPOCHS):
            for rows in torch.randperm(ENVS * LENGTH).split(MINIBATCH):
                update(self.minibatch(data, rows))

    def batch(self) -> dict[str, torch.Tensor]:
        """What an update reads."""
        return self.sample(MINIBATCH // ENVS)

    def share(self) -> None:
        """What is sampled for one update, and its rows."""
        updates = EPOCHS * ENVS * LENGTH // MINIBATCH
        data = self.sample(LENGTH // updates)
        many = {name: x.repeat(MINIBATCH // len(x), *[1] * (x.ndim - 1)) for name, x in data.items()}
        self.minibatch(many, torch.randperm(MINIBATCH))


class SAC:
    """An update for every step of one environment."""

    def __init__(self):
        self.env = gymnasium.make("Pendulum-v1")
        self.agent = SoftAgent(3, 1, scale=2.0)
        updates, targets = sac_parts(self.agent)
        self.case = Case(self.agent, updates, [], targets)
        self.seen = self.env.reset(seed=0)[0]
        shapes = {"observation": 3, "next": 3, "action": 1, "reward": 1, "done": 1}
        self.buffer = {name: np.zeros((100_000, width), np.float32) for name, width in shapes.items()}
        self.filled = 0
        for _ in range(2 * SIZE):
            self.act()

    def act(self) -> None:
        """One step of the environment."""
        with torch.no_grad():
            action = self.agent.actor(torch.as_tensor(self.seen, dtype=torch.float32)[None])[0][0].numpy()
        seen, reward, ended, cut, _ = self.env.step(action)
        row = {"observation": self.seen, "next": seen, "action": action, "reward": reward, "done": ended}
        for name, x in row.items():
            self.buffer[name][self.filled % 100_000] = x
        self.filled += 1
        self.seen = self.env.reset()[0] if ended or cut else seen

    def batch(self) -> dict[str, torch.Tensor]:
        """Random rows of the buffer."""
        rows = np.random.randint(0, min(self.filled, 100_000), SIZE)
        return {name: torch.from_numpy(x[rows]) for name, x in self.buffer.items()}

    def share(self) -> None:
        """What is sampled for one update."""
        self.act()
        self.batch()

    def run(self, update: Callable[[Any], Any]) -> None:
        """A hundred steps."""
        for _ in range(100):
            self.act()
            update(self.batch())


def main() -> None:
    name, who, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)
    loop = {"ppo": PPO, "sac": SAC}[name]()
    step = Step(loop.agent, loop.case.updates, targets=loop.case.targets) if who == "step" else None
    update = step or eager(loop.case)
    loop.run(update)

    def turn() -> dict[str, float]:
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(3):
            loop.run(update)
        found = {"seconds": time.perf_counter() - begin, "processor": time.process_time() - used}
        if step is not None:
            profile = step.profile(loop.batch(), sample=loop.share, turns=30)
            found |= {"expected": profile.expected or 0.0, "ceiling": profile.ceiling or 0.0}
        return found

    serve({}, turn)


if __name__ == "__main__":
    main()
