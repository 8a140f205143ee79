"""The memory of a recipe on a machine: what `train --dry-run` and `doctor RECIPE` print."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentgym_rl.api.plan import plan_run
from agentgym_rl.config import RunConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.sizing.advice import refusal, remedy, shortage
from agentgym_rl.sizing.estimate import Estimate, Place, missing_cache
from agentgym_rl.sizing.find_shape import UnknownModelError
from agentgym_rl.sizing.machine import GIB, imagined_machine, this_machine
from agentgym_rl.sizing.of_recipe import estimate_of_recipe, missing_gpus

_LITTLE = 2 * GIB
"""Less than this needs no table in a dry run."""
_COLUMNS = 10_000


def size_recipe(recipe: str, overrides: Sequence[str], *, gpus: int, gpu_memory: float) -> None:
    """Print the memory of a recipe here, or on `gpus` GPUs of `gpu_memory` GiB each.

    Raises ConfigError for one that clearly cannot fit.
    """
    if gpus and not gpu_memory:
        raise typer.BadParameter(f"--gpus {gpus} also needs --gpu-memory, in GiB")
    machine = this_machine()
    if gpu_memory:
        machine = imagined_machine(num_gpus=gpus or 1, gpu_gib=gpu_memory)
    try:
        found = estimate_of_recipe(plan_run(recipe, overrides).config, machine)
    except UnknownModelError as error:
        raise ConfigError(str(error)) from error
    print_estimate(found, Console())
    if error := missing_gpus(found) or refusal(found):
        raise error


def report_memory(config: RunConfig) -> None:
    """Print the memory of a run here to standard error, where it is worth mentioning."""
    console = Console(stderr=True, highlight=False)
    try:
        found = estimate_of_recipe(config, this_machine())
    except UnknownModelError as error:
        console.print(f"memory: {error}", markup=False, soft_wrap=True)
        return
    if found.fits and max(place.learning for place in found.places) < _LITTLE:
        return
    print_estimate(found, console)
    if error := missing_gpus(found) or refusal(found):
        console.print(f"a run here is refused: {error}", markup=False, soft_wrap=True)


def print_estimate(found: Estimate, console: Console) -> None:
    """Print a table, then what fits and what does not."""
    if not console.is_terminal:
        console.width = _COLUMNS
    console.print(_title(found), soft_wrap=True, highlight=False)
    table = Table(box=SIMPLE)
    table.add_column("estimated GiB")
    for column in ("learning", "playing"):
        table.add_column(column, justify="right")
    for place in found.places:
        _add_place(table, place)
    console.print(table)
    for line in _verdict(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _title(found: Estimate) -> str:
    millions = found.shape.num_weights / 1e6
    size = f"{millions / 1e3:.3g} billion" if millions >= 1e3 else f"{millions:.3g} million"
    return escape(f"{size} weights on {found.machine}")


def _add_place(table: Table, place: Place) -> None:
    for row in place.rows:
        if row.learning or row.playing:
            at_most = " (at most)" if row.is_bound else ""
            table.add_row(row.what + at_most, _cell(row.learning), _cell(row.playing))
    of_all = f" of {place.capacity / GIB:.1f}" if place.capacity else ""
    table.add_row(f"{place.name}{of_all}", _cell(place.learning), _cell(place.playing))
    table.add_section()


def _cell(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f}" if num_bytes else ""


def _verdict(found: Estimate) -> list[str]:
    lines = []
    if not found.shape.is_dense:
        lines.append("a model with experts: the memory of a pass is a guess")
    if found.cache_bytes and found.machine.gpus:
        missing = missing_cache(found)
        text = f"room for the keys and values of {found.cache_tokens:,} tokens"
        if missing:
            wanted = found.plan.episodes * found.plan.max_tokens
            text += f"; {found.plan.episodes} episodes could need {wanted:,}, and some would be "
            text += "computed again"
        lines.append(text)
    if found.is_hopeless:
        return lines
    over = [shortage(place) for place in found.places if not place.fits]
    if over:
        lines.append(f"may not fit: {'; '.join(over)}. To make it fit: {remedy(found)}")
    else:
        lines.append("fits, by this estimate")
    return lines
