"""How much memory there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_rl.sizing import machine
from agentgym_rl.sizing.machine import GIB, Gpu, Machine, imagined_machine, this_machine


def test_this_machine_has_memory():
    found = this_machine()
    assert found.ram_bytes > GIB // 4 and "this machine: " in str(found)


def test_swap_counts_and_a_containers_limit_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:  4194304 kB\nMemFree: 9 kB\nSwapTotal:  1048576 kB\n")
    monkeypatch.setattr(machine, "_MEMINFO", meminfo)
    monkeypatch.setattr(machine, "_CGROUP", limit)
    assert this_machine().ram_bytes == 5 * GIB
    limit.write_text("max\n")
    assert this_machine().ram_bytes == 5 * GIB
    limit.write_text(f"{2 * GIB}\n")
    assert this_machine().ram_bytes == 2 * GIB
    limit.unlink()
    meminfo.unlink()
    assert this_machine().ram_bytes > 0, "other systems count pages"


def stand_in_driver(name: str, *, status: int = 0) -> SimpleNamespace:
    """Return a driver with two GPUs; ctypes passes what its functions write to by reference."""
    assert name == "libcuda.so.1"

    def write(value: object) -> Callable[..., int]:
        def call(where: Any, *_: object) -> int:  # Any: ctypes does not name the type
            getattr(where, "_obj", where).value = value
            return 0

        return call

    return SimpleNamespace(
        cuInit=lambda flags: status,
        cuDeviceGetCount=write(2),
        cuDeviceGet=write(0),
        cuDeviceTotalMem_v2=write(80 * GIB),
        cuDeviceGetName=write(b"NVIDIA H100"),
    )


def test_the_driver_names_its_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine.ctypes, "CDLL", stand_in_driver)
    found = this_machine()
    assert found.gpus == (Gpu("NVIDIA H100", 80 * GIB),) * 2
    assert str(found) == "this machine: 2 x NVIDIA H100, 80.0 GiB"
    assert found.without_gpus() == Machine((), found.ram_bytes)


def test_a_driver_that_finds_nothing_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine.ctypes, "CDLL", partial(stand_in_driver, status=100))
    assert this_machine().gpus == ()


def test_an_imagined_machine_has_gpus_of_a_size():
    found = imagined_machine(num_gpus=4, gpu_gib=80)
    assert len(found.gpus) == 4 and found.gpus[0].num_bytes == 80 * GIB
    assert str(found) == "such a machine: 4 x GPU of 80 GiB, 80.0 GiB"
