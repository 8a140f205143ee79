"""The report of one evaluation: what JSON and Markdown files in `eval/` hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from agentgym_rl.evaluation.metrics import bootstrap_interval, wilson_interval
from agentgym_rl.evaluation.own_figures import Figure, figures_markdown
from agentgym_rl.evaluation.samples import SampleScores, SuccessEstimate, reflection_markdown
from agentgym_rl.runs.folder import Metrics, write_atomically
from agentgym_rl.types import Episode, Group


@dataclass(frozen=True, slots=True)
class Score:
    """Success of a set of episodes. Failed ones are counted apart and enter no mean.

    Where none completed, rates and means are 0 and say nothing; the interval is all there is.
    """

    episodes: int
    failed: int
    success_rate: float
    success_low: float
    """Lower end of the 95% interval."""
    success_high: float
    reward_mean: float
    rounds_mean: float
    invalid_rate: float = 0.0
    """Share of actions that were invalid."""
    reply_tokens_mean: float = 0.0
    """Mean over all replies."""
    replies_cut_rate: float = 0.0
    """Share of replies that the limit on tokens cut."""


@dataclass(frozen=True, slots=True)
class EvalReport:
    """One evaluation of one policy on one environment."""

    env: str
    split: str
    step: int
    max_rounds: int
    temperature: float
    overall: Score
    categories: dict[str, Score]
    stop_reasons: dict[str, int]
    samples_per_task: int = 1
    """Episodes of each task."""
    several: SampleScores | None = None
    """What several samples of a task are worth together; None with one."""
    reflection: dict[str, SuccessEstimate] | None = None
    """Success by the number of tries, of an agent that reflects and tries again."""
    model: str = ""
    success: str = ""
    """What counts as success, in words (`EnvSpec.success`)."""
    metrics: dict[str, Figure] = field(default_factory=dict)
    """What the environment reported of its own, by name."""
    reward_parts: dict[str, Figure] = field(default_factory=dict)
    """What the reward is made of, by name."""
    reward_function: str = ""
    """The function that the rewards are of; empty where they are the environment's own."""
    env_reward_mean: float | None = None
    """Mean of the environment's own reward, where a function gave another."""
    levels: dict[str, Score] = field(default_factory=dict)
    """By level, where the tasks have several."""

    def save(self, folder: Path, name: str) -> None:
        # JSON last: a run that is resumed takes it as the sign that the report is whole.
        write_atomically(folder / f"{name}.md", self.to_markdown())
        write_atomically(folder / f"{name}.json", json.dumps(asdict(self), indent=2) + "\n")

    def to_markdown(self) -> str:
        lines = [
            f"# {self.title}",
            "",
            f"At most {self.max_rounds} rounds, temperature {self.temperature:g}; "
            "intervals are 95% "
            f"({'Wilson' if self.samples_per_task == 1 else 'bootstrap over tasks'}).",
            *([f"Success: {self.success}."] if self.success else []),
            *self._about_rewards(),
            "",
            *_table("category", {**self.categories, "**all**": self.overall}),
            *(["", *_table("level", self.levels)] if self.levels else []),
        ]
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.stop_reasons.items())
        lines += ["", f"Stop reasons: {reasons}.", ""]
        if self.overall.replies_cut_rate:
            share = f"{self.overall.replies_cut_rate:.1%}"
            lines += [f"The limit on tokens cut {share} of the replies.", ""]
        if self.several is not None:
            title = f"## {self.samples_per_task} samples per task"
            lines += [title, "", *self.several.to_markdown(), ""]
        if self.reflection is not None:
            lines += ["## With reflection", "", *reflection_markdown(self.reflection), ""]
        lines += figures_markdown("Metrics of the environment", self.metrics)
        lines += figures_markdown("Parts of the reward", self.reward_parts)
        return "\n".join(lines)

    def _about_rewards(self) -> list[str]:
        if self.env_reward_mean is None:
            return []
        return [
            f"Rewards are from {self.reward_function}; the environment's own have the mean "
            f"{self.env_reward_mean:.3f}."
        ]

    @property
    def title(self) -> str:
        """What was evaluated: "gpt-x on babyai, test", or of a run "babyai, test: step 3"."""
        if self.model:
            return f"{self.model} on {self.env}, {self.split}"
        return f"{self.env}, {self.split}: step {self.step}"


def _table(kind: str, scores: Mapping[str, Score]) -> list[str]:
    lines = [
        f"| {kind} | episodes | success | interval | reward | rounds | invalid | reply | failed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, score in scores.items():
        lines.append(
            f"| {name} | {score.episodes} | {score.success_rate:.1%} "
            f"| {score.success_low:.1%} - {score.success_high:.1%} "
            f"| {score.reward_mean:.3f} | {score.rounds_mean:.1f} | {score.invalid_rate:.1%} "
            f"| {score.reply_tokens_mean:.0f} | {score.failed} |"
            if score.episodes
            else f"| {name} | 0 | - | - | - | - | - | - | {score.failed} |"
        )
    return lines


def load_report(path: Path) -> EvalReport:
    """Return the report that `save` wrote as JSON."""
    return report_from(json.loads(path.read_text(encoding="utf-8")))


def report_from(data: dict[str, Any]) -> EvalReport:  # Any: pydantic looks at what it is
    """Return the report that a table of JSON is. Raises ValueError for anything else."""
    for item in (data, data.get("several") or {}):
        if "attempts" in item:  # the name in older reports
            item["samples_per_task"] = item.pop("attempts")
    return _from_json().validate_python(data)


@cache  # pydantic builds it once
def _from_json() -> TypeAdapter[EvalReport]:
    return TypeAdapter(EvalReport)


def by_env(reports: Sequence[EvalReport]) -> dict[str, list[EvalReport]]:
    """Return reports by their environments, in order."""
    found: dict[str, list[EvalReport]] = {}
    for report in reports:
        found.setdefault(report.env, []).append(report)
    return found


def with_numbers(reports: Sequence[EvalReport]) -> list[EvalReport]:
    """Return the evaluations in which an episode completed; the others tell no rate."""
    return [report for report in reports if report.overall.episodes]


def eval_metrics(reports: Sequence[EvalReport]) -> Metrics:
    """Return the numbers of one evaluation by their names in metrics.jsonl.

    An environment where no episode completed has none, and the mean over all is absent with it.
    """
    metrics = dict[str, float]()
    told = with_numbers(reports)
    if len(reports) > 1 and len(told) == len(reports):
        # Each environment counts once, however many tasks it has.
        metrics["eval/success_rate"] = fmean(report.overall.success_rate for report in reports)
    for report in told:
        prefix = f"eval/{report.env}"
        metrics |= {
            f"{prefix}/success_rate": report.overall.success_rate,
            f"{prefix}/reward_mean": report.overall.reward_mean,
            f"{prefix}/rounds_mean": report.overall.rounds_mean,
            **{f"{prefix}/env/{key}": item.mean for key, item in report.metrics.items()},
            **{f"{prefix}/reward/{key}": item.mean for key, item in report.reward_parts.items()},
        }
    return metrics


def score(episodes: Sequence[Episode]) -> Score:
    """Return the means over the episodes that completed."""
    completed = [episode for episode in episodes if not episode.is_failed]
    successes = sum(episode.success for episode in completed)
    low, high = wilson_interval(successes, len(completed))
    return Score(
        episodes=len(completed),
        failed=len(episodes) - len(completed),
        success_rate=successes / len(completed) if completed else 0.0,
        success_low=low,
        success_high=high,
        reward_mean=fmean(episode.reward or 0.0 for episode in completed) if completed else 0.0,
        rounds_mean=fmean(len(episode.rounds) for episode in completed) if completed else 0.0,
        invalid_rate=_share(
            sum(episode.num_invalid_actions for episode in completed),
            sum(len(episode.rounds) for episode in completed),
        ),
        reply_tokens_mean=_share(
            sum(episode.num_reply_tokens for episode in completed),
            sum(episode.num_replies for episode in completed),
        ),
        replies_cut_rate=_share(
            sum(episode.num_replies_cut for episode in completed),
            sum(episode.num_replies for episode in completed),
        ),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def score_groups(groups: Sequence[Group]) -> Score:
    """Return the score of all episodes; where tasks have several, the interval is over tasks."""
    scored = score([episode for group in groups for episode in group.episodes])
    if all(len(group.episodes) == 1 for group in groups):
        return scored
    completed = [group.completed for group in groups if group.completed]
    low, high = bootstrap_interval(
        [sum(episode.success for episode in episodes) for episodes in completed],
        [len(episodes) for episodes in completed],
    )
    return replace(scored, success_low=low, success_high=high)
