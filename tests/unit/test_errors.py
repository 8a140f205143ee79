"""The remedies that errors name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl import errors


def test_a_clone_is_set_up_and_an_installation_gets_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert errors.install_command("babyai") == "make setup"
    assert errors.install_command("vllm") == "pip install -e '.[vllm]'"
    monkeypatch.setattr(errors, "_REPOSITORY", tmp_path)
    assert errors.install_command("babyai") == "pip install 'agentgym-rl[babyai]'"


def test_a_package_that_training_needs_is_missing_with_its_extra():
    told = errors.missing_training_package(ModuleNotFoundError(name="transformers.models"))
    assert told == "this needs the extra 'train' (transformers is not installed): make setup"
    assert errors.missing_training_package(ModuleNotFoundError(name="numpy")) is None


def test_the_end_of_a_process_in_words():
    assert errors.how_it_ended(3) == "exited (3)"
    assert errors.how_it_ended(None) == "exited (None)"
    assert errors.how_it_ended(-15) == "was killed by signal 15"
    killed = "was killed by signal 9; the system may have run out of memory"
    assert errors.how_it_ended(-9) == killed
