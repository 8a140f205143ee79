"""AgentEvol (arXiv:2406.04151): explore, keep what succeeded, learn from it by imitation, repeat.

A step of the run is one iteration. What an iteration learned from, and the model it made, stay in
the run folder (iterations/step-N). Episodes are learned from as they were sampled, token by token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from agentgym_rl.config import AgentEvolConfig
from agentgym_rl.errors import RunError
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.runs.durable import put_in_place
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import Metrics, step_of, write_atomically
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.algorithms.episode_tokens import actions_of
from agentgym_rl.training.algorithms.kl import drift
from agentgym_rl.training.collect.collection import Collected, Collector
from agentgym_rl.training.data.conversation_files import to_json_line
from agentgym_rl.training.data.conversations import Conversation, from_episode
from agentgym_rl.training.data.fixed_data import hold_to_data
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.packing import Packing
from agentgym_rl.training.learner.scoring import Scorers, score_samples
from agentgym_rl.training.learner.update_report import (
    NOTHING_LEARNED,
    imitation_report,
    mean_report,
)
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.sft import fitting_samples, negative_logprob, supervised_sample
from agentgym_rl.training.trainer import OnlineTrainer
from agentgym_rl.types import Episode, Sample, SegmentKind


class AgentEvolTrainer(OnlineTrainer):
    """Iterations of exploration and imitation.

    Each starts learning at the weights of the one before, or (`restart = "base"`) at the weights
    that the first began with, which are kept in the run folder.
    """

    def __init__(
        self,
        parts: RunParts,
        demos: Sequence[Conversation] = (),
        *,
        learner: LearnerGroup,
        collector: Collector,
    ) -> None:
        super().__init__(parts, learner=learner, collector=collector)
        assert isinstance(parts.config.algorithm, AgentEvolConfig), "exploration and imitation"
        self._evol = parts.config.algorithm
        self._kept: list[Episode] = []
        limit = parts.config.max_tokens
        self._demos = fitting_samples(demos, parts.policy, max_tokens=limit) if demos else []
        self._num_left_out = len(demos) - len(self._demos)
        if demos:
            hold_to_data(parts.folder, [item.sample for _, item in self._demos])

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
        samples = [
            supervised_sample(sample)
            for episode in self._kept
            for sample in imitated(episode)
            if sample.num_action_tokens
        ]
        samples += [sample for _, sample in self._demos]
        if self._evol.restart == "base":
            self._restart(step)
        reports = [
            self._learner.update(batch, negative_logprob) for batch in self._batches(step, samples)
        ]
        self._save(step)
        report = mean_report(reports) if reports else replace(NOTHING_LEARNED, details={})
        # No one policy sampled the conversations of other iterations and experts.
        return imitation_report(report).metrics() | {
            "train/kl": self._drift(episodes) if reports else 0.0,
            "train/episodes_succeeded": float(num_succeeded),
            "train/episodes_kept": float(len(self._kept)),
            "train/demos": float(len(self._demos)),
            "train/demos_left_out": float(self._num_left_out),
            "train/updates": float(len(reports)),
        }

    def _restart(self, step: int) -> None:
        """Go back to the weights that the first iteration began with, with a fresh optimiser."""
        weights = {
            name: weight
            for name, weight in self._policy.model.named_parameters()
            if weight.requires_grad
        }
        if step == 1:
            _write_weights(self._run.base_weights, weights)
        else:
            _read_weights(self._run.base_weights, weights)
        self._learner.restart()

    @torch.no_grad()
    def _drift(self, episodes: Sequence[Episode]) -> float:
        """Return how far the iteration moved the policy from the one that explored.

        A mean over the tokens of all this iteration's episodes, successful or not.
        """
        config = self._config
        self._learner.fetch_weights()
        scored = score_samples(
            [sample for episode in episodes for sample in episode.samples],
            Scorers(policy=self._logprobs),
            packing=Packing(config.training.tokens_per_batch),
        )
        now = [logprob for item in scored for logprob in item.scores.logprobs or ()]
        engine = [lp for item in scored for lp in actions_of(item.sample, item.sample.logprobs)]
        return float(drift(torch.tensor(now), torch.tensor(engine)).mean())

    def _logprobs(self, samples: Sequence[Sample]) -> Tensor:
        """Return log-probabilities as the engine computes them, at the sampling temperature."""
        temperature = self._config.rollout.temperature
        return action_logprobs(self._policy.model, samples, temperature=temperature).logprobs_A

    def _keep(self, episodes: Sequence[Episode]) -> int:
        """Keep the successes of an iteration; return how many there were."""
        fresh = [episode for episode in episodes if episode.success]
        self._kept = newest_per_task([*self._kept, *fresh], self._evol.max_per_task)
        return len(fresh)

    def _batches(
        self, step: int, samples: Sequence[TrainingSample]
    ) -> Iterator[list[TrainingSample]]:
        """Yield the batches of an iteration, in an order that (seed, step) decides."""
        size = self._evol.batch_size
        for epoch in range(self._config.training.epochs_per_step):
            order = list(samples)
            random.Random(f"{self._config.seed}/agentevol/{step}/{epoch}").shuffle(order)
            yield from (order[start : start + size] for start in range(0, len(order), size))

    def _save(self, step: int) -> None:
        folder = self._run.iteration_path(step)
        conversations = [from_episode(episode, imitated(episode)) for episode in self._kept]
        conversations += [conversation for conversation, _ in self._demos]
        lines = "".join(to_json_line(conversation) + "\n" for conversation in conversations)
        write_atomically(folder / "conversations.jsonl", lines)
        self._policy.save(folder / "model")


def imitated(episode: Episode) -> list[Sample]:
    """Return the samples of a successful episode, with a loss only on what is worth imitating.

    With reflection, the tries before the last one failed: only their reflections count.
    """
    last = episode.samples[-1].try_index if episode.samples else 0
    return [
        sample if sample.try_index == last else _only(SegmentKind.REFLECTION, sample)
        for sample in episode.samples
    ]


def _only(kind: SegmentKind, sample: Sample) -> Sample:
    """Return the sample with only the tokens of one kind to learn from."""
    mask = [0] * len(sample.loss_mask)
    for segment in sample.segments:
        if segment.kind is kind:
            mask[segment.start : segment.end] = sample.loss_mask[segment.start : segment.end]
    return replace(sample, loss_mask=tuple(mask))


def newest_per_task(episodes: Sequence[Episode], max_per_task: int) -> list[Episode]:
    """Return the last episodes of each task, at most this many, in order; 0 for all."""
    if not max_per_task:
        return list(episodes)
    counts: dict[str, int] = {}
    kept: list[Episode] = []
    for episode in reversed(episodes):
        counts[episode.task.id] = counts.get(episode.task.id, 0) + 1
        if counts[episode.task.id] <= max_per_task:
            kept.append(episode)
    return kept[::-1]


def _write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    torch.save({name: weight.detach().cpu() for name, weight in weights.items()}, writing)
    put_in_place(writing, path)


@torch.no_grad()
def _read_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Read weights from a file, in place."""
    try:
        stored = torch.load(path, weights_only=True, map_location="cpu")
        for name, weight in weights.items():
            weight.copy_(stored[name])
    except Exception as error:
        raise RunError(
            f"the weights that iterations begin with, {path}, cannot be read "
            f"({type(error).__name__}: {error}); start a new run"
        ) from error
