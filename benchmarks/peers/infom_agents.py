"""Updates per second of the original offline agents (a peer: run in its own virtual environment).

usage: infom_agents.py CHECKOUT AGENT PHASE STEPS
CHECKOUT: a clone of the InFOM repository, which is no package; the environment needs jax, flax, distrax, optax and
ml_collections

Prints a line when it is ready; for every line on its standard input it makes STEPS updates and prints the seconds of
one. Its own agents, settings, datasets and samplers: batches come from the host's memory as in its main.py, and the
actor is updated at every fourth step of finetuning. Imagined rollouts of mbpo_rebrac are part of its finetuning here as
there.
"""

import importlib
import json
import sys
import time

import jax
import numpy as np

checkout, name, phase, steps = *sys.argv[1:4], int(sys.argv[4])
sys.path.insert(0, checkout)
agents = importlib.import_module("agents").agents
datasets = importlib.import_module("utils.datasets")
config = importlib.import_module(f"agents.{name}").get_config()
D, A, ROWS = 17, 6, 100_000

rng = np.random.default_rng(0)
states = rng.normal(size=(ROWS + 1, D)).astype(np.float32)
ends = np.zeros(ROWS, np.float32)
ends[999::1000] = 1.0
arrays = {
    "observations": states[:-1].copy(),
    "next_observations": states[1:].copy(),
    "actions": rng.uniform(-1, 1, (ROWS, A)).astype(np.float32),
    "rewards": rng.normal(size=ROWS).astype(np.float32),
    "terminals": ends,
    "masks": np.ones(ROWS, np.float32),
}
data = datasets.Dataset.create(freeze=False, **arrays)
data.obs_norm_type = "normal"
data.return_next_actions = name in ("infom", "rebrac", "dino_rebrac", "mbpo_rebrac", "td_infonce")
data.normalize_observations()
if name == "mbpo_rebrac":
    memory = datasets.ReplayBuffer.create({key: value[0] for key, value in data.items()}, size=100_000)
    memory.return_next_actions = True
if name in ("crl_infonce", "td_infonce", "hilp"):
    config["p_aug"], config["frame_stack"] = None, None
    data = datasets.GCDataset(data, config)
if name == "dino_rebrac":
    config["encoder"] = "mlp"  # its encoder of vectors; it has no default
one = data.sample(1)
agent = agents[name].create(0, one["observations"], one["actions"], config)
latent = np.zeros(config["latent_dim"], np.float32) + 1.0 if name in ("hilp", "fb_repr") else None
key = jax.random.PRNGKey(0)


def update(step):
    global agent, key
    batch = data.sample(config["batch_size"])
    if phase == "pretrain":
        agent, _ = agent.pretrain(batch)
        return
    if name == "mbpo_rebrac" and memory.size > config["batch_size"]:
        batch |= {f"model_{key}": value for key, value in memory.sample(config["batch_size"]).items()}
    if latent is not None:
        batch["latents"] = np.tile(latent, (len(batch["observations"]), 1))
    agent, _ = agent.finetune(batch, full_update=(step + 1) % config["actor_freq"] == 0)
    if name == "mbpo_rebrac":
        seen = data.sample(config["num_model_rollouts"])["observations"]
        for _ in range(config["num_model_rollout_steps"]):
            key, own = jax.random.split(key)
            actions = agent.sample_actions(observations=seen, temperature=1, seed=own)
            rewards = agent.predict_rewards(observations=seen, actions=actions)
            following = agent.predict_next_observations(observations=seen, actions=actions)
            made = {"observations": seen, "actions": actions, "rewards": rewards, "next_observations": following}
            memory.add_transitions(made | {"terminals": np.zeros_like(rewards), "masks": np.ones_like(rewards)})


begin = time.perf_counter()
for step in range(8):
    update(step)
jax.block_until_ready(agent.network.params)
print(json.dumps({"compile": time.perf_counter() - begin, "jax": jax.__version__}), flush=True)
for _ in sys.stdin:
    begin = time.perf_counter()
    for step in range(steps):
        update(step)
    jax.block_until_ready(agent.network.params)
    print(json.dumps((time.perf_counter() - begin) / steps), flush=True)
