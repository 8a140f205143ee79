"""Stand-ins for AgentGym's Python clients, and an environment and a server for them.

The clients do what AgentGym's own do, and read only the fields that those read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import requests
from starlette.applications import Starlette

from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.compat.agentgym.dialect import routes
from agentgym_rl.types import StepResult, Task
from env_services import PlainService, app_thread
from fakes import fake_spec

LAB_DESCRIPTION = "Your task is to boil water."


class Lab(Environment):
    """SciWorld in small: three heatings boil the water, "focus" on anything fails."""

    spec: ClassVar[EnvSpec] = fake_spec("sciworld")

    def __init__(self) -> None:
        self._heat = 0
        self._variation = 0
        self._has_failed = False

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        numbers = range(8) if split == "train" else range(8, 10)
        return [Task("sciworld", split, number, category="small") for number in numbers]

    def reset(self, task: Task) -> str:
        self._heat, self._variation, self._has_failed = 0, task.index, False
        return f"{LAB_DESCRIPTION}\nThis room is called the kitchen."

    def step(self, action: str) -> StepResult:
        if action.startswith("focus"):
            self._has_failed = True
            return StepResult("You focus on it.", reward=-self._heat / 3, terminated=True)
        if action != "heat":
            return StepResult("No known action matches that input.", valid_action=False)
        self._heat += 1
        is_over = self._heat == 3
        return StepResult("It gets hot.", 1 / 3, terminated=is_over, success=is_over)

    def available_actions(self) -> tuple[str, ...]:
        return ("heat", *(f"focus on thing {number}" for number in range(12)))

    def details(self) -> dict[str, object]:
        return {
            "task_name": "boil",
            "variation": self._variation,
            "task_description": LAB_DESCRIPTION,
            "score": -100 if self._has_failed else round(100 * self._heat / 3),
            "moves": self._heat,
            "inventory": "an orange",
        }


class StockClient:
    """What every client of AgentGym does: no session, no retries, an assertion on the status."""

    def __init__(self, url: str, *, create_body: object = None) -> None:
        self._url = url
        created = requests.post(f"{url}/create", json=create_body, timeout=60)
        assert created.status_code == 200
        self.env_id = created.json()["id"]
        self.state = ""

    def post(self, path: str, **fields: object) -> Any:
        answer = requests.post(
            f"{self._url}/{path}", json={"id": self.env_id, **fields}, timeout=60
        )
        assert answer.status_code == 200
        return answer.json()

    def close(self) -> bool:
        return self.post("close")


def cleaned(text: str) -> str:
    """Return the action as the clients of TextCraft and BabyAI send it."""
    return re.sub(r"\s+", " ", re.sub(r"[^A-Za-z0-9, ]+", "", text)).strip()


class StockTextCraft(StockClient):
    def __init__(self, url: str) -> None:
        super().__init__(url, create_body={"minecraft_dir": "agentenv_textcraft/"})

    def reset(self, idx: int) -> str:
        self.state = self.post("reset", data_idx=idx)["observation"]
        return self.state

    def step(self, action: str) -> tuple[str, float, bool]:
        answer = self.post("step", action=cleaned(action))
        return answer["observation"], answer["reward"], answer["done"]


class StockBabyAI(StockClient):
    def reset(self, data_idx: int) -> str:
        self.state = self.post("reset", data_idx=data_idx)["observation"]
        return self.state

    def step(self, action: str) -> tuple[str, float, bool]:
        answer = self.post("step", action=cleaned(action))
        return answer["observation"], answer["score"], answer["done"]


class StockSciWorld(StockClient):
    def reset(self, data_idx: int) -> str:
        answer = self.post("reset", data_idx=data_idx)
        self.state = answer["task_description"] + "\n" + answer["observation"]
        return self.state

    def step(self, action: str) -> tuple[str, float, bool]:
        answer = self.post("step", action=action.strip())
        return answer["observation"], answer["score"], answer["done"]


@contextmanager
def serving(cls: type[Environment], *, capacity: int = 1000) -> Iterator[tuple[str, PlainService]]:
    service = PlainService(cls, capacity=capacity)
    with app_thread(Starlette(routes=routes(service))) as url:
        yield url, service


def play_expert(
    step: Callable[[str], tuple[str, float, bool]], twin: Environment, max_rounds: int = 60
) -> tuple[float, bool]:
    """Let the expert of a local twin play; return the last reward and whether it ended."""
    for _ in range(max_rounds):
        action = twin.expert_action()
        assert action is not None
        observation, reward, is_done = step(action)
        expected = twin.step(action)
        assert observation == expected.observation
        if is_done:
            return reward, is_done
    return 0.0, False


class StockSearchQA:
    """SearchQA's client: bare answers, `env_idx` for the environment and `id` for the question."""

    def __init__(self, url: str) -> None:
        self._url = url
        created = requests.post(f"{url}/create", json={"id": 0}, timeout=60)
        assert created.status_code == 200
        self.env_id: int = created.json()

    def observe(self) -> str:
        query = {"env_idx": self.env_id}
        answer = requests.get(f"{self._url}/observation", params=query, timeout=60)
        assert answer.status_code == 200
        return answer.json()

    def reset(self, id_: int) -> str:
        return self.post("reset", id=id_)

    def step(self, action: str) -> tuple[str, float, bool]:
        answer = self.post("step", action=action)
        return answer["observation"], answer["reward"], answer["done"]

    def close(self) -> bool:
        return self.post("close")

    def post(self, path: str, **fields: object) -> Any:
        body = {"env_idx": self.env_id, **fields}
        answer = requests.post(f"{self._url}/{path}", json=body, timeout=60)
        assert answer.status_code == 200
        return answer.json()
