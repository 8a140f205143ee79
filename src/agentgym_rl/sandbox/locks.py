"""How a process of the sandbox locks itself before it touches an agent's text. Linux only.

Nothing here can be undone, not even by root. The kernel's two gates (landlock.py, syscalls.py)
decide what is possible, limits on resources how much of it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
from pathlib import Path

from agentgym_rl.sandbox.landlock import LandlockError, Rules
from agentgym_rl.sandbox.messages import CallLimits
from agentgym_rl.sandbox.syscalls import MACHINES, FilterProgram, make_filter

NOBODY = 65534
"""The user and group that a process of root becomes; they own no files."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_OTHER_PACKAGES = ("site-packages", "dist-packages")
_MAX_OPEN_FILES = 16


class LockError(Exception):
    """The process could not be locked; the text names what this machine lacks."""


class Locks:
    """The locks of one host, made once and applied by each process that it starts.

    The processes can read Python's standard library and `packages`, and nothing else. Raises
    LockError if the kernel lacks what is needed.
    """

    def __init__(self, *, library: Path, packages: tuple[Path, ...]) -> None:
        machine = MACHINES.get(platform.machine())
        if machine is None:
            known = ", ".join(MACHINES)
            raise LockError(f"the sandbox runs on {known}, not on {platform.machine()!r}")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._capset = machine.capset
        self._steps = make_filter(machine)
        try:
            self._rules = Rules(self._libc)
            # Imports list the folder, which shows the names of other packages, too.
            self._rules.allow_reading([library], list_only=True)
            self._rules.allow_reading(_own_entries(library))
            self._rules.allow_reading(packages)
        except LandlockError as error:
            raise LockError(str(error)) from error

    @property
    def descriptor(self) -> int:
        """The open file that `lock_in` needs."""
        return self._rules.descriptor

    def lock_in(self, limits: CallLimits, *, parent: int) -> None:
        """Lock this process for ever; it ends with `parent`, the process that started it."""
        num_threads = len(os.listdir("/proc/self/task"))
        if num_threads != 1:
            # The gates close for one thread only, and another could act for it.
            raise LockError(f"the process must have one thread, but has {num_threads}")
        _limit_resources(limits)
        _leave_root()
        self._drop_capabilities()
        self._prctl(_PR_SET_DUMPABLE, 0)
        # Only now, because a change of the user would clear it.
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise LockError("the process that started it has ended")
        self._prctl(_PR_SET_NO_NEW_PRIVS, 1)
        try:
            self._rules.obey()
        except LandlockError as error:
            raise LockError(str(error)) from error
        os.close(self.descriptor)
        program = FilterProgram(len(self._steps) // 8, self._steps)
        self._prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))

    def _drop_capabilities(self) -> None:
        """Give up all privileges; without starting a program they cannot be regained."""
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        if self._libc.syscall(self._capset, header, (ctypes.c_uint32 * 6)()) != 0:
            raise _lacking("giving up capabilities")

    def _prctl(self, option: int, value: int, address: int = 0) -> None:
        arguments = [ctypes.c_ulong(number) for number in (value, address, 0, 0)]
        if self._libc.prctl(option, *arguments) != 0:
            raise _lacking("seccomp" if option == _PR_SET_SECCOMP else f"prctl {option}")


def _own_entries(library: Path) -> list[Path]:
    """Return the entries of the standard library itself."""
    return [
        entry
        for entry in library.iterdir()
        if entry.name not in _OTHER_PACKAGES and (entry.is_dir() or entry.is_file())
    ]


def _limit_resources(limits: CallLimits) -> None:
    # The signal of the first limit says why a process ended; the second limit ends it regardless.
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, value in (
        (resource.RLIMIT_AS, num_pages * resource.getpagesize() + limits.memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _leave_root() -> None:
    """Become a user who owns nothing, if this is root."""
    if 0 not in os.getresuid():
        return
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as error:
        raise LockError(
            f"root could not become user {NOBODY} ({error.strerror}); run as an ordinary user, or "
            "give the container the capabilities SETUID and SETGID"
        ) from error


def _lacking(what: str) -> LockError:
    reason = os.strerror(ctypes.get_errno())
    return LockError(
        f"{what} does not work here ({reason}); the sandbox needs Linux 6.2 with Landlock and "
        "seccomp, and a container that does not forbid them"
    )
