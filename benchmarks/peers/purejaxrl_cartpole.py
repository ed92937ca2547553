"""Environment steps per second of PureJaxRL's PPO on CartPole (a peer: run in its own virtual environment).

usage: purejaxrl_cartpole.py CHECKOUT ITERATIONS SEEDS
CHECKOUT: a clone of the repository, which is no package; the environment needs jax, flax, distrax, gymnax

Its own `make_train` with 64 environments, 128 steps, 4 epochs of 4 minibatches, 64x64 tanh. Its other environments
import libraries that CartPole does not need; empty modules stand in for those. It prints a line when it has compiled,
and the steps a second of one more training for every line that it is sent.
"""

import json
import sys
import time
from unittest.mock import MagicMock

checkout, iterations, seeds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.path.insert(0, f"{checkout}/purejaxrl")
for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
    sys.modules[name] = MagicMock()

import jax  # noqa: E402
from ppo import make_train  # noqa: E402

config = {
    "LR": 2.5e-4,
    "NUM_ENVS": 64,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 64 * 128 * iterations,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}


def seconds(key):
    begin = time.perf_counter()
    jax.block_until_ready(train(jax.random.key(key)))
    return time.perf_counter() - begin


if seeds == 1:
    train = jax.jit(make_train(config))
else:
    several = jax.jit(jax.vmap(make_train(config)))
    train = lambda key: several(jax.random.split(key, seeds))  # noqa: E731
first = seconds(0)
print(json.dumps({"jax": jax.__version__, "compile_seconds": first - seconds(1)}), flush=True)
for turn, _ in enumerate(sys.stdin):
    print(json.dumps(seeds * 64 * 128 * iterations / seconds(2 + turn)), flush=True)
