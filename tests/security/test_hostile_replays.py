"""Run folders that want their replay to run code, read files or call addresses; other sites."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.types import Round, Task
from ui_servers import UiClient, episode, make_run, ui_process

SECRET = "the-secret-of-another-file"
EPISODE = "train-000001:0"
POSTS = ("state", "play", "play/step", "play/model", "play/close", "alternatives")
GETS = (
    "runs", "config", "metric_names", "metrics", "reports", "facets", "episodes", "episode",
    "tokens", "group", "diagnosis", "time", "envs", "tasks", "models", "evaluations",
    "evaluation", "eval_curves", "compare", "config_difference",
)  # fmt: skip
FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Host": "rebound.evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": ""},
)
RECIPE = '[env]\nname = "{env}"\n[env.options]\n{options}\n'


def write_hostile(folder: Path, *, env: str, options: str = "", action: str = "look") -> None:
    """Write a run with one episode, whose environment, options and action are given."""
    run = make_run(folder, num_steps=0, config=RECIPE.format(env=env, options=options))
    played = replace(
        episode(0, 0),
        task=Task(env, "test", 0),
        rounds=(Round(action, action, "", 0.0, valid_action=True),),
    )
    write_episodes(run.episodes, [[played]], phase="train", step=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `runs`, a file beside it, and a module that leaves a mark when imported."""
    place = tmp_path_factory.mktemp("place")
    (place / "runs").mkdir()
    (place / "corpus.jsonl").write_text(f'{{"id": "0", "contents": "treasure\\n{SECRET}"}}\n')
    (place / "modules").mkdir()
    (place / "modules" / "marking.py").write_text(
        f"import pathlib\npathlib.Path({str(place / 'marked')!r}).touch()\nclass Env: pass\n"
    )
    return place


@pytest.fixture(scope="module")
def ui(place: Path) -> Iterator[UiClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(place / "modules"), prepend=":")
        with ui_process(place / "runs") as client:
            yield client


def recomputed(ui: UiClient, run: str, number: int = 1) -> tuple[int, str]:
    """Ask for everything that a page asks for, then for the state; return the latter's answer."""
    for route in ("config", "facets", "episodes", "diagnosis", "time"):
        ui.ask(route, run=run)
    shown = ui.ask("episode", run=run, episode=EPISODE)
    response = ui.post("state", run=run, episode=EPISODE, round=number)
    assert SECRET not in shown.text + response.text
    return response.status_code, response.text


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("marking:Env", "built-in"),
        ("os:system", "built-in"),
        ("reasoning_gym/spiral_matrix", "built-in"),
        ("gymnasium/marking:Env-v0", "built-in"),
        ("textarena/TicTacToe-v0", "built-in"),
        ("../textcraft", "built-in"),
        ("", "built-in"),
    ],
)
def test_only_built_in_environments_are_opened(ui: UiClient, place: Path, env: str, reason: str):
    mark = place / "marked"
    payload = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    write_hostile(place / "runs" / "named", env=env, action=payload)
    status, text = recomputed(ui, "named")
    assert status == 409 and reason in text and "cannot be recomputed" in text
    assert not mark.exists()
    for file in (place / "runs" / "named" / "episodes").iterdir():
        file.unlink()
    (place / "runs" / "named" / "config.toml").unlink()


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("searchqa", 'corpus = "{place}/corpus.jsonl"'),
        ("searchqa", 'retriever = "remote"\nurl = "{address}"'),
        ("searchqa", 'retriever = "dense"\nindex = "{place}"'),
        ("searchqa", 'data = "{place}"\ncorpus = "{place}/corpus.jsonl"'),
        ("searchqa", "python = true"),
        ("searchqa", 'reward = "{place}/corpus.jsonl"'),
        ("sciworld", 'gold_dir = "{place}"'),
        ("textcraft", 'num_distractors = ["{place}"]'),
        ("textcraft", 'unknown = "{address}"'),
        ("textcraft", "num_distractors = {{ inner = 1 }}"),
    ],
)
def test_options_reach_neither_files_nor_addresses(
    ui: UiClient, place: Path, env: str, options: str
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        name = f"options-{abs(hash((env, options)))}"
        filled = options.format(place=place, address=address)
        write_hostile(
            place / "runs" / name, env=env, options=filled, action="<search>treasure</search>"
        )
        status, text = recomputed(ui, name)
        assert status == 409 and "cannot be recomputed" in text
        with pytest.raises(BlockingIOError):  # nobody called
            listener.accept()


def test_plain_options_are_used(ui: UiClient, place: Path):
    write_hostile(place / "runs" / "plain", env="textcraft", options="num_distractors = 3")
    status, text = recomputed(ui, "plain", 0)
    assert status == 200, text


def test_an_episode_of_endless_rounds_is_not_played_again(ui: UiClient, place: Path):
    run = make_run(place / "runs" / "endless", num_steps=0)
    rounds = (Round("look", "look", "", 0.0, valid_action=True),) * 5000
    longest = (Round("a", "get " * 100_000, "", 0.0, valid_action=True),)
    endless = [replace(episode(0, 0), rounds=rounds), replace(episode(0, 1), rounds=longest)]
    write_episodes(run.episodes, [endless], phase="train", step=1)
    for row in (0, 1):
        response = ui.post("state", run="endless", episode=f"train-000001:{row}", round=1)
        assert response.status_code == 409 and "the limits are" in response.text


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_no_route_answers_another_site(ui: UiClient, headers: dict[str, str]):
    for route in GETS:
        got = ui.session.get(f"{ui.url}/api/{route}", headers=headers, timeout=10)
        assert got.status_code == 403 or (got.status_code == 400 and "Host" in headers)
    for route in POSTS:
        sent = ui.session.post(f"{ui.url}/api/{route}", json={}, headers=headers, timeout=10)
        assert sent.status_code == 403 or (sent.status_code == 400 and "Host" in headers)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_only_json_is_taken(ui: UiClient, kind: str | None):
    headers = {"content-type": kind} if kind else {}
    body = b'{"env": "textcraft", "split": "test", "task_index": 0}'
    for route in POSTS:
        url = f"{ui.url}/api/{route}"
        response = ui.session.post(url, data=body, headers=headers, timeout=10)
        assert response.status_code == 403 and "application/json" in response.text


def test_what_does_more_than_read_is_no_get(ui: UiClient):
    for route in POSTS:
        response = ui.ask(route, run="plain", episode=EPISODE, round=0, env="textcraft")
        assert response.status_code in (404, 405)


def test_a_link_of_another_site_leads_to_the_page(ui: UiClient):
    headers = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    page = ui.session.get(ui.url + "/", headers=headers, timeout=10)
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
