"""Trajectories walked one state at a time in plain Python: what `score` is compared with."""

from __future__ import annotations

import math

import numpy as np

from twinax.gflownet import Trajectories


def replay(env, trajectories: Trajectories, b: int) -> list:
    """One trajectory by the rules, step by step; fails at the first action that is not allowed."""
    state, states = env.reset(1), []
    for t in range(int(trajectories.length[b])):
        states.append(state)
        action = np.array([trajectories.actions[t, b]])
        assert env.forward_mask(state)[0, action[0]], f"action {action[0]} at time {t} is not allowed"
        state = env.step(state, action)
    assert state.done[0]
    return [*states, state]


def slow_scores(env, policy, trajectories, kind) -> list[dict]:
    """Everything by walking each trajectory on its own, one state at a time."""
    found = []
    for b in range(len(trajectories.length)):
        states = replay(env, trajectories, b)
        actions = trajectories.actions[: trajectories.length[b], b].tolist()
        entry = {name: [] for name in ("log_pf", "log_pb", "log_flow", "reward", "stop", "inflow", "outflow", "logit")}
        for t, state in enumerate(states):
            out = policy(env.observe(state))
            if t < len(actions):
                logits = out.forward_logits[0]
                allowed = [a for a in range(env.num_actions) if env.forward_mask(state)[0, a]]
                total = math.log(sum(math.exp(logits[a]) for a in allowed))
                entry["log_pf"].append(logits[actions[t]] - total)
                entry["stop"].append(logits[env.num_actions - 1] - total)
                entry["outflow"].append(total)
                entry["logit"].append(logits[actions[t]])
                entry["log_flow"].append(float(out.log_flow[0]))
                entry["reward"].append(float(env.log_reward(state)[0]))
            if t > 0:
                parents = [k for k in range(env.num_backward_actions) if env.backward_mask(state)[0, k]]
                if env.stops and state.done[0]:
                    entry["log_pb"].append(0.0)
                else:
                    logits = {"uniform": np.zeros(env.num_backward_actions), "learned": out.backward_logits[0]}
                    logits["maxent"] = env.log_paths_ratio(state)[0]
                    undo = int(env.backward_action(state, np.array([actions[t - 1]]))[0])
                    total = math.log(sum(math.exp(logits[kind][k]) for k in parents))
                    entry["log_pb"].append(float(logits[kind][undo]) - total)
                    flows = []
                    for k in parents:
                        parent = env.backward_step(state, np.array([k]))
                        action = int(env.forward_action(state, np.array([k]))[0])
                        flows.append(math.exp(policy(env.observe(parent)).forward_logits[0, action]))
                    entry["inflow"].append(math.log(sum(flows)))
        entry["log_reward"] = float(env.log_reward(states[-1])[0])
        found.append(entry)
    return found
