"""What a run's curves say, in plain words: collapses, dead groups, drifts, rewards without success.

Every rule compares the first fifth of the steps with the last fifth (at least three each), and
names the numbers that it rests on. A rule is a hint for a person, never a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

Values = Sequence[float | None]
Severity = Literal["bad", "warn", "info", "good"]

_MIN_STEPS = 6
FLAT_GROUPS = ("Entropy collapse", "Groups without spread")
"""Titles of findings that groups with one reward show best."""
_SOLVED = 0.8
"""Above this success, samples of a task that agree are a policy that knows what to do."""


@dataclass(frozen=True, slots=True)
class CurveFinding:
    """Something to look at; `steps` are the first and the last step it is about."""

    severity: Severity
    title: str
    text: str
    steps: tuple[int, int]
    look: Mapping[str, str | int] = field(default_factory=dict)
    """Filter and order of the list of episodes that bring up what it is about."""


@dataclass(frozen=True, slots=True)
class Curves:
    """The columns of a run by name, aligned to its steps."""

    steps: Sequence[int]
    columns: Mapping[str, Values]

    @property
    def window(self) -> int:
        return max(3, len(self.steps) // 5)

    @property
    def late_steps(self) -> tuple[int, int]:
        return self.steps[-self.window], self.steps[-1]

    def ends(self, name: str) -> tuple[float, float] | None:
        """Return the means of the first and the last window; None where either is empty."""
        values = self.columns.get(name) or ()
        early = [value for value in values[: self.window] if value is not None]
        late = [value for value in values[-self.window :] if value is not None]
        return (fmean(early), fmean(late)) if early and late else None

    def rise(self, name: str) -> float:
        """Return how much the last window lies above the first; 0 where nothing is known."""
        ends = self.ends(name)
        return ends[1] - ends[0] if ends else 0.0


def findings(curves: Curves) -> list[CurveFinding]:
    """Return what the rules find, the gravest first."""
    if len(curves.steps) < _MIN_STEPS:
        return []
    found = [finding for rule in _RULES if (finding := rule(curves)) is not None]
    gravity = {"bad": 0, "warn": 1, "info": 2, "good": 3}
    return sorted(found, key=lambda finding: gravity[finding.severity])


def _entropy_collapse(curves: Curves) -> CurveFinding | None:
    ends = curves.ends("entropy")
    if ends is None or ends[0] <= 0 or ends[1] > 0.1 * ends[0]:
        return None
    is_bad, success = curves.rise("success_rate") < 0.05, curves.ends("success_rate")
    is_solved = success is not None and success[1] > _SOLVED
    return CurveFinding(
        "bad" if is_bad else "info" if is_solved else "warn",
        "Entropy collapse",
        f"The policy's entropy fell from {ends[0]:.3g} to {ends[1]:.3g} nats per token: its "
        "samples of a task are nearly the same, so groups have little to compare"
        + (", and success did not rise with it." if is_bad else ". Success rose meanwhile.")
        + " Set policy_loss.entropy_coef and policy_loss.entropy_target, or lower training.lr.",
        curves.late_steps,
    )


def _flat_groups(curves: Curves) -> CurveFinding | None:
    ends, success = curves.ends("flat_groups"), curves.ends("success_rate")
    if ends is None or ends[1] < 0.6:
        return None
    late = success[1] if success else 0.0
    why = "nearly all episodes succeed" if late > _SOLVED else "nearly all episodes fail"
    if 0.2 <= late <= _SOLVED:
        why = "episodes of one task end alike, though tasks differ"
    tasks = "harder" if late > _SOLVED else "easier" if late < 0.2 else "other"
    rest = ", rollout.rest_solved" if late > 0.5 else ""
    return CurveFinding(
        "info" if late > _SOLVED else "bad",
        "Groups without spread",
        f"In {ends[1]:.0%} of the groups all episodes have the same reward ({why}), so they teach "
        f"nothing. Choose {tasks} tasks{rest}, a larger algorithm.group_size, or more "
        "training.tasks_per_step with rollout.drop_without_spread.",
        curves.late_steps,
    )


def _drift(name: str, what: str, remedy: str, sort: str) -> Callable[[Curves], CurveFinding | None]:
    def rule(curves: Curves) -> CurveFinding | None:
        ends = curves.ends(name)
        if ends is None or ends[0] <= 0 or 0.5 < ends[1] / ends[0] < 1.6:
            return None
        grew = ends[1] > ends[0]
        rose = curves.rise("success_rate") >= 0.05
        return CurveFinding(
            "info" if rose else "warn",
            f"{what} {'grow' if grew else 'shrink'}",
            f"{what} per episode went from {ends[0]:.1f} to {ends[1]:.1f}"
            + (" while success rose." if rose else f" without more success. {remedy}"),
            curves.late_steps,
            {"sort": sort, "order": "desc" if grew else "asc"},
        )

    return rule


def _invalid_actions(curves: Curves) -> CurveFinding | None:
    ends = curves.ends("invalid_rate")
    if ends is None or not (ends[1] >= 0.3 or (ends[1] >= 0.1 and ends[1] > 2 * ends[0])):
        return None
    is_rising = ends[1] > ends[0] * 1.2
    return CurveFinding(
        "bad" if is_rising and ends[1] >= 0.3 else "warn",
        "Invalid actions",
        f"{ends[1]:.0%} of the rounds have no valid action (at first {ends[0]:.0%}). Look at "
        "these rounds: a reply cut by rollout.max_tokens_per_round, a format that the model does "
        "not keep, actions that the environment does not know, or an agent that tries things out "
        "because rounds cost it nothing (credit.discount below 1 makes them cost).",
        curves.late_steps,
        {"invalid_min": 1, "sort": "num_invalid"},
    )


def _reward_without_success(curves: Curves) -> CurveFinding | None:
    reward, success = curves.ends("reward_mean"), curves.ends("success_rate")
    if reward is None or success is None:
        return None
    scale = max(abs(reward[0]), abs(reward[1]), 1e-9)
    if reward[1] - reward[0] < 0.2 * scale or success[1] - success[0] >= 0.02:
        return None
    return CurveFinding(
        "bad",
        "Reward rises, success does not",
        f"Mean reward went from {reward[0]:.3g} to {reward[1]:.3g}, success from {success[0]:.1%} "
        f"to {success[1]:.1%}. The agent may earn partial credit without solving tasks: read "
        "episodes with high reward and no success.",
        curves.late_steps,
        {"outcome": "failure", "sort": "reward"},
    )


def _above(
    name: str,
    limit: float,
    title: str,
    text: str,
    *,
    bad_from: float = math.inf,
    look: Mapping[str, str | int] | None = None,
) -> Callable[[Curves], CurveFinding | None]:
    """Return a rule about a column that ends at `limit` or more; `text` has {first} and {last}."""

    def rule(curves: Curves) -> CurveFinding | None:
        ends = curves.ends(name)
        if ends is None or ends[1] < limit:
            return None
        severity: Severity = "bad" if ends[1] >= bad_from else "warn"
        told = text.format(first=ends[0], last=ends[1])
        return CurveFinding(severity, title, told, curves.late_steps, look or {})

    return rule


def _learning(curves: Curves) -> CurveFinding | None:
    ends = curves.ends("success_rate")
    if ends is None or abs(ends[1] - ends[0]) < 0.05:
        return None
    rose = ends[1] > ends[0]
    return CurveFinding(
        "good" if rose else "bad",
        "Success rises" if rose else "Success falls",
        f"Success went from {ends[0]:.1%} to {ends[1]:.1%} of the episodes.",
        (curves.steps[0], curves.steps[-1]) if rose else curves.late_steps,
        {} if rose else {"outcome": "failure"},
    )


_RULES: tuple[Callable[[Curves], CurveFinding | None], ...] = (
    _entropy_collapse,
    _reward_without_success,
    _flat_groups,
    _invalid_actions,
    _above(
        "repeat_rate",
        0.3,
        "Repeated replies",
        "{last:.0%} of the replies repeat, word for word, an earlier one of the same episode (at "
        "first {first:.0%}): the agent goes in circles.",
        look={"repeats_min": 1, "sort": "num_repeats"},
    ),
    _drift(
        "tokens_mean",
        "Sampled tokens",
        "Read the longest replies; cap or penalise length.",
        "num_tokens",
    ),
    _drift(
        "rounds_mean",
        "Rounds",
        "Compare long episodes with short ones of the same task.",
        "num_rounds",
    ),
    _above(
        "failed_rate",
        0.05,
        "Failed episodes",
        "{last:.0%} of the episodes failed for reasons that are not the agent's (deadlines, "
        "environments, engine) and are not learned from; their errors are in the list of episodes "
        "with outcome failed.",
        bad_from=0.25,
        look={"outcome": "failed"},
    ),
    _above(
        "logprob_diff",
        0.05,
        "Engine and learner disagree",
        "Log-probabilities of the same tokens differ by {last:.3g} on average before the update. "
        "Use the same dtype in both, or policy_loss.importance_cap.",
    ),
    _above(
        "updates_skipped",
        0.2,
        "Updates without effect",
        "{last:.2g} updates per step were skipped: there was nothing to learn from, or the "
        "gradient was not finite.",
    ),
    _learning,
)
