"""The filter of system calls, run for both architectures by a small copy of the kernel's machine.

Each filter is tested on every machine; tests/security has the attacks, for the machine at hand.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

import pytest

from agentgym_rl.sandbox.syscalls import MACHINES, make_filter

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
I386, X32 = 0x40000003, 0x40000000
O_RDWR, O_CREAT, O_TRUNC = 2, 0o100, 0o1000

CALLS = {
    # What is called: its numbers on x86-64 and on ARM64; None where there is none.
    "read": (0, 63),
    "write": (1, 64),
    "mmap": (9, 222),
    "exit_group": (231, 94),
    "clock_gettime": (228, 113),
    "open": (2, None),
    "openat": (257, 56),
    "creat": (85, None),
    "openat2": (437, 437),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "execve": (59, 221),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "rename": (82, None),
    "renameat2": (316, 276),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "socket": (41, 198),
    "kill": (62, 129),
    "ptrace": (101, 117),
    "prctl": (157, 167),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
}


def decide(name: str, call: str, *arguments: int, arch: int | None = None, extra: int = 0) -> int:
    """Return what the filter of a machine says of a call; `extra` is added to its number."""
    number = CALLS[call][list(MACHINES).index(name)]
    assert number is not None
    machine = MACHINES[name]
    shown = struct.pack(
        "<iIQ6Q",
        number + extra,
        machine.audit_arch if arch is None else arch,
        0,
        *arguments,
        *[0] * (6 - len(arguments)),
    )
    steps = [struct.unpack("=HBBI", step) for step in _in_steps(make_filter(machine))]
    place, value = 0, 0
    while True:
        code, if_equal, if_not, operand = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", shown, operand)
            case 0x54:
                value &= operand
            case 0x15:
                place += if_equal if value == operand else if_not
            case 0x06:
                return operand
            case _:
                pytest.fail(f"an unknown step {code:#x}")


def _in_steps(program: bytes) -> list[bytes]:
    assert len(program) % 8 == 0 and len(program) // 8 <= 4096
    return [program[start : start + 8] for start in range(0, len(program), 8)]


@pytest.mark.parametrize("name", MACHINES)
def test_a_program_that_computes_is_let_through(name: str):
    for call in ("read", "write", "mmap", "exit_group", "clock_gettime"):
        assert decide(name, call) == ALLOW


@pytest.mark.parametrize("name", MACHINES)
def test_what_changes_anything_is_refused(name: str):
    refused = (
        *("clone", "execve", "truncate", "ftruncate", "renameat2", "unlinkat", "socket", "kill"),
        *("ptrace", "prctl", "io_uring_setup", "memfd_create"),
    )
    assert {decide(name, call) for call in refused} == {EPERM}


@pytest.mark.parametrize("name", MACHINES)
def test_files_are_opened_for_reading_only(name: str):
    read_flags = MACHINES[name].read_flags
    for flags in (0, read_flags, 0o2000000):
        assert decide(name, "openat", 0, 0, flags) == ALLOW
    for flags in (1, O_RDWR, 3, 3 | O_TRUNC, O_TRUNC, O_CREAT, 0o20000000, 0o10000000):
        assert decide(name, "openat", 0, 0, flags) == EPERM
        assert decide(name, "openat", 0, 0, flags | read_flags) == EPERM
    # The kernel reads 32 bits of the flags; what stands above changes nothing.
    assert decide(name, "openat", 0, 0, 1 << 32 | O_TRUNC) == EPERM


@pytest.mark.parametrize("name", MACHINES)
def test_calls_that_hide_their_flags_are_unknown(name: str):
    assert decide(name, "openat2") == decide(name, "clone3") == ENOSYS


@pytest.mark.parametrize("name", MACHINES)
def test_only_harmless_commands_reach_descriptors(name: str):
    assert decide(name, "fcntl", 0, 1030) == decide(name, "ioctl", 0, 0x5401) == ALLOW
    assert decide(name, "fcntl", 0, 8) == EPERM  # F_SETOWN
    assert decide(name, "fcntl", 0, 1031) == EPERM  # F_SETPIPE_SZ
    assert decide(name, "ioctl", 0, 0x5412) == EPERM  # TIOCSTI


@pytest.mark.parametrize("name", MACHINES)
def test_calls_of_another_architecture_end_the_process(name: str):
    assert decide(name, "read", arch=I386) == KILL


def test_the_old_calls_of_x86_are_refused():
    assert {decide("x86_64", call) for call in ("creat", "fork", "vfork", "rename", "unlink")} == {
        EPERM
    }
    assert decide("x86_64", "open", 0, 0) == ALLOW
    assert decide("x86_64", "open", 0, 3 | O_TRUNC) == EPERM
    assert decide("x86_64", "open", 0, O_CREAT | O_RDWR) == EPERM
    assert decide("x86_64", "read", extra=X32) == EPERM


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="another machine")
def test_the_flags_of_reading_are_this_machines():
    flags = (os.O_CLOEXEC, os.O_DIRECTORY, os.O_NOCTTY, os.O_NOFOLLOW, os.O_NONBLOCK)
    read_flags = MACHINES[platform.machine()].read_flags
    assert all(flag & read_flags == flag for flag in flags)
    writing = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_PATH)
    assert not any(flag & read_flags for flag in writing)
    assert os.O_TMPFILE & ~read_flags
