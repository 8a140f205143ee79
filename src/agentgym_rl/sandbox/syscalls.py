"""The system calls that code in the sandbox may make, as a filter for the kernel (seccomp).

A list of what is allowed: a Python program may compute, read files, write to its pipe, sleep and
end. Everything else fails with EPERM: sockets, processes, threads, signals to others, changes of
files, limits or owners, and anything that a newer kernel adds.
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
_LOAD, _AND, _JUMP_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
"""Offsets in the data that a filter sees: the lower half of an argument comes first."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One processor architecture: its number in filters, and the numbers of its calls."""

    audit_arch: int
    allowed: tuple[int, ...]
    opening: Mapping[int, int]
    """The calls that open files, with the position of the flags among their arguments."""
    read_flags: int
    """The flags of opening that neither write nor create: O_CLOEXEC, O_DIRECTORY, O_LARGEFILE,
    O_NOCTTY, O_NOFOLLOW, O_NONBLOCK. Their values differ between architectures."""
    fcntl: int
    ioctl: int
    capset: int


_X86_64 = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
    "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
    "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20, "access": 21, "pipe": 22,
    "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "dup2": 33,
    "nanosleep": 35, "getpid": 39, "exit": 60, "getcwd": 79, "gettimeofday": 96, "getrusage": 98,
    "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204,
    "getdents64": 217, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
    "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262, "faccessat": 269,
    "pselect6": 270, "ppoll": 271, "dup3": 292, "pipe2": 293, "getrandom": 318, "statx": 332,
    "faccessat2": 439,
}  # fmt: skip

_AARCH64 = {
    "getcwd": 17, "dup": 23, "dup3": 24, "faccessat": 48, "close": 57, "pipe2": 59,
    "getdents64": 61, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66,
    "pread64": 67, "pselect6": 72, "ppoll": 73, "newfstatat": 79, "fstat": 80, "exit": 93,
    "exit_group": 94, "futex": 98, "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114,
    "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135,
    "rt_sigreturn": 139, "getrusage": 165, "gettimeofday": 169, "getpid": 172, "getppid": 173,
    "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214,
    "munmap": 215, "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233,
    "getrandom": 278, "statx": 291, "faccessat2": 439,
}  # fmt: skip

MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
        0xC000003E,
        tuple(_X86_64.values()),
        opening={2: 1, 257: 2},
        read_flags=0o2000000 | 0o200000 | 0o100000 | 0o400 | 0o400000 | 0o4000,
        fcntl=72,
        ioctl=16,
        capset=126,
    ),
    "aarch64": Machine(
        0xC00000B7,
        tuple(_AARCH64.values()),
        opening={56: 2},
        read_flags=0o2000000 | 0o40000 | 0o400000 | 0o400 | 0o100000 | 0o4000,
        fcntl=25,
        ioctl=29,
        capset=91,
    ),
}
"""By the machine's name in `uname`; the sandbox supports no others."""

_UNKNOWN = (435, 437)
"""clone3 and openat2 hide their flags in a structure, which no filter can read. They return
ENOSYS, as on an older kernel, so that libraries use clone and openat instead."""
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)
"""Duplicating and flags; not F_SETOWN, which can have a signal sent to any process."""
_IOCTL_COMMANDS = (0x5401, 0x5450, 0x5451)
"""TCGETS (is it a terminal?), and the flag that closes a file on exec."""


def make_filter(machine: Machine) -> bytes:
    """Return the filter: a program for the kernel's small virtual machine, 8 bytes per step."""
    steps = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQUAL, machine.audit_arch, if_equal=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    for number in machine.allowed:
        steps += _answer(number, _ALLOW)
    for number, place in machine.opening.items():
        steps += _allow_reading(number, place, machine.read_flags)
    for number, commands in ((machine.fcntl, _FCNTL_COMMANDS), (machine.ioctl, _IOCTL_COMMANDS)):
        steps += _allow_commands(number, commands)
    for number in _UNKNOWN:
        steps += _answer(number, _ERRNO | errno.ENOSYS)
    steps.append(_step(_RETURN, _ERRNO | errno.EPERM))
    return b"".join(steps)


class FilterProgram(ctypes.Structure):
    """The number of steps and their address, as the kernel takes them."""

    _fields_ = (("num_steps", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _answer(number: int, answer: int) -> list[bytes]:
    """Return `answer` if the loaded value is `number`, otherwise continue."""
    return [_step(_JUMP_EQUAL, number, if_not=1), _step(_RETURN, answer)]


def _allow_commands(number: int, commands: Sequence[int]) -> list[bytes]:
    """Allow one call only with these values of its second argument."""
    body = [_step(_LOAD, _ARGUMENTS + 8)]
    for command in commands:
        body += _answer(command, _ALLOW)
    body.append(_step(_RETURN, _ERRNO | errno.EPERM))
    return [_step(_JUMP_EQUAL, number, if_not=len(body)), *body]


def _allow_reading(number: int, place: int, read_flags: int) -> list[bytes]:
    """Allow one call only with these flags.

    They contain no access mode, so only O_RDONLY passes: not O_WRONLY, O_RDWR or mode 3, for which
    Landlock requires no right.
    """
    body = [
        _step(_LOAD, _ARGUMENTS + 8 * place),
        _step(_AND, ~read_flags & 0xFFFFFFFF),
        *_answer(0, _ALLOW),
        _step(_RETURN, _ERRNO | errno.EPERM),
    ]
    return [_step(_JUMP_EQUAL, number, if_not=len(body)), *body]


def _step(code: int, value: int, *, if_equal: int = 0, if_not: int = 0) -> bytes:
    """Return one step; a comparison skips this many steps."""
    return struct.pack("=HBBI", code, if_equal, if_not, value)
