"""A `/retrieve` server as Search-R1 has it, over the small library (`retrieve_server.py PORT`).

A process of its own, for tests that kill it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from small_search import SmallEngine


class Handler(BaseHTTPRequestHandler):
    """Answers with documents and scores; no other route is known."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        result = [
            [
                {
                    "document": {"id": hit.passage.id, "contents": hit.passage.contents},
                    "score": hit.score,
                }
                for hit in hits
            ]
            for hits in SmallEngine().search(asked["queries"], asked["topk"] or 3)
        ]
        body = json.dumps({"result": result}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class RetrieveProcess:
    """The server as a process on one port, which can be killed and started again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._port)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=Path(__file__).parent,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate(timeout=10)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print("ready", flush=True)
    server.serve_forever()
