"""A run folder that names classes: data for whoever reads the folder, never code."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from agentgym_rl.api.eval_plan import eval_config
from agentgym_rl.cli.runs import show_runs
from agentgym_rl.errors import ConfigError
from agentgym_rl.report.page import report_page
from agentgym_rl.report.settings import run_settings
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import FILE
from ui_servers import make_run, read_whole, ui_process

MODULE = "class_of_a_stranger"
NAME = f"{MODULE}:Thing"


def make_hostile(folder: Path, monkeypatch: pytest.MonkeyPatch, sections: str) -> RunFolder:
    """Return a run whose recipe names a module that leaves a file behind when it is imported."""
    (folder / f"{MODULE}.py").write_text(f"open({str(folder / 'imported')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    path = folder / "runs" / "hostile"
    make_run(path)
    (path / "config.toml").write_text(f'[env]\nname = "textcraft"\n{sections}')
    return RunFolder(path)


def was_imported(run: RunFolder) -> bool:
    return MODULE in sys.modules or (run.path.parents[1] / "imported").exists()


def evaluate(run: RunFolder, *overrides: str):
    return eval_config(str(run.path), "textcraft", list(overrides))


def test_the_ui_imports_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sections = "".join(
        f'[{section}]\n{key} = "{NAME}"\n'
        for section, key in (
            ("algorithm", "type"), ("rounds", "type"), ("engine", "type"), ("agent", "format"),
        )
    )  # fmt: skip
    run = make_hostile(tmp_path, monkeypatch, sections)
    with ui_process(run.path.parent) as ui:
        read_whole(ui, "hostile")
        for route in ("config", "metrics", "reports", "facets", "episodes", "diagnosis", "time"):
            ui.get(route, run="hostile")
    assert not was_imported(run)


SECTIONS = (
    f'[algorithm]\ntype = "{NAME}"\n',
    f'[rounds]\ntype = "{NAME}"\n',
    f'[engine]\ntype = "{NAME}"\n',
    f'[agent]\ntype = "{NAME}"\nformat = "{NAME}"\n',
    f'[envs.a]\nname = "babyai"\n[envs.a.rounds]\ntype = "{NAME}"\n',
    f"[\"algorithm.type = '{NAME}' #\"]\ntype = 1\n",
    f'["algorithm "]\ntype = "{NAME}"\n',
)


@pytest.mark.parametrize("recipe", ["", "quickstart"])
def test_a_report_and_the_list_of_runs_import_none_of_them(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = make_hostile(tmp_path, monkeypatch, "")
    for sections in SECTIONS:
        found = run_settings(run.path, tomllib.loads(sections), recipe)
        assert "agentgym train" in found.exact_command and not was_imported(run), sections
    run.config_file.write_text(SECTIONS[0])
    (run.path / FILE).write_text(json.dumps({"state": "finished", "recipe": recipe}))
    show_runs(run.path.parent, as_json=False)
    assert "class_of_a_stranger" in report_page(run.path)
    assert not was_imported(run)


def test_an_evaluation_reads_algorithm_and_rounds_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sections = (
        f'[algorithm]\ntype = "{NAME}"\nown = 3\n[rounds]\ntype = "{NAME}"\nrounds = [2, 9]\n'
    )
    run = make_hostile(tmp_path, monkeypatch, sections)
    config = evaluate(run)
    assert config.algorithm.type == NAME and config.eval_max_rounds == 9
    assert not was_imported(run)


@pytest.mark.parametrize(
    ("section", "key"), [("engine", "type"), ("agent", "type"), ("agent", "format")]
)
def test_an_evaluation_refuses_what_would_decide_its_results(
    section: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = make_hostile(tmp_path, monkeypatch, f'[{section}]\n{key} = "{NAME}"\n')
    with pytest.raises(ConfigError, match=rf"a run folder is data.*add {section}\.{key}={NAME}"):
        evaluate(run)
    assert not was_imported(run)
    if section == "engine":
        assert evaluate(run, "engine.type=native").engine.type == "native"
    assert not was_imported(run)


def test_a_command_that_names_it_means_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = make_hostile(tmp_path, monkeypatch, f'[agent]\nformat = "{NAME}"\n')
    assert evaluate(run, f"agent.format={NAME}").agent.format == NAME
    with pytest.raises(ConfigError, match="has no 'Thing'"):
        evaluate(run, f"algorithm.type={NAME}", "agent.format=direct")
    assert was_imported(run)
