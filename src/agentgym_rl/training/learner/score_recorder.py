"""Scores of the sampled tokens of a step, recorded for the episode store.

Nothing is computed for this: advantages are known, and log-probabilities and entropies come from
the first pass over a sample. With several updates per step, later passes have weights that earlier
updates have changed. If an algorithm scores samples beforehand, those log-probabilities are kept.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from agentgym_rl.models.forward import ActionLogprobs
from agentgym_rl.runs.episode_columns import Entries, TokenScores
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.types import Sample


class ScoreRecorder:
    """Collects during one step; samples are identified by `id`, so they must stay alive."""

    def __init__(self) -> None:
        self._items: dict[int, TrainingSample] = {}
        self._passes: list[tuple[Sequence[TrainingSample], Tensor]] = []
        """The samples of each pass, their log-probabilities and entropies (2, A); tensors stay on
        their device until they are read."""
        self._seen: set[int] = set()
        self._read: dict[int, tuple[Entries, Entries]] = {}

    def add_advantages(self, items: Iterable[TrainingSample]) -> None:
        """Keep the advantages of samples."""
        self._items |= {id(item.sample): item for item in items}

    def record_pass(self, batch: Sequence[TrainingSample], now: ActionLogprobs) -> None:
        """Keep what a pass computed, unless all its samples have been recorded."""
        ids = {id(item.sample) for item in batch}
        if not ids <= self._seen:
            self._seen |= ids
            both_2A = torch.stack([now.logprobs_A.detach(), now.entropies_A.detach()])
            self._passes.append((batch, both_2A))

    def scores_of(self, sample: Sample) -> TokenScores | None:
        """Return what is known of a sample; None for one that was not learned from."""
        item = self._items.get(id(sample))
        if item is None:
            return None
        self._read_passes()
        logprobs, entropies = self._read.get(id(sample), (None, None))
        if item.scores.logprobs is not None:
            return TokenScores(item.scores.logprobs, item.advantages, entropies)
        return TokenScores(logprobs, item.advantages, entropies)

    def _read_passes(self) -> None:
        for batch, both_2A in self._passes:
            parts = both_2A.float().cpu().split([item.num_tokens for item in batch], dim=1)
            for item, part_2A in zip(batch, parts, strict=True):
                logprobs, entropies = part_2A.numpy()
                self._read.setdefault(id(item.sample), (logprobs, entropies))
        self._passes = []
