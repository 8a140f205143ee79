"""Your own reward function: the answer counts, and so do rounds and careful guesses.

agentgym train quickstart env.name=examples.guess_number:GuessNumber 'env.levels=[]' \\
    reward.function=examples.reward_function:short_and_sure reward.weights.length=0.5
"""

from __future__ import annotations

from agentgym_rl.types import Episode


def short_and_sure(episode: Episode) -> dict[str, float]:
    """Return named parts; a recipe's `reward.weights` weighs them, and each is a metric.

    `candidates` is what GuessNumber reports: how many numbers the hidden one can still be.
    """
    left = episode.metrics.get("candidates", 64.0)
    return {
        "answer": float(episode.success),
        "length": -0.05 * len(episode.rounds),
        "progress": 0.1 * (1.0 - left / 64.0),
    }
