"""Whatever code in the sandbox tries, nothing outside changes, and the next call works.

The targets can be reached and written by every user, so that the locks hold and not the owner.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from agentgym_rl.sandbox import interpreter
from agentgym_rl.sandbox.interpreter import SandboxLimits, SandboxResult, run_code, why_unavailable
from agentgym_rl.sandbox.locks import NOBODY
from case_shares import spread_over
from sandbox_attacks import ATTACKS, FLOODS
from waiting import ask_until

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

LIMITS = SandboxLimits(wall_s=60.0, cpu_s=1, memory_mb=256, output_chars=500)
BROKEN = ("NameError", "SyntaxError", "TypeError", "ctypes.")
"""What an attack that never reached its target says."""
FLOOD_LIMITS = SandboxLimits(wall_s=1.0, cpu_s=1, memory_mb=256, output_chars=500)


@dataclass(frozen=True, slots=True)
class World:
    """What an attack could change or reach."""

    folder: Path
    victim: Path
    library: Path
    listeners: tuple[socket.socket, ...]
    words: dict[str, str]

    def arm(self, code: str) -> str:
        """Return the code with its targets filled in."""
        for word, value in self.words.items():
            code = code.replace(word, value)
        return code

    def snapshot(self) -> tuple[object, ...]:
        """Return everything that must stay as it is."""
        files = sorted(path.name for path in self.folder.iterdir())
        return (
            files,
            self.victim.read_text(),
            _facts(self.victim),
            _facts(self.library),
            [_has_caller(listener) for listener in self.listeners],
            socket.gethostname(),
            sorted(child.pid for child in psutil.Process().children()),
        )


def _facts(path: Path) -> tuple[object, ...]:
    """Return what `stat` says, less the time of the last reading."""
    facts = path.stat()
    return (*facts[:7], facts.st_mtime_ns, facts.st_ctime_ns)


def _has_caller(listener: socket.socket) -> bool:
    try:
        listener.accept()
    except BlockingIOError:
        return False
    return True


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        victim = folder / "victim.txt"
        victim.write_text("precious")
        victim.chmod(0o666)
        abstract = f"agentgym-test-{os.getpid()}"
        listeners = (
            socket.create_server(("127.0.0.1", 0)),
            _listen_locally(str(folder / "socket")),
            _listen_locally(f"\0{abstract}"),
        )
        (folder / "socket").chmod(0o777)
        for listener in listeners:
            listener.setblocking(False)
        library = Path(tempfile.__file__)
        words = {
            "VICTIM": str(victim),
            "SHARED": str(folder),
            "LIBRARY": str(library),
            "HOME": str(Path.home()),
            "PORT": str(listeners[0].getsockname()[1]),
            "SOCKET": str(folder / "socket"),
            "ABSTRACT": abstract,
        }
        run_code("1", LIMITS)  # its host is one of our processes from here on
        yield World(folder, victim, library, listeners, words)
        for listener in listeners:
            listener.close()


def _listen_locally(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def test_the_corpus_has_its_size():
    assert len(ATTACKS) >= 60
    assert len(set(ATTACKS.values())) == len(ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_changes_nothing_outside(name: str, world: World):
    before = world.snapshot()
    result = run_code(world.arm(ATTACKS[name]), LIMITS)
    assert "ESCAPED" not in result.output and "precious" not in result.output, result
    assert not result.output.startswith(BROKEN), result
    assert world.snapshot() == before
    assert run_code("6 * 7", LIMITS) == SandboxResult("42\n", "")


@pytest.mark.parametrize("name", spread_over(FLOODS, 3))
def test_a_flood_is_contained(name: str, world: World):
    code, problem = FLOODS[name]
    before = world.snapshot()
    result = run_code(world.arm(code), FLOOD_LIMITS)
    assert len(result.output) <= FLOOD_LIMITS.output_chars
    assert problem in result.problem, result
    assert world.snapshot() == before
    assert run_code("6 * 7", LIMITS) == SandboxResult("42\n", "")


@pytest.mark.parametrize(
    "name",
    [
        "files: truncating with access mode 3",
        "files: truncating while reading",
        "files: files without a name",
        "files: memory files",
        "files: mapped files",
        "network: TCP",
        "network: an abstract socket",
        "processes: a shell by system",
        "kernel: events as files",
    ],
)
def test_an_attack_works_outside_the_sandbox(name: str, world: World):
    """It is contained because it is refused, and not because it is broken."""
    before = world.snapshot()
    program = world.arm(ATTACKS[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ESCAPED" in done.stdout or world.snapshot() != before
    (world.folder / "x").unlink(missing_ok=True)
    world.victim.write_text("precious")
    for listener in world.listeners:
        _has_caller(listener)


def test_the_process_is_locked_in_as_seen_from_outside():
    code = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"
    before = _grandchildren()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_code, code, LIMITS)
        # The filter is the last lock, so what has one has them all.
        pid = ask_until(lambda: _filtered(_grandchildren() - before), bool)[0]
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        os.kill(pid, signal.SIGTERM)
        assert running.result().problem == "it crashed (SIGTERM)"
    user = NOBODY if os.getuid() == 0 else os.getuid()
    assert set(map(int, status["Uid"].split())) == {user}
    assert {status[f"Cap{kind}"].strip("0") for kind in ("Prm", "Eff", "Inh", "Amb")} == {""}
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == ("1", "2", "1")
    if os.getuid() == 0:
        assert status["Groups"].strip() == ""


def _grandchildren() -> set[int]:
    return {process.pid for child in psutil.Process().children() for process in child.children()}


def _filtered(pids: set[int]) -> list[int]:
    return [pid for pid in pids if "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()]


def test_what_the_parent_holds_does_not_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("API_KEY", "hush")
    secret = tmp_path / "secret"
    secret.write_text("hush")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        monkeypatch.setattr(interpreter, "_sandbox", _fresh())
        for code in (
            "import os, sys\nprint(dict(os.environ), sys.argv, os.getcwd())",
            "import os\nfor fd in range(256):\n"
            "  try: print(os.pread(fd, 9, 0))\n  except OSError: pass",
            "import ctypes\nprint(ctypes.CDLL(None).getenv(b'API_KEY'))",
        ):
            result = run_code(code, LIMITS)
            assert "hush" not in result.output
        assert result.output == "0\n"


def _fresh() -> interpreter.Sandbox:
    return interpreter.Sandbox(
        "agentgym_rl.sandbox.program:prepare", has_packages=False, max_calls=1
    )


def test_a_call_leaves_nothing_for_the_next():
    run_code("import builtins, sys\nbuiltins.left = 1\nsys.modules['left'] = 1", LIMITS)
    assert run_code("left", LIMITS).output.startswith("NameError")
    assert run_code("import left", LIMITS).output.startswith("ModuleNotFoundError")
