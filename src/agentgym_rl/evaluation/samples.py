"""What several samples of a task are worth together: pass@k, best of n, and a vote.

A sample is one episode of a task (k in pass@k). Every number is a mean over tasks. A task some of
whose samples failed for reasons of infrastructure counts with those that completed, and not at all
where too few did.
"""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from agentgym_rl.agents.formats.elements import split_action
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.evaluation.metrics import bootstrap_interval, pass_at_k, wilson_interval
from agentgym_rl.types import Episode, Group, StopReason


@dataclass(frozen=True, slots=True)
class SuccessEstimate:
    """A success rate over tasks with its 95% interval (bootstrap over tasks)."""

    success_rate: float
    success_low: float
    success_high: float
    tasks: int
    """Tasks that it is a mean over."""
    reward_mean: float | None = None
    """Of the chosen samples; None where none is chosen."""


@dataclass(frozen=True, slots=True)
class SampleScores:
    """The worth of several samples per task.

    Example: `pass_at` of 4 samples has the keys "1", "2" and "4".
    """

    samples_per_task: int
    mean: SuccessEstimate
    """Of one sample: the mean over all of a task (mean@n)."""
    pass_at: dict[str, SuccessEstimate]
    """That one of k samples succeeds, for k = 1, 2, 4, ... and n."""
    best_by_reward: SuccessEstimate
    """Of the sample with the highest reward: an oracle, which knows the environment's judgement,
    and so a bound on what choosing can bring."""
    best_by_logprob: SuccessEstimate | None
    """Of the sample whose sampled tokens have the highest mean log-probability; None where an
    endpoint does not report them."""
    majority: SuccessEstimate | None = None
    """Of the answer that most samples give; None where answers do not compare."""

    def to_markdown(self) -> list[str]:
        """Return the lines of a table."""
        lines = [
            "| what | success | interval | reward | tasks |",
            "|---|---|---|---|---|",
        ]
        for name, item in self.rows():
            reward = "" if item.reward_mean is None else f"{item.reward_mean:.3f}"
            lines.append(
                f"| {name} | {item.success_rate:.1%} | {item.success_low:.1%} - "
                f"{item.success_high:.1%} | {reward} | {item.tasks} |"
            )
        oracle = "The best by reward is chosen by an oracle, the environment's own reward: a bound."
        return [*lines, "", oracle]

    def rows(self) -> list[tuple[str, SuccessEstimate]]:
        """Return each estimate with its name, in reporting order."""
        number = self.samples_per_task
        rows = [(f"mean@{number}", self.mean)]
        rows += [(f"pass@{k}", item) for k, item in self.pass_at.items() if k != "1"]
        rows.append((f"best of {number} by reward (oracle)", self.best_by_reward))
        if self.best_by_logprob is not None:
            rows.append((f"best of {number} by log-probability", self.best_by_logprob))
        if self.majority is not None:
            rows.append((f"majority of {number}", self.majority))
        return rows


def score_task_samples(
    groups: Sequence[Group], spec: EnvSpec, *, samples_per_task: int
) -> SampleScores:
    """Return what the samples of each task are worth together."""
    tasks = [group.completed for group in groups if group.completed]
    sizes = [2**power for power in range((samples_per_task - 1).bit_length())]
    return SampleScores(
        samples_per_task=samples_per_task,
        mean=_estimate(
            [fmean(episode.success for episode in episodes) for episodes in tasks],
            [fmean(map(_reward, episodes)) for episodes in tasks],
        ),
        pass_at={str(k): _pass_at(tasks, k) for k in [*sizes, samples_per_task]},
        best_by_reward=_best(tasks, _reward),
        best_by_logprob=_best(tasks, mean_logprob) if _all_have_logprobs(tasks) else None,
        majority=_majority(tasks, spec) if spec.has_answer else None,
    )


def score_reflection(groups: Sequence[Group], *, tries: int) -> dict[str, SuccessEstimate]:
    """Return the success of agents that reflect and try again, by the tries they may have.

    "2" counts what the first or the second try solved. An episode that ends before its last try,
    because it succeeded or had no room, counts the same from there on.
    """
    tasks = [group.completed for group in groups if group.completed]
    is_single = all(len(group.episodes) == 1 for group in groups)
    found: dict[str, SuccessEstimate] = {}
    for number in range(1, tries + 1):
        solved = [[_is_solved_within(episode, number) for episode in task] for task in tasks]
        estimate = _estimate([fmean(flags) for flags in solved])
        if is_single:
            low, high = wilson_interval(sum(flags[0] for flags in solved), len(solved))
            estimate = replace(estimate, success_low=low, success_high=high)
        found[str(number)] = estimate
    return found


def reflection_markdown(scores: dict[str, SuccessEstimate]) -> list[str]:
    lines = ["| tries | success | interval |", "|---|---|---|"]
    lines += [
        f"| {name} | {item.success_rate:.1%} | {item.success_low:.1%} - {item.success_high:.1%} |"
        for name, item in scores.items()
    ]
    return lines


def _is_solved_within(episode: Episode, tries: int) -> bool:
    return episode.success and bool(episode.rounds) and episode.rounds[-1].try_index < tries


def mean_logprob(episode: Episode) -> float:
    """Return the mean log-probability of an episode's sampled tokens; -inf where none is known."""
    if episode.usage is not None:
        return -math.inf if episode.usage.mean_logprob is None else episode.usage.mean_logprob
    logprobs = [
        logprob
        for sample in episode.samples
        for logprob, is_sampled in zip(sample.logprobs, sample.loss_mask, strict=True)
        if is_sampled
    ]
    return fmean(logprobs) if logprobs else -math.inf


def answer_of(episode: Episode, spec: EnvSpec) -> str | None:
    """Return the answer that an episode ended with, in a form to compare; None without one.

    Letters of either case, blanks, the environment's tags and a full stop at the end do not
    matter.
    """
    if episode.stop_reason not in (StopReason.SUCCESS, StopReason.TERMINATED):
        return None
    action = episode.rounds[-1].action if episode.rounds else None
    if action is None:
        return None
    _, inner = split_action(action, spec.action_tags)
    return " ".join(unicodedata.normalize("NFKC", inner).casefold().split()).removesuffix(".")


def _pass_at(tasks: Sequence[Sequence[Episode]], k: int) -> SuccessEstimate:
    return _estimate(
        [
            pass_at_k(len(episodes), sum(episode.success for episode in episodes), k)
            for episodes in tasks
            if len(episodes) >= k
        ]
    )


def _best(tasks: Sequence[Sequence[Episode]], worth: Callable[[Episode], float]) -> SuccessEstimate:
    """Return the estimate of each task's worthiest sample, the first of several."""
    chosen = [max(episodes, key=worth) for episodes in tasks]
    return _estimate([float(episode.success) for episode in chosen], list(map(_reward, chosen)))


def _all_have_logprobs(tasks: Sequence[Sequence[Episode]]) -> bool:
    return all(mean_logprob(episode) > -math.inf for episodes in tasks for episode in episodes)


def _majority(tasks: Sequence[Sequence[Episode]], spec: EnvSpec) -> SuccessEstimate:
    winners = [_most_voted(episodes, spec) for episodes in tasks]
    return _estimate(
        [fmean(episode.success for episode in episodes) for episodes in winners],
        [fmean(map(_reward, episodes)) for episodes in winners],
    )


def _most_voted(episodes: Sequence[Episode], spec: EnvSpec) -> Sequence[Episode]:
    """Return the samples with the answer of most, of several such answers the one given first.

    Samples without an answer do not vote; where none has one, all are returned.
    """
    voters: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        answer = answer_of(episode, spec)
        if answer is not None:
            voters[answer].append(episode)
    return max(voters.values(), key=len, default=episodes)


def _reward(episode: Episode) -> float:
    return episode.reward or 0.0


def _estimate(
    successes: Sequence[float], rewards: Sequence[float] | None = None
) -> SuccessEstimate:
    low, high = bootstrap_interval(successes)
    return SuccessEstimate(
        success_rate=fmean(successes) if successes else 0.0,
        success_low=low,
        success_high=high,
        tasks=len(successes),
        reward_mean=fmean(rewards) if rewards else None,
    )
