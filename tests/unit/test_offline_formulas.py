"""Every loss of the nine agents against its formula, one member, row and column at a time in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.tree_util as jtu
import numpy as np
import offline_small as few
import pytest
import slow_offline as slow
from slow_offline import Vector, clipped, dot, log_sum_exp, mean, number, smaller, softmax, sphere, vector

from twinax.offline import Sizes

MEMBERS = (0, 1)


class Given:
    """What a loss is given, as lists of numbers."""

    def __init__(self, name: str, options: dict[str, Any], phase: str, seed: int = 0, loud: float = 1.0):
        self.agent: Any = few.small(name, **options)
        self.phase = phase
        networks, targets, self.batch, self.draws = few.lesson(self.agent, phase, seed)
        self.networks, self.targets = jtu.tree_map(lambda x: loud * x, (networks, targets))
        self.rows = range(few.SIZES.batch)

    def loss(self, name: str) -> float:
        """As the agent computes it."""
        nets = few.nets_of(self.networks, self.targets)
        batch = self.agent.prepared(nets, self.batch, self.draws, self.phase)
        return float(self.agent.losses(self.phase)[name](nets, batch, self.draws)[0])

    def __getitem__(self, name: str) -> list[Any]:
        """A field of the batch, row by row."""
        field = self.batch[name]
        return [slow.row(field, i) if field.ndim == 2 else float(field[i]) for i in range(len(field))]

    def drawn(self, name: str, *index: int) -> Vector:
        return slow.row(self.draws[name], *index)


def weight(difference: float, k: float) -> float:
    return k if difference >= 0 else 1 - k


# Cloning, and a model of the reward


def bc_of_normal(g: Given) -> float:
    actor = g.networks["actor"]
    pairs = zip(g["observations"], g["actions"], strict=True)
    return -mean([slow.normal_log_prob(a, slow.actor_mean(actor, s)) for s, a in pairs])


def bc_of_tanh(g: Given, seen: Callable[[Vector], Vector] = lambda s: s) -> float:
    actor = g.networks["actor"]
    pairs = zip(g["observations"], g["actions"], strict=True)
    return -mean([slow.tanh_log_prob(a, slow.actor_mean(actor, seen(s))) for s, a in pairs])


def reward(g: Given) -> float:
    model = g.networks["reward"]
    return mean([(number(model, s) - r) ** 2 for s, r in zip(g["observations"], g["rewards"], strict=True)])


# Implicit Q-learning; z is empty where there is no latent


def latents(g: Given) -> list[Vector]:
    """Of rows: none; those of the batch in finetuning; random directions, or B of other rows, in pretraining."""
    if g.agent.actor_sees != "latent":
        return [[] for _ in g.rows]
    if g.phase == "finetune":
        return g["latents"]
    random = [sphere(g.drawn("latent", i)) for i in g.rows]
    if g.agent.name == "hilp":
        return random
    order = sorted(g.rows, key=lambda i: g.draws["order"][i])
    of_states = [sphere(vector(g.networks["backward"], g["observations"][i])) for i in order]
    return [random[i] if g.draws["mix"][i] < g.agent.latent_mix_prob else of_states[i] for i in g.rows]


def skill_rewards(g: Given) -> list[float]:
    if g.phase == "finetune" or g.agent.name != "hilp":
        return g["rewards"]
    phi = g.networks["metric"].phi
    found = []
    for s, then, z in zip(g["observations"], g["next_observations"], latents(g), strict=True):
        here, there = slow.output(phi, 0, s), slow.output(phi, 0, then)
        found.append(sum((b - a) * c for a, b, c in zip(here, there, z, strict=True)))
    return found


def iql_value(g: Given) -> float:
    found = []
    for s, a, z in zip(g["observations"], g["actions"], latents(g), strict=True):
        difference = smaller(g.targets["critic"], s, z, a) - number(g.networks["value"], s, z)
        found.append(weight(difference, g.agent.expectile) * difference**2)
    return mean(found)


def iql_critic(g: Given) -> float:
    found, z, r = [], latents(g), skill_rewards(g)
    for i in g.rows:
        following = number(g.networks["value"], g["next_observations"][i], z[i])
        y = r[i] + g.agent.gamma * g["masks"][i] * following
        q = [number(g.networks["critic"], g["observations"][i], z[i], g["actions"][i], e=e) for e in MEMBERS]
        found.append((q[0] - y) ** 2 + (q[1] - y) ** 2)
    return mean(found)


def iql_awr(g: Given) -> float:
    found = []
    for s, a, z in zip(g["observations"], g["actions"], latents(g), strict=True):
        advantage = smaller(g.networks["critic"], s, z, a) - number(g.networks["value"], s, z)
        w = 100 if g.agent.alpha * advantage > math.log(100) else math.exp(g.agent.alpha * advantage)
        found.append(w * slow.normal_log_prob(a, slow.actor_mean(g.networks["actor"], s, z)))
    return -mean(found)


def following_q(q: list[float], log_probs: list[float], alpha: float, normalise: bool) -> float:
    """-E q, over E |q| where it is normalised, and cloning."""
    size = mean([abs(value) for value in q]) if normalise else 1.0
    return -mean(q) / size - alpha * mean(log_probs)


def acted(g: Given, name: str, i: int, actor: Any, seen: list[Vector], a: Vector) -> tuple[Vector, float]:
    """What the actor does in row i, and the log density of another action: the mode where the standard deviation is 1,
    a sample by the draw of that name where it is learned."""
    means = slow.actor_mean(actor, *seen)
    if g.agent.std == "one":
        return clipped(means), slow.normal_log_prob(a, means)
    if g.agent.std == "free":
        log_stds = clipped(slow.row(actor.log_std, slice(None)), -5, 2)
    else:
        log_stds = clipped(slow.linear(actor.log_std, slow.perceptron(actor.trunk, sum(seen, []))), -5, 2)
    stds = [math.exp(x) for x in log_stds]
    action = [m + sd * e for m, sd, e in zip(means, stds, g.drawn(name, i), strict=True)]
    standard = [(x - m) / sd for x, m, sd in zip(a, means, stds, strict=True)]
    return clipped(action), slow.normal_log_prob(standard, [0.0] * len(a)) - sum(log_stds)


def iql_ddpgbc(g: Given) -> float:
    q, log_probs = [], []
    for i in g.rows:
        s, a, actor = g["observations"][i], g["actions"][i], g.networks["actor"]
        action, log_prob = acted(g, "actor", i, actor, [s], a)
        q.append(smaller(g.networks["critic"], s, action))
        log_probs.append(log_prob)
    return following_q(q, log_probs, g.agent.alpha, True)


# ReBRAC, on states or on what an encoder makes of them


def seen(g: Given, net: dict[str, Any]) -> Callable[[Vector], Vector]:
    return (lambda s: slow.perceptron(net["encoder"], s)) if "encoder" in net else (lambda s: s)


def rebrac_critic(g: Given) -> float:
    online, late, found = seen(g, g.networks), seen(g, g.targets), []
    for i in g.rows:
        then = late(g["next_observations"][i])
        noise = clipped(
            [g.agent.policy_noise * e for e in g.drawn("action", i)], -g.agent.noise_clip, g.agent.noise_clip
        )
        mode = [math.tanh(m) for m in slow.actor_mean(g.targets["actor"], then)]
        action = clipped([m + e for m, e in zip(mode, noise, strict=True)])
        penalty = g.agent.alpha_critic * sum((x - y) ** 2 for x, y in zip(action, g["next_actions"][i], strict=True))
        if not g.agent.faithful:
            penalty *= g["next_action_masks"][i]
        y = g["rewards"][i] + g.agent.gamma * g["masks"][i] * (smaller(g.targets["critic"], then, action) - penalty)
        for e in MEMBERS:
            q = number(g.networks["critic"], online(g["observations"][i]), g["actions"][i], e=e)
            found.append((q - y) ** 2)
    return mean(found)


def rebrac_actor(g: Given) -> float:
    online, q, away = seen(g, g.networks), [], []
    for s, a in zip(g["observations"], g["actions"], strict=True):
        action = [math.tanh(m) for m in slow.actor_mean(g.networks["actor"], online(s))]
        q.append(smaller(g.networks["critic"], online(s), action))
        away.append(sum((x - y) ** 2 for x, y in zip(action, a, strict=True)))
    return -mean(q) / mean([abs(value) for value in q]) + g.agent.alpha_actor * mean(away)


def imagined(name: str) -> Callable[[Given], float]:
    """A loss of ReBRAC on rows that a model made up."""

    def by_hand(g: Given) -> float:
        rng = np.random.default_rng(9)
        made = {key: rng.normal(size=g.batch[key].shape) for key in ("observations", "next_observations", "rewards")}
        made |= {key: rng.uniform(-0.9, 0.9, g.batch[key].shape) for key in ("actions", "next_actions")}
        made |= {key: np.ones(len(g.rows)) for key in ("masks", "next_action_masks")}
        real, g.batch = g.batch, made
        wanted = {"critic": rebrac_critic, "actor": rebrac_actor}[name](g)
        g.batch = {**real, "imagined": made}
        return wanted

    return by_hand


def transition(g: Given) -> float:
    found = []
    for s, a, then in zip(g["observations"], g["actions"], g["next_observations"], strict=True):
        moved = vector(g.networks["transition"], s, a)
        found += [(m - (y - x)) ** 2 for m, x, y in zip(moved, s, then, strict=True)]
    return mean(found)


def dino_bc(g: Given) -> float:
    return bc_of_tanh(g, seen(g, g.networks))


def dino(g: Given) -> float:
    """Faithful: teacher and student see one view, nothing is centred. Otherwise each sees the other's view, and the
    teacher's mean over both views of the batch is taken off."""

    def noise(v: int, i: int) -> Vector:
        return clipped(
            [g.agent.repr_noise * e for e in g.drawn("views", v, i)], -g.agent.repr_noise_clip, g.agent.repr_noise_clip
        )

    views = [
        [[x + e for x, e in zip(s, noise(v, i), strict=True)] for i, s in enumerate(g["observations"])] for v in (0, 1)
    ]
    teachers = [[slow.perceptron(g.targets["encoder"], x) for x in view] for view in views]
    students = [[slow.perceptron(g.networks["encoder"], x) for x in view] for view in views]
    width = g.agent.latent_dim
    centre = [0.0] * width
    if not g.agent.faithful:
        centre = [mean([t[k] for view in teachers for t in view]) for k in range(width)]
        teachers = teachers[::-1]
    total = 0.0
    for v in (0, 1):
        for i in g.rows:
            h, t = students[v][i], teachers[v][i]
            wanted = softmax([(t[k] - centre[k]) / g.agent.target_repr_temp for k in range(width)])
            logits = [x / g.agent.repr_temp for x in h]
            total -= 0.5 * sum(w * (x - log_sum_exp(logits)) for w, x in zip(wanted, logits, strict=True))
    return total / len(g.rows)


# HILP and forward-backward


def hilp_metric(g: Given) -> float:
    def v(net, s, goal, e):
        a, b = slow.output(net["metric"].phi, e, s), slow.output(net["metric"].phi, e, goal)
        return -math.sqrt(max(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)), 1e-12))

    total = 0.0
    for i in g.rows:
        s, then, goal = g["observations"][i], g["next_observations"][i], g["value_goals"][i]
        r, m = g["relabeled_rewards"][i], g.agent.gamma * g["relabeled_masks"][i]
        now, following = ([v(g.targets, x, goal, e) for e in MEMBERS] for x in (s, then))
        advantage = r + m * min(following) - mean(now)
        for e in MEMBERS:
            away = r + m * following[e] - v(g.networks, s, goal, e)
            total += weight(advantage, g.agent.expectile) * away**2
    return total / len(g.rows)


def fb_measure(g: Given) -> float:
    z, n = latents(g), len(g.rows)
    s, a, then = g["observations"], g["actions"], g["next_observations"]
    online, late = ([sphere(vector(net["backward"], x)) for x in then] for net in (g.networks, g.targets))
    total = 0.0
    for i in g.rows:
        action, _ = acted(g, "next_action", i, g.networks["actor"], [then[i], z[i]], a[i])
        ahead = [vector(g.targets["forward"], then[i], z[i], action, e=e) for e in MEMBERS]
        for e in MEMBERS:
            forward = vector(g.networks["forward"], s[i], z[i], a[i], e=e)
            total -= dot(forward, online[i]) / (2 * n)
            for j in g.rows:
                if j != i:
                    members = [dot(f, late[j]) for f in ahead]
                    bar = min(members) if g.agent.aggregation == "min" else mean(members)
                    total += 0.5 * (dot(forward, online[j]) - g.agent.gamma * bar) ** 2 / (n - 1) / (2 * n)
        total += g.agent.orthonorm_coeff * fb_orthonormality(online, i) / n
    return total


def fb_orthonormality(b: list[Vector], i: int) -> float:
    others = sum(dot(b[i], b[j]) ** 2 for j in range(len(b)) if j != i)
    return -2 * dot(b[i], b[i]) + others / (len(b) - 1)


def fb_actor(g: Given) -> float:
    q, log_probs = [], []
    for i, (s, a, z) in enumerate(zip(g["observations"], g["actions"], latents(g), strict=True)):
        action, log_prob = acted(g, "action", i, g.networks["actor"], [s, z], a)
        q.append(min(dot(vector(g.networks["forward"], s, z, action, e=e), z) for e in MEMBERS))
        log_probs.append(log_prob)
    return following_q(q, log_probs, g.agent.alpha_repr, g.agent.normalise)


# Contrastive agents


def logits(critic: Any, states: list[Vector], actions: list[Vector], goals: list[Vector]) -> list[list[Vector]]:
    """Of member e, row i and goal j."""
    found = []
    for e in MEMBERS:
        psi = [slow.output(critic.psi, e, goal) for goal in goals]
        phi = [slow.output(critic.phi, e, s, a) for s, a in zip(states, actions, strict=True)]
        found.append([[dot(p, q) / math.sqrt(len(p)) for q in psi] for p in phi])
    return found


def crl_contrast(g: Given) -> float:
    found = []
    for matrix in logits(g.networks["critic"], g["observations"], g["actions"], g["value_goals"]):
        for i in g.rows:
            whole = log_sum_exp(matrix[i])
            if g.agent.symmetric:
                column = [matrix[j][i] for j in g.rows]
                found.append(2 * -matrix[i][i] + whole + log_sum_exp(column))
            else:
                found.append(-matrix[i][i] + whole + 0.01 * whole**2)
    return mean(found)


def contrastive_actor(g: Given) -> float:
    s, goals, actor = g["observations"], g["actor_goals"], g.networks["actor"]
    done = [acted(g, "action", i, actor, [s[i]], g["actions"][i]) for i in g.rows]
    members = logits(g.networks["critic"], s, [action for action, _ in done], goals)
    q, log_probs = [], []
    for i in g.rows:
        pairs = list(zip(members[0][i], members[1][i], strict=True))
        if g.agent.name == "crl_infonce":
            line = [min(math.log(max(math.exp(x), 1e-6)) for x in pair) for pair in pairs]
        else:
            line = [min(pair) if g.agent.aggregation == "min" else mean(pair) for pair in pairs]
        ratio = math.exp(line[i] - log_sum_exp(line) + math.log(len(line)))
        q.append(ratio * number(g.networks["reward"], goals[i]))
        log_probs.append(done[i][1])
    return following_q(q, log_probs, g.agent.alpha, g.agent.normalise)


def td_contrast(g: Given) -> float:
    s, a, then, goals = (g[key] for key in ("observations", "actions", "next_observations", "value_goals"))
    if g.phase == "pretrain":
        next_actions = g["next_actions"]
    else:
        next_actions = [acted(g, "next_action", i, g.networks["actor"], [then[i]], a[i])[0] for i in g.rows]
    soon, later = (logits(g.networks["critic"], s, a, x) for x in (then, goals))
    ahead = logits(g.targets["critic"], then, next_actions, goals)
    found = []
    for e in MEMBERS:
        for i in g.rows:
            mixed = [soon[e][i][j] if i == j else later[e][i][j] for j in g.rows]
            first = log_sum_exp(mixed) - mixed[i]
            pairs = zip(ahead[0][i], ahead[1][i], strict=True)
            w = softmax([min(pair) if g.agent.aggregation == "min" else mean(pair) for pair in pairs])
            second = -sum(w[j] * (later[e][i][j] - log_sum_exp(later[e][i])) for j in g.rows)
            found.append((1 - g.agent.gamma) * first + g.agent.gamma * second)
    return mean(found)


# InFOM


def flow(g: Given, net: Any, noise: Vector, s: Vector, a: Vector, z: Vector) -> Vector:
    x, steps = noise, g.agent.flow_steps
    low, high = (slow.row(g.batch[f"observation_{end}"], slice(None)) for end in ("min", "max"))
    for i in range(steps):
        moved = vector(net, x, [i / steps], s, a, z)
        x = [value + v / steps for value, v in zip(x, moved, strict=True)]
        if g.agent.clip_flow_goals:
            x = [min(max(value, b + 1e-5), t - 1e-5) for value, b, t in zip(x, low, high, strict=True)]
    return x


def intention(g: Given, i: int, noise: str) -> tuple[Vector, Vector, Vector]:
    """Means, log standard deviations, and a sample."""
    means, log_stds = slow.intention(g.networks["intention"], g["next_observations"][i], g["next_actions"][i])
    parts = zip(means, log_stds, g.drawn(noise, i), strict=True)
    return means, log_stds, [m + math.exp(s) * e for m, s, e in parts]


def infom_occupancy(g: Given) -> float:
    online, late, gamma, found, kl = g.networks["field"], g.targets["field"], g.agent.gamma, [], []
    for i in g.rows:
        s, a, then, after = (g[k][i] for k in ("observations", "actions", "next_observations", "next_actions"))
        means, log_stds, z = intention(g, i, "latent")
        kl += [-0.5 * (1 + 2 * r - m**2 - math.exp(2 * r)) for m, r in zip(means, log_stds, strict=True)]
        t, now, ahead = float(g.draws["time"][i]), g.drawn("current", i), g.drawn("future", i)
        x = [t * p + (1 - t) * e for p, e in zip(s, now, strict=True)]
        v = vector(online, x, [t], s, a, z)
        current = mean([((p - e) - w) ** 2 for p, e, w in zip(s, now, v, strict=True)])
        later = flow(g, late, ahead, then, after, z)
        x = [t * y + (1 - t) * e for y, e in zip(later, ahead, strict=True)]
        wanted, v = vector(late, x, [t], then, after, z), vector(online, x, [t], s, a, z)
        future = mean([(p - q) ** 2 for p, q in zip(wanted, v, strict=True)])
        found.append((1 - gamma) * current + gamma * future)
    return mean(found) + g.agent.kl_weight * mean(kl)


def infom_critic(g: Given) -> float:
    found = []
    for i in g.rows:
        s, a = g["observations"][i], g["actions"][i]
        z = g.drawn("prior", i) if g.agent.critic_latent_type == "prior" else intention(g, i, "prior")[2]
        goals = [flow(g, g.networks["field"], g.drawn("goals", n, i), s, a, z) for n in range(g.agent.num_flow_goals)]
        y = mean([number(g.networks["reward"], goal) for goal in goals]) / (1 - g.agent.gamma)
        for e in MEMBERS:
            away = y - number(g.networks["critic"], s, a, e=e)
            found.append(weight(away, g.agent.expectile) * away**2)
    return mean(found)


def infom_actor(g: Given) -> float:
    q, log_probs = [], []
    for i, (s, a) in enumerate(zip(g["observations"], g["actions"], strict=True)):
        action, log_prob = acted(g, "action", i, g.networks["actor"], [s], a)
        members = [number(g.networks["critic"], s, action, e=e) for e in MEMBERS]
        q.append(min(members) if g.agent.aggregation == "min" else mean(members))
        log_probs.append(log_prob)
    return following_q(q, log_probs, g.agent.alpha, g.agent.normalise)


# The comparison


@dataclass(frozen=True)
class Case:
    agent: str
    phase: str
    loss: str
    by_hand: Callable[[Given], float]
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.agent, self.phase, self.loss, *(f"{k}={v}" for k, v in self.options.items())])


BEFORE, AFTER = "pretrain", "finetune"
REBRAC = {"alpha_actor": 0.7, "alpha_critic": 1.3, "noise_clip": 0.15}
DINO = {"repr_noise_clip": 0.4}
IQL_LOSSES = {"value": iql_value, "critic": iql_critic, "actor": iql_awr}
CASES = [
    Case("iql", BEFORE, "bc", bc_of_normal),
    *(Case("iql", AFTER, name, by_hand, {"alpha": 3.0}) for name, by_hand in IQL_LOSSES.items()),
    Case("iql", AFTER, "value", iql_value, {"expectile": 0.3}),
    Case("iql", AFTER, "actor", iql_ddpgbc, {"extraction": "ddpgbc"}),
    Case("iql", AFTER, "actor", iql_ddpgbc, {"extraction": "ddpgbc", "std": "free"}),
    Case("rebrac", BEFORE, "bc", bc_of_tanh),
    *(
        Case(name, AFTER, loss, by_hand, {**REBRAC, "faithful": faithful})
        for name in ("rebrac", "dino_rebrac", "mbpo_rebrac")
        for loss, by_hand in (("critic", rebrac_critic), ("actor", rebrac_actor))
        for faithful in (False, True)
    ),
    Case("mbpo_rebrac", BEFORE, "bc", bc_of_tanh),
    Case("mbpo_rebrac", BEFORE, "transition", transition),
    Case("mbpo_rebrac", AFTER, "transition", transition),
    Case("mbpo_rebrac", AFTER, "reward", reward),
    Case("mbpo_rebrac", AFTER, "critic", imagined("critic"), REBRAC),
    Case("mbpo_rebrac", AFTER, "actor", imagined("actor"), REBRAC),
    Case("dino_rebrac", BEFORE, "bc", dino_bc),
    Case("dino_rebrac", BEFORE, "repr", dino, DINO),
    Case("dino_rebrac", BEFORE, "repr", dino, {**DINO, "faithful": True}),
    Case("hilp", BEFORE, "metric", hilp_metric),
    *(
        Case(name, phase, loss, by_hand, {"alpha": 1.0})
        for name, phase in (("hilp", BEFORE), ("hilp", AFTER), ("fb_repr", AFTER))
        for loss, by_hand in IQL_LOSSES.items()
    ),
    Case("fb_repr", BEFORE, "fb_repr", fb_measure),
    Case("fb_repr", BEFORE, "fb_repr", fb_measure, {"aggregation": "min", "orthonorm_coeff": 0.0}),
    *(
        Case(name, phase, loss, by_hand, {"std": std})
        for std in ("free", "state")
        for name, phase, loss, by_hand in (
            ("fb_repr", BEFORE, "fb_repr", fb_measure),
            ("fb_repr", BEFORE, "fb_actor", fb_actor),
            ("crl_infonce", AFTER, "actor", contrastive_actor),
            ("td_infonce", AFTER, "critic", td_contrast),
            ("td_infonce", AFTER, "actor", contrastive_actor),
            ("infom", AFTER, "actor", infom_actor),
        )
    ),
    Case("fb_repr", BEFORE, "fb_actor", fb_actor),
    Case("fb_repr", BEFORE, "fb_actor", fb_actor, {"normalise": True, "alpha_repr": 0.5}),
    Case("crl_infonce", BEFORE, "critic", crl_contrast),
    Case("crl_infonce", BEFORE, "critic", crl_contrast, {"symmetric": True}),
    Case("crl_infonce", BEFORE, "bc", bc_of_normal),
    Case("crl_infonce", AFTER, "critic", crl_contrast),
    Case("crl_infonce", AFTER, "reward", reward),
    Case("crl_infonce", AFTER, "actor", contrastive_actor),
    Case("crl_infonce", AFTER, "actor", contrastive_actor, {"normalise": False}),
    *(
        Case("td_infonce", phase, "critic", td_contrast, {"aggregation": how})
        for phase in (BEFORE, AFTER)
        for how in ("mean", "min")
    ),
    Case("td_infonce", BEFORE, "bc", bc_of_normal),
    Case("td_infonce", AFTER, "reward", reward),
    Case("td_infonce", AFTER, "actor", contrastive_actor),
    Case("td_infonce", AFTER, "actor", contrastive_actor, {"aggregation": "min"}),
    Case("infom", BEFORE, "flow_occupancy", infom_occupancy),
    Case("infom", BEFORE, "flow_occupancy", infom_occupancy, {"clip_flow_goals": False, "kl_weight": 0.7}),
    Case("infom", BEFORE, "bc", bc_of_normal),
    Case("infom", AFTER, "flow_occupancy", infom_occupancy),
    Case("infom", AFTER, "reward", reward),
    Case("infom", AFTER, "critic", infom_critic),
    Case("infom", AFTER, "critic", infom_critic, {"critic_latent_type": "encoding", "expectile": 0.6}),
    Case("infom", AFTER, "actor", infom_actor),
    Case("infom", AFTER, "actor", infom_actor, {"aggregation": "mean", "normalise": True}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_loss_is_its_formula(case):
    # Louder networks reach what lies beyond clips, floors and caps.
    for seed, loud in ((0, 1.0), (1, 2.5)):
        g = Given(case.agent, case.options, case.phase, seed, loud)
        wanted = case.by_hand(g)
        np.testing.assert_allclose(g.loss(case.loss), wanted, rtol=1e-10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_observations_of_width_one_stay_rows(case, monkeypatch):
    # (rows, 1) against (rows,) would broadcast to (rows, rows).
    monkeypatch.setattr(few, "SIZES", Sizes(observation=1, action=1, batch=4))
    g = Given(case.agent, case.options, case.phase)
    wanted = case.by_hand(g)
    np.testing.assert_allclose(g.loss(case.loss), wanted, rtol=1e-10)


def test_every_loss_of_the_nine_has_a_case():
    found = {(case.agent, case.phase, case.loss) for case in CASES}
    agents = {case.agent for case in CASES}
    assert len(agents) == 9
    assert found == {
        (name, phase, loss) for name in agents for phase in (BEFORE, AFTER) for loss in few.small(name).losses(phase)
    }


def test_the_louder_networks_reach_beyond_limits():
    """Both sides of every clip, floor and cap occur in the comparison above."""
    both = [Given("crl_infonce", {}, AFTER, seed, loud) for seed, loud in ((0, 1.0), (1, 2.5))]
    means = [abs(m) for g in both for s in g["observations"] for m in slow.actor_mean(g.networks["actor"], s)]
    assert min(means) < 1 < max(means)
    g = both[1]
    actions = [clipped(slow.actor_mean(g.networks["actor"], s)) for s in g["observations"]]
    found = [
        x for e in logits(g.networks["critic"], g["observations"], actions, g["actor_goals"]) for r in e for x in r
    ]
    assert min(found) < math.log(1e-6) < max(found)
    g = Given("iql", {}, AFTER, 1, 2.5)
    gains = [
        3.0 * (smaller(g.networks["critic"], s, a) - number(g.networks["value"], s))
        for s, a in zip(g["observations"], g["actions"], strict=True)
    ]
    assert min(gains) < math.log(100) < max(gains)
    g = Given("infom", {}, AFTER, 1, 2.5)
    end = flow(g, g.networks["field"], *(g.drawn("goals", 0, 0), g["observations"][0], g["actions"][0]), [0.0] * 5)
    assert max(abs(x) for x in end) == pytest.approx(2 - 1e-5, abs=1e-12)
    g = Given("rebrac", {}, AFTER)
    assert 0.2 * np.abs(g.draws["action"]).max() > REBRAC["noise_clip"] and 0 < sum(g["next_action_masks"]) < 6
    assert 0.5 * np.abs(Given("dino_rebrac", {}, BEFORE).draws["views"]).max() > DINO["repr_noise_clip"]
