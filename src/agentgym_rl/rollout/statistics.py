"""What is reported of collected groups. Means are over completed episodes.

Names that environments and reward functions choose are always under `rollout/env/` and
`rollout/reward/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from agentgym_rl.types import Episode, Group, SegmentKind, StopReason

MAX_OWN_NAMES = 256
"""Per step: an environment or reward function that keeps making up names would fill the metrics."""


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
        "rollout/tokens": float(sum(s.num_action_tokens for e in completed for s in e.samples)),
        "rollout/sequence_length_mean": _mean(
            [len(s.token_ids) for e in completed for s in e.samples]
        ),
        **_metrics_of_kinds(completed),
        **_own_metrics(completed),
    }


def metrics_by_env(
    groups: Sequence[Group], *, max_rounds: Mapping[str, int], discount: float = 1.0
) -> dict[str, float]:
    """Return the `rollout/` metrics of a step: over all of its groups, and where the run has
    several environments, of each as `rollout/LABEL/`.

    `max_rounds` are the limits on rounds, by label. An environment without groups has no metrics.
    """
    metrics = rollout_metrics(groups, max_rounds=max(max_rounds.values()), discount=discount)
    for label in max_rounds if len(max_rounds) > 1 else ():
        own = [group for group in groups if group.task.env == label]
        if own:
            of_env = rollout_metrics(own, max_rounds=max_rounds[label], discount=discount)
            metrics |= {_of_label(name, label): value for name, value in of_env.items()}
    return metrics


def metrics_of_env(line: Mapping[str, float], label: str) -> dict[str, float] | None:
    """Return a step's metrics with those of one environment in the place of those of all.

    None where the environment had no episodes in the step.
    """
    prefix = _of_label("rollout/", label)
    if f"{prefix}episodes" not in line:
        return None
    own = {
        f"rollout/{name.removeprefix(prefix)}": value
        for name, value in line.items()
        if name.startswith(prefix)
    }
    return {**line, **own}


def _of_label(name: str, label: str) -> str:
    return f"rollout/{label}/{name.removeprefix('rollout/')}"


def staleness_metrics(groups: Sequence[Group], *, version: int) -> dict[str, float]:
    """Return how many steps older the weights of sampled tokens are than those of `version`."""
    ages = Counter[int]()
    for sample in (s for group in groups for e in group.completed for s in e.samples):
        for segment in sample.segments:
            if segment.version is not None:
                ages[version - segment.version] += segment.end - segment.start
    num_tokens = max(1, ages.total())
    return {
        "rollout/staleness_mean": sum(age * num for age, num in ages.items()) / num_tokens,
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
    """Return tokens per episode and shares of the kinds; nothing if there are only actions."""
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


def _own_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the means of what environments report, and of the parts of rewards; with a reward
    function also of the environment's reward.

    A metric is a mean over the episodes that report it. A part of a reward is 0 where it is
    missing, so that the weighted means of the parts add up to the mean reward.
    """
    reported: dict[str, list[float]] = {}
    sums: dict[str, float] = {}
    for episode in episodes:
        for name, value in episode.metrics.items():
            reported.setdefault(name, []).append(value)
        for name, value in episode.reward_parts.items():
            sums[name] = sums.get(name, 0.0) + value
    rewards = [episode.env_reward for episode in episodes if episode.env_reward is not None]
    env_reward = {"rollout/env_reward_mean": fmean(rewards)} if rewards else {}
    means = {f"rollout/env/{name}": fmean(values) for name, values in sorted(reported.items())}
    means |= {f"rollout/reward/{name}": sums[name] / len(episodes) for name in sorted(sums)}
    if len(means) <= MAX_OWN_NAMES:
        return env_reward | means
    kept = env_reward | dict(list(means.items())[:MAX_OWN_NAMES])
    return kept | {"rollout/own_names_dropped": float(len(means) - MAX_OWN_NAMES)}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0
