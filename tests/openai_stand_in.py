"""A process that answers /v1/chat/completions, for tests that kill it, slow it and make it fail.

The model knows `fakes.CountingEnv`: it reads the goal and the count in the conversation and adds
what is missing, at most 3, so it solves every task; asked for a plan or a reflection it writes one.
A token is a word, and -0.5 is every log-probability.

`behaviour.json` in its folder, read at every request, changes it: `errors`, a list of
[status, message] for the next requests; `max_words`, the longest context; `delay_s`; `refuses`, a
parameter that it does not take; `bare`, without usage and log-probabilities; `stuck`, the model
says nonsense until it has reflected.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

MODEL = "counting-model"
KEY = "sesame"


@dataclass(slots=True)
class StandIn:
    """The test's side: a running server."""

    folder: Path
    process: subprocess.Popen[str]
    port: int

    @classmethod
    def start(cls, folder: Path, *, port: int = 0) -> StandIn:
        folder.mkdir(exist_ok=True)
        words = [sys.executable, __file__, str(folder), str(port)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        return cls(folder, process, int(process.stdout.readline()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def behave(self, **behaviour: object) -> None:
        temporary = self.folder / ".behaviour.writing"
        temporary.write_text(json.dumps(behaviour), "utf-8")
        temporary.replace(self.folder / "behaviour.json")

    def forget(self) -> None:
        """Behave well again, and forget the requests so far."""
        self.behave()
        (self.folder / "calls.jsonl").unlink(missing_ok=True)

    def calls(self) -> list[dict[str, object]]:
        """Return the bodies of all requests so far."""
        file = self.folder / "calls.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _behaviour(folder: Path) -> dict[str, object]:
    file = folder / "behaviour.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def _say(messages: list[dict[str, str]], behaviour: dict[str, object]) -> str:
    last, said = messages[-1]["content"], "\n".join(item["content"] for item in messages)
    if "plan" in last.lower() or "went wrong" in last.lower():
        return "First I add, then I add more."
    if behaviour.get("stuck") and "First I add" not in said:
        return "nonsense"
    goal = int(re.findall(r"Goal: (\d+)", said)[-1])
    count = int(re.findall(r"Count: (\d+)", said)[-1])
    return f"Thought: {goal - count} to go.\nAction: add {min(3, goal - count)}"


def _error(status: int, message: str) -> web.Response:
    body = {"error": {"message": message, "type": "stand_in", "param": None}}
    return web.json_response(body, status=status)


def make_app(folder: Path) -> web.Application:
    errors = list[list[object]]()  # those of `wanted` that are still to come
    wanted = list[list[object]]()

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        with (folder / "calls.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(body) + "\n")
        behaviour = _behaviour(folder)
        if behaviour.get("errors", []) != wanted:
            wanted[:] = errors[:] = behaviour.get("errors", [])
        # Taken on arrival: a request that sleeps may be that of a test which has ended.
        error = errors.pop(0) if errors else None
        await asyncio.sleep(float(str(behaviour.get("delay_s", 0.0))))
        if request.headers.get("Authorization") not in (f"Bearer {KEY}", None):
            return _error(401, "Incorrect API key provided")
        if body["model"] != MODEL:
            return _error(404, f"The model {body['model']!r} does not exist")
        refused = str(behaviour.get("refuses", ""))
        if refused and refused in body:
            return _error(400, f"Unsupported parameter: {refused!r} is not supported")
        if error is not None:
            status, message = error
            return _error(int(str(status)), str(message))
        num_words = sum(len(item["content"].split()) for item in body["messages"])
        if num_words > int(str(behaviour.get("max_words", 10**9))):
            return _error(400, "This model's maximum context length is 4096 tokens")
        return web.json_response(_completion(body, behaviour, num_words))

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    return app


def _completion(
    body: dict[str, list[dict[str, str]]], behaviour: dict[str, object], num_words: int
) -> dict[str, object]:
    reply = _say(body["messages"], behaviour)
    choice: dict[str, object] = {"message": {"role": "assistant", "content": reply}}
    words = reply.split()
    if behaviour.get("bare"):
        return {"choices": [choice]}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": word, "logprob": -0.5} for word in words]}
    usage = {"prompt_tokens": num_words, "completion_tokens": len(words)}
    return {"choices": [choice], "usage": usage}


async def serve(folder: Path, port: int) -> None:
    runner = web.AppRunner(make_app(folder))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
