"""How fast updates are: tokens per second, and the share of the GPU's peak that they use (MFU)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from agentgym_rl.models.flops import peak_flops_of, update_flops
from agentgym_rl.models.prefix_tree import pack_tree
from agentgym_rl.training.algorithms.base import TrainingSample


class Speed:
    """Adds up the updates of one policy; a critic's computation is not counted."""

    def __init__(
        self, policy: PreTrainedModel, *, shares_prefix: bool = False, num_devices: int = 1
    ) -> None:
        self._device = policy.device
        self._flops, self._peak = update_flops(policy), peak_flops_of(policy)
        self._shares_prefix, self._num_devices = shares_prefix, num_devices
        self._num_tokens, self._num_computed = 0, 0
        self._num_flops, self._seconds = 0.0, 0.0

    def add(self, passes: Sequence[Sequence[TrainingSample]], *, started: float) -> None:
        """Count an update that began at `started` (of `time.monotonic`) and is done now."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds += time.monotonic() - started
        for batch in passes:
            self._num_tokens += sum(item.length for item in batch)
            if self._shares_prefix:
                tree = pack_tree([item.sample for item in batch])
                self._add_work(tree.lengths, tree.starts, num_actions=len(tree.actions_U))
            else:
                num_actions = sum(item.num_tokens for item in batch)
                self._add_work([item.length for item in batch], num_actions=num_actions)

    def take(self) -> dict[str, float]:
        """Return metrics of the updates since the last call; none where there was no update.

        All tokens of the sequences count, prompts and observations too. MFU is of what is computed.
        Without a known peak of the device (models/flops.py) there is no `train/mfu`.
        """
        if not self._seconds:
            return {}
        rates = {"train/tokens_per_s": self._num_tokens / self._seconds}
        if self._shares_prefix:
            rates["train/tokens_shared"] = 1 - self._num_computed / self._num_tokens
        if self._num_flops and self._peak is not None:
            rates["train/mfu"] = self._num_flops / self._seconds / (self._peak * self._num_devices)
        self._num_tokens, self._num_computed = 0, 0
        self._num_flops, self._seconds = 0.0, 0.0
        return rates

    def _add_work(
        self, lengths: Sequence[int], starts: Sequence[int] = (), *, num_actions: int
    ) -> None:
        self._num_computed += sum(lengths)
        if self._flops is not None:
            self._num_flops += self._flops.total(lengths, starts, num_actions=num_actions)
