"""How fast updates are: tokens per second, and the share of the GPU's peak that they use (MFU)."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from agentgym_rl.models.flops import peak_flops_of, update_flops
from agentgym_rl.training.algorithms.base import TrainingSample


class Speed:
    """Adds up the updates of one policy; a critic's computation is not counted."""

    def __init__(self, policy: PreTrainedModel, *, num_devices: int = 1) -> None:
        self._device = policy.device
        self._flops, self._peak = update_flops(policy), peak_flops_of(policy)
        self._num_devices = num_devices
        self._num_tokens, self._num_flops, self._seconds = 0, 0.0, 0.0

    def add(self, samples: Sequence[TrainingSample], *, started: float) -> None:
        """Count an update that began at `started` (of `time.monotonic`) and is done now."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._seconds += time.monotonic() - started
        lengths = [item.length for item in samples]
        self._num_tokens += sum(lengths)
        if self._flops is not None:
            num_actions = sum(item.num_tokens for item in samples)
            self._num_flops += self._flops.total(lengths, num_actions=num_actions)

    def take(self) -> dict[str, float]:
        """Return metrics of the updates since the last call; none where there was no update.

        All tokens of the sequences count, prompts and observations too. Without a known peak of the
        device (models/flops.py) there is no `train/mfu`.
        """
        if not self._seconds:
            return {}
        rates = {"train/tokens_per_s": self._num_tokens / self._seconds}
        if self._num_flops and self._peak is not None:
            rates["train/mfu"] = self._num_flops / self._seconds / (self._peak * self._num_devices)
        self._num_tokens, self._num_flops, self._seconds = 0, 0.0, 0.0
        return rates
