"""AgentGym's routes: stock clients play whole episodes, and mistakes and failures are told apart.

The clients here do what AgentGym's own do, and read only the fields that those read.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import requests
from starlette.applications import Starlette

from agentgym_rl.envs.babyai.env import BabyAI
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.server.agentgym import routes
from agentgym_rl.envs.server.agentgym.plays import Plays
from agentgym_rl.envs.textcraft.env import TextCraft
from agentgym_rl.errors import EnvGoneError
from agentgym_rl.types import StepResult, Task
from env_services import PlainService, app_thread
from fakes import CountingEnv, TroubleEnv, fake_spec

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
        created = requests.post(f"{url}/create", json=create_body, timeout=20)
        assert created.status_code == 200
        self.env_id = created.json()["id"]
        self.state = ""

    def post(self, path: str, **fields: object) -> Any:
        answer = requests.post(
            f"{self._url}/{path}", json={"id": self.env_id, **fields}, timeout=20
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
def serving(
    cls: type[Environment], *, capacity: int = 1000, timeout_s: float = 30.0
) -> Iterator[tuple[str, PlainService]]:
    service = PlainService(cls, capacity=capacity, timeout_s=timeout_s)
    with app_thread(Starlette(routes=routes(service))) as url:
        yield url, service


@pytest.fixture(scope="module")
def textcraft() -> Iterator[str]:
    with serving(TextCraft) as (url, _):
        yield url


@pytest.fixture(scope="module")
def babyai() -> Iterator[str]:
    with serving(BabyAI) as (url, _):
        yield url


@pytest.fixture(scope="module")
def sciworld() -> Iterator[str]:
    with serving(Lab) as (url, _):
        yield url


@pytest.fixture
def trouble() -> Iterator[tuple[str, PlainService]]:
    with serving(TroubleEnv, timeout_s=0.3) as served:
        yield served


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


# Whole episodes.


@pytest.mark.parametrize("index", [0, 170, 300, 500, 640])
def test_a_stock_textcraft_client_plays_to_reward_one(textcraft: str, index: int):
    twin, client = TextCraft(), StockTextCraft(textcraft)
    assert client.reset(index) == twin.reset(Task("textcraft", "train", index))
    assert play_expert(client.step, twin) == (1, True)
    assert client.close() is True


@pytest.mark.parametrize("index", [0, 1, 4, 12, 16, 18, 21, 40, 44003])
def test_a_stock_babyai_client_plays_to_a_score(babyai: str, index: int):
    twin, client = BabyAI(), StockBabyAI(babyai)
    assert client.reset(index) == twin.reset(Task("babyai", "test", index))
    score, is_done = play_expert(client.step, twin)
    assert is_done and 0 < score <= 1
    assert client.close() is True


def test_a_stock_sciworld_client_sees_the_description_once_and_whole_percentages(sciworld: str):
    client = StockSciWorld(sciworld)
    assert client.reset(3) == f"{LAB_DESCRIPTION}\nThis room is called the kitchen."
    assert client.step("nonsense") == ("No known action matches that input.", 0, False)
    assert client.step("heat") == ("It gets hot.", 33, False)
    assert client.post("step", action="heat") == {
        "observation": "It gets hot.",
        "reward": 34,
        "score": 67,
        "done": False,
    }
    assert client.step("heat") == ("It gets hot.", 100, True)
    client.reset(4)
    client.step("heat")
    assert client.step("focus on thing 1") == ("You focus on it.", -100, True)


def test_one_id_plays_many_tasks(babyai: str):
    client = StockBabyAI(babyai)
    for index in (0, 40):
        twin = BabyAI()
        twin.reset(Task("babyai", "test", index))
        client.reset(index)
        score, _ = play_expert(client.step, twin)
        assert 0 < score <= 1


# Shapes, by the tables.


def types_of(fields: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in fields.items()}


def test_textcraft_shapes(textcraft: str):
    created = requests.post(f"{textcraft}/create", json={}, timeout=20).json()
    id_ = created["id"]
    start = {"id": int, "observation": str, "reward": int, "done": bool}
    assert types_of(created) == start and (created["reward"], created["done"]) == (0, False)
    assert created["observation"] == TextCraft().reset(Task("textcraft", "train", id_ % 652))
    answer = requests.post(f"{textcraft}/reset", json={"id": id_, "data_idx": 7}, timeout=20).json()
    assert types_of(answer) == start and answer["id"] == id_
    step = requests.post(f"{textcraft}/step", json={"id": id_, "action": "inventory"}, timeout=20)
    assert types_of(step.json()) == {"observation": str, "reward": int, "done": bool}

    def get(path: str) -> Any:
        return requests.get(f"{textcraft}/{path}?id={id_}", timeout=20).json()

    assert get("observation") == step.json()["observation"]
    assert get("detail") == {**step.json(), "deleted": False}
    assert isinstance(requests.get(f"{textcraft}/", timeout=20).json(), str)
    assert "inventory" in get("available_actions")["available_actions"]


def test_a_textcraft_index_may_be_any_integer(textcraft: str):
    client = StockTextCraft(textcraft)
    assert client.reset(-1) == client.reset(651)
    assert client.reset(652 + 5) == client.reset(5)
    assert client.reset(10**20) == client.reset(10**20 % 652)
    first = client.reset(0)
    assert client.post("reset")["observation"] == first


def test_goal_and_commands_come_from_the_details():
    class Crafter(CountingEnv):
        def details(self) -> dict[str, object]:
            return {"goal": "toy boat", "commands": ["craft 1 toy boat using 5 planks"]}

    with serving(Crafter) as (url, _):
        id_ = StockTextCraft(url).env_id
        assert requests.get(f"{url}/goal?id={id_}", timeout=20).json() == "toy boat"
        commands = requests.get(f"{url}/commands?id={id_}", timeout=20).json()
        assert commands == ["craft 1 toy boat using 5 planks"]


def test_an_environment_without_details_has_no_goal_and_no_commands():
    with serving(CountingEnv) as (url, _):
        client = StockTextCraft(url)
        assert client.reset(4) == "Goal: 5. Count: 0."
        assert client.step("add 2") == ("Count: 2.", 0, False)
        assert client.step("add 3") == ("Count: 5.", 1, True)
        id_ = client.env_id
        assert "error" in requests.get(f"{url}/goal?id={id_}", timeout=20).json()
        assert requests.get(f"{url}/commands?id={id_}", timeout=20).json() == []


def test_babyai_shapes(babyai: str):
    created = requests.post(f"{babyai}/create", timeout=20).json()
    assert list(created) == ["id"]
    id_ = created["id"]

    def get(path: str) -> Any:
        return requests.get(f"{babyai}/{path}?id={id_}", timeout=20).json()

    start = {"observation": str, "reward": int, "score": int, "done": bool, "deleted": bool}
    assert types_of(get("observation")) == start  # the placeholder before the first reset
    reset = requests.post(f"{babyai}/reset", json={"id": id_, "data_idx": 1}, timeout=20).json()
    assert types_of(reset) == start
    step = requests.post(f"{babyai}/step", json={"id": id_, "action": "turn left"}, timeout=20)
    assert types_of(step.json()) == {
        "observation": str,
        "reward": float,
        "score": float,
        "done": bool,
    }
    assert get("observation") == {**step.json(), "deleted": False} == get("detail")
    assert get("goal") == "go to the red ball"
    assert "turn left" in get("available_actions")["available_actions"]
    picture = requests.post(f"{babyai}/render", json={"id": id_}, timeout=20).json()
    assert base64.b64decode(picture.removeprefix("data:image/png;base64,"))[1:4] == b"PNG"


def test_sciworld_shapes(sciworld: str):
    client = StockSciWorld(sciworld)
    started = client.post("reset", data_idx=-1)
    assert started == {
        "task_name": "boil",
        "var_num": 9,
        "task_description": LAB_DESCRIPTION,
        "observation": "This room is called the kitchen.",
        "reward": 0,
        "score": 0,
        "deleted": False,
        "done": False,
    }

    def get(path: str) -> Any:
        return requests.get(f"{sciworld}/{path}?id={client.env_id}", timeout=20).json()

    assert get("observation") == "This room is called the kitchen."
    seen = client.post("step_visual", action="Thought: now.\nAction: heat\n")
    assert {**seen, "info": None} == {
        "observation": "It gets hot.",
        "reward": 33,
        "score": 33,
        "done": False,
        "info": None,
        "object_tree": {},
        "inventory": "an orange",
        "moves": 1,
    }
    assert seen["info"]["task_name"] == "boil"
    assert get("detail") == {**started, "observation": "It gets hot.", "reward": 33, "score": 33}
    assert len(get("action_hint")["possible_actions"]) == 13
    assert get("action_hint")["possible_objects"] == []
    assert get("goals") == {"goals": ""}
    assert get("task_description") == {"task_description": LAB_DESCRIPTION}
    assert get("object_tree") == {"object_tree": {}}
    state = get("state")
    assert len(state["possible_actions"]) == 10
    assert set(state) == {
        *("observation", "inventory", "task_description", "goal_progress", "possible_actions"),
        *("possible_objects", "current_moves", "environment_info"),
    }


def test_ids_count_up_and_are_never_given_twice():
    with serving(CountingEnv) as (url, _):
        first = StockTextCraft(url)
        second = StockTextCraft(url)
        assert (first.env_id, second.env_id) == (0, 1)
        assert first.close() is True
        assert StockTextCraft(url).env_id == 2


# Mistakes: status 200, an error, and every field that a client reads.

POSTS = {
    "textcraft": ("reset", "step"),
    "babyai": ("reset", "step", "render"),
    "sciworld": ("reset", "step", "step_visual"),
}
GETS = {
    "textcraft": ("observation", "detail", "goal", "commands", "available_actions"),
    "babyai": ("observation", "detail", "goal", "available_actions"),
    "sciworld": (
        *("observation", "detail", "goal", "available_actions", "action_hint", "goals"),
        *("task_description", "object_tree", "state"),
    ),
}
READ = {
    "textcraft": {"observation", "reward", "done", "id"},
    "babyai": {"observation", "reward", "score", "done"},
    "sciworld": {"observation", "reward", "score", "done", "task_description"},
}


@pytest.mark.parametrize("env", list(POSTS))
@pytest.mark.parametrize("id_", [-1, 99999, 2**62])
def test_an_unknown_id_is_refused_on_every_route(
    env: str, id_: int, request: pytest.FixtureRequest
):
    url = request.getfixturevalue(env)
    answers = [
        requests.post(
            f"{url}/{path}", json={"id": id_, "data_idx": 0, "action": "look", "x": 1}, timeout=20
        )
        for path in POSTS[env]
    ]
    answers += [requests.get(f"{url}/{path}?id={id_}", timeout=20) for path in GETS[env]]
    for answer in answers:
        assert answer.status_code == 200
        fields = answer.json()
        assert str(id_) in fields["error"] and fields["done"] is True and fields["reward"] == 0
        assert set(fields) >= READ[env]
    assert requests.post(f"{url}/close", json={"id": id_}, timeout=20).json() is False


@pytest.mark.parametrize("env", list(POSTS))
def test_malformed_requests_get_fastapis_answer(env: str, request: pytest.FixtureRequest):
    url = request.getfixturevalue(env)
    bodies = [b"", b"{}", b"[1]", b"nonsense", b"\xff", b'{"id": NaN}', b'{"id": "one"}']
    bodies += [b'{"id": null}', b'{"id": 1.5}', b'{"id": 1e999}', b'{"id": ' + b"9" * 40 + b"}"]
    bodies += [b'{"id": ' + b"9" * 5000 + b"}", b"[" * 5000]
    for path in (*POSTS[env], "close"):
        for body in bodies:
            answer = requests.post(f"{url}/{path}", data=body, timeout=20)
            assert answer.status_code == 422, (path, body[:20], answer.text[:200])
            for problem in answer.json()["detail"]:
                assert set(problem) == {"type", "loc", "msg", "input"}
                assert problem["loc"][0] == "body"
    for path in GETS[env]:
        for query in ("", "?id=", "?id=one", "?env_idx=0"):
            answer = requests.get(f"{url}/{path}{query}", timeout=20)
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["loc"] == ["query", "id"]


def test_which_fields_may_be_left_out(textcraft: str, babyai: str):
    assert requests.post(f"{textcraft}/create", timeout=20).status_code == 422
    wrong = {"commands": 3}
    assert requests.post(f"{textcraft}/create", json=wrong, timeout=20).status_code == 422
    client = StockBabyAI(babyai)
    answer = requests.post(f"{babyai}/reset", json={"id": client.env_id}, timeout=20)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", "data_idx"]
    answer = requests.post(f"{babyai}/step", json={"id": client.env_id, "action": 3}, timeout=20)
    assert answer.json()["detail"][0]["type"] == "string_type"


def test_numbers_in_quotes_and_lone_surrogates_pass(textcraft: str):
    client = StockTextCraft(textcraft)
    body = b'{"id": "%d", "action": "get \\ud800"}' % client.env_id
    answer = requests.post(f"{textcraft}/step", data=body, timeout=20)
    assert answer.status_code == 200 and "error" not in answer.json()


def test_steps_before_the_reset_and_after_the_end_are_refused(sciworld: str):
    client = StockSciWorld(sciworld)
    early = client.post("step", action="heat")
    assert "reset first" in early["error"] and early["done"] and early["score"] == 0
    client.reset(0)
    client.step("heat")
    client.step("focus on thing 0")
    late = client.post("step", action="heat")
    assert "reset first" in late["error"]
    assert (late["reward"], late["score"], late["done"]) == (0, -100, True)
    blocked = requests.get(f"{sciworld}/observation?id={client.env_id}", timeout=20).json()
    assert "error" in blocked
    client.reset(0)
    assert client.step("heat") == ("It gets hot.", 33, False)


def test_a_step_after_the_end_does_not_pay_again():
    with serving(CountingEnv) as (url, _):
        client = StockTextCraft(url)
        client.reset(0)
        assert client.step("add 1") == ("Count: 1.", 1, True)
        assert client.post("step", action="add 1")["reward"] == 0
        shown = requests.get(f"{url}/observation?id={client.env_id}", timeout=20).json()
        assert shown == "Count: 1."


@pytest.mark.parametrize(("env", "indices"), [("babyai", [-1, 2**60]), ("sciworld", [10, -11])])
def test_an_index_without_a_task_is_refused_and_ends_the_task_before(
    env: str, indices: list[int], request: pytest.FixtureRequest
):
    url = request.getfixturevalue(env)
    client = StockClient(url)
    for index in indices:
        assert "error" not in client.post("reset", data_idx=1)
        refused = client.post("reset", data_idx=index)
        assert str(index) in refused["error"] and set(refused) >= READ[env]
        assert "reset first" in client.post("step", action="turn left")["error"]


def test_close_is_idempotent_also_before_a_reset(babyai: str, sciworld: str):
    for url in (babyai, sciworld):
        client = StockClient(url)
        assert client.close() is True
        assert client.close() is False
        assert "error" in client.post("step", action="heat")


# Failures: a status, no reward, and nothing of the reason.


def check_failed(answer: requests.Response, status: int) -> None:
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert "secret" not in answer.text and "broken" not in answer.text


def test_an_environment_that_fails_is_a_status_and_then_gone(trouble: tuple[str, PlainService]):
    url, service = trouble
    for action, status in (("raise", 500), ("nan", 500), ("sleep 1", 504)):
        client = StockTextCraft(url)
        client.reset(4)
        body = {"id": client.env_id, "action": action}
        check_failed(requests.post(f"{url}/step", json=body, timeout=20), status)
        assert service.episodes == {}
        check_failed(requests.post(f"{url}/step", json=body, timeout=20), 410)
        check_failed(requests.get(f"{url}/observation?id={client.env_id}", timeout=20), 410)
        assert client.close() is True
        assert client.close() is False


def test_a_reaped_episode_is_gone_on_every_route(trouble: tuple[str, PlainService]):
    url, service = trouble
    for path in ("observation", "detail", "available_actions"):
        client = StockTextCraft(url)
        service.lose_all()
        if path == "detail":  # it only repeats what is known here, so another call must find out
            requests.get(f"{url}/observation?id={client.env_id}", timeout=20)
        check_failed(requests.get(f"{url}/{path}?id={client.env_id}", timeout=20), 410)
        body = {"id": client.env_id, "action": "add 1"}
        check_failed(requests.post(f"{url}/step", json=body, timeout=20), 410)
        check_failed(requests.post(f"{url}/reset", json=body, timeout=20), 410)


def test_a_full_server_says_when_to_come_back():
    with serving(CountingEnv, capacity=1) as (url, _):
        first = StockTextCraft(url)
        answer = requests.post(f"{url}/create", json={}, timeout=20)
        check_failed(answer, 429)
        assert answer.headers["retry-after"] == "1"
        first.close()
        assert StockTextCraft(url).env_id == 1


def test_requests_for_one_id_do_not_interleave():
    with serving(TroubleEnv) as (url, service), ThreadPoolExecutor(8) as pool:
        client = StockTextCraft(url)
        client.reset(18)
        answers = pool.map(lambda _: client.post("step", action="sleep 0.02"), range(8))
        counts = sorted(answer["observation"] for answer in answers)
        assert counts == [f"Count: {number}." for number in range(1, 9)]
        assert service.num_overlaps == 0


def test_a_close_does_not_wait_for_the_call_that_runs(trouble: tuple[str, PlainService]):
    url, service = trouble
    client = StockTextCraft(url)
    client.reset(4)
    with ThreadPoolExecutor(2) as pool:
        body = {"id": client.env_id, "action": "sleep 0.25"}
        running = pool.submit(requests.post, f"{url}/step", json=body, timeout=20)
        while not service.busy:
            time.sleep(0.01)
        waiting = pool.submit(requests.post, f"{url}/step", json=body, timeout=20)
        assert client.close() is True
        assert "error" in waiting.result().json()
        assert running.result().status_code in (200, 410)
    assert service.episodes == {}


async def test_ids_beyond_the_limit_are_lost_oldest_first():
    service = PlainService(CountingEnv)
    plays = Plays(service, max_plays=2)
    first, second = await plays.create(), await plays.create()
    async with plays.use(first.id):
        pass
    await plays.create()
    assert len(plays) == 2 and len(service.episodes) == 2
    with pytest.raises(EnvGoneError):
        async with plays.use(second.id):
            pass
    async with plays.use(first.id) as play:
        assert play is first
