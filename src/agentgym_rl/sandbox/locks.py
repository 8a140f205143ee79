"""What a process of the sandbox does to itself before it runs an agent's code. Linux only.

Nothing here can be undone: not by the process, not by root. Limits on resources bound what the
kernel's two gates let through.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.sandbox.syscalls import MACHINES, FilterProgram, make_filter

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522

# Rights that Landlock gives or refuses.
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_REGULAR = 1 << 5, 1 << 8
_ALL_RIGHTS = (1 << 13) - 1
"""Of the first version; what later ones add, the filter of system calls refuses."""
_SCRATCH = _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE_FILE | _MAKE_REGULAR
"""Regular files, and none in folders below: the parent has to count them quickly."""
_OTHER_PACKAGES = ("site-packages", "dist-packages")


class LockError(Exception):
    """The process could not be locked in; the text says what this machine lacks."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What the kernel lets one process use."""

    cpu_s: int
    memory_bytes: int
    """Of address space."""
    file_bytes: int
    """Of one file."""
    max_open_files: int = 16


def lock_in(limits: ProcessLimits, *, scratch: Path, library: Path) -> None:
    """Bind this process for ever: files in `scratch`, the standard library to read, no more.

    Raises LockError where the kernel does not offer what it takes.
    """
    machine = MACHINES.get(platform.machine())
    if machine is None:
        known = ", ".join(MACHINES)
        raise LockError(f"it knows the system calls of {known}, not of {platform.machine()!r}")
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = _make_ruleset(libc)
    _allow_beneath(libc, ruleset, scratch, _SCRATCH)
    # Modules are found by listing the folder, which tells the names of other packages but no more.
    _allow_beneath(libc, ruleset, library, _READ_DIR)
    for entry in _own_entries(library):
        _allow_beneath(libc, ruleset, entry, _READ_FILE)
    _limit_resources(limits)
    _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGKILL)
    _drop_capabilities(libc, machine.capset)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    if libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) != 0:
        raise _lacking("Landlock")
    os.close(ruleset)
    steps = make_filter(machine)
    program = FilterProgram(len(steps) // 8, steps)
    _prctl(libc, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _make_ruleset(libc: ctypes.CDLL) -> int:
    """Return a file descriptor for rules under which nothing is allowed yet."""
    if libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _ASK_VERSION) < 1:
        raise _lacking("Landlock")
    handled = ctypes.c_uint64(_ALL_RIGHTS)
    size = ctypes.sizeof(handled)
    ruleset: int = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(handled), size, 0)
    if ruleset < 0:
        raise _lacking("Landlock")
    return ruleset


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _allow_beneath(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    """Give rights to a file, or to a folder with all below it."""
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _PathBeneath(rights, parent)
        arguments = (ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        if libc.syscall(_LANDLOCK_ADD_RULE, *arguments) != 0:
            raise _lacking("Landlock")
    finally:
        os.close(parent)


def _own_entries(library: Path) -> Iterator[Path]:
    """Yield what belongs to the standard library itself."""
    for entry in library.iterdir():
        if entry.name not in _OTHER_PACKAGES and (entry.is_dir() or entry.is_file()):
            yield entry


def _limit_resources(limits: ProcessLimits) -> None:
    for kind, value in (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.max_open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _drop_capabilities(libc: ctypes.CDLL, capset: int) -> None:
    """Give up what root may do beyond others; no program is started that could get it back."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if libc.syscall(capset, header, (ctypes.c_uint32 * 6)()) != 0:
        raise _lacking("capset")


def _prctl(libc: ctypes.CDLL, option: int, value: int, address: int = 0) -> None:
    arguments = [ctypes.c_ulong(number) for number in (value, address, 0, 0)]
    if libc.prctl(option, *arguments) != 0:
        raise _lacking("seccomp" if option == _PR_SET_SECCOMP else f"prctl {option}")


def _lacking(what: str) -> LockError:
    reason = os.strerror(ctypes.get_errno())
    return LockError(
        f"{what} does not work here ({reason}); it takes Linux 5.13 with Landlock and seccomp, "
        "and a container that does not forbid them"
    )
