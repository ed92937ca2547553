"""What the numbers of a run are called in a report, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """How a metric is shown."""

    title: str
    """Its name in words."""
    meaning: str = ""
    """One short sentence under its curve."""


ENTRIES = {
    "loss": Entry("Loss", "Training loss: each logged value faintly, the running mean on top."),
    "total_variation": Entry("Total variation", "Half the L1 distance to the target, exact; 0 is perfect."),
    "log_z_error": Entry("log Z error", "Learned log Z minus the true one; 0 is perfect."),
    "kl": Entry("KL divergence", "Of the target from the learned distribution, exact; 0 is perfect."),
    "jsd": Entry("Jensen-Shannon divergence", "Between learned and target distribution, exact; 0 is perfect."),
    "log_z": Entry("log Z", "The learned logarithm of the partition function."),
    "elbo": Entry("ELBO", "Lower bound of log Z from forward trajectories."),
    "eubo": Entry("EUBO", "Upper bound of log Z from backward trajectories."),
    "modes_found": Entry("Modes found", "Different modes that were ever sampled."),
    "top_k_reward": Entry("Top-k reward", "Mean reward of the best distinct objects in the store."),
    "reward_correlation": Entry("Reward correlation", "Between log-probability and log-reward; 1 is perfect."),
    "sampled_total_variation": Entry(
        "Sampled total variation", "From recent samples; sampling alone keeps it above 0."
    ),
    "success": Entry("Success", "Share of episodes that reach the goal."),
    "return": Entry("Return", "Sum of an episode's rewards."),
    "score": Entry("Score", "Reward of all agents in an epoch of training."),
    "score_greedy": Entry("Score, greedy", "Reward of all agents in an epoch without exploration."),
    "score_epsilon": Entry("Score with some exploration", "The same with a small probability of random actions."),
    "score_random": Entry("Score, random", "Reward of all agents in an epoch of random actions: the measure to beat."),
    "episode_return": Entry("Return", "Mean over evaluated episodes of the policy's likeliest actions."),
    "train_return": Entry("Return while learning", "Mean over the episodes that ended last, exploration included."),
    "episode_length": Entry("Episode length", "Mean number of steps in evaluated episodes."),
    "episode_survived": Entry("Survived", "Share of evaluated episodes in which time ran out before they ended."),
    "episode_return_ci": Entry("Return, 95 % interval", "Half of its width, over evaluated episodes."),
    "gait_distance": Entry("Distance of the gait", "Of the robot's steps from the reference, in its deviations."),
    "style_reward": Entry("Reward for style", "Mean over steps; 1 for what the discriminator takes for the reference."),
    "style_accuracy": Entry("Discriminator's accuracy", "Share of steps that it tells right; 0.5 is none."),
    "approx_kl": Entry("Divergence", "Estimated KL of the policy before an update from that after it."),
    "clip_fraction": Entry("Clipped", "Share of transitions whose ratio of probabilities left the clip range."),
    "explained_variance": Entry("Explained variance", "Of the returns by the critic; 1 is perfect."),
    "truncated": Entry("Truncated", "Share of steps at which a time limit cut an episode off."),
    "value": Entry("Value", "Mean return that the networks expect, over the batch."),
    "trained": Entry("Trained", "1 if the replay had enough to train on."),
    "grad_norm": Entry("Gradient norm", "Global norm before clipping."),
    "length": Entry("Trajectory length", "Mean number of steps in a trajectory."),
    "log_reward": Entry("log reward", "Mean over the batch."),
    "steps_per_second": Entry("Steps per second", "After compilation."),
    "env_steps": Entry("Environment steps"),
    "trajectories": Entry("Trajectories"),
    "compile_seconds": Entry("Compilation, seconds"),
    "seconds": Entry("Training, seconds"),
    "first_step_seconds": Entry("First step, seconds"),
    "dtype": Entry("dtype"),
    "seed": Entry("First seed"),
    "seeds": Entry("Number of seeds"),
}


def title(name: str) -> str:
    """The name in words.

    >>> title("log_z_error"), title("entropy_bonus")
    ('log Z error', 'Entropy bonus')
    """
    if name in ENTRIES:
        return ENTRIES[name].title
    words = name.replace("_", " ").replace("/", " / ").strip()
    return words[:1].upper() + words[1:]


def meaning(name: str) -> str:
    """The sentence under a curve; empty for names that are not known."""
    return ENTRIES[name].meaning if name in ENTRIES else ""


def rank(name: str) -> int:
    """Place in a report: known names in the order above, then the others."""
    return list(ENTRIES).index(name) if name in ENTRIES else len(ENTRIES)
