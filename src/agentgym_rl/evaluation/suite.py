"""One report over several environments; over the paper's five, its 27 tasks.

What could not be evaluated has a row too, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from agentgym_rl.evaluation.horizons import with_interval
from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.runs.folder import write_atomically

PAPER_TASKS = {
    "webarena": ("Shopping", "CMS", "Maps", "GitLab", "Reddit"),
    "searchqa": (
        "nq",
        "triviaqa",
        "popqa",
        "hotpotqa",
        "2wikimultihopqa",
        "musique",
        "bamboogle",
    ),
    "textcraft": ("depth 1", "depth 2", "depth 3", "depth 4"),
    "babyai": ("GoTo", "Pickup", "ActionObjDoor", "FindObjS7", "OneRoomS20", "SynthLoc"),
    "sciworld": ("Measure", "Test-conductivity", "Find", "Chem-Mix", "Lifespan"),
}
"""Environment -> its categories (`Task.category`) that are tasks of the paper, in its order.

The paper counts 27 tasks in five scenarios without listing them; these are the columns of its
tables, under nearly the same names (WebArena's table has GitLab and Reddit in one column).
Categories beyond them, such as "Other" of BabyAI and SciWorld or the embedded questions of deep
search, are in our reports, but not among the 27.
"""

NUM_PAPER_TASKS = sum(map(len, PAPER_TASKS.values()))

ALL_ENVS = (*PAPER_TASKS, "web")
"""What `--env all` evaluates on. `web` has sites and tasks of its own, which are not WebArena's."""


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """The reports of one policy on several environments."""

    reports: Mapping[str, Sequence[EvalReport]]
    """By environment, or label of a run; one for each horizon, the same number everywhere."""
    missing: Mapping[str, str]
    """Environment -> why it was not evaluated."""

    def save(self, folder: Path, name: str) -> None:
        # JSON last, as the sign that all is there.
        write_atomically(folder / f"{name}.md", self.to_markdown())
        data = {
            "reports": [asdict(report) for reports in self.reports.values() for report in reports],
            "missing": dict(self.missing),
        }
        write_atomically(folder / f"{name}.json", json.dumps(data, indent=2) + "\n")

    def to_markdown(self) -> str:
        return "\n".join(
            [
                f"# {self._title}",
                "",
                f"Temperature {self._first.temperature:g}, {self._first.samples_per_task} "
                f"sample{'s' * (self._first.samples_per_task > 1)} per task; intervals are 95%.",
                "",
                *self._environments(),
                "",
                *(self._tasks() if self._first.model else self._categories()),
                "",
                "Success is:",
                "",
                *(f"- {env}: {reports[0].success}" for env, reports in self.reports.items()),
                "",
            ]
        )

    @property
    def _title(self) -> str:
        first, number = self._first, f"{len(self.reports)} environments"
        if first.model:
            return f"{first.model} on {number}, {first.split}"
        return f"{number}: step {first.step}"

    @property
    def _first(self) -> EvalReport:
        return next(iter(self.reports.values()))[0]

    @property
    def _num_columns(self) -> int:
        return len(next(iter(self.reports.values())))

    def _environments(self) -> Iterator[str]:
        """Yield a table of environments and the mean over them, in which each counts once."""
        yield "| environment | at most | episodes | success | reward | rounds | invalid | failed |"
        yield "|---|---|---|---|---|---|---|---|"
        for env, reports in self.reports.items():
            for report in reports:
                score = report.overall
                means = (
                    f"{score.reward_mean:.3f} | {score.rounds_mean:.1f} | {score.invalid_rate:.1%}"
                )
                yield (
                    f"| {env} | {report.max_rounds} rounds | {score.episodes} "
                    f"| {with_interval(score)} | {means if score.episodes else '- | - | -'} "
                    f"| {score.failed} |"
                )
        for env, reason in self.missing.items():
            yield f"| {env} | missing: {_cell(reason)} | | | | | | |"
        for column in range(self._num_columns):
            scores = [reports[column].overall for reports in self.reports.values()]
            rates = [score.success_rate for score in scores if score.episodes]
            name = f"mean of {len(rates)}" + f", horizon {column + 1}" * (self._num_columns > 1)
            yield f"| **{name}** | | | {f'{fmean(rates):.1%}' if rates else '-'} | | | | |"

    def _categories(self) -> Iterator[str]:
        """Yield a table of the environments' categories, of an evaluation during training."""
        yield "| environment | category | episodes | success |"
        yield "|---|---|---|---|"
        for env, (report,) in self.reports.items():
            for category, score in report.categories.items():
                yield f"| {env} | {category} | {score.episodes} | {with_interval(score)} |"

    def _paper_tasks(self, env: str) -> Sequence[str]:
        """Return the categories of an environment, which a run may call otherwise."""
        found = self.reports.get(env)
        return PAPER_TASKS.get(found[0].env if found else env, ())

    def _tasks(self) -> Iterator[str]:
        """Yield a table of the paper's tasks, and of what our environments have beyond them."""
        rows = list(self.task_scores())
        num_done = sum(
            scores is not None and category in self._paper_tasks(env)
            for env, category, scores, _ in rows
        )
        yield f"## Tasks ({num_done} of the paper's {NUM_PAPER_TASKS})"
        yield ""
        columns = self._num_columns
        names = (
            [f"success, horizon {i + 1}" for i in range(columns)] if columns > 1 else ["success"]
        )
        yield f"| environment | task | episodes | {' | '.join(names)} |"
        yield "|---|---|---|" + "---|" * columns
        for env, category, scores, reason in rows:
            mark = "" if category in self._paper_tasks(env) else " (not of the paper)"
            if scores is None:
                cells, number = [_cell(reason), *[""] * (columns - 1)], ""
            else:
                cells, number = list(map(with_interval, scores)), str(scores[0].episodes)
            yield f"| {env} | {category}{mark} | {number} | {' | '.join(cells)} |"

    def task_scores(self) -> Iterator[tuple[str, str, Sequence[Score] | None, str]]:
        """Yield environment, category, its scores by horizon, and where there are none, why."""
        for env in dict.fromkeys([*PAPER_TASKS, *self.reports]):
            reports = self.reports.get(env)
            if reports is None:
                if env in self.missing:
                    for category in PAPER_TASKS[env]:
                        yield env, category, None, f"missing: {self.missing[env]}"
                continue
            wanted = dict.fromkeys([*self._paper_tasks(env), *reports[0].categories])
            for category in wanted:
                found = [report.categories.get(category) for report in reports]
                scores = [score for score in found if score is not None]
                is_there = len(scores) == len(reports)
                yield env, category, scores if is_there else None, "none among the tasks evaluated"


def _cell(text: str) -> str:
    """Return a text that does not break a table."""
    return " ".join(text.split()).replace("|", "\\|")
