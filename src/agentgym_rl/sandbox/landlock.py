"""The kernel's rules about files (Landlock): everything is forbidden but reading some folders.

All rights that this kernel knows are taken away, so a newer kernel confines the code more tightly.
Code in the sandbox has no other way to a file, a port, an abstract socket or a process outside.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

MIN_VERSION = 3
"""The first that can forbid truncation (Linux 6.2)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_RULE_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""By version: the first adds up to making and removing files of all kinds, the second moving them
between folders, the third truncation, the fifth commands to devices."""
_NET_VERSION, _NET_RIGHTS = 4, 0b11
"""Binding and connecting TCP sockets."""
_SCOPE_VERSION, _SCOPES = 6, 0b11
"""Abstract sockets and signals stay among processes under the same rules."""
_QUIET_VERSION, _QUIET = 7, 1
"""Refusals are not logged: code could fill the log with them."""


class LandlockError(Exception):
    """This kernel lacks what is needed; the text names it."""


def version(libc: ctypes.CDLL) -> int:
    """Return the version of Landlock's interface; 0 without Landlock."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


class Rules:
    """Rules that any number of processes can apply to themselves; at first nothing is allowed.

    Raises LandlockError if the kernel is too old.
    """

    def __init__(self, libc: ctypes.CDLL) -> None:
        self._libc = libc
        self._version = version(libc)
        if self._version < MIN_VERSION:
            found = f"version {self._version}" if self._version else "none"
            raise LandlockError(
                f"the sandbox needs Landlock version {MIN_VERSION} (Linux 6.2), which can forbid "
                f"truncating files; found {found} on Linux {os.uname().release}"
            )
        self.descriptor = self._create()

    def _create(self) -> int:
        rights = (1 << _NUM_FILE_RIGHTS.get(self._version, max(_NUM_FILE_RIGHTS.values()))) - 1
        handled = (ctypes.c_uint64 * 3)(
            rights,
            _NET_RIGHTS if self._version >= _NET_VERSION else 0,
            _SCOPES if self._version >= _SCOPE_VERSION else 0,
        )
        size = 8 * (1 + (self._version >= _NET_VERSION) + (self._version >= _SCOPE_VERSION))
        descriptor: int = self._libc.syscall(_CREATE_RULESET, handled, size, 0)
        if descriptor < 0:
            raise _failure("create its rules")
        return descriptor

    def allow_reading(self, paths: Iterable[Path], *, list_only: bool = False) -> None:
        """Allow reading files, or folders with everything below; `list_only` allows only names."""
        for path in paths:
            right = _READ_DIR if list_only else _READ_FILE
            if path.is_dir() and not list_only:
                right |= _READ_DIR
            self._add(path, right)

    def _add(self, path: Path, rights: int) -> None:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = _PathBeneath(rights, parent)
            arguments = (self.descriptor, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
            if self._libc.syscall(_ADD_RULE, *arguments) != 0:
                raise _failure("add a rule")
        finally:
            os.close(parent)

    def obey(self) -> None:
        """Apply the rules to this process for ever."""
        flags = _QUIET if self._version >= _QUIET_VERSION else 0
        if self._libc.syscall(_RESTRICT_SELF, self.descriptor, flags) != 0:
            raise _failure("apply its rules")


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _failure(what: str) -> LandlockError:
    return LandlockError(f"Landlock could not {what}: {os.strerror(ctypes.get_errno())}")
