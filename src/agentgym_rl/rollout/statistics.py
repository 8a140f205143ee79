"""What is reported of collected groups. Means are over completed episodes.

What environments and reward functions name themselves is under `rollout/env/` and `rollout/reward/`
and can take no other name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from agentgym_rl.types import Episode, Group, SegmentKind, StopReason

MAX_OWN_NAMES = 256
"""Of environments and reward functions in one step: one that makes up names as it goes would fill
the metrics of a run with them."""


def rollout_metrics(
    groups: Sequence[Group], *, max_rounds: int, discount: float = 1.0
) -> dict[str, float]:
    """Return the `rollout/` metrics of a step; failed episodes are counted and enter no mean."""
    episodes = [episode for group in groups for episode in group.episodes]
    completed = [episode for episode in episodes if not episode.is_failed]
    rounds = [round_ for episode in completed for round_ in episode.rounds]
    return {
        "rollout/success_rate": _mean([episode.success for episode in completed]),
        "rollout/reward_mean": _mean([episode.reward or 0.0 for episode in completed]),
        "rollout/rounds_mean": _mean([len(episode.rounds) for episode in completed]),
        "rollout/max_rounds": float(max_rounds),
        "rollout/episodes": float(len(episodes)),
        "rollout/episodes_failed": float(len(episodes) - len(completed)),
        "rollout/episodes_restarted": float(sum(episode.num_restarts > 0 for episode in episodes)),
        "rollout/truncated_rate": _mean(
            [episode.stop_reason.is_truncation for episode in completed]
        ),
        "rollout/max_tokens_rate": _mean(
            [e.stop_reason is StopReason.MAX_TOKENS for e in completed]
        ),
        "rollout/invalid_action_rate": _mean([not round_.valid_action for round_ in rounds]),
        **_reply_metrics(completed),
        "rollout/groups_without_spread": float(
            sum(not has_spread(group, discount=discount) for group in groups)
        ),
        "rollout/tokens": float(sum(map(_num_action_tokens, completed))),
        "rollout/sequence_length_mean": _mean(
            [len(s.token_ids) for e in completed for s in e.samples]
        ),
        **_metrics_of_kinds(completed),
        **_env_reward(completed),
        **_own_metrics(completed),
    }


def staleness_metrics(groups: Sequence[Group], *, version: int) -> dict[str, float]:
    """Return how many steps older the weights of sampled tokens are than those of `version`."""
    ages = Counter[int]()
    for sample in (s for group in groups for e in group.completed for s in e.samples):
        for segment in sample.segments:
            if segment.version is not None:
                ages[version - segment.version] += segment.end - segment.start
    total = ages.total()
    return {
        "rollout/staleness_mean": sum(age * num for age, num in ages.items()) / max(1, total),
        "rollout/staleness_max": float(max(ages, default=0)),
    }


def has_spread(group: Group, *, discount: float = 1.0) -> bool:
    """Return whether the completed episodes of a group differ in reward.

    With a discount also whether they earned the same in different rounds.
    """
    return len({(e.reward, _discounted(e, discount)) for e in group.completed}) > 1


def _discounted(episode: Episode, discount: float) -> float:
    if discount == 1:
        return 0.0
    return sum(round_.reward * discount**number for number, round_ in enumerate(episode.rounds))


def _reply_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the length of replies and how many were cut; means are over replies."""
    num_replies = max(1, sum(episode.num_replies for episode in episodes))
    num_cut = sum(episode.num_replies_cut for episode in episodes)
    num_tokens = sum(episode.num_reply_tokens for episode in episodes)
    return {
        "rollout/replies_cut_rate": num_cut / num_replies,
        "rollout/reply_tokens_mean": num_tokens / num_replies,
    }


def _metrics_of_kinds(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return tokens an episode and shares of the kinds; nothing where there are only actions."""
    counts = Counter[SegmentKind]()
    for sample in (sample for episode in episodes for sample in episode.samples):
        for segment in sample.segments:
            counts[segment.kind] += sum(sample.loss_mask[segment.start : segment.end])
    counts = +counts
    if counts.keys() <= {SegmentKind.ACTION}:
        return {}
    total = counts.total()
    lengths = {f"rollout/tokens_{kind}": num / len(episodes) for kind, num in counts.items()}
    shares = {f"rollout/share_{kind}": num / total for kind, num in counts.items()}
    return lengths | shares


def _env_reward(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the mean of the environment's own reward where a function gave another."""
    rewards = [episode.env_reward for episode in episodes if episode.env_reward is not None]
    return {"rollout/env_reward_mean": fmean(rewards)} if rewards else {}


def _own_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the means of what environments report, and of the parts of rewards.

    A metric counts in the episodes that report it. A part of a reward is 0 where it is missing, so
    that the parts' means, weighed, sum to that of the reward.
    """
    reported: dict[str, list[float]] = {}
    sums: dict[str, float] = {}
    for episode in episodes:
        for name, value in episode.metrics.items():
            reported.setdefault(name, []).append(value)
        for name, value in episode.reward_parts.items():
            sums[name] = sums.get(name, 0.0) + value
    means = {f"rollout/env/{name}": fmean(values) for name, values in sorted(reported.items())}
    means |= {f"rollout/reward/{name}": sums[name] / len(episodes) for name in sorted(sums)}
    if len(means) <= MAX_OWN_NAMES:
        return means
    kept = dict(list(means.items())[:MAX_OWN_NAMES])
    return kept | {"rollout/own_names_dropped": float(len(means) - MAX_OWN_NAMES)}


def _num_action_tokens(episode: Episode) -> int:
    return sum(sample.num_action_tokens for sample in episode.samples)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
