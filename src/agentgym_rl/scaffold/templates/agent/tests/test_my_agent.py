"""The agent plays and is trained: one small step on a CPU, with a model made on the spot."""

from __future__ import annotations

from pathlib import Path

from my_agent.agent import QUESTION, MyAgent

import agentgym_rl as ag

SMALL = {
    "training.steps": 1,
    "training.tasks_per_step": 2,
    "algorithm.group_size": 2,
    "warm_start.steps": 0,
    "warm_start.num_demos": 4,
    "eval.tasks": 0,
    "rounds": {"type": "fixed", "rounds": 2},
}


class Listener(ag.Callback):
    """Keeps the episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[ag.Episode] = []

    def on_episode(self, episode: ag.Episode) -> None:
        self.episodes.append(episode)


def test_every_action_has_a_draft(tmp_path: Path) -> None:
    heard = Listener()
    ag.train("quickstart", SMALL, agent=MyAgent, callbacks=[heard], run_dir=tmp_path / "run")
    assert len(heard.episodes) == 4 and not any(episode.is_failed for episode in heard.episodes)
    for episode in heard.episodes:
        asked = [message for message in episode.messages if QUESTION in message.content]
        assert len(asked) == len(episode.rounds) > 0
