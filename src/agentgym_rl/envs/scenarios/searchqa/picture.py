"""The search trace as a picture: the question, and for every round what was asked and found."""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from agentgym_rl.envs.scenarios.searchqa.reading import Shown
from agentgym_rl.envs.scenarios.searchqa.trace import Event, Trace

_WIDTH, _MARGIN, _LINE = 760, 12, 18
_MAX_CHARS = 100
_MAX_ROUNDS = 40
_INK, _PALE, _GOLD, _RIGHT, _WRONG = "#202124", "#80868b", "#b06000", "#137333", "#c5221f"
_COLOURS = {"search": "#1a73e8", "open": "#9334e6", "python": "#00796b", "mistake": _WRONG}


@dataclass(frozen=True, slots=True)
class _TextLine:
    text: str
    colour: str
    indent: int = 0


def draw_trace(trace: Trace) -> bytes:
    """Return the picture as PNG. Gold passages stand out; of many rounds the last are shown."""
    lines = _lines(trace)
    height = 2 * _MARGIN + _LINE * len(lines)
    image = Image.new("RGB", (_WIDTH, height), "white")
    draw, font = ImageDraw.Draw(image), _font()
    for number, line in enumerate(lines):
        place = (_MARGIN + 20 * line.indent, _MARGIN + _LINE * number)
        draw.text(place, line.text, fill=line.colour, font=font)
    picture = io.BytesIO()
    image.save(picture, "PNG")
    return picture.getvalue()


def _lines(trace: Trace) -> list[_TextLine]:
    num_gold = f"{len(trace.gold_seen)} of {len(trace.question.gold)} gold passages seen"
    question = textwrap.wrap(f"Question: {trace.question.text}", _MAX_CHARS)
    lines = [*(_TextLine(part, _INK) for part in question), _TextLine(num_gold, _PALE)]
    first = max(0, len(trace.events) - _MAX_ROUNDS)
    for number, event in enumerate(trace.events[first:], first + 1):
        lines.append(_TextLine(_short(f"{number}. {event.kind}: {event.text}"), _colour(event)))
        lines += [_found(shown, trace) for shown in event.shown]
    return lines


def _found(shown: Shown, trace: Trace) -> _TextLine:
    is_gold = shown.passage.id in trace.question.gold
    mark = "* " if is_gold else "- "
    return _TextLine(_short(mark + shown.passage.title), _GOLD if is_gold else _PALE, indent=1)


def _colour(event: Event) -> str:
    if event.kind == "answer":
        return _RIGHT if event.is_right else _WRONG
    return _COLOURS[event.kind]


def _short(text: str) -> str:
    """Return one line that fits."""
    return textwrap.shorten(text, _MAX_CHARS, placeholder=" ...")


@cache
def _font() -> ImageFont.FreeTypeFont:
    """Return the font of matplotlib, which has letters of most languages; found without import."""
    spec = find_spec("matplotlib")
    assert spec is not None and spec.origin is not None, "matplotlib is always installed"
    file = Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), 12)
