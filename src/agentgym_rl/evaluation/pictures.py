"""Reports as pictures: bars for categories, a curve over horizons; intervals are 95%."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.evaluation.samples import SuccessEstimate
from agentgym_rl.evaluation.suite import SuiteReport

_COLORS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")
_MISSING = "#888888"
_WIDTH, _BAR_INCHES, _MARGIN_INCHES = 8.0, 0.34, 1.5

Bar = tuple[str, Score | None, str]
"""Name, score and color; without a score it says that there is none."""


def draw_report(path: Path, report: EvalReport) -> None:
    """Write a PNG with a bar for each category and for all."""
    bars: list[Bar] = [(name, score, _COLORS[0]) for name, score in report.categories.items()]
    bars.append(("all", report.overall, _COLORS[1]))
    _draw_bars(path, bars, title=f"{report.title}, at most {report.max_rounds} rounds")


def draw_suite(path: Path, suite: SuiteReport) -> None:
    """Write a PNG with a bar for each task of each environment, at the first horizon."""
    rows = list(suite.task_scores())
    envs = list(dict.fromkeys(env for env, *_ in rows))
    bars: list[Bar] = [
        (f"{env}: {category}", scores[0] if scores else None, _COLORS[envs.index(env) % 8])
        for env, category, scores, _ in rows
    ]
    model = next(iter(suite.reports.values()))[0].model
    _draw_bars(path, bars, title=model)


def draw_horizons(path: Path, reports: Sequence[EvalReport]) -> None:
    """Write a PNG with success over the horizon; with several samples per task, pass@k too."""
    ordered = sorted(reports, key=lambda report: report.max_rounds)
    figure, axes = new_figure(4.5)
    limits = [report.max_rounds for report in ordered]
    draw_rates(axes, limits, [report.overall for report in ordered], "success", _COLORS[0])
    several = [report.several for report in ordered if report.several is not None]
    if len(several) == len(ordered):
        for k, color in zip([k for k in several[0].pass_at if k != "1"], _COLORS[1:], strict=False):
            draw_rates(axes, limits, [item.pass_at[k] for item in several], f"pass@{k}", color)
    axes.set(
        xlabel="limit on rounds",
        ylabel="success rate",
        ylim=(0, 1),
        title=ordered[0].title,
        xticks=limits,
    )
    axes.legend(loc="best")
    save_figure(figure, path)


def draw_rates(
    axes: Axes,
    places: Sequence[int],
    scores: Sequence[Score | SuccessEstimate],
    label: str,
    color: str,
) -> None:
    """Draw success rates at places of the axis, each with its interval."""
    axes.errorbar(
        places,
        [score.success_rate for score in scores],
        yerr=_errors(scores),
        marker="o",
        capsize=3,
        color=color,
        label=label,
    )


def _draw_bars(path: Path, bars: Sequence[Bar], *, title: str) -> None:
    figure, axes = new_figure(_MARGIN_INCHES + _BAR_INCHES * len(bars))
    for place, (_, score, color) in enumerate(bars):
        if score is None:
            axes.text(0.01, place, "not evaluated", va="center", color=_MISSING, fontsize=8)
            continue
        axes.barh(
            place,
            score.success_rate,
            xerr=_errors([score]),
            color=color,
            height=0.7,
            error_kw={"capsize": 2, "elinewidth": 1, "ecolor": "#333333"},
        )
    labels = [f"{name} ({score.episodes})" if score else name for name, score, _ in bars]
    axes.set_yticks(range(len(bars)), labels, fontsize=8)
    axes.set(
        xlabel="success rate (95% interval)",
        xlim=(0, 1),
        ylim=(len(bars) - 0.4, -0.6),  # the first bar at the top
        title=title,
    )
    save_figure(figure, path)


def _errors(scores: Sequence[Score | SuccessEstimate]) -> list[list[float]]:
    """Return how far intervals reach below and above their rates."""
    return [
        [max(0.0, score.success_rate - score.success_low) for score in scores],
        [max(0.0, score.success_high - score.success_rate) for score in scores],
    ]


def new_figure(height: float) -> tuple[Figure, Axes]:
    """Return an empty figure of this height in inches."""
    figure = Figure(figsize=(_WIDTH, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
