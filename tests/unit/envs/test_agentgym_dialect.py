"""AgentGym's routes: stock clients play whole episodes, and answers have the documented shapes."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import requests

from agentgym_clients import (
    LAB_DESCRIPTION,
    StockBabyAI,
    StockSciWorld,
    StockTextCraft,
    play_expert,
    serving,
)
from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.sciworld.env import SciWorld
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.types import Task
from fakes import CountingEnv

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


@pytest.mark.long
@pytest.mark.slow  # Java starts, and the expert's path may have to be searched for
def test_a_stock_sciworld_client_plays_the_real_simulator():
    index = 4629  # the first variation of identify-life-stages-2
    twin = SciWorld()
    with serving(SciWorld) as (url, _):
        client = StockSciWorld(url)
        assert client.reset(index) == twin.reset(Task("sciworld", "train", index))
        assert play_expert(client.step, twin) == (100, True)
        refused = client.post("reset", data_idx=4639)  # which is ours alone
        assert "0 to 4638" in refused["error"]
        assert client.post("reset", data_idx=-1)["var_num"] == 9
        assert client.close() is True
    twin.close()


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


def test_ids_are_large_random_numbers():
    with serving(CountingEnv) as (url, _):
        ids = [StockTextCraft(url).env_id for _ in range(20)]
        assert len(set(ids)) == 20
        assert max(ids) < 2**53
        assert min(abs(one - other) for one in ids for other in ids if one != other) > 1
