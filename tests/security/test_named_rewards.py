"""A run folder that names a reward function: data for whoever reads the folder, never code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentgym_rl.api.eval_plan import eval_config
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.rescoring import rescore_run
from ui_servers import make_run, read_whole, ui_process

MODULE = "reward_of_a_stranger"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Give a run whose recipe names a module that leaves a file behind when it is imported."""
    (tmp_path / f"{MODULE}.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'w').close()\nreward = len\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    path = tmp_path / "runs" / "hostile"
    make_run(path)
    recipe = path / "config.toml"
    recipe.write_text(f'{recipe.read_text()}\n[reward]\nfunction = "{MODULE}:reward"\n')
    return RunFolder(path)


def was_imported(run: RunFolder) -> bool:
    return MODULE in sys.modules or (run.path.parents[1] / "imported").exists()


def test_the_ui_does_not_import_it(run: RunFolder):
    with ui_process(run.path.parent) as ui:
        read_whole(ui, "hostile")
        for route in ("config", "metrics", "reports", "facets", "episodes", "diagnosis", "time"):
            ui.get(route, run="hostile")
    assert not was_imported(run)


def test_evaluations_and_rescoring_do_not_import_it(
    run: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    config = eval_config(str(run.path), "textcraft", [])
    assert config.reward.function == ""
    assert f"add reward.function={MODULE}:reward" in caplog.text
    rescore_run(run, lambda episode: 1.0, RunFolder(tmp_path / "rescored"))
    assert not was_imported(run)


def test_a_command_that_names_it_means_it(run: RunFolder):
    named = [f"reward.function={MODULE}:reward"]
    config = eval_config(str(run.path), "textcraft", named)
    assert config.reward.function == f"{MODULE}:reward"
