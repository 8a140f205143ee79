"""The command line lets torch's idle threads sleep."""

from __future__ import annotations

import os

import pytest

from agentgym_rl.cli.main import _spare_cores


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


def test_idle_threads_soon_sleep():
    _spare_cores()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_word_counts(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(name, "mine")
    _spare_cores()
    own = {key: os.environ.get(key) for key in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    assert own == {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None} | {name: "mine"}
