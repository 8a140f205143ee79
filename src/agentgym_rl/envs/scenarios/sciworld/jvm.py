"""The Java process behind all SciWorld episodes of this Python process (`shared_jvm`).

One JVM serves many episodes: an episode holds about 0.5 MB of its heap, a JVM of its own would
hold 200 MB. It is started when first needed, replaced after it died, and ends with this process,
however that ends: it watches a pipe from it. What an episode does is in simulator.py.

Identity hash codes are switched off (`-XX:hashCode=2`), because the simulator keeps its objects in
hash sets without a hash of their own: with the default, the order in which it lists and updates
them differs from run to run. The sets are small; the cost does not show.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.envs.scenarios.sciworld.java import REMEDY, require_java
from agentgym_rl.errors import EnvError

_OPTIONS = [
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:+UnlockExperimentalVMOptions",
    "-XX:hashCode=2",
    # To read the state of the random generator (simulator.py).
    "--add-opens=java.base/java.util=ALL-UNNAMED",
]


class Jvm:
    """A running Java process and the connection to it. Use it only inside `calls()`."""

    def __init__(self) -> None:
        """Start Java (about a second). Raises EnvError where there is none or it does not start."""
        # Late: an optional extra.
        from py4j.java_gateway import GatewayParameters, JavaGateway

        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._garbage: deque[object] = deque()
        port, token, self._process = _launch()
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(
                port=port,
                auth_token=token,
                auto_convert=False,
                # We free what Java holds for us (`free`), at moments of our choice.
                enable_memory_management=False,
            )
        )
        self.java = self.gateway.jvm
        # The simulator prints several lines per step. This must come before its first class is
        # loaded, because Scala keeps the stream that it finds then.
        silence = self.java.java.io.PrintStream(self.java.java.io.OutputStream.nullOutputStream())
        self.java.java.lang.System.setOut(silence)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and belongs to this process rather than to one that forked it."""
        return self._owner == os.getpid() and self._process.poll() is None

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Hold the JVM for some calls: one thread at a time.

        Raises EnvError when Java throws, has died, or dies. After anything else that interrupts a
        call (Ctrl-C), the JVM is ended, because what it is doing is no longer known.
        """
        # Late: an optional extra.
        from py4j.protocol import Py4JError, Py4JJavaError

        with self._lock:
            if not self.is_alive:
                raise EnvError(
                    "the Java process of this sciworld episode is gone: reset it to continue"
                )
            try:
                while self._garbage:
                    self.gateway.detach(self._garbage.popleft())
                yield
            except Py4JJavaError as error:
                raise EnvError(f"the ScienceWorld simulator failed: {error}") from error
            except (Py4JError, OSError) as error:
                self.kill()
                raise EnvError(f"the Java process of sciworld died: {error}") from error
            except EnvError:
                raise
            except BaseException:
                self.kill()
                raise

    def free(self, java_object: object) -> None:
        """Let Java collect an object that it returned to us, with the next call. Never blocks."""
        self._garbage.append(java_object)

    def kill(self) -> None:
        """End the process now. Safe to repeat."""
        if self._owner != os.getpid():
            return
        self._process.kill()
        self._process.wait()
        self.gateway.close()

    def forget(self) -> None:
        """In a forked child: let go of the pipe, so that the JVM ends with its own process."""
        if self._process.stdin is not None:
            self._process.stdin.close()


def shared_jvm() -> Jvm:
    """Return this process's JVM, started anew when there is none or it died."""
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.is_alive:
            _shared = Jvm()
        return _shared


def package_folder() -> Path:
    """Return where `scienceworld` is installed. Raises ModuleNotFoundError where it is not."""
    folders: list[str] = []
    for name in ("scienceworld", "py4j"):
        # Not imported: that takes a while, and we need only the jar of the former.
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        folders += spec.submodule_search_locations
    return Path(folders[0])


def _launch() -> tuple[int, str, subprocess.Popen[bytes]]:
    """Return the port, the secret and the process of a new JVM."""
    # Late: an optional extra.
    from py4j.java_gateway import launch_gateway

    folder, java = package_folder(), require_java()
    with tempfile.TemporaryFile() as errors:
        try:
            port, token, process = launch_gateway(
                classpath=str(folder / "scienceworld.jar"),
                java_path=java.path,
                javaopts=_OPTIONS,
                # Ends Java when our end of its standard input closes.
                die_on_exit=True,
                enable_auth=True,
                redirect_stderr=errors,
                cwd=str(folder),
                return_proc=True,
            )
        except Exception as error:
            errors.seek(0)
            said = errors.read(2000).decode(errors="replace").strip() or str(error)
            raise EnvError(
                f"Java {java.version} at {java.path} did not start: {said}. Try another: {REMEDY}"
            ) from error
    return port, token, process


_shared: Jvm | None = None
_shared_lock = threading.Lock()


@atexit.register
def _end() -> None:
    if _shared is not None:
        _shared.kill()


def _after_fork() -> None:
    global _shared, _shared_lock
    _shared_lock = threading.Lock()
    if _shared is not None:
        _shared.forget()
        _shared = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
