"""Hosts and their calls: slots, deadlines, failures of the sandbox itself, and what is left."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox import calls, landlock, locks, watch
from agentgym_rl.sandbox.calls import Sandbox
from agentgym_rl.sandbox.interpreter import why_unavailable
from agentgym_rl.sandbox.landlock import LandlockError, Rules
from agentgym_rl.sandbox.locks import LockError, Locks
from agentgym_rl.sandbox.messages import PATIENCE, CallLimits
from waiting import ask_until, wait_for

needs_sandbox = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

LIMITS = CallLimits(wall_s=30.0, cpu_s=5, memory_bytes=2**28, reply_bytes=1000)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = make()
    yield made
    made.close()


def make(max_calls: int = 1) -> Sandbox:
    return Sandbox("agentgym_rl.sandbox.program:prepare", has_packages=False, max_calls=max_calls)


@needs_sandbox
def test_waiting_for_a_slot_is_not_part_of_a_calls_time(sandbox: Sandbox):
    limits = CallLimits(wall_s=1.0, cpu_s=5, memory_bytes=2**28, reply_bytes=1000)
    with ThreadPoolExecutor(4) as pool:
        code = b"import time\ntime.sleep(0.3)\nprint('slept')"
        replies = list(pool.map(lambda _: sandbox.call(code, limits), range(4)))
    assert replies == [calls.SandboxReply(b"slept\n", "")] * 4


@needs_sandbox
def test_a_slot_that_never_comes_is_a_failure_of_the_sandbox(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls, "_SLOT_S", 0.01)
    with sandbox._slots, pytest.raises(EnvError, match="use fewer environments per process"):
        sandbox.call(b"1", LIMITS)
    assert sandbox.call(b"1", LIMITS).data == b"1\n"


def test_a_process_without_a_processor_is_not_slow():
    limits = CallLimits(wall_s=1.0, cpu_s=5, memory_bytes=2**28, reply_bytes=1000)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        wait_for(lambda: not watch._is_asleep(busy.pid))
        assert not watch._is_over(busy.pid, 0.9, limits)
        ask_until(lambda: watch._is_over(busy.pid, 1.1, limits), lambda is_over: not is_over)
        assert watch._is_over(busy.pid, PATIENCE * 1.1, limits)
        busy.kill()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        wait_for(lambda: watch._is_over(waiting.pid, 1.1, limits))
        assert not watch._is_over(waiting.pid, 0.9, limits)
        waiting.kill()


@needs_sandbox
def test_a_process_that_somebody_else_kills_did_nothing_wrong(sandbox: Sandbox):
    others = set(_grandchildren())  # of tests before this one, as a browser
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.call, b"import time\ntime.sleep(1000)", LIMITS)
        process = ask_until(lambda: set(_grandchildren()) - others, bool).pop()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EnvError, match="sandbox failed"):
            running.result()
    assert sandbox.call(b"1", LIMITS).data == b"1\n"


def _grandchildren() -> list[psutil.Process]:
    return [process for host in psutil.Process().children() for process in host.children()]


@needs_sandbox
def test_a_host_that_dies_is_replaced(sandbox: Sandbox):
    before = set(psutil.Process().children())
    sandbox.call(b"1", LIMITS)
    (host,) = set(psutil.Process().children()) - before
    host.kill()
    host.wait()
    with pytest.raises(EnvError, match="its host ended"):
        sandbox.call(b"1", LIMITS)
    assert sandbox.call(b"1", LIMITS).data == b"1\n"


@needs_sandbox
def test_a_forked_process_has_hosts_of_its_own(sandbox: Sandbox):
    sandbox.call(b"1", LIMITS)
    pid = os.fork()
    if pid == 0:
        is_right = sandbox.call(b"2", LIMITS).data == b"2\n"
        sandbox.close()
        os._exit(0 if is_right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert sandbox.call(b"3", LIMITS).data == b"3\n"


@needs_sandbox
def test_nothing_is_left_behind():
    children = set(psutil.Process().children(recursive=True))
    num_files = len(os.listdir("/proc/self/fd"))
    sandbox = make()
    for code in (b"1", b"import os; os.fork()", b"print('x' * 10**6)"):
        sandbox.call(code, LIMITS)
    sandbox.close()
    assert len(os.listdir("/proc/self/fd")) <= num_files
    assert set(psutil.Process().children(recursive=True)) <= children


@needs_sandbox
def test_a_killed_parent_takes_its_sandbox_along():
    program = (
        "import sys, threading\n"
        "from agentgym_rl.sandbox import interpreter\n"
        "limits = interpreter.SandboxLimits(wall_s=600.0)\n"
        "interpreter.run_code('import time; time.sleep(1000)', limits)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    family = ask_until(
        lambda: psutil.Process(parent.pid).children(recursive=True), lambda found: len(found) == 2
    )
    parent.kill()
    parent.wait()
    wait_for(lambda: all(_has_ended(process) for process in family))


def _has_ended(process: psutil.Process) -> bool:
    """Say so also of a process that only waits for its new parent to take note."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("raise SystemExit('no interpreter')", "no interpreter"),
        (
            "from agentgym_rl.sandbox import host, locks\nlocks.MACHINES = {}\nhost.main()",
            "the sandbox runs on",
        ),
        (
            "from agentgym_rl.sandbox import host, landlock\n"
            "landlock.version = lambda libc: 2\nhost.main()",
            r"Landlock version 3 \(Linux 6.2\).*found version 2",
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="takes Linux")
def test_where_the_locks_fail_nothing_is_run(
    command: str, words: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls, "_COMMAND", command)
    with pytest.raises(EnvError, match=words):
        sandbox.call(b"print('ESCAPED')", LIMITS)


@needs_sandbox
def test_a_process_with_threads_is_not_locked_in(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    command = (
        "import os\nfrom agentgym_rl.sandbox import host\n"
        "real = os.listdir\n"
        "os.listdir = lambda path: ['1', '2'] if path == '/proc/self/task' else real(path)\n"
        "host.main()"
    )
    monkeypatch.setattr(calls, "_COMMAND", command)
    with pytest.raises(EnvError, match="must have one thread, but has 2"):
        sandbox.call(b"print('ESCAPED')", LIMITS)


@pytest.mark.parametrize(("version", "found"), [(0, "none"), (1, "version 1"), (2, "version 2")])
def test_old_kernels_are_refused(version: int, found: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(landlock, "version", lambda libc: version)
    with pytest.raises(LandlockError, match=f"can forbid truncating files; found {found}"):
        Rules(ctypes.CDLL(None))


def test_unknown_machines_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(LockError, match="x86_64, aarch64, not on 'riscv64'"):
        Locks(library=tmp_path, packages=())


def test_root_that_cannot_become_another_user_is_refused(monkeypatch: pytest.MonkeyPatch):
    def refuse(groups: list[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "getresuid", lambda: (0, 0, 0))
    monkeypatch.setattr(os, "setgroups", refuse)
    with pytest.raises(LockError, match="run as an ordinary user"):
        locks._leave_root()
