"""AgentEvol (arXiv:2406.04151): explore, keep what succeeded, learn from it by imitation, repeat.

A step of the run is one iteration. What an iteration learned from, and the model it made, stay in
the run folder (iterations/step-N). Episodes are learned from as they were sampled, token by token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from agentgym_rl.config import AgentEvolConfig, RunConfig
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import Metrics, RunFolder, step_of, write_atomically
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.collection import Collected
from agentgym_rl.training.conversations import Conversation, from_episode, to_json_line
from agentgym_rl.training.learner import Learner
from agentgym_rl.training.sft import fitting_samples, negative_logprob, supervised_sample
from agentgym_rl.training.trainer import (
    NOTHING_LEARNED,
    Evaluate,
    Listeners,
    OnlineTrainer,
    mean_report,
)
from agentgym_rl.types import Episode, Task

_COMPARISONS = ("train/kl", "train/logprob_diff", "train/clip_fraction")
"""Of sampling and learning; conversations of other iterations and of experts have no such thing."""


class AgentEvolTrainer(OnlineTrainer):
    """Iterations of exploration and imitation; goes on from the weights of the one before."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        run: RunFolder,
        *,
        actors: Actors,
        tasks: Sequence[Task],
        demos: Sequence[Conversation] = (),
        evaluate: Evaluate | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        assert isinstance(config.algorithm, AgentEvolConfig), "exploration and imitation"
        self._evol = config.algorithm
        self._kept: list[Episode] = []
        limit = config.rollout.max_tokens
        self._demos = fitting_samples(demos, policy, max_tokens=limit) if demos else []
        self._num_left_out = len(demos) - len(self._demos)
        super().__init__(
            config,
            policy,
            run,
            actors=actors,
            tasks=tasks,
            learner=Learner(policy, config.training, temperature=1.0),
            evaluate=evaluate,
            listeners=listeners,
        )

    def restore(self) -> int:
        """Restore the learner and what was kept up to its iteration, from the stored episodes."""
        done = super().restore()
        self._kept = []
        for part in sorted(self._run.episodes.glob("train-*.parquet")):
            if step_of(part.stem) <= done:
                self._keep(read_episodes(part))
        return done

    def learn(self, step: int, collected: Collected) -> Metrics:
        episodes = [episode for group in collected.groups for episode in group.completed]
        num_succeeded = self._keep(episodes)
        samples = [supervised_sample(s) for episode in self._kept for s in episode.samples]
        samples += [sample for _, sample in self._demos]
        reports = [
            self._learner.update(batch, negative_logprob) for batch in self._batches(step, samples)
        ]
        self._save(step)
        metrics = mean_report(reports) if reports else dict(NOTHING_LEARNED)
        for name in _COMPARISONS:
            metrics.pop(name, None)
        return metrics | {
            "train/episodes_succeeded": float(num_succeeded),
            "train/episodes_kept": float(len(self._kept)),
            "train/demos": float(len(self._demos)),
            "train/demos_left_out": float(self._num_left_out),
            "train/updates": float(len(reports)),
        }

    def _keep(self, episodes: Sequence[Episode]) -> int:
        """Take the successes of an iteration in; return how many there were."""
        fresh = [episode for episode in episodes if episode.success]
        earlier = self._kept if self._evol.accumulate else []
        self._kept = newest_per_task([*earlier, *fresh], self._evol.max_per_task)
        return len(fresh)

    def _batches(
        self, step: int, samples: Sequence[TrainingSample]
    ) -> Iterator[list[TrainingSample]]:
        """Yield the updates of an iteration, in a random order that (seed, step) decides."""
        size = self._evol.batch_size
        for epoch in range(self._config.training.epochs_per_step):
            order = list(samples)
            random.Random(f"{self._config.seed}/agentevol/{step}/{epoch}").shuffle(order)
            yield from (order[start : start + size] for start in range(0, len(order), size))

    def _save(self, step: int) -> None:
        folder = self._run.iteration_path(step)
        conversations = [from_episode(episode) for episode in self._kept]
        conversations += [conversation for conversation, _ in self._demos]
        lines = "".join(to_json_line(conversation) + "\n" for conversation in conversations)
        write_atomically(folder / "conversations.jsonl", lines)
        self._policy.save(folder / "model")


def newest_per_task(episodes: Sequence[Episode], max_per_task: int) -> list[Episode]:
    """Return at most so many episodes of each task, the last ones, in order; 0 for all."""
    if not max_per_task:
        return list(episodes)
    counts: dict[str, int] = {}
    kept: list[Episode] = []
    for episode in reversed(episodes):
        counts[episode.task.id] = counts.get(episode.task.id, 0) + 1
        if counts[episode.task.id] <= max_per_task:
            kept.append(episode)
    return kept[::-1]
