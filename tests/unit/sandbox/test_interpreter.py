"""Code in the sandbox computes; whatever else it tries is contained, and the next call works."""

# ruff: noqa: E501 - an attempt stays on its line

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox import interpreter
from agentgym_rl.sandbox.interpreter import (
    MAX_CODE_CHARS,
    SandboxLimits,
    run_code,
    why_unavailable,
)
from agentgym_rl.sandbox.syscalls import MACHINES, make_filter

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

LIMITS = SandboxLimits(wall_s=60.0, cpu_s=1, memory_mb=256, output_chars=500, scratch_mb=2)

ESCAPES = {
    "fork": "import os\nif os.fork() == 0: os._exit(0)\nprint('ESCAPED')",
    "fork by libc": "import ctypes\nif ctypes.CDLL(None).fork() >= 0: print('ESCAPED')",
    "fork bomb": "import os\nwhile True:\n  try: os.fork(); print('ESCAPED')\n  except OSError: pass",
    "threads": "import _thread\n_thread.start_new_thread(print, ('ESCAPED',))",
    "a program by subprocess": "import subprocess\nsubprocess.run(['echo', 'ESCAPED'])",
    "a shell by system": "import os\nos.system('echo ESCAPED')",
    "a shell by exec": "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo ESCAPED'])",
    "posix_spawn": "import os\nos.posix_spawn('/bin/echo', ['echo', 'ESCAPED'], {})",
    "reading /etc/passwd": "print('ESCAPED', open('/etc/passwd').read())",
    "listing the root": "import os\nprint('ESCAPED', os.listdir('/'))",
    "the parent's environment": "import os\nopen(f'/proc/{os.getppid()}/environ')\nprint('ESCAPED')",
    "the parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem')\nprint('ESCAPED')",
    "the parent's files": "import os\nos.listdir(f'/proc/{os.getppid()}/fd')\nprint('ESCAPED')",
    "its own memory": "open('/proc/self/mem', 'r+b')\nprint('ESCAPED')",
    "the root through proc": "print('ESCAPED', open('/proc/self/root/etc/passwd').read())",
    "up from the folder": "import os\nprint('ESCAPED', os.listdir('..'))",
    "a symbolic link": "import os\nos.symlink('/etc/passwd', 'x')\nprint('ESCAPED', open('x').read())",
    "a hard link": "import os\nos.link('/etc/passwd', 'x')\nprint('ESCAPED', open('x').read())",
    "another folder": "import os\nos.chdir('/etc')\nprint('ESCAPED', open('passwd').read())",
    "the victim's text": "print('ESCAPED', open('VICTIM').read())",
    "writing elsewhere": "open('VICTIM', 'w').write('ESCAPED')",
    "truncating elsewhere": "import os\nos.truncate('VICTIM', 0)\nprint('ESCAPED')",
    "deleting elsewhere": "import os\nos.unlink('VICTIM')\nprint('ESCAPED')",
    "moving in": "import os\nos.rename('VICTIM', 'x')\nprint('ESCAPED')",
    "changing rights": "import os\nos.chmod('VICTIM', 0o777)\nprint('ESCAPED')",
    "changing times": "import os\nos.utime('VICTIM', (0, 0))\nprint('ESCAPED')",
    "folders": "import os\nos.mkdir('x')\nprint('ESCAPED')",
    "a device": "open('/dev/mem', 'rb')\nprint('ESCAPED')",
    "the internet": "import socket\nsocket.create_connection(('127.0.0.1', PORT), 1)\nprint('ESCAPED')",
    "datagrams": "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ESCAPED')",
    "local sockets": "import socket\nsocket.socket(socket.AF_UNIX)\nprint('ESCAPED')",
    "pairs of sockets": "import socket\nsocket.socketpair()\nprint('ESCAPED')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK)\nprint('ESCAPED')",
    "urllib": "import urllib.request as r\nr.urlopen('http://127.0.0.1:PORT')\nprint('ESCAPED')",
    "killing the parent": "import os\nos.kill(os.getppid(), 9)\nprint('ESCAPED')",
    "killing all": "import os\nos.kill(-1, 9)\nprint('ESCAPED')",
    "signals through a pipe's owner": (
        "import fcntl, os, struct\n"
        "r, w = os.pipe()\n"
        "fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n"
        "fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')\nprint('ESCAPED')"
    ),
    "tracing the parent": (
        "import ctypes, os\nif ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0: print('ESCAPED')"
    ),
    "reading the parent": (
        "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
        "if libc.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0) >= 0: print('ESCAPED')"
    ),
    "namespaces": "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('ESCAPED')",
    "mounting": (
        "import ctypes\nif ctypes.CDLL(None).mount(b'x', b'.', b'tmpfs', 0, 0) == 0: print('ESCAPED')"
    ),
    "memory files": "import os\nos.memfd_create('x')\nprint('ESCAPED')",
    "io_uring": (
        "import ctypes\nif ctypes.CDLL(None).syscall(425, 1, (ctypes.c_char * 200)()) >= 0: print('ESCAPED')"
    ),
    "another user": "import os\nos.setuid(os.getuid() + 1)\nprint('ESCAPED')",
    "raising limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\nprint('ESCAPED')"
    ),
    "a new session": "import os\nos.setsid()\nprint('ESCAPED')",
    "other packages": "import numpy\nprint('ESCAPED')",
    "our own package": "import agentgym_rl.envs.registry\nprint('ESCAPED')",
    "open file descriptors": (
        "import os\nfor fd in range(3, 64):\n  try: os.fstat(fd); print('ESCAPED', fd)\n  except OSError: pass"
    ),
    "a handle on the root": "import os\nroot = os.open('/', os.O_PATH)\nos.open('etc/passwd', os.O_RDONLY, dir_fd=root)\nprint('ESCAPED')",
    "a handle on the parent": "import os\nos.pidfd_open(os.getppid())\nprint('ESCAPED')",
    "the parent's limits": "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))\nprint('ESCAPED')",
    "the parent's priority": "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)\nprint('ESCAPED')",
    "a terminal's input": "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')\nprint('ESCAPED')",
    "the terminal": "open('/dev/tty')\nprint('ESCAPED')",
}  # fmt: skip
"""Each prints or writes ESCAPED where it gets what it wants."""

EXHAUSTIONS = {
    "an endless loop": ("while True: pass", "seconds"),
    "a loop that catches": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
        "seconds",
    ),
    "sleeping": ("import time\nprint()\ntime.sleep(1000)", "longer than 60 seconds"),
    "waiting for input": ("import sys\nprint(sys.stdin.read())", ""),
    "memory": ("x = 'a' * 10**10", ""),
    "memory by little": ("x = []\nwhile True: x.append(bytearray(10**6))", ""),
    "shared memory": ("import mmap\nm = [mmap.mmap(-1, 2**24) for _ in range(10**4)]", ""),
    "a huge integer": ("print(len(str(9 ** 9 ** 9)))", "seconds"),
    "a huge output": ("while True: print('x' * 10**6)", "printed too much"),
    "deep recursion": ("def f(): return f()\nf()", ""),
    "recursion without a limit": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return [f()]\nf()",
        "",
    ),
    "a broken pointer": ("import ctypes\nctypes.string_at(0)", "crashed"),
    "one huge file": ("f = open('x', 'wb')\nwhile True: f.write(b'x' * 10**5)", ""),
    "many files": (
        "import time\nfor i in range(100): open(str(i), 'wb').write(b'x')\ntime.sleep(1000)",
        "files",
    ),
    "many bytes in a few files": (
        "import time\nfor i in range(9): open(str(i), 'wb').write(bytes(10**6))\ntime.sleep(1000)",
        "files",
    ),
    "open files": ("x = []\nwhile True: x.append(open('x', 'w'))", ""),
    "a closed output": (
        "import os, time\nos.close(1); os.close(2)\ntime.sleep(1000)",
        "longer than 60 seconds",
    ),
    "pipes": ("import os\nx = []\nwhile True: x.append(os.pipe())", ""),
    "deep parentheses": ("(" * 10_000, ""),
}
"""The code, and what its end is called; "" where Python itself or an error ends it."""


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the parent, which the user may read and write."""
    file = tmp_path / "secret.txt"
    file.write_text("precious")
    return file


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def assert_unharmed(victim: Path) -> None:
    assert victim.read_text() == "precious"
    assert run_code("6 * 7", LIMITS) == interpreter.SandboxResult("42\n", "")


def skip_an_hour_once_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the sandbox's clock when the code first prints or closes its output."""
    skipped_s = 0.0
    take = interpreter._Watch._read

    def read(watch: interpreter._Watch, pipe: int) -> bool:
        nonlocal skipped_s
        skipped_s = 3600.0
        return take(watch, pipe)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + skipped_s)
    monkeypatch.setattr(interpreter._Watch, "_read", read)
    monkeypatch.setattr(interpreter, "time", clock)


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escape_is_contained(name: str, victim: Path, port: int):
    code = ESCAPES[name].replace("VICTIM", str(victim)).replace("PORT", str(port))
    before = victim.stat()
    result = run_code(code, LIMITS)
    assert "ESCAPED" not in result.output and "precious" not in result.output
    assert victim.stat() == before
    assert_unharmed(victim)


@pytest.mark.parametrize("name", EXHAUSTIONS)
def test_an_exhaustion_is_contained(name: str, victim: Path, monkeypatch: pytest.MonkeyPatch):
    code, problem = EXHAUSTIONS[name]
    if problem.startswith("longer"):
        skip_an_hour_once_it_runs(monkeypatch)
    started = time.monotonic()
    result = run_code(code, LIMITS)
    assert time.monotonic() - started < 40
    assert len(result.output) <= LIMITS.output_chars
    assert (problem in result.problem) if problem else True, result
    monkeypatch.undo()
    assert_unharmed(victim)


def test_computing_time_is_limited_apart_from_the_clock(monkeypatch: pytest.MonkeyPatch):
    result = run_code("while True: pass", SandboxLimits(wall_s=60.0, cpu_s=1))
    assert result.problem == "it used more than 1 seconds of computing time"
    skip_an_hour_once_it_runs(monkeypatch)
    code = "import time\nprint()\ntime.sleep(1000)"
    result = run_code(code, SandboxLimits(wall_s=60.0, cpu_s=60))
    assert result.problem == "it ran longer than 60 seconds"


def test_what_is_contained_was_refused_and_not_simply_broken():
    """The same attempts, less the sandbox, are such as work: the errors are the kernel's."""
    for name in ("fork", "local sockets", "another user", "a new session", "memory files"):
        assert re.match(r"PermissionError: \[Errno 1\]", run_code(ESCAPES[name], LIMITS).output)
    for name in ("reading /etc/passwd", "listing the root", "up from the folder"):
        assert re.match(r"PermissionError: \[Errno 13\]", run_code(ESCAPES[name], LIMITS).output)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(interpreter.tempfile, "tempdir", str(tmp_path))
    # Other tests of the process may have left something too, which may end meanwhile.
    children = set(psutil.Process().children(recursive=True))
    num_files = len(os.listdir("/proc/self/fd"))
    for code in ("open('x', 'w').write('y')", "while True: pass", "import os; os.fork()"):
        run_code(code, LIMITS)
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= num_files
    assert set(psutil.Process().children(recursive=True)) <= children


def test_the_parents_secrets_do_not_travel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("API_KEY", "hush")
    code = "import os, sys\nprint(dict(os.environ), sys.argv, os.getcwd())"
    assert "hush" not in run_code(code, LIMITS).output


def test_code_answers_like_an_interactive_session():
    assert run_code("2 + 2", LIMITS).output == "4\n"
    assert run_code("x = 6\nprint(x)\nx * 7", LIMITS).output == "6\n42\n"
    assert run_code("None", LIMITS).output == ""
    assert run_code("", LIMITS).output == ""
    assert (
        run_code("x = 1\n1 / 0", LIMITS).output == "ZeroDivisionError: division by zero (line 2)\n"
    )
    assert run_code("x = (", LIMITS).output == "SyntaxError: '(' was never closed (line 1)\n"
    assert run_code("import sys\nprint('a')\nsys.exit(3)", LIMITS).output == "a\n"
    assert run_code("print('\ud800é')", LIMITS).output == "?é\n"


def test_the_standard_library_is_there():
    modules = (
        "math cmath decimal fractions statistics datetime calendar re json itertools collections "
        "functools random string hashlib bisect heapq operator unicodedata textwrap csv zlib enum "
        "dataclasses typing copy numbers difflib"
    )
    result = run_code("\n".join(f"import {name}" for name in modules.split()), LIMITS)
    assert result == interpreter.SandboxResult("", "")


def test_files_live_as_long_as_a_call():
    assert run_code("open('x', 'w').write('y')\nopen('x').read()", LIMITS).output == "'y'\n"
    assert "FileNotFoundError" in run_code("open('x')", LIMITS).output


def test_the_same_code_prints_the_same():
    code = "import random\nprint({'a', 'b', 'c', 'd'}, random.random())"
    assert run_code(code, LIMITS) == run_code(code, LIMITS)


def test_output_before_the_end_is_kept():
    result = run_code("print('so far')\nwhile True: pass", LIMITS)
    assert result.output == "so far\n" and result.problem


def test_long_code_is_refused():
    assert "longer than" in run_code("#" * (MAX_CODE_CHARS + 1), LIMITS).problem
    assert run_code("#" + "漢" * (MAX_CODE_CHARS - 1), LIMITS).problem == ""


def test_calls_run_side_by_side():
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda n: run_code(f"{n} ** 2", LIMITS).output, range(16)))
    assert outputs == [f"{n**2}\n" for n in range(16)]


def test_where_the_locks_fail_no_code_is_run(monkeypatch: pytest.MonkeyPatch):
    broken = "from agentgym_rl.sandbox import inside, locks\nlocks.MACHINES = {}\ninside.main()"
    monkeypatch.setattr(interpreter, "_COMMAND", broken)
    with pytest.raises(EnvError, match="it knows the system calls of"):
        run_code("print('ESCAPED')", LIMITS)
    monkeypatch.setattr(interpreter, "_COMMAND", "raise SystemExit('no interpreter')")
    with pytest.raises(EnvError, match="no interpreter"):
        run_code("print('ESCAPED')", LIMITS)


def test_a_killed_parent_takes_its_sandbox_along(tmp_path: Path):
    file = tmp_path / "pid"
    pid = os.fork()
    if pid == 0:
        code = "import os\nprint(os.getpid())\nimport time\ntime.sleep(1000)"
        interpreter._Watch._read = _die_once_written(file)
        run_code(code, SandboxLimits(wall_s=60.0))
        os._exit(0)
    os.waitpid(pid, 0)
    child = int(file.read_text())
    for _ in range(3000):
        if _has_ended(child):
            return
        time.sleep(0.01)
    pytest.fail("the sandbox outlived its parent")


def _has_ended(pid: int) -> bool:
    """Say so also of a process that only waits for its new parent to take note."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _die_once_written(file: Path):
    """Return a reader of output that writes down the pid which the code prints, and dies."""

    def read(watch: interpreter._Watch, pipe: int) -> bool:
        file.write_bytes(os.read(pipe, 65536))
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    return read


@pytest.mark.parametrize("name", MACHINES)
def test_the_filter_fits_the_kernels_machine(name: str):
    steps = make_filter(MACHINES[name])
    assert len(steps) % 8 == 0 and len(steps) // 8 <= 4096
