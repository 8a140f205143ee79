"""What benchmarks read words of their command lines with; a wrong one is told with what is right.

Each is a `type` of `argparse`, which puts the name of the option before the error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

Number = TypeVar("Number", int, float)

DEVICES = ("auto", "cpu", "cuda")


def _reader(
    convert: Callable[[str], Number], is_right: Callable[[Number], bool], wanted: str
) -> Callable[[str], Number]:
    def read(text: str) -> Number:
        try:
            number = convert(text)
        except ValueError:
            number = None
        if number is None or not is_right(number):
            raise argparse.ArgumentTypeError(f"{wanted}, got {text!r}")
        return number

    return read


def whole_from(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is `least` or more."""
    return _reader(int, lambda number: number >= least, f"a whole number of {least} or more")


def number_from(least: float) -> Callable[[str], float]:
    """Return what reads a finite number that is `least` or more."""
    return _reader(
        float, lambda number: least <= number < math.inf, f"a number of {least:g} or more"
    )


positive = _reader(float, lambda number: 0 < number < math.inf, "a number above 0")
part = _reader(float, lambda number: 0 < number < 1, "a number above 0 and below 1")


def whole_list(text: str) -> list[int]:
    """Return numbers of 1 or more, with commas between them."""
    return [whole_from(1)(word) for word in text.split(",")]


def device(text: str) -> torch.device:
    """Return one of DEVICES; auto is a GPU where there is one."""
    import torch  # start-up time of benchmarks without a model

    from agentgym_rl.models.device import choose_device

    if text not in DEVICES:
        raise argparse.ArgumentTypeError(f"one of {', '.join(DEVICES)}, got {text!r}")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError(
            f"torch {torch.__version__} finds no GPU for 'cuda' (`agentgym doctor` tells more); "
            "take cpu, or auto for what is there"
        )
    return choose_device(text)
