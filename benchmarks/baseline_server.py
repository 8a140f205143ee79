"""An environment server in the manner of AgentGym's: what `agentgym bench env` compares ours with.

It has that project's design: FastAPI with pydantic models, handlers on the thread pool, one
process, a dictionary of environments under a counter, no lock an environment, no lease, no limit.
It plays our `Environment` classes, so that two measurements differ in the server alone. The routes
are AgentGym's, so `AgentGymEnvSource` and AgentGym's own clients can both drive it.

    python benchmarks/baseline_server.py --env textcraft --port 36001

Not for use: an exception is a 500, and whoever forgets to close leaves an environment behind.
"""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import uvicorn
from fastapi import Body, FastAPI
from pydantic import BaseModel

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment

ENVS = ("textcraft", "babyai", "sciworld")

Answer = dict[str, object]


class IdRequest(BaseModel):
    """The body of a close."""

    id: int


class ResetRequest(BaseModel):
    """The body of a reset."""

    id: int
    data_idx: int = 0


class StepRequest(BaseModel):
    """The body of a step."""

    id: int
    action: str


@dataclass
class Held:
    """One environment and what it last said."""

    environment: Environment
    observation: str = ""
    score: float = 0.0
    is_done: bool = False


class Environments:
    """Every environment of the server, by number."""

    def __init__(self, env: str) -> None:
        self._class = registry.env_class(env)
        self._is_sciworld = env == "sciworld"
        tasks = [task for split in self._class.spec.splits for task in self._class.tasks(split)]
        self._tasks = sorted(tasks, key=lambda task: task.index)
        self._held: dict[int, Held] = {}
        self._next_id = 0
        self._counting = threading.Lock()

    def create(self) -> int:
        """Return the number of a new environment."""
        environment = self._class()
        with self._counting:
            number, self._next_id = self._next_id, self._next_id + 1
        self._held[number] = Held(environment)
        return number

    def reset(self, number: int, data_idx: int) -> Answer:
        held = self._held[number]
        task = self._tasks[data_idx % len(self._tasks)]
        held.observation = held.environment.reset(task)
        held.score, held.is_done = 0.0, False
        facts = self._facts(held) if self._is_sciworld else {}
        return {"id": number, **facts, **_state(held, 0.0)}

    def step(self, number: int, action: str) -> Answer:
        held = self._held[number]
        result = held.environment.step(action)
        reward = result.reward * (100 if self._is_sciworld else 1)
        held.observation, held.is_done = result.observation, result.is_last
        held.score += reward
        return _state(held, reward)

    def observation(self, number: int) -> str:
        return self._held[number].observation

    def close(self, number: int) -> bool:
        held = self._held.pop(number, None)
        if held is None:
            return False
        held.environment.close()
        return True

    def _facts(self, held: Held) -> Answer:
        """Return what SciWorld's reset says beside the observation, and take it out of that."""
        facts = held.environment.details()
        description = str(facts.get("task_description", ""))
        held.observation = held.observation.removeprefix(description).lstrip("\n")
        return {
            "task_name": facts.get("task_name", ""),
            "var_num": facts.get("variation", 0),
            "task_description": description,
        }


def _state(held: Held, reward: float) -> Answer:
    return {
        "observation": held.observation,
        "reward": reward,
        "score": held.score,
        "done": held.is_done,
    }


def create_app(env: str) -> FastAPI:
    """Return the application that serves one of `ENVS`.

    Answers are plain dictionaries: checking them against models would only slow the baseline down.
    """
    app = FastAPI()
    environments = Environments(env)

    @app.get("/", response_model=None)
    def greet() -> str:
        return f"This is the baseline server of {env}."

    @app.post("/create", response_model=None)
    def create(body: Annotated[dict[str, object] | None, Body()] = None) -> dict[str, int]:
        return {"id": environments.create()}

    @app.post("/reset", response_model=None)
    def reset(request: ResetRequest) -> Answer:
        return _guarded(lambda: environments.reset(request.id, request.data_idx))

    @app.post("/step", response_model=None)
    def step(request: StepRequest) -> Answer:
        return _guarded(lambda: environments.step(request.id, request.action))

    @app.get("/observation", response_model=None)
    def observation(id: int) -> str:
        return environments.observation(id)

    @app.post("/close", response_model=None)
    def close(request: IdRequest) -> bool:
        return environments.close(request.id)

    return app


def _guarded(call: Callable[[], Answer]) -> Answer:
    """Return what the call answers, or its failure with status 200, as that protocol has it."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - the manner of the original
        return {"error": str(error)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve on the loopback until interrupted; print the address when ready."""
    parser = argparse.ArgumentParser(description="The baseline environment server.")
    parser.add_argument("--env", choices=ENVS, required=True)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    chosen = parser.parse_args(arguments)
    app = create_app(chosen.env)
    listener = socket.create_server(("127.0.0.1", chosen.port))
    # It listens already: who connects from now on is answered once the server has started.
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201 - a program
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
