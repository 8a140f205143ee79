"""One run as one HTML page: nothing it needs lies elsewhere, and nothing of it runs.

What is on the page is put together here; the template decides how it looks, and escapes every text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2

from agentgym_rl import __version__
from agentgym_rl.evaluation.report import EvalReport, Score, by_env, with_numbers
from agentgym_rl.evaluation.stored import readable_reports
from agentgym_rl.report import curves
from agentgym_rl.report.curves import Chart, Series, chart
from agentgym_rl.report.episodes import ShownEpisode, sample_episodes
from agentgym_rl.report.runs import RunLine, open_run, run_line
from agentgym_rl.report.settings import RunSettings, run_settings
from agentgym_rl.report.words import age, line, percent
from agentgym_rl.runs.record import Locks
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.diagnosis import diagnosis
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.series import Row

_READING_S = 120.0
"""For the episodes of a large run; what is not read by then is left out, and the page says so."""


@dataclass(frozen=True, slots=True)
class BeforeAfter:
    """Success of one category before and after training."""

    name: str
    before: Score | None
    after: Score


@dataclass(frozen=True, slots=True)
class EnvResult:
    """What an environment's evaluations say."""

    title: str
    success: str
    """What counts as success, in words."""
    rows: tuple[BeforeAfter, ...]
    is_learned: str
    """Whether success changed, in words."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What the template is given."""

    run: RunLine
    facts: tuple[tuple[str, str], ...]
    results: tuple[EnvResult, ...]
    charts: tuple[Chart, ...]
    findings: tuple[Mapping[str, str], ...]
    episodes: tuple[ShownEpisode, ...]
    settings: RunSettings
    problems: tuple[str, ...]
    made_at: str
    version: str = __version__


def report_page(path: Path) -> str:
    """Return the page about the run in a folder. Raises ConfigError where there is no run."""
    catalog, series, config = open_run(path)
    run = run_line(catalog, ".", Locks.now())
    reports, report_problems = readable_reports(catalog.folder("."))
    decoders = Decoders(1)
    index = EpisodeIndex(catalog.episodes("."), decoders)
    try:
        problems = [run.problem, *report_problems, _read_all(index)]
        found = diagnosis(index, series)
        episodes = sample_episodes(catalog.episodes("."), index, decoders)
    finally:
        index.close()
        decoders.close()
    rows = series.rows()
    page = _Page(
        run=run,
        facts=tuple(_facts(run, rows, config.word("model", "path") or "")),
        results=tuple(_result(of_env) for of_env in by_env(reports).values()),
        charts=tuple(_charts(rows, reports, found)),
        findings=tuple(_findings(found)),
        episodes=tuple(episodes),
        settings=run_settings(catalog.folder(".").path, config.table, run.recipe),
        problems=tuple(dict.fromkeys(line(text) for text in problems if text)),
        made_at=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    return _template().render(page=page, width=curves.WIDTH, height=curves.HEIGHT)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "line": line}
    return environment.get_template("report.html.jinja")


def _read_all(index: EpisodeIndex) -> str:
    """Read the episodes; return what is left out, in words."""
    deadline = time.monotonic() + _READING_S
    state = index.refresh(budget_s=_READING_S)
    while state.parts_read < state.parts and time.monotonic() < deadline:
        time.sleep(0.02)
        state = index.refresh(budget_s=1.0)
    if state.parts_read < state.parts:
        return f"episodes: {state.parts_read} of {state.parts} parts were read in time"
    return state.problem or ""


def _facts(run: RunLine, rows: Sequence[Row], model: str) -> list[tuple[str, str]]:
    """Return what is said of the run at the top, by name."""
    seconds = sum(row.get("time/step_s") or 0.0 for row in rows)
    steps = f"{run.step} of {run.target}" if run.target else str(run.step)
    facts = [
        ("state", f"{run.state}{f': {run.error}' if run.error else ''}"),
        ("recipe", run.recipe or "not recorded"),
        ("environment", run.env),
        ("model", model),
        ("algorithm", run.algorithm),
        ("steps", steps),
        ("time in steps", age(seconds) if seconds else ""),
        ("last change", run.updated_at.replace("T", " ").replace("Z", " UTC")),
    ]
    return [(name, line(value)) for name, value in facts if value]


def _result(reports: Sequence[EvalReport]) -> EnvResult:
    first, last = reports[0], reports[-1]
    before = first if len(reports) > 1 else None
    names = last.categories if len(last.categories) > 1 else ()
    rows = [
        BeforeAfter(line(name), before.categories.get(name) if before else None, score)
        for name, score in ((name, last.categories[name]) for name in names)
    ]
    rows.append(BeforeAfter("all", before.overall if before else None, last.overall))
    steps = f"step {first.step} and step {last.step}" if before else f"step {last.step}"
    return EnvResult(
        title=line(f"{last.env}, {last.split} tasks, {steps}, at most {last.max_rounds} rounds"),
        success=line(last.success),
        rows=tuple(rows),
        is_learned=_verdict(before.overall, last.overall) if before else "",
    )


def _verdict(before: Score, after: Score) -> str:
    """Return whether success changed; intervals that do not overlap are beyond chance."""
    if not before.episodes or not after.episodes:
        return "No episode completed on one of the sides, so nothing can be said."
    rates = f"from {before.success_rate:.0%} to {after.success_rate:.0%}"
    if after.success_low > before.success_high:
        return f"Success rose {rates}: the 95% intervals do not overlap."
    if after.success_high < before.success_low:
        return f"Success fell {rates}: the 95% intervals do not overlap."
    return (
        f"Success went {rates}. The 95% intervals overlap: more tasks, or the paired test of "
        "`agentgym eval --compare`, would tell whether it changed."
    )


def _charts(
    rows: Sequence[Row], reports: Sequence[EvalReport], found: Mapping[str, object]
) -> list[Chart]:
    """Return success over the steps, then the charts of the diagnosis."""
    steps = [float(row["step"] or 0) for row in rows]
    series = [Series("training tasks", steps, [row.get("rollout/success_rate") for row in rows])]
    for env, of_env in by_env(with_numbers(reports)).items():
        scores = [report.overall for report in of_env]
        series.append(
            Series(
                line(f"held-out tasks of {env}"),
                [report.step for report in of_env],
                [score.success_rate for score in scores],
                [score.success_low for score in scores],
                [score.success_high for score in scores],
            )
        )
    text = "Share of episodes that succeed. Bars are 95% intervals."
    drawn = [chart("Success", text, series, is_share=True)]
    drawn += [_diagnosed(item, found["steps"]) for item in _list(found["charts"])]
    return [item for item in drawn if item is not None]


def _diagnosed(item: object, steps: object) -> Chart | None:
    assert isinstance(item, dict) and isinstance(steps, list), "as `diagnosis` gives them"
    lines = [Series(line(each["name"]), steps, each["values"]) for each in item["series"]]
    return chart(item["title"], item["text"], lines, is_share=item["unit"] == "share")


def _findings(found: Mapping[str, object]) -> list[Mapping[str, str]]:
    return [
        {name: str(item[name]) for name in ("severity", "title", "text")}
        for item in _list(found["findings"])
        if isinstance(item, dict)
    ]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
