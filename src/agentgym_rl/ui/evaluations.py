"""Evaluations: every one below the runs folder, one in full, and two compared task by task.

An evaluation is named by its run, its step and its environment. Reports are read from `eval/` of a
run or from the folder of `agentgym eval`; a comparison rests on the stored episodes.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from agentgym_rl.config.load import flatten
from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.compare import compare_rates, differing_limits, limits_of
from agentgym_rl.types import StopReason
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.parts import MAX_ROWS

Report = dict[str, Any]  # Any: what a file holds is known to the file alone

_COUNT = re.compile(r"[0-9]{1,6}")
_MAX_RUNS = 500
_MAX_TASKS = 1500
"""Of a comparison: its interval draws tasks 10,000 times."""
_MAX_CHANGED = 100
_WAIT_S = 2.0
_SHOWN = (
    "env", "split", "step", "max_rounds", "temperature", "overall", "samples_per_task", "pass_at",
    "model",
)  # fmt: skip
_FAILURES = ", ".join(f"'{reason}'" for reason in StopReason if reason.is_failure)
_RATES = f"""
    SELECT env || '/' || task_index || CASE WHEN task_seed > 0 THEN '/' || task_seed ELSE '' END
               AS task,
           avg(success::INT)::DOUBLE AS rate, first(category) AS category, first(goal) AS goal,
           min(key) AS key, first(part) AS part, first("group") AS "group"
    FROM episodes
    WHERE phase = 'eval' AND step = ? AND env = ? AND stop_reason NOT IN ({_FAILURES})
    GROUP BY 1 ORDER BY min(key)
"""


@dataclass(frozen=True, slots=True)
class EvaluationName:
    """Which evaluation: "runs/a" after step 30 on "babyai"."""

    run: str
    step: int
    env: str


class Evaluations:
    """Reads evaluations. Thread-safe."""

    def __init__(
        self,
        catalog: RunCatalog,
        reports: Callable[[str], dict[str, object]],
        index: Callable[[str], EpisodeIndex],
    ) -> None:
        self._catalog, self._reports, self._index = catalog, reports, index
        self._comparing = threading.Lock()

    def listed(self) -> dict[str, object]:
        """Return every evaluation in few words, run by run, by step."""
        runs, problem = self._catalog.find()
        found: list[dict[str, object]] = []
        for run in runs[:_MAX_RUNS]:
            try:
                found += [self._line(run, report) for report in self.of_run(run)]
            except (ApiError, OSError) as error:
                problem = problem or f"the evaluations of {run!r} cannot be read: {error}"
        if len(runs) > _MAX_RUNS:
            problem = f"only the evaluations of the first {_MAX_RUNS} runs are shown"
        return {"evaluations": found, "problem": problem}

    def of_run(self, run: str) -> list[Report]:
        reports = self._reports(run)["reports"]
        assert isinstance(reports, list), "as the reader gives them"
        kept = [_read(report) for report in reports if isinstance(report.get("overall"), dict)]
        return sorted(kept, key=lambda report: (report["step"], report["env"]))

    def curves(self, run: str) -> dict[str, dict[str, list[object]]]:
        """Return the success of a run's evaluations over its steps, with intervals, by metric.

        `metrics.jsonl` has neither intervals nor what there was before the first step.
        """
        curves: dict[str, dict[str, list[object]]] = {}
        for report in self.of_run(run):
            score = report["overall"]
            if score.get("success_rate") is None:
                continue
            columns = ("steps", "values", "low", "high")
            curve = curves.setdefault(
                f"eval/{report['env']}/success_rate", {column: [] for column in columns}
            )
            names = ("success_rate", "success_low", "success_high")
            for column, value in zip(
                columns, (report["step"], *(score.get(name) for name in names)), strict=True
            ):
                curve[column].append(value)
        return curves

    def _line(self, run: str, report: Report) -> dict[str, object]:
        line = {name: report[name] for name in _SHOWN} | {"run": run}
        return line | {"is_of_training": not self._catalog.config(run).is_evaluation}

    def report(self, name: EvaluationName) -> dict[str, object]:
        """Return one evaluation in full."""
        for report in self.of_run(name.run):
            if (report["step"], report["env"]) == (name.step, name.env):
                return report | {"run": name.run}
        raise ApiError(
            404, f"there is no evaluation on {name.env!r} after step {name.step} of {name.run!r}"
        )

    def compare(self, a: EvaluationName, b: EvaluationName) -> dict[str, object]:
        """Return B against A: the paired test in words, and the tasks that changed."""
        report_a, report_b = self.report(a), self.report(b)
        differing = differing_limits(self._limits(a, report_a), self._limits(b, report_b))
        tasks_a, tasks_b = self._tasks(a), self._tasks(b)
        if min(len(tasks_a), len(tasks_b)) > _MAX_TASKS:
            raise ApiError(
                409,
                f"more than {_MAX_TASKS} tasks on both sides are not compared here; "
                "`agentgym eval --compare` does it",
            )
        rates = [{task: row["rate"] for task, row in side.items()} for side in (tasks_a, tasks_b)]
        try:
            with self._comparing:  # it draws much at once
                found = compare_rates(a.env, rates[0], rates[1])
        except RunError as error:
            raise ApiError(409, str(error)) from error
        changed = [
            {name: row[name] for name in ("category", "goal")}
            | {"task": task, "a": row["rate"], "b": tasks_b[task]["rate"]}
            | {"episode_a": row["episode"], "episode_b": tasks_b[task]["episode"]}
            | {"group_a": row["group"], "group_b": tasks_b[task]["group"]}
            for task, row in tasks_a.items()
            if task in tasks_b and row["rate"] != tasks_b[task]["rate"]
        ]
        changed.sort(key=lambda row: (row["b"] - row["a"], row["task"]))
        return {
            "comparison": asdict(found) | {"verdict": found.verdict},
            "conditions": differing,
            "changed": changed[:_MAX_CHANGED],
            "num_changed": len(changed),
        }

    def _tasks(self, name: EvaluationName) -> dict[str, dict[str, Any]]:
        """Return the success, and an episode, of every task of an evaluation."""
        index = self._index(name.run)
        index.refresh(first=f"eval-{name.step:06d}.parquet", budget_s=_WAIT_S)
        found: dict[str, dict[str, Any]] = {}
        for row in index.ask(_RATES, [name.step, name.env]):
            key, part = row.pop("key"), row.pop("part")
            assert isinstance(key, int) and isinstance(part, int), "columns of the index"
            found[str(row.pop("task"))] = row | {"episode": f"{index.stem(part)}:{key % MAX_ROWS}"}
        if not found:
            raise ApiError(
                409,
                f"no episodes are stored of the evaluation of {name.run!r} after step {name.step} "
                f"on {name.env!r}, so it cannot be compared task by task",
            )
        return found

    def _limits(self, name: EvaluationName, report: Mapping[str, object]) -> dict[str, object]:
        table = self._catalog.config(name.run).table or {}
        try:
            settings = limits_of(flatten(table))
        except (TypeError, ValueError, RecursionError):
            settings = dict[str, object]()
        return {"rounds": report.get("max_rounds"), "split": report.get("split")} | {
            # What a run trains on decides nothing about its evaluation.
            key: value
            for key, value in settings.items()
            if not key.startswith(("env.split", "env.eval_split", "env.levels", "env.categories"))
        }


def _read(report: Mapping[str, object]) -> Report:
    """Return what is shown of a report, whatever its file holds in these places."""
    several = report.get("several")
    kept = several if isinstance(several, dict) else {}
    step, samples = report.get("step"), _number(report.get("samples_per_task"))
    chosen = {
        name: _score(kept.get(name))
        for name in ("best_by_reward", "best_by_logprob", "majority")
        if isinstance(kept.get(name), dict)
    }
    reasons = _table(report.get("stop_reasons"))
    return {
        "env": _text(report.get("env")),
        "split": _text(report.get("split")),
        "model": _text(report.get("model")),
        "success": _text(report.get("success")),
        "step": _step(step),
        "max_rounds": _number(report.get("max_rounds")),
        "temperature": _number(report.get("temperature")),
        "samples_per_task": 1 if samples is None else samples,
        "overall": _score(report.get("overall")),
        "categories": {name: _score(it) for name, it in _table(report.get("categories")).items()},
        "levels": {name: _score(it) for name, it in _table(report.get("levels")).items()},
        "pass_at": {
            str(int(k)): _score(it)
            for k, it in _table(kept.get("pass_at")).items()
            if _COUNT.fullmatch(k)
        },
        "chosen": chosen,
        "reflection": {n: _score(it) for n, it in _table(report.get("reflection")).items()},
        "stop_reasons": {reason: _number(count) for reason, count in reasons.items()},
    }


def _step(value: object) -> int:
    is_step = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return int(value) if is_step else 0


def _table(value: object) -> dict[str, object]:
    return {str(name): it for name, it in value.items()} if isinstance(value, dict) else {}


def _score(value: object) -> dict[str, float | None]:
    return {name: _number(it) for name, it in _table(value).items()}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return value if math.isfinite(value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
