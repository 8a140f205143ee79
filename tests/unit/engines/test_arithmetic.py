"""What decides the last bits of a run: kept, compared at a resume, and said where it fails."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.native.arithmetic import FILE, Arithmetic, note_arithmetic
from agentgym_rl.engines.native.engine import NativeEngine
from engine_plays import endless_policy


def test_an_engine_notes_what_it_found(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    NativeEngine(endless_policy(), NativeEngineConfig(), folder=tmp_path / "engine").close()
    noted = json.loads((tmp_path / "engine" / FILE).read_text())
    assert noted["threads"] == torch.get_num_threads()
    assert noted["is_exact"] and noted["rows"] >= 16
    assert not caplog.records


def test_a_resume_with_other_threads_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    now = Arithmetic(threads=2, torch="2.13", cpu="x86_64 AVX2", rows=16, is_exact=True)
    note_arithmetic(now, tmp_path)
    note_arithmetic(now, tmp_path)
    assert not caplog.records
    note_arithmetic(replace(now, threads=16, rows=64), tmp_path)
    note_arithmetic(replace(now, threads=16, rows=64), tmp_path)
    assert len(caplog.records) == 1
    assert "began with threads=2, rows=16, and resumes with threads=16, rows=64" in caplog.text


def test_a_machine_that_cannot_give_it_is_said(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        note_arithmetic(Arithmetic(3, "2.13", "x86_64 AVX2", 16, is_exact=False), None)
    assert "not bit by bit; OMP_NUM_THREADS=1 may fix it" in caplog.text
