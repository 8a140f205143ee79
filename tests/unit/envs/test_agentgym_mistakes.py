"""AgentGym's routes when something is wrong: mistakes of the caller and failures are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from agentgym_clients import (
    StockBabyAI,
    StockClient,
    StockSciWorld,
    StockTextCraft,
    play_expert,
    serving,
)
from agentgym_rl.envs.compat.agentgym import numbered_episodes
from agentgym_rl.envs.compat.agentgym.numbered_episodes import NumberedEpisodes
from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.errors import EnvGoneError
from agentgym_rl.types import Task
from env_servers import server_thread
from env_services import PlainService
from fakes import HANGING, CountingEnv, TroubleEnv, end_hangs
from waiting import wait_for


@pytest.fixture
def trouble() -> Iterator[tuple[str, PlainService]]:
    with serving(TroubleEnv) as served:
        yield served


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
    for action, status, timeout_s in (("raise", 500, 30.0), ("nan", 500, 30.0), ("hang", 504, 0.3)):
        client = StockTextCraft(url)
        client.reset(4)
        body = {"id": client.env_id, "action": action}
        service.timeout_s = timeout_s
        check_failed(requests.post(f"{url}/step", json=body, timeout=60), status)
        service.timeout_s = 30.0
        if action == "hang":
            wait_for(lambda: len(HANGING) == 1)
            end_hangs()
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
        assert StockTextCraft(url).env_id >= 0


def test_requests_for_one_id_do_not_interleave():
    with serving(TroubleEnv) as (url, service), ThreadPoolExecutor(8) as pool:
        client = StockTextCraft(url)
        client.reset(18)
        answers = pool.map(lambda _: client.post("step", action="sleep 0.02"), range(8))
        counts = sorted(answer["observation"] for answer in answers)
        assert counts == [f"Count: {number}." for number in range(1, 9)]
        assert service.num_overlaps == 0


def test_a_close_does_not_wait_for_the_call_that_runs():
    with serving(TroubleEnv) as (url, service), ThreadPoolExecutor(2) as pool:
        client = StockTextCraft(url)
        client.reset(4)
        body = {"id": client.env_id, "action": "hang"}
        running = pool.submit(requests.post, f"{url}/step", json=body, timeout=60)
        wait_for(lambda: len(HANGING) == 1)
        waiting = pool.submit(requests.post, f"{url}/step", json=body, timeout=60)
        assert client.close() is True
        assert HANGING
        end_hangs()
        assert "error" in waiting.result().json()
        assert running.result().status_code in (200, 410)
        assert service.episodes == {}


async def test_ids_beyond_the_limit_are_lost_oldest_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(numbered_episodes, "MAX_NUMBERS", 2)
    service = PlainService(CountingEnv)
    plays = NumberedEpisodes(service)
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


def test_the_real_server_has_the_routes_behind_its_limits(skip_time: Callable[[float], None]):
    with server_thread("babyai", limits=ServerLimits(lease_s=300)) as url:
        client, twin = StockBabyAI(url), BabyAI()
        assert client.reset(1) == twin.reset(Task("babyai", "test", 1))
        score, is_done = play_expert(client.step, twin)
        assert is_done and 0 < score <= 1
        client.reset(2)
        skip_time(400)
        wait_for(lambda: requests.get(f"{url}/health", timeout=20).json()["num_reaped"] == 1)
        body = {"id": client.env_id, "action": "turn left"}
        check_failed(requests.post(f"{url}/step", json=body, timeout=20), 410)
        assert requests.post(f"{url}/step", data=b" " * 10**7, timeout=20).status_code == 413
