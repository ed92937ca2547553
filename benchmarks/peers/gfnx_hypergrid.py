"""Steps per second of gfnx 0.0.1 on the hypergrid (a peer: run in its own virtual environment).

usage: gfnx_hypergrid.py OBJECTIVE STEPS
OBJECTIVE: trajectory_balance, detailed_balance or subtrajectory_balance

20^4, batch 16, MLP 256x2 with all heads, learned backward policy, Adam. Environment, rollout and transitions
are gfnx's own public functions; the losses follow its published baselines, which it does not offer for import. A gfnx
rollout always scans dim * side + 1 steps, so its speed is the same for a fresh and for a trained policy.
"""

import functools
import json
import sys
import time

import equinox as eqx
import gfnx
import jax
import jax.numpy as jnp
import optax

objective, steps = sys.argv[1], int(sys.argv[2])
batch = 16
env = gfnx.environment.HypergridEnvironment(gfnx.EasyHypergridRewardModule(), dim=4, side=20)
env_params = env.init(jax.random.PRNGKey(1))
forward, backward = env.action_space.n, env.backward_action_space.n
flow = 0 if objective == "trajectory_balance" else 1
network = eqx.nn.MLP(env.observation_space.shape[0], forward + backward + flow, 256, 2, key=jax.random.PRNGKey(0))
weights, rest = eqx.partition(network, eqx.is_array)
params = {"network": weights, "log_z": jnp.array(0.0)}
labels = {"network": jax.tree.map(lambda _: "network", weights), "log_z": "log_z"}
optimizer = optax.multi_transform({"network": optax.adam(1e-3), "log_z": optax.adam(1e-1)}, labels)


def policy(key, observation, weights):
    return jax.vmap(eqx.combine(weights, rest))(observation)[:, :forward], {}


def log_prob(logits, invalid, action):
    masked = jax.nn.log_softmax(jnp.where(invalid, -1e9, logits), axis=-1)
    return jnp.take_along_axis(masked, action[..., None], -1)[..., 0]


def whole(params, data):
    """Log-probabilities along padded trajectories, (batch, time)."""
    out = jax.vmap(jax.vmap(eqx.combine(params["network"], rest)))(data.obs)
    invalid = jax.vmap(env.get_invalid_mask, (1, None), 1)(data.state, env_params)
    before = jax.tree.map(lambda x: x[:, :-1], data.state)
    after = jax.tree.map(lambda x: x[:, 1:], data.state)
    undo = jax.vmap(env.get_backward_action, (1, 1, 1, None), 1)(before, data.action[:, :-1], after, env_params)
    undo_invalid = jax.vmap(env.get_invalid_backward_mask, (1, None), 1)(after, env_params)
    pad = data.pad[:, :-1]
    log_pf = jnp.where(pad, 0.0, log_prob(out[:, :-1, :forward], invalid[:, :-1], data.action[:, :-1]))
    log_pb = jnp.where(pad, 0.0, log_prob(out[:, 1:, forward : forward + backward], undo_invalid, undo))
    return out, log_pf, log_pb, pad


def trajectory_balance(params, data):
    _, log_pf, log_pb, pad = whole(params, data)
    reward = jnp.where(pad, 0.0, data.log_gfn_reward[:, :-1]).sum(1)
    return ((params["log_z"] + log_pf.sum(1) - log_pb.sum(1) - reward) ** 2).mean()


def detailed_balance(params, data):
    moves = gfnx.utils.split_traj_to_transitions(data)
    network = jax.vmap(eqx.combine(params["network"], rest))
    here, there = network(moves.obs), network(moves.next_obs)
    log_pf = log_prob(here[:, :forward], env.get_invalid_mask(moves.state, env_params), moves.action)
    undo = env.get_backward_action(moves.state, moves.action, moves.next_state, env_params)
    undo_invalid = env.get_invalid_backward_mask(moves.next_state, env_params)
    log_pb = log_prob(there[:, forward : forward + backward], undo_invalid, undo)
    target = log_pb + jnp.where(moves.done, moves.log_gfn_reward, there[:, -1])
    residual = jnp.where(moves.pad, 0.0, log_pf + here[:, -1] - target)
    return 0.5 * (residual**2).sum() / jnp.logical_not(moves.pad).sum()


def subtrajectory_balance(params, data):
    out, log_pf, log_pb, pad = whole(params, data)
    done = data.done[:, :-1]
    flows = jnp.where(done, data.log_gfn_reward[:, :-1], out[:, 1:, -1])
    flows = jnp.concatenate([out[:, :1, -1], jnp.where(pad, 0.0, flows)], 1)
    times = log_pf.shape[1]

    def one(log_pf, log_pb, flows, pad):
        def pair(i, j):
            # gfnx sums each piece anew: O(T) work for each of O(T^2) pieces
            inside = (i <= jnp.arange(times)) & (jnp.arange(times) < j)
            gain = (log_pf * inside).sum() - (log_pb * inside).sum()
            used = jnp.logical_not(pad[j - 1])
            return used * (flows[i] + gain - flows[j]) ** 2, used * 1.0

        i, j = jnp.triu_indices(times + 1, k=1)
        loss, weight = jax.vmap(pair)(i, j)
        return loss.sum() / weight.sum()

    return jax.vmap(one)(log_pf, log_pb, flows, pad).mean()


loss = {f.__name__: f for f in (trajectory_balance, detailed_balance, subtrajectory_balance)}[objective]


def step(_, carry):
    key, params, memory = carry
    key, use = jax.random.split(key)
    data, _ = gfnx.utils.forward_rollout(
        rng_key=use, num_envs=batch, policy_fn=policy, policy_params=params["network"], env=env, env_params=env_params
    )
    gradient = jax.grad(loss)(params, data)
    updates, memory = optimizer.update(gradient, memory, params)
    return key, optax.apply_updates(params, updates), memory


@functools.partial(jax.jit, static_argnums=1)
def run(carry, number):
    return jax.lax.fori_loop(0, number, step, carry)


carry = (jax.random.PRNGKey(2), params, optimizer.init(params))
begin = time.perf_counter()
carry = jax.block_until_ready(run(carry, steps))
first = time.perf_counter() - begin
rates = []
for _ in range(5):
    begin = time.perf_counter()
    carry = jax.block_until_ready(run(carry, steps))
    rates.append(steps / (time.perf_counter() - begin))
count = sum(x.size for x in jax.tree.leaves(weights)) + (objective == "trajectory_balance")
print(json.dumps({"rates": rates, "first_call_seconds": first, "parameters": int(count), "jax": jax.__version__}))
