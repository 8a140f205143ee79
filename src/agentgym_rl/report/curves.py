"""Curves as lines of an SVG: the numbers a template needs, and no markup.

Coordinates are of a box of WIDTH x HEIGHT; all charts of a page have the same, so that letters have
one size and a phone shows one chart per row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 348, 12, 190
_MAX_POINTS = 400
_MAX_LINES = 6

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve over steps; None where nothing is known. With `low` and `high` it is points
    with intervals."""

    name: str
    steps: Sequence[float]
    values: Values
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """One curve as SVG has it."""

    name: str
    last: str
    """Its last value, for the legend."""
    path: str
    """The `d` of a path."""
    points: tuple[tuple[float, float], ...] = ()
    bars: tuple[tuple[float, float, float], ...] = ()
    """Intervals: x, and y of both ends."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its place and its text."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What the template draws."""

    title: str
    text: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def chart(title: str, text: str, series: Sequence[Series], *, is_share: bool) -> Chart | None:
    """Return a chart of the curves that have values; None where none has."""
    drawn = [each for each in series if any(value is not None for value in each.values)]
    drawn = drawn[:_MAX_LINES]
    if not drawn:
        return None
    steps = [step for each in drawn for step in each.steps]
    values = [value for each in drawn for value in (*each.values, *each.high) if value is not None]
    x = _Axis(min(steps), max(steps), _LEFT, _RIGHT)
    low, high = (0.0, 1.0) if is_share else (min(0.0, *values), max(values))
    y = _Axis(low, high if high > low else low + 1.0, _BOTTOM, _TOP)
    return Chart(
        title,
        text,
        tuple(_line(each, x, y, is_share=is_share) for each in drawn),
        tuple(Tick(x.place(step), f"{step:g}") for step in x.ticks(5) if step == int(step)),
        tuple(Tick(y.place(value), _number(value, is_share)) for value in y.ticks(5)),
    )


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    first: float
    last: float

    def place(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self, number: int) -> list[float]:
        """Return round values, about as many as asked for."""
        span = self.high - self.low
        if not span:
            return [self.low]
        rough = span / number
        unit = 10.0 ** math.floor(math.log10(rough))
        size = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first, last = math.ceil(self.low / size), math.floor(self.high / size)
        return [round(number * size, 10) for number in range(first, last + 1)]


def _line(series: Series, x: _Axis, y: _Axis, *, is_share: bool) -> Line:
    known = [
        (place, step, value)
        for place, (step, value) in enumerate(zip(series.steps, series.values, strict=False))
        if value is not None
    ]
    stride = math.ceil(len(known) / _MAX_POINTS)
    kept = known[::stride]
    if kept[-1] != known[-1]:
        kept.append(known[-1])
    points = tuple((x.place(step), y.place(value)) for _, step, value in kept)
    bars = tuple(
        (x.place(step), y.place(series.low[place]), y.place(series.high[place]))
        for place, step, _ in kept
        if place < min(len(series.low), len(series.high))
    )
    path = "M" + "L".join(f"{across} {down}" for across, down in points)
    is_marked = bool(bars) or len(points) == 1
    return Line(
        series.name, _number(known[-1][2], is_share), path, points if is_marked else (), bars
    )


def _number(value: float, is_share: bool) -> str:
    return f"{value:.0%}" if is_share else f"{value:,.4g}"
