"""`agentgym bench step`: what the peer plays is what we play, and what is compared is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import step_bench
from rich.console import Console
from step_bench import Measured
from step_episodes import EpisodeLimits, PeerEpisode, Reply, play_lockstep, play_stream

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs import registry
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError
from agentgym_rl.rollout.episode import EpisodeSpec, play_episode
from agentgym_rl.types import Episode
from fake_engines import LOGPROB, ScriptedEngine, fake_renderer, make_limits, make_participants

REPLIES = ["inventory", "get 1 log", "no such thing", "get 2 birch logs and then some more of it"]
MAX_REPLY = 24
TASKS = registry.env_class("textcraft").tasks("train")[:3]


class ScriptedGenerator:
    """Says the same lines in every episode; answers are ready in the reverse order."""

    def __init__(self) -> None:
        self._asked: list[PeerEpisode] = []

    def ask(self, episodes: Sequence[PeerEpisode]) -> None:
        self._asked += episodes

    def replies(self) -> list[tuple[PeerEpisode, Reply]]:
        if not self._asked:
            return []
        episode = self._asked.pop()
        words = REPLIES[min(episode.num_rounds, len(REPLIES) - 1)]
        ids = fake_renderer().reply(words)[: episode.room]
        return [(episode, Reply(ids, [LOGPROB] * len(ids)))]


async def ours() -> list[Episode]:
    source = LocalEnvSource("textcraft")
    async with source:
        participants = await make_participants(source, ScriptedEngine(REPLIES))
        limits = make_limits(max_rounds=6, max_tokens_per_round=MAX_REPLY)
        return [
            await play_episode(EpisodeSpec(task, 0, ("test",)), participants, limits)
            for task in TASKS
        ]


@pytest.mark.parametrize("play", [play_stream, play_lockstep])
def test_a_peer_plays_our_tokens(play: Callable[[ScriptedGenerator, Sequence[PeerEpisode]], None]):
    cls = registry.env_class("textcraft")
    agent = Agent(AgentConfig(format="direct", include_instructions=False), cls.spec)
    limits = EpisodeLimits(rounds=6, max_tokens_per_round=MAX_REPLY, max_tokens=2048)
    episodes = [PeerEpisode(cls(), agent, fake_renderer(), task, limits) for task in TASKS]
    play(ScriptedGenerator(), episodes)
    for episode, expected in zip(episodes, asyncio.run(ours()), strict=True):
        (sample,) = expected.samples
        assert episode.ids == list(sample.token_ids)
        assert [0] * len(episode.prompt_ids) + episode.mask == list(sample.loss_mask)
        assert sum(episode.logprobs) == pytest.approx(LOGPROB * sum(sample.loss_mask))
        assert len(episode.completion_ids) == len(episode.mask)
        assert (episode.num_rounds, episode.reward) == (6, expected.reward)


def row(way: str, step_s: float, tokens: float) -> Measured:
    return Measured(way, 10, step_s, 1.0, 2.0, 0.0, tokens, 256, 0.5, 9.0, 40.0)


def test_ratios_are_those_of_medians():
    rows = [row("ours", 4.0, 1e5), row("ours", 6.0, 1e5), row("ours", 5.0, 1e5)]
    rows += [row("trl-fastest", 20.0, 2e5)]
    # medians: 20 / 5 per step; (20 / 2) / (5 / 1) per 100,000 tokens
    (line,) = step_bench.ratios(rows)
    assert line == (
        "ours: 4.00 times as fast per step as trl-fastest, 2.00 times per generated token"
    )
    console = Console(width=200, record=True)
    console.print(step_bench.table_of(10, rows))
    assert "5.00 (4.00-6.00)" in console.export_text()


def test_first_steps_are_left_out_and_other_lines_of_a_peer_passed_over():
    names = dict.fromkeys(step_bench._NAMES, 1.0)
    told = [json.dumps({"step": n, **names, "step_s": float(n)}) for n in (9, 2, 4)]
    steps = step_bench.peer_steps("\n".join(["INFO something", "[1, 2]", "{bad", *told]))
    assert step_bench.summary("trl-fastest", 10, steps[1:], 3.0).step_s == 3.0
    with pytest.raises(ConfigError, match="made no step after the first ones"):
        step_bench.summary("trl-fastest", 10, [], 3.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--ways trl-fastest", "trl-fastest needs --trl-python"),
        ("--trl-python python --trl-per-pass 7", "--trl-per-pass 7 does not divide the 256"),
        ("--steps 3 --warm 3", "--warm 3 leaves out all of --steps 3"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, words: str, message: str):
    with pytest.raises(ConfigError, match=message):
        step_bench.options_of(["--model", str(tmp_path), *words.split()])


def test_both_sides_read_a_folder():
    with pytest.raises(ConfigError, match="--model nowhere is not a folder"):
        step_bench.options_of(["--model", "nowhere"])


def test_a_row_that_fails_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="ours failed with status 3"):
        step_bench.finished([sys.executable, "-c", "raise SystemExit(3)"], "ours")
