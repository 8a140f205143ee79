"""`agentgym runs` and `agentgym report`. No torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.table import Table
from rich.text import Text

from agentgym_rl.cli.terminal import print_table, suggest
from agentgym_rl.errors import ConfigError, install_command
from agentgym_rl.report.runs import RunLine, list_runs
from agentgym_rl.report.words import age, line
from agentgym_rl.runs.folder import write_atomically
from agentgym_rl.runs.record import RunState

_STYLES = {
    RunState.RUNNING: "bold green",
    RunState.FINISHED: "green",
    RunState.STOPPED: "yellow",
    RunState.FAILED: "red",
    RunState.CRASHED: "red",
}


def show_runs(folder: Path, *, as_json: bool) -> None:
    """Print the runs below a folder, the one that changed last first."""
    found = list_runs(folder)
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=1))
        return
    if not found:
        print(f"there are no runs below {folder}")
        suggest(["agentgym", "train"])
        return
    print_table(_table(found))
    for each in found:
        if each.error or each.problem:
            print(f"{line(each.run)}: {line(each.error or each.problem)}", file=sys.stderr)
    newest = found[0].path
    if found[0].state in (RunState.STOPPED, RunState.FAILED, RunState.CRASHED):
        resume = ["agentgym", "train", "--run-dir", newest, "--resume"]
        suggest(resume, ["agentgym", "report", newest])
    else:
        suggest(["agentgym", "report", newest], ["agentgym", "ui", folder])


def _table(found: Sequence[RunLine]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("run", overflow="fold")
    table.add_column("state")
    table.add_column("recipe", overflow="fold")
    table.add_column("step", justify="right")
    table.add_column("success")
    table.add_column("age", justify="right", no_wrap=True)
    for each in found:
        target = f"/{each.target}" if each.target is not None else ""
        table.add_row(
            Text(line(each.run)),
            Text(each.state, style=_STYLES.get(each.state, "")),
            Text(line(each.recipe or f"({each.env})")),
            f"{each.step}{target}",
            _success(each),
            age(each.age_s),
        )
    if any(each.measured == "training tasks" for each in found):
        table.caption = "~ = training tasks; otherwise held-out tasks"
        table.caption_justify = "left"
    return table


def _success(each: RunLine) -> str:
    if each.success_before is None or each.success_now is None:
        return "-"
    mark = "~" if each.measured == "training tasks" else ""
    return f"{mark}{each.success_before:.0%} -> {each.success_now:.0%}"


def write_report(run: Path, output: Path | None) -> None:
    """Write the page about a run, and say where it is."""
    try:
        from agentgym_rl.report.page import report_page  # an optional extra
    except ModuleNotFoundError as error:
        remedy = install_command("ui")
        raise ConfigError(f"a report needs {error.name!r}: {remedy}") from error
    file = output or run / "report.html"
    if file.is_dir():
        raise ConfigError(f"{file} is a folder; name the file to write, such as {file}/report.html")
    text = report_page(run)
    write_atomically(file, text)
    print(f"{file}: {len(text.encode()) / 1000:.0f} KB, self-contained")
