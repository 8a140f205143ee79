"""What a server survives: raising, hanging and dying environments, lost clients, full houses."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import pytest

from agentgym_rl.envs.access.serve import EnvServer
from agentgym_rl.envs.service.server.app import EnvApp
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.serving.bound import Address, is_loopback
from env_servers import RawClient, raw_client, server_process, server_thread
from fakes import HANG_OVER, a_call_hangs, end_hangs


async def test_an_environment_that_raises_loses_its_episode_only():
    with server_thread("fakes:TroubleEnv") as url:
        async with raw_client(url) as api:
            path, other = await api.start(), await api.start()
            status, body = await api("POST", f"{path}/step", {"round": 0, "action": "raise"})
            assert (status, body["error"]["type"]) == (500, "env_failed")
            assert "KeyError: 'the world is broken'" in body["error"]["message"]
            assert "task trouble/4, round 0" in body["error"]["message"]
            status, body = await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
            assert (status, body["error"]["type"]) == (410, "gone")
            assert "the world is broken" in body["error"]["message"]
            status, _ = await api("POST", f"{other}/step", {"round": 0, "action": "add 1"})
            assert status == 200
            _, health = await api("GET", "/health")
            assert (health["num_episodes"], health["num_failed"]) == (1, 1)


@pytest.mark.parametrize("action", ["exit", "nan", "text"])
async def test_every_kind_of_bad_answer_is_a_500(action: str):
    with server_thread("fakes:TroubleEnv") as url:
        async with raw_client(url) as api:
            path = await api.start()
            status, body = await api("POST", f"{path}/step", {"round": 0, "action": action})
            assert (status, body["error"]["type"]) == (500, "env_failed")


@pytest.mark.parametrize("env", ["fakes:BrokenStartEnv", "fakes:BrokenResetEnv"])
async def test_an_environment_that_cannot_start_is_a_500(env: str):
    with server_thread(env) as url:
        async with raw_client(url) as api:
            status, body = await api("POST", "/episodes")
            if status == 201:
                task = {"env": "broken-reset", "split": "train", "index": 0}
                path = f"/episodes/{body['episode']}"
                status, body = await api("POST", f"{path}/reset", {"task": task})
            assert (status, body["error"]["type"]) == (500, "env_failed")
            _, health = await api("GET", "/health")
            assert (health["num_episodes"], health["num_failed"]) == (0, 1)


async def test_others_go_on_beside_a_hung_call():
    with server_thread("fakes:TroubleEnv") as url:
        async with raw_client(url) as api:
            path, other = await api.start(), await api.start(index=18)
            hung = asyncio.create_task(api("POST", f"{path}/step", {"round": 0, "action": "hang"}))
            await a_call_hangs()
            for round_index in range(10):
                body = {"round": round_index, "action": "add 1"}
                assert (await api("POST", f"{other}/step", body))[0] == 200
            assert not hung.done()
            end_hangs()
            assert (await hung)[0] == 200


async def test_a_hung_call_ends_at_its_deadline(patient_server: None):
    with server_thread("fakes:TroubleEnv", limits=ServerLimits(call_timeout_s=0.3)) as url:
        async with raw_client(url) as api:
            path = await api.start()
            status, body = await api("POST", f"{path}/step", {"round": 0, "action": "hang"})
            assert (status, body["error"]["type"]) == (504, "timeout")
            status, body = await api("GET", f"{path}/observation")
            assert (status, body["error"]["type"]) == (410, "gone")
            await _see_the_hung_call_end(api)


async def _see_the_hung_call_end(api: RawClient) -> None:
    _, health = await api("GET", "/health")
    assert (health["status"], health["num_abandoned"]) == ("degraded", 1)
    HANG_OVER.set()
    try:
        async with asyncio.timeout(60):
            while health["num_abandoned"]:
                await asyncio.sleep(0.02)
                _, health = await api("GET", "/health")
        assert health["status"] == "ok"
    finally:
        HANG_OVER.clear()


async def test_a_repeat_that_arrives_during_the_call_gets_its_answer():
    with server_thread("fakes:TroubleEnv") as url:
        async with raw_client(url) as api:
            path = await api.start()
            body = {"round": 0, "action": "sleep 0.2"}
            answers = await asyncio.gather(*(api("POST", f"{path}/step", body) for _ in range(3)))
            assert [answer[1]["observation"] for answer in answers] == ["Count: 1."] * 3


async def test_closing_in_the_middle_of_a_call_does_not_wait_for_it():
    with server_thread("fakes:TroubleEnv") as url:
        async with raw_client(url) as api:
            path = await api.start()
            step = asyncio.create_task(api("POST", f"{path}/step", {"round": 0, "action": "hang"}))
            await a_call_hangs()
            started = time.monotonic()
            assert await api("DELETE", path) == (204, {})
            status, _ = await step
            assert status == 410
            assert time.monotonic() - started < 30
            await _see_the_hung_call_end(api)


async def test_capacity_is_answered_with_429_until_a_place_is_free():
    with server_thread("fakes:CountingEnv", limits=ServerLimits(capacity=2)) as url:
        async with raw_client(url) as api:
            first = await api.start()
            await api.start()
            status, body = await api("POST", "/episodes")
            assert (status, body["error"]["type"]) == (429, "busy")
            assert api.headers["retry-after"] == "1"
            await api("DELETE", first)
            status, _ = await api("POST", "/episodes")
            assert status == 201


async def test_a_hung_call_keeps_its_place(patient_server: None):
    limits = ServerLimits(capacity=1, call_timeout_s=0.2)
    with server_thread("fakes:TroubleEnv", limits=limits) as url:
        async with raw_client(url) as api:
            path = await api.start()
            await api("POST", f"{path}/step", {"round": 0, "action": "hang"})
            status, body = await api("POST", "/episodes")
            assert status == 429
            assert "1 of them by calls that passed their deadline" in body["error"]["message"]
            await _see_the_hung_call_end(api)
            status, _ = await api("POST", "/episodes")
            assert status == 201


async def test_idle_episodes_are_reaped_and_used_ones_are_not(skip_time: Callable[[float], None]):
    with server_thread("fakes:TroubleEnv", limits=ServerLimits(lease_s=300)) as url:
        async with raw_client(url) as api:
            idle, used = await api.start(), await api.start()
            for _ in range(3):
                skip_time(200)
                assert (await api("GET", f"{used}/observation"))[0] == 200
            await _see_one_reaped(api)
            assert (await api("GET", f"{used}/observation"))[0] == 200
            status, body = await api("GET", f"{idle}/observation")
            assert (status, body["error"]["type"]) == (410, "gone")
            assert "no call for 300 s" in body["error"]["message"]
            _, health = await api("GET", "/health")
            assert (health["num_episodes"], health["num_reaped"]) == (1, 1)


async def test_a_call_longer_than_the_lease_is_not_reaped(skip_time: Callable[[float], None]):
    with server_thread("fakes:TroubleEnv", limits=ServerLimits(lease_s=300)) as url:
        async with raw_client(url) as api:
            path, _ = await api.start(), await api.start()
            step = asyncio.create_task(api("POST", f"{path}/step", {"round": 0, "action": "hang"}))
            await a_call_hangs()
            skip_time(1000)
            await _see_one_reaped(api)
            end_hangs()
            assert (await step)[0] == 200


async def _see_one_reaped(api: RawClient) -> None:
    async with asyncio.timeout(60):
        while (await api("GET", "/health"))[1]["num_reaped"] == 0:
            await asyncio.sleep(0.02)
    assert (await api("GET", "/health"))[1]["num_reaped"] == 1


async def test_a_token_is_asked_for_everywhere_but_health():
    with server_thread("fakes:CountingEnv", token="sesame") as url:
        for token, expected in ((None, 401), ("wrong", 401), ("sésame", 401), ("sesame", 200)):
            async with raw_client(url, token) as api:
                status, _ = await api("GET", "/spec")
                assert status == expected
                status, _ = await api("GET", "/health")
                assert status == 200


async def test_sigterm_ends_a_server_with_status_0_even_with_a_hung_call():
    with server_process("fakes:TroubleEnv", call_timeout_s=0.3, drain_s=0.5) as (
        url,
        process,
    ):
        async with raw_client(url) as api:
            path = await api.start()
            await api("POST", f"{path}/step", {"round": 0, "action": "hang"})
            await api.start()
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_a_reachable_host_needs_a_token(host: str):
    with pytest.raises(ValueError, match="set a token"):
        Address(host, port=0)


def test_loopback_is_told_from_the_rest():
    assert all(map(is_loopback, ("127.0.0.1", "127.3.2.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "localhost.example.org")))


def test_a_port_in_use_is_refused_in_words():
    with (
        server_thread("fakes:CountingEnv") as url,
        pytest.raises(ValueError, match="cannot listen"),
    ):
        EnvServer("fakes:CountingEnv", Address(port=int(url.rpartition(":")[2])))


def test_wrong_settings_are_refused_before_the_server_starts():
    with pytest.raises(ValueError, match="unknown environment"):
        EnvApp("chess")
    with pytest.raises(ValueError, match="no option 'size'"):
        EnvApp("fakes:CountingEnv", {"size": 3})
    with pytest.raises(ValueError, match="capacity must be above 0"):
        ServerLimits(capacity=0)
