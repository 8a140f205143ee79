"""What goes wrong on purpose: a server that can be killed and restarted, a network that cuts."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress

import psutil

from env_servers import server_process


class FragileServer:
    """A server process with workers that can be killed and started again on its port."""

    def __init__(self, env: str, *, num_workers: int, **limits: float) -> None:
        self._env = env
        self._num_workers = num_workers
        self._limits = limits
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self._ever_seen: dict[int, psutil.Process] = {}
        self._lock = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        """Start it, at first on a free port and then always on the same."""
        url, self._process = self._stack.enter_context(
            server_process(self._env, num_workers=self._num_workers, port=self.port, **self._limits)
        )
        self.port = int(url.rpartition(":")[2])
        self._ever_seen[self._process.pid] = psutil.Process(self._process.pid)

    def kill_worker(self, draw: random.Random) -> bool:
        """Kill one of the workers; return whether there was one."""
        workers = self._workers()
        with suppress(psutil.NoSuchProcess):
            if workers:
                draw.choice(workers).send_signal(signal.SIGKILL)
                return True
        return False

    def kill(self) -> None:
        """Kill the server's process; `start` brings another."""
        assert self._process is not None
        self._workers()
        self._process.kill()
        self._stack.close()

    def kill_and_restart(self) -> None:
        """Kill the server's process and start another; blocks until that answers."""
        with self._lock:
            if self._is_stopped:
                return
            self._workers()
            assert self._process is not None
            self._process.kill()
            self._stack.close()
            self.start()

    def stop(self) -> list[psutil.Process]:
        """End it politely and return every process of it, ever, that is still there."""
        with self._lock:
            self._is_stopped = True
            self._workers()
            assert self._process is not None
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
            self._stack.close()
        _, alive = psutil.wait_procs(list(self._ever_seen.values()), 60)
        return alive

    def _workers(self) -> list[psutil.Process]:
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            workers = psutil.Process(self._process.pid).children(recursive=True)
            self._ever_seen.update((worker.pid, worker) for worker in workers)
            return workers
        return []


class CuttingProxy:
    """Passes bytes to a server until told to cut: at once, or in the middle of an answer."""

    def __init__(self, server: FragileServer) -> None:
        self._server = server
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._has_to_cut = False
        self._has_cut = asyncio.Event()
        self.url = ""

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Reset every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def cut_next_answer(self) -> None:
        """Pass on only the first half of the next chunk from the server, then reset.

        Returns when that has happened, or after two seconds without an answer.
        """
        self._has_to_cut = True
        self._has_cut.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_cut.wait(), 2)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            upstream, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:  # the server is down just now
            self._writers.discard(writer)
            writer.transport.abort()
            return
        requests = asyncio.create_task(self._pass_on(reader, to_server))
        try:
            await self._pass_on(upstream, writer, is_answer=True)
        finally:
            self._writers.discard(writer)
            requests.cancel()
            writer.transport.abort()
            to_server.transport.abort()

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        is_answer: bool = False,
    ) -> None:
        with suppress(OSError):
            while chunk := await source.read(65536):
                if is_answer and self._has_to_cut:
                    self._has_to_cut = False
                    self._has_cut.set()
                    sink.write(chunk[: len(chunk) // 2])
                    await sink.drain()
                    return
                sink.write(chunk)
                await sink.drain()
