"""Worker processes: where episodes live, what the death of a worker or of the server leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from agentgym_rl.envs.access.serve import Address, EnvServer
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.server import pool
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.envs.service.server.worker import WorkerSettings
from agentgym_rl.envs.service.server.worker_process import WorkerProcess
from agentgym_rl.errors import EnvError
from env_servers import RawClient, raw_client, server_process, server_thread

TASK = {"env": "trouble", "split": "train", "index": 18}


def worker_pids(server_pid: int | None = None) -> set[int]:
    """Return the worker processes of a server process, by default of this one."""
    children = psutil.Process(server_pid).children(recursive=True)
    return {
        child.pid
        for child in children
        if child.status() != psutil.STATUS_ZOMBIE
        and "agentgym_rl.envs.service.server.worker" in child.cmdline()
    }


async def eventually(is_so: Callable[[], Awaitable[bool]], *, within_s: float = 60.0) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not await is_so():
            await asyncio.sleep(0.05)


async def open_episodes(api: RawClient, number: int, *, env: str = "trouble") -> list[str]:
    """Start episodes with one batch of creates and return their ids."""
    created = await api.batch(*[{"op": "create"}] * number)
    ids = [created[place][1]["episode"] for place in range(number)]
    task = {**TASK, "env": env}
    resets = await api.batch(*({"op": "reset", "episode": one, "task": task} for one in ids))
    assert {status for status, _ in resets.values()} == {200}
    return ids


async def step(api: RawClient, episode: str, round_index: int, action: str) -> tuple[int, dict]:
    call = {"op": "step", "episode": episode, "round": round_index, "action": action}
    return (await api.batch(call))[0]


async def pid_of(api: RawClient, episode: str, round_index: int) -> int:
    """Play one round that tells in which process the episode is."""
    status, body = await step(api, episode, round_index, "pid")
    assert status == 200
    return int(body["observation"])


async def has_health(api: RawClient, **expected: object) -> bool:
    _, health = await api("GET", "/health")
    return all(health[name] == value for name, value in expected.items())


async def test_a_batch_of_creates_is_spread_and_every_episode_stays_where_it_is():
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with raw_client(url) as api:
            ids = await open_episodes(api, 6)
            places = [await pid_of(api, one, 0) for one in ids]
            assert sorted(places.count(pid) for pid in set(places)) == [3, 3]
            assert set(places) == worker_pids()
            for round_index in (1, 2, 3):
                assert [await pid_of(api, one, round_index) for one in ids] == places


async def test_a_killed_worker_takes_its_episodes_along_and_is_replaced():
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with raw_client(url) as api:
            lost, kept = await open_episodes(api, 2)
            victim, survivor = await pid_of(api, lost, 0), await pid_of(api, kept, 0)
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: has_health(api, num_workers=2, num_restarts=1))
            status, body = await step(api, lost, 1, "add 1")
            assert (status, body["error"]["type"]) == (410, "gone")
            assert "its worker process has ended" in body["error"]["message"]
            assert (await api.batch({"op": "close", "episode": lost}))[0][0] == 204
            assert await pid_of(api, kept, 1) == survivor
            await eventually(lambda: has_health(api, status="ok", num_episodes=1, num_failed=1))
            pids = worker_pids()
            assert len(pids) == 2 and survivor in pids and victim not in pids
            assert {await pid_of(api, one, 0) for one in await open_episodes(api, 3)} == pids


async def test_calls_under_way_in_a_worker_that_dies_are_gone_at_once():
    with server_thread("fakes:TroubleEnv", num_workers=1) as url:
        async with raw_client(url) as api:
            dying, waiting = await open_episodes(api, 2)
            started = time.monotonic()
            slow = asyncio.create_task(step(api, waiting, 0, "sleep 60"))
            await asyncio.sleep(0.1)
            answers = await asyncio.gather(step(api, dying, 0, "die"), slow)
            assert [(status, body["error"]["type"]) for status, body in answers] == [
                (410, "gone"),
                (410, "gone"),
            ]
            assert time.monotonic() - started < 30


async def test_creates_without_a_worker_are_busy_until_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
):
    restart, may_restart = pool.WorkerPool._restart, threading.Event()

    async def restart_later(workers: pool.WorkerPool, capacity: int) -> None:
        await asyncio.to_thread(may_restart.wait)
        await restart(workers, capacity)

    monkeypatch.setattr(pool.WorkerPool, "_restart", restart_later)
    with server_thread("fakes:TroubleEnv", num_workers=1) as url:
        async with raw_client(url) as api:
            (episode,) = await open_episodes(api, 1)
            await step(api, episode, 0, "die")
            status, body = await api("POST", "/episodes")
            assert (status, body["error"]["type"]) == (429, "busy")
            assert "no worker process is ready or answers" in body["error"]["message"]
            assert await has_health(api, status="degraded", num_workers=0)
            may_restart.set()
            await eventually(lambda: has_health(api, status="ok", num_workers=1))
            await open_episodes(api, 1)


async def test_a_worker_in_which_a_call_hangs_is_retired_and_its_other_episodes_go_on(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pool, "HEARTBEAT_S", 0.1)
    limits = ServerLimits(call_timeout_s=0.4)
    with server_thread("fakes:TroubleEnv", num_workers=1, limits=limits) as url:
        async with raw_client(url) as api:
            hung, other = await open_episodes(api, 2)
            old = await pid_of(api, other, 0)
            status, body = await step(api, hung, 0, "hang")
            assert (status, body["error"]["type"]) == (504, "timeout")
            await eventually(lambda: has_health(api, num_workers=1, num_restarts=1))
            await eventually(
                lambda: has_health(api, status="degraded", num_abandoned=1, num_episodes=1)
            )
            (fresh,) = await open_episodes(api, 1)
            assert await pid_of(api, fresh, 0) != old
            assert await pid_of(api, other, 1) == old
            await api("DELETE", f"/episodes/{other}")
            await eventually(lambda: has_health(api, status="ok", num_abandoned=0))
            assert old not in worker_pids()
            await eventually(lambda: has_health(api, num_episodes=1, num_restarts=1, num_failed=1))


async def test_a_hang_on_a_shared_thread_costs_one_episode():
    limits = ServerLimits(call_timeout_s=0.5)
    with server_thread("fakes:SharedTroubleEnv", num_workers=1, limits=limits) as url:
        async with raw_client(url) as api:
            paths = [await api.start() for _ in range(4)]
            actions = ("add 1", "raise", "hang", "add 2")
            answers = await asyncio.gather(
                *(
                    api("POST", f"{path}/step", {"round": 0, "action": action})
                    for path, action in zip(paths, actions, strict=True)
                )
            )
            assert [status for status, _ in answers] == [200, 500, 504, 200]
            for path in (paths[0], paths[3]):
                status, _ = await api("POST", f"{path}/step", {"round": 1, "action": "add 1"})
                assert status == 200


@pytest.mark.parametrize("action", ["spin", "hang", "sleep 60"])
async def test_a_call_on_the_event_loop_of_a_worker_is_interrupted_at_its_deadline(action: str):
    limits = ServerLimits(call_timeout_s=0.5)
    with server_thread("fakes:SharedTroubleEnv", num_workers=1, limits=limits) as url:
        async with raw_client(url) as api:
            victim, *others = await open_episodes(api, 4, env="shared-trouble")
            before = await pid_of(api, others[0], 0)
            calls = [
                {"op": "step", "episode": victim, "round": 0, "action": action},
                *({"op": "step", "episode": one, "round": 0, "action": "add 1"}
                  for one in others[1:]),
            ]  # fmt: skip
            started = time.monotonic()
            answers = await api.batch(*calls)
            assert time.monotonic() - started < 30
            assert answers[0][0] == 504
            assert "step passed its deadline of 0.5 s" in answers[0][1]["error"]["message"]
            assert [answers[place][0] for place in (1, 2)] == [200, 200]
            assert (await step(api, victim, 0, "add 1"))[0] == 410
            assert await pid_of(api, others[0], 1) == before
            await eventually(
                lambda: has_health(api, status="ok", num_episodes=3, num_failed=1, num_restarts=0)
            )


async def test_a_worker_whose_interpreter_is_stuck_is_killed(monkeypatch: pytest.MonkeyPatch):
    silent_s, hurried = WorkerProcess.silent_s.__get__, set[int]()

    def hurried_silent_s(worker: WorkerProcess) -> float:
        return silent_s(worker) * (20 if worker.number in hurried else 1)

    monkeypatch.setattr(pool, "HEARTBEAT_S", 0.2)
    monkeypatch.setattr(WorkerProcess, "silent_s", property(hurried_silent_s))
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with raw_client(url) as api:
            stuck, other = await open_episodes(api, 2)
            victim = await pid_of(api, stuck, 0)
            # 1.5 seconds of its silence count as 30, for which any other worker may be silent.
            hurried.add(int(stuck.partition(".")[0]))
            started = time.monotonic()
            call = asyncio.create_task(step(api, stuck, 1, "stall 60"))
            await asyncio.sleep(0.2)
            assert (await step(api, other, 0, "add 1"))[0] == 200
            status, _ = await call
            assert status == 410
            assert time.monotonic() - started < 40
            await eventually(lambda: has_health(api, status="ok", num_restarts=1))
            assert victim not in worker_pids()
            assert (await step(api, other, 1, "add 1"))[0] == 200


async def test_a_worker_that_misses_its_heartbeats_gets_no_new_episodes_until_it_answers(
    monkeypatch: pytest.MonkeyPatch,
):
    silent_s, hurried = WorkerProcess.silent_s.__get__, set[int]()

    def hurried_silent_s(worker: WorkerProcess) -> float:
        return silent_s(worker) * (20 if worker.number in hurried else 1)

    monkeypatch.setattr(pool, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(pool, "_MAX_SILENCE_S", 3600.0)  # so that it is not killed meanwhile
    monkeypatch.setattr(WorkerProcess, "silent_s", property(hurried_silent_s))
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with raw_client(url) as api:
            one, other = await open_episodes(api, 2)
            stopped, working = await pid_of(api, one, 0), await pid_of(api, other, 0)
            os.kill(stopped, signal.SIGSTOP)
            try:
                hurried.add(int(one.partition(".")[0]))  # six seconds pass in a third of one
                await eventually(
                    lambda: has_health(api, status="degraded", num_silent=1, num_workers=1)
                )
                fresh = await open_episodes(api, 4)
                assert {await pid_of(api, episode, 0) for episode in fresh} == {working}
            finally:
                os.kill(stopped, signal.SIGCONT)
            hurried.clear()
            await eventually(lambda: has_health(api, status="ok", num_silent=0, num_workers=2))
            assert await pid_of(api, one, 1) == stopped
            (late,) = await open_episodes(api, 1)
            assert await pid_of(api, late, 0) == stopped, "it has the most room again"


async def test_a_create_that_comes_again_with_its_key_gives_the_same_episode():
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with raw_client(url) as api:
            call = {"op": "create", "key": "mine"}
            created = await api.batch(call, {"op": "create", "key": "yours"}, call)
            mine, yours, again = (created[place][1]["episode"] for place in range(3))
            assert mine == again != yours
            assert await api("POST", "/episodes", {"key": "mine"}) == (201, {"episode": mine})
            await eventually(lambda: has_health(api, num_episodes=2, num_opened=2))
            await api("DELETE", f"/episodes/{mine}")
            _, after_the_end = await api("POST", "/episodes", {"key": "mine"})
            assert after_the_end["episode"] != mine
            status, body = await api("POST", "/episodes", {"key": "x" * 65})
            assert (status, body["error"]["type"]) == (422, "wrong_type")


async def test_an_episode_that_this_server_never_had_is_told_from_one_that_ended():
    with server_thread("fakes:TroubleEnv", num_workers=1) as url:
        async with raw_client(url) as api:
            (episode,) = await open_episodes(api, 1)
            await api("DELETE", f"/episodes/{episode}")
            for unknown in ("1.abc", "2.abc", "abc", "0.abc"):
                status, body = await step(api, unknown, 0, "add 1")
                assert (status, body["error"]["type"]) == (410, "unknown_episode")
            status, body = await step(api, episode, 0, "add 1")
            assert (status, body["error"]["type"]) == (410, "gone")


@pytest.mark.parametrize(("capacity", "num_workers"), [(3, 2), (1, 2)])
async def test_the_capacity_is_that_of_all_workers_together(capacity: int, num_workers: int):
    limits = ServerLimits(capacity=capacity)
    with server_thread("fakes:TroubleEnv", num_workers=num_workers, limits=limits) as url:
        async with raw_client(url) as api:
            created = await api.batch(*[{"op": "create"}] * (capacity + 2))
            statuses = [status for status, _ in created.values()]
            assert (statuses.count(201), statuses.count(429)) == (capacity, 2)
            episodes = [body["episode"] for status, body in created.values() if status == 201]
            await api("DELETE", f"/episodes/{episodes[0]}")
            assert (await api("POST", "/episodes"))[0] == 201
            assert (await api("POST", "/episodes"))[0] == 429
            await eventually(lambda: has_health(api, num_episodes=capacity, capacity=capacity))


def test_workers_that_cannot_start_are_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = tmp_path / "moody_env.py"
    module.write_text("from fakes import CountingEnv as Moody")
    monkeypatch.syspath_prepend(tmp_path)
    server = EnvServer("moody_env:Moody", Address(port=0), num_workers=2)
    module.write_text("raise ImportError('not in a worker')")
    with pytest.raises(EnvError, match=r"worker \d did not start: EnvError: .*not in a worker"):
        server.run()
    assert worker_pids() == set()


async def test_a_server_that_is_killed_leaves_no_worker():
    with server_process("fakes:TroubleEnv", num_workers=2) as (url, process):
        async with raw_client(url) as api:
            for episode in await open_episodes(api, 4):
                await step(api, episode, 0, "add 1")
        workers = [psutil.Process(pid) for pid in worker_pids(process.pid)]
        assert len(workers) == 2
        process.kill()
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert alive == []


async def test_a_stuck_worker_ends_by_itself_when_nobody_kills_it():
    settings = WorkerSettings(
        env="fakes:TroubleEnv",
        options={},
        limits=ServerLimits(capacity=1, call_timeout_s=60, lease_s=60),
        max_stuck_s=3.0,
        prefix="1.",
    )
    worker = WorkerProcess(1, settings)
    await worker.start()
    created = await _ask(worker, {"op": "create"})
    episode = created["episode"]
    await _ask(worker, {"op": "reset", "episode": episode, "task": TASK})
    call = {"op": "step", "episode": episode, "round": 0, "action": "stall 60"}
    started = time.monotonic()
    answer = await _ask(worker, call)
    assert answer["error"]["type"] == "gone"
    assert await worker.wait() != 0
    assert time.monotonic() - started < 40


class _Sink:
    """Takes one answer."""

    def __init__(self) -> None:
        self.line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def add(self, lines: bytes, num_answers: int = 1) -> None:
        self.line.set_result(lines)


async def _ask(worker: WorkerProcess, call: dict[str, object]) -> dict:
    sink = _Sink()
    worker.submit(1, [{"call": 0, **call}], sink)
    return protocol.decode_answer(await asyncio.wait_for(sink.line, 60)).body


async def test_sigterm_lets_open_episodes_end_and_takes_no_new_ones():
    with server_process("fakes:TroubleEnv", num_workers=2) as (url, process):
        async with raw_client(url) as api:
            (episode,) = await open_episodes(api, 1)
            workers = [psutil.Process(pid) for pid in worker_pids(process.pid)]
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: has_health(api, status="draining"))
            for create in (api("POST", "/episodes"), api.batch({"op": "create"})):
                answer = await create
                status, body = answer if isinstance(answer, tuple) else answer[0]
                assert (status, body["error"]["type"]) == (429, "busy")
            for round_index in range(5):
                assert (await step(api, episode, round_index, "add 1"))[0] == 200
                await asyncio.sleep(0.1)
            assert process.poll() is None
            await api("DELETE", f"/episodes/{episode}")
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert psutil.wait_procs(workers, 30)[1] == []
