"""Play and replay in the UI: real environments behind the JSON API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests

from agentgym_rl.config import ModelConfig
from agentgym_rl.envs import registry
from agentgym_rl.models.loading import Policy, load_policy
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.types import Episode, Round, Task
from ui_servers import UiClient, episode, make_run, ui_process

pytestmark = pytest.mark.slow

ENV = "babyai"
CONFIG = """
[env]
name = "babyai"
[agent]
format = "direct"
[training]
steps = 1
"""


def played_episode(*actions: str | None) -> Episode:
    """Return an episode as the environment really answers; None: a reply without an action."""
    task = registry.env_class(ENV).tasks("test")[0]
    environment = registry.make(ENV, {})
    environment.reset(task)
    rounds: list[Round] = []
    for action in actions:
        if action is None:
            rounds.append(Round("mumble", None, "No action found.", 0.0, valid_action=False))
            continue
        result = environment.step(action)
        rounds.append(Round(action, action, result.observation, result.reward, True))
    environment.close()
    return replace(episode(0, 0), task=task, rounds=tuple(rounds))


def forged_episode() -> Episode:
    true = played_episode("turn left", "turn left")
    first = replace(true.rounds[0], observation="You fly to the moon.")
    return replace(true, rounds=(first, *true.rounds[1:]))


def tiny_policy() -> Policy:
    shape = {"vocab_size": 320, "hidden_size": 32, "num_layers": 1}
    config = ModelConfig.model_validate({"path": "tiny", "device": "cpu", "tiny": shape})
    return load_policy(config, seed=0, texts=lambda: ["turn left", "go to the red ball"] * 20)


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    root = tmp_path_factory.mktemp("runs")
    run = make_run(root / "run", num_steps=0, config=CONFIG)
    foreign = replace(episode(1, 0), task=Task("my.module:Env", "test", 0))
    episodes = [
        played_episode("turn left", None, "turn right", "turn left"),
        forged_episode(),
        foreign,
    ]
    write_episodes(run.episodes, [episodes], phase="train", step=1)
    tiny_policy().save(run.model)
    with ui_process(root) as client:
        yield client


def ask_state(ui: UiClient, row: int, number: int) -> requests.Response:
    return ui.post("state", run="run", episode=f"train-000001:{row}", round=number)


def state(ui: UiClient, row: int, number: int) -> dict[str, object]:
    response = ask_state(ui, row, number)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.long
def test_the_state_after_each_round_is_what_the_agent_saw(ui: UiClient):
    rounds = ui.get("episode", run="run", episode="train-000001:0")["rounds"]
    assert "goal" in state(ui, 0, 0)["observation"]
    assert state(ui, 0, 1)["observation"] == rounds[0]["observation"]
    # The reply of round 2 had no action, so the environment stands where it stood.
    assert state(ui, 0, 2)["observation"] == rounds[0]["observation"]
    last = state(ui, 0, 4)
    assert last["observation"] == rounds[3]["observation"]
    assert last["problem"] is None and last["details"]["steps"] == 3
    assert last["picture"].startswith("data:image/png;base64,")
    assert state(ui, 0, 1)["details"]["steps"] == 1  # and back


def test_a_replay_that_differs_from_the_record_says_so(ui: UiClient):
    assert state(ui, 1, 0)["problem"] is None
    assert "from round 1 on" in state(ui, 1, 2)["problem"]


def test_what_cannot_be_played_again_is_told(ui: UiClient):
    def refusal(row: int, number: int = 0) -> tuple[int, str]:
        response = ask_state(ui, row, number)
        return response.status_code, response.json()["error"]["message"]

    assert refusal(0, 9) == (404, "the episode has 4 rounds, not 9")
    status, message = refusal(2)
    assert status == 409 and "cannot be recomputed" in message and "--env" in message


def test_an_episode_tells_whether_its_state_can_be_recomputed(ui: UiClient):
    assert ui.get("episode", run="run", episode="train-000001:0")["replay_problem"] is None
    foreign = ui.get("episode", run="run", episode="train-000001:2")["replay_problem"]
    assert "'my.module:Env'" in foreign and "built-in" in foreign


def test_environments_and_tasks_are_listed(ui: UiClient):
    found = {item["name"]: item for item in ui.get("envs")["envs"]}
    assert found[ENV]["problem"] is None and "test" in found[ENV]["splits"]
    page = ui.get("tasks", env=ENV, split="test", limit=2, offset=1)
    assert page["total"] > 2 and [task["index"] for task in page["tasks"]] == [1, 2]
    assert ui.ask("tasks", env=ENV, split="nix").status_code == 404
    assert ui.ask("tasks", env="os:system").status_code == 409


def test_a_play_by_hand(ui: UiClient):
    begun = ui.post("play", env=ENV, split="test", task_index=0).json()
    assert begun["round"] == 0 and begun["told"]["instructions"] and begun["available_actions"]
    step = ui.post("play/step", play=begun["play"], action="turn left").json()
    assert step["round"] == 1 and not step["done"] and step["picture"]
    bad = ui.post("play/step", play=begun["play"], action="<img src=x>").json()
    assert not bad["valid_action"] and "<img src=x>" in bad["observation"]
    assert ui.post("play/close", play=begun["play"]).status_code == 200
    assert ui.post("play/step", play=begun["play"], action="turn left").status_code == 404


def test_plays_are_limited_and_refuse_nonsense(ui: UiClient):
    assert ui.post("play", env=ENV, split="test", task_index=10**9).status_code == 404
    assert ui.post("play", env="os:system", split="test", task_index=0).status_code == 409
    assert ui.post("play", env=ENV).status_code == 400
    options = {"corpus": "/etc/passwd"}
    response = ui.post("play", env="searchqa", split="test", task_index=0, options=options)
    assert response.status_code == 400 and "options" in response.text
    answers = [ui.post("play", env=ENV, split="test", task_index=0) for _ in range(17)]
    assert [answer.status_code for answer in answers].count(200) == 16
    for answer in answers[:16]:
        ui.post("play/close", play=answer.json()["play"])


@pytest.mark.long
def test_a_model_plays_a_round(ui: UiClient):
    assert ui.get("models")["models"] == ["run/model"]
    begun = ui.post("play", env=ENV, split="test", task_index=1).json()
    ui.post("play/step", play=begun["play"], action="turn left")
    answer = ui.post("play/model", play=begun["play"], model="run/model")
    assert answer.status_code == 200, answer.text
    content = answer.json()
    assert isinstance(content["reply"], str) and content["round"] == 2
    wrong = ui.post("play/model", play=begun["play"], model="../model")
    assert wrong.status_code == 409 and "no such model" in wrong.text
