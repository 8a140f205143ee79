"""The system calls that code in the sandbox may make, as a filter for the kernel (seccomp).

A list of what is allowed: a Python program that computes, reads and writes its own files, sleeps
and ends. Everything else fails with EPERM, so there are no sockets, processes, threads, signals to
others, changes of limits or owners, and nothing that a newer kernel adds.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCH, _SECOND_ARGUMENT = 0, 4, 24
"""Offsets in what the kernel shows a filter: the lower half of an argument comes first."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One processor architecture: its number in filters, and the numbers of its calls."""

    audit_arch: int
    allowed: tuple[int, ...]
    fcntl: int
    ioctl: int
    capset: int


_X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7,
    "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
    "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "pwrite64": 18, "readv": 19,
    "writev": 20, "access": 21, "pipe": 22, "select": 23, "sched_yield": 24, "mremap": 25,
    "madvise": 28, "dup": 32, "dup2": 33, "nanosleep": 35, "getpid": 39, "exit": 60, "fsync": 74,
    "ftruncate": 77, "getcwd": 79, "rename": 82, "unlink": 87, "gettimeofday": 96,
    "getrusage": 98, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    "getppid": 110, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
    "sched_getaffinity": 204, "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "openat": 257,
    "newfstatat": 262, "unlinkat": 263, "renameat": 264, "faccessat": 269, "pselect6": 270,
    "ppoll": 271, "dup3": 292, "pipe2": 293, "renameat2": 316, "getrandom": 318, "statx": 332,
    "faccessat2": 439,
}  # fmt: skip

_AARCH64 = {
    "getcwd": 17, "dup": 23, "dup3": 24, "unlinkat": 35, "renameat": 38, "ftruncate": 46,
    "faccessat": 48, "openat": 56, "close": 57, "pipe2": 59, "getdents64": 61, "lseek": 62,
    "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68,
    "pselect6": 72, "ppoll": 73, "newfstatat": 79, "fstat": 80, "fsync": 82, "exit": 93,
    "exit_group": 94, "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114,
    "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
    "rt_sigreturn": 139, "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getppid": 173,
    "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214,
    "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233,
    "renameat2": 276, "getrandom": 278, "statx": 291, "faccessat2": 439,
}  # fmt: skip

MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(0xC000003E, tuple(_X86_64.values()), fcntl=72, ioctl=16, capset=126),
    "aarch64": Machine(0xC00000B7, tuple(_AARCH64.values()), fcntl=25, ioctl=29, capset=91),
}
"""By the name that `uname` gives the machine; the sandbox works on no other."""

_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 1030)
"""Duplicating, flags and locks; not F_SETOWN, which can have a signal sent to any process."""
_IOCTL_COMMANDS = (0x5401, 0x5450, 0x5451)
"""Whether it is a terminal (TCGETS), and the flag that closes a file on exec."""


def make_filter(machine: Machine) -> bytes:
    """Return the filter: a program for the kernel's small virtual machine, 8 bytes a step."""
    steps = [
        *_load(_ARCH),
        _step(_JUMP_EQUAL, machine.audit_arch, if_equal=1),
        _step(_RETURN, _KILL),
        *_load(_NUMBER),
    ]
    for number in machine.allowed:
        steps += _allow(number)
    for number, commands in ((machine.fcntl, _FCNTL_COMMANDS), (machine.ioctl, _IOCTL_COMMANDS)):
        steps += _allow_commands(number, commands)
    steps.append(_step(_RETURN, _ERRNO | errno.EPERM))
    return b"".join(steps)


class FilterProgram(ctypes.Structure):
    """What the kernel takes: the number of steps and where they are."""

    _fields_ = (("num_steps", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _allow(number: int) -> list[bytes]:
    """Allow what is loaded if it is this number, else go on."""
    return [_step(_JUMP_EQUAL, number, if_not=1), _step(_RETURN, _ALLOW)]


def _allow_commands(number: int, commands: Sequence[int]) -> list[bytes]:
    """Allow one call with some values of its second argument, and refuse it with all others."""
    body = _load(_SECOND_ARGUMENT)
    for command in commands:
        body += _allow(command)
    body.append(_step(_RETURN, _ERRNO | errno.EPERM))
    return [_step(_JUMP_EQUAL, number, if_not=len(body)), *body]


def _load(offset: int) -> list[bytes]:
    return [_step(_LOAD, offset)]


def _step(code: int, value: int, *, if_equal: int = 0, if_not: int = 0) -> bytes:
    """Return one step; a comparison skips so many steps."""
    return struct.pack("=HBBI", code, if_equal, if_not, value)
