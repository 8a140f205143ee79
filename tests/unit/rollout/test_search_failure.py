"""A search engine that dies in the middle of an episode is a failure, never a wrong answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.rollout.episode import EpisodeSpec, run_episode
from agentgym_rl.types import Episode, StopReason, Task
from fake_engines import FakeEngine, FakeSession, make_limits, make_participants
from retrieve_server import RetrieveProcess
from small_search import SmallSearchQA

SEARCHES = ("<search>director of Stalker</search>", "<search>Tarkovsky born</search>")


class KillingEngine(FakeEngine):
    """Searches twice and answers; the search engine is dead before the first second search."""

    def __init__(self, server: RetrieveProcess, *, is_restarted: bool) -> None:
        super().__init__()
        self._server = server
        self._is_restarted = is_restarted

    async def reply(self, session: FakeSession) -> str:
        number = session.num_replies
        if session.number == 0 and number == 1:
            self._server.kill()
        if session.number == 1 and number == 0 and self._is_restarted:
            self._server.start()
        # Other words each time: what was found before is remembered and needs no server.
        noise = f"{session.number}-{number}"
        return (
            SEARCHES[number].replace("</", f" {noise}</")
            if number < 2
            else "<answer>Volga</answer>"
        )


DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def _asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second try fits into the deadline: a dead server is told at once, a slow one has time."""
    monkeypatch.setattr("agentgym_rl.retrieval.remote._FIRST_PAUSE_S", DEADLINE_S)


@pytest.fixture
def server() -> Iterator[RetrieveProcess]:
    process = RetrieveProcess()
    yield process
    process.kill()


async def play(server: RetrieveProcess, engine: FakeEngine, *, max_restarts: int) -> Episode:
    options = {"retriever": "remote", "url": server.url, "retriever_timeout_s": DEADLINE_S}
    source = LocalEnvSource(SmallSearchQA, options=options)
    request = EpisodeSpec(Task("searchqa", "test", 0), 0, (0, "test"))
    limits = make_limits(max_restarts=max_restarts, max_tokens=8192)
    return await run_episode(request, await make_participants(source, engine), limits)


async def test_a_killed_search_engine_is_an_env_error_and_no_reward(server: RetrieveProcess):
    episode = await play(server, KillingEngine(server, is_restarted=False), max_restarts=0)
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert (episode.reward, episode.samples, episode.success) == (None, (), False)
    assert episode.error is not None and "retrieval server" in episode.error
    assert [round_.valid_action for round_ in episode.rounds] == [True]


async def test_the_episode_is_started_anew_when_the_search_engine_is_back(server: RetrieveProcess):
    episode = await play(server, KillingEngine(server, is_restarted=True), max_restarts=2)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.SUCCESS, 1)
    assert (episode.reward, len(episode.rounds)) == (1.0, 3)
    assert "Doc 1 (Title: Stalker)" in episode.rounds[0].observation


async def test_one_that_stays_dead_is_given_up_without_a_reward(server: RetrieveProcess):
    episode = await play(server, KillingEngine(server, is_restarted=False), max_restarts=1)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.ENV_ERROR, 1)
    assert episode.reward is None
