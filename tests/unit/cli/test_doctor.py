"""`agentgym doctor`: a table that fits, and remedies that can be copied."""

from __future__ import annotations

import re

import pytest

from agentgym_rl.cli import doctor
from agentgym_rl.cli.doctor import MachineFinding, diagnose
from agentgym_rl.cli.terminal import in_lines
from agentgym_rl.errors import EnvError

_REMEDY = (
    "python3 -m venv it && it/bin/pip install 'it[all]'; then env.options.python=it/bin/python"
)
_ERROR = f"it needs the package it, and {'more ' * 40}; package: {_REMEDY}; judge: not needed"


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise EnvError(_ERROR)

    monkeypatch.setattr(doctor.registry, "env_class", broken)
    found = [
        MachineFinding("Python", True, "3.11 " + "with many cores " * 8),
        MachineFinding("a browser", False, "no pages", _REMEDY),
        doctor._environment("webarena"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)


@pytest.mark.usefixtures("findings")
def test_remedies_stay_whole(capsys: pytest.CaptureFixture[str]):
    diagnose()
    lines = capsys.readouterr().out.splitlines()
    assert f"- a browser: {in_lines(_REMEDY)}" in "\n".join(lines)
    assert "- webarena: " + in_lines(_ERROR) in "\n".join(lines)
    table = lines[: lines.index("To get what is missing:")]
    assert not any("pip install" in line for line in table)
    assert max(map(len, table)) <= 80 and "…" not in "".join(table)
    assert sum(line.count("cores") for line in table) == 8, "whole in a pipe"


@pytest.mark.usefixtures("findings")
def test_the_table_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    diagnose()
    lines = capsys.readouterr().out.splitlines()
    table = lines[: lines.index("To get what is missing:")]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in table]
    assert max(map(len, plain)) <= 80 and "webarena" in "".join(plain)
    assert "- webarena: " + in_lines(_ERROR) in "\n".join(lines)
