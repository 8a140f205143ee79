"""The host: a process that has imported what calls need, and forks one process per call.

    python -c "...; main()" MODULE:FUNCTION

The function takes the setup of a call and returns a function that takes the request and writes its
reply to the standard output. The first runs in the host and sees only what we wrote; the second
runs in the forked process, behind the locks.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from agentgym_rl.sandbox.locks import LockError, Locks
from agentgym_rl.sandbox.messages import Header, HostAnswer, SandboxReply
from agentgym_rl.sandbox.watch import HostError, ParentGoneError, watch

Task: TypeAlias = Callable[[bytes], None]
Prepare: TypeAlias = Callable[[bytes], Task]

_LOCKED = b"locked"
_OWN_PACKAGE = "agentgym_rl"
_STANDARD_FILES = 3


def main() -> None:
    """Serve calls until the parent closes the pipe."""
    # What a package prints on import must not look like an answer.
    requests, answers = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    try:
        host = _ForkServer(sys.argv[1], requests)
        os.write(answers, HostAnswer().pack())
        while host.serve(answers):
            pass
    except ParentGoneError:
        return
    except Exception as error:  # noqa: BLE001 - it is reported to the parent, and this process ends
        os.write(answers, HostAnswer(failure=f"{type(error).__name__}: {error}"[:2000]).pack())


class _ForkServer:
    def __init__(self, target: str, requests: int) -> None:
        module, _, function = target.partition(":")
        self._prepare: Prepare = getattr(importlib.import_module(module), function)
        self._requests = requests
        self._tasks: dict[bytes, Task] = {}
        library = Path(os.__file__).parent
        packages = _loaded_packages(library)
        self._locks = Locks(library=library, packages=packages)
        self._kept = _reach_by_descriptor({library, *(folder.parent for folder in packages)})
        sys.argv[1:] = []
        os.environ.clear()
        gc.collect()
        gc.freeze()  # otherwise collections in the forked processes would copy every page

    def serve(self, answers: int) -> bool:
        """Answer one call; False at the end of calls."""
        data = _read(self._requests, Header.SIZE)
        if not data:
            return False
        header = Header.unpack(data)
        setup = _read(self._requests, header.setup_bytes)
        if setup not in self._tasks:
            self._tasks[setup] = self._prepare(setup)
        reply = self._call(self._tasks[setup], header)
        answer = HostAnswer(problem=reply.problem, num_bytes=len(reply.data))
        _write(answers, answer.pack() + reply.data)
        return True

    def _call(self, task: Task, header: Header) -> SandboxReply:
        reply, reply_end = os.pipe()
        status, status_end = os.pipe()
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run(task, header, host=host, reply=reply_end, status=status_end)
        os.close(reply_end)
        os.close(status_end)
        try:
            said = _read(status, 2000)
            if said != _LOCKED:
                os.waitpid(pid, 0)
                raise HostError(said.decode("utf-8", "replace") or "the process died at its start")
            return watch(pid, reply, requests=self._requests, limits=header.limits)
        finally:
            os.close(status)
            os.close(reply)

    def _run(self, task: Task, header: Header, *, host: int, reply: int, status: int) -> None:
        """Be the process of one call; never returns."""
        try:
            request = _read(self._requests, header.request_bytes)
            os.dup2(reply, 1)
            os.dup2(reply, 2)
            _close_all_but({status, self._locks.descriptor, *self._kept})
            self._locks.lock_in(header.limits, parent=host)
        except BaseException as error:  # noqa: BLE001 - no code of the host may continue here
            text = str(error) if isinstance(error, LockError) else repr(error)
            os.write(status, text[:2000].encode("utf-8", "replace"))
            os._exit(1)
        os.write(status, _LOCKED)
        os.close(status)
        try:
            task(request)
        finally:
            os._exit(0)


def _loaded_packages(library: Path) -> tuple[Path, ...]:
    """Return the folders of imported packages outside the standard library, without our own."""
    folders = set[Path]()
    for name, module in list(sys.modules.items()):
        paths = module.__dict__.get("__path__", ())
        if "." not in name and name != _OWN_PACKAGE:
            folders.update(folder for path in paths if (folder := Path(path)).is_dir())
    own = {library / folder.name for folder in folders}
    return tuple(sorted(folders - own))


def _reach_by_descriptor(folders: set[Path]) -> list[int]:
    """Make imports find these folders through open descriptors, and return the descriptors.

    A user who owns nothing may be unable to reach them by name, e.g. below a private home.
    """
    names = dict[str, int]()
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        names[str(folder)] = os.open(folder, os.O_PATH | os.O_DIRECTORY)

    def renamed(path: str) -> str:
        for name, descriptor in names.items():
            if path == name or path.startswith(f"{name}/"):
                return f"/proc/self/fd/{descriptor}{path[len(name) :]}"
        return path

    library = str(Path(os.__file__).parent)
    sys.path[:] = [
        renamed(path) for path in sys.path if path == library or path.startswith(f"{library}/lib-")
    ]
    for module in list(sys.modules.values()):
        paths = module.__dict__.get("__path__")
        if isinstance(paths, list):
            paths[:] = map(renamed, paths)
    sys.path_importer_cache.clear()
    return list(names.values())


def _close_all_but(kept: set[int]) -> None:
    first = _STANDARD_FILES
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _read(pipe: int, num_bytes: int) -> bytes:
    """Return this many bytes, or fewer if the pipe ends."""
    data = bytearray()
    while len(data) < num_bytes and (chunk := os.read(pipe, num_bytes - len(data))):
        data += chunk
    return bytes(data)


def _write(pipe: int, data: bytes) -> None:
    while data:
        data = data[os.write(pipe, data) :]
