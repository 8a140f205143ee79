"""The memory of this machine, or of one that somebody thinks about: no torch, no CUDA context."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30

_DRIVER = "libcuda.so.1"
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MEMINFO = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run can use."""

    gpus: tuple[Gpu, ...]
    ram_bytes: int
    """0 if it is not known; with swap, and no more than a container may take."""
    is_here: bool = True

    def __str__(self) -> str:
        where = "this machine" if self.is_here else "such a machine"
        if not self.gpus:
            return f"{where}: no GPU, {self.ram_bytes / GIB:.1f} GiB of memory"
        first = self.gpus[0]
        count = f"{len(self.gpus)} x " if len(self.gpus) > 1 else ""
        return f"{where}: {count}{first.name}, {first.num_bytes / GIB:.1f} GiB"

    def without_gpus(self) -> Machine:
        """Return the machine as a run with `model.device=cpu` sees it."""
        return Machine((), self.ram_bytes, is_here=self.is_here)


def this_machine() -> Machine:
    """Return what is here."""
    return Machine(_gpus(), _ram())


def imagined_machine(*, num_gpus: int, gpu_gib: float) -> Machine:
    """Return a machine with equal GPUs, of whose own memory nothing is known."""
    gpu = Gpu(f"GPU of {gpu_gib:g} GiB", int(gpu_gib * GIB))
    return Machine((gpu,) * num_gpus, ram_bytes=0, is_here=False)


def _gpus() -> tuple[Gpu, ...]:
    """Ask the driver, which heeds CUDA_VISIBLE_DEVICES as torch does."""
    try:
        driver = ctypes.CDLL(_DRIVER)
        count = c_int()
        if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)):
            return ()
        return tuple(_gpu(driver, index) for index in range(count.value))
    except (OSError, AttributeError):  # no driver, or one of another kind
        return ()


def _gpu(driver: ctypes.CDLL, index: int) -> Gpu:
    device, size, name = c_int(), c_size_t(), ctypes.create_string_buffer(128)
    driver.cuDeviceGet(byref(device), c_int(index))
    driver.cuDeviceTotalMem_v2(byref(size), device)
    driver.cuDeviceGetName(name, c_int(len(name)), device)
    return Gpu(name.value.decode(errors="replace"), size.value)


def _ram() -> int:
    """Return the memory with swap, or what the container may take."""
    limits = [size for size in (_meminfo(("MemTotal", "SwapTotal")), _cgroup_limit()) if size]
    return min(limits, default=_pages())


def _meminfo(keys: Sequence[str]) -> int:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux
        return 0
    sizes = {key: rest.split()[0] for key, _, rest in (line.partition(":") for line in lines)}
    return 1024 * sum(int(sizes.get(key, "0")) for key in keys)


def _cgroup_limit() -> int:
    try:
        text = _CGROUP.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0


def _pages() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not POSIX
        return 0
