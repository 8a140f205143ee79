"""One delivery of weights: what is agreed, and what both ends do.

The giving end is the process that learns (this one, or a rank of a sharded learner), the taking end
an engine's process. Both report a checksum of what they have, which the channel compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.engines.channels.checksum import WeightChecksum
from agentgym_rl.engines.channels.group import GroupPlan, WeightGroup
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.sharding import trained_weights

Delivery = GroupPlan | Path
"""Through a group, or through a file that the giving end writes first."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the giving end has done."""

    num_bytes: int
    checksum: int
    error: str = ""
    """Why it could not give all; empty if it could."""


class WeightSource(Protocol):
    """Has the weights of the run."""

    def give_weights(self, delivery: Delivery) -> Given:
        """Give the present weights; a failure is reported, not raised.

        Not while they are updated.
        """


class PolicySource:
    """The policy of this process."""

    def __init__(self, policy: Policy) -> None:
        self._model, self._giver = policy.model, WeightGiver()

    def give_weights(self, delivery: Delivery) -> Given:
        given = self._giver.give(delivery, trained_weights(self._model))
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()  # an engine on this GPU is about to take memory again
        return given


class WeightGiver:
    """The giving end; a group is kept for the next delivery."""

    def __init__(self) -> None:
        self._open = _OpenGroup()

    def give(self, delivery: Delivery | None, weights: Iterable[tuple[str, Tensor]]) -> Given:
        """Give the weights, by name, all of which are taken from the iterable in any case.

        None gives them to nobody, for a rank that helps another one to gather them.
        """
        sums, num_bytes = WeightChecksum(), 0

        def summed() -> Iterable[tuple[str, Tensor]]:
            nonlocal num_bytes
            for name, weight in weights:
                sums.add(weight)
                num_bytes += weight.numel() * weight.element_size()
                yield name, weight

        passing, error = iter(summed()), ""
        try:
            if isinstance(delivery, Path):
                _write(delivery, passing)
            elif delivery is not None:
                self._open.group(delivery, 0).send(weight for _, weight in passing)
        except (RuntimeError, OSError, SafetensorError) as failure:
            self._open.leave()
            error = f"{type(failure).__name__}: {failure}"
        for _ in passing:
            pass  # ranks that gather with this one do not know of the failure
        return Given(num_bytes, sums.value, error)


class WeightTaker:
    """The taking end: fills the trained weights of a model in place."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model, self._open = model, _OpenGroup()

    def take(self, delivery: Delivery, rank: int) -> int:
        """Take the weights as `rank` of the group; return the checksum of what the model has.

        After EngineError the model may have weights of two versions.
        """
        weights = dict(trained_weights(self._model))
        try:
            if isinstance(delivery, Path):
                _read(delivery, weights)
            else:
                self._open.group(delivery, rank).receive(weights.values())
        except (RuntimeError, OSError, SafetensorError, KeyError) as failure:
            self._open.leave()
            raise EngineError(f"no new weights: {type(failure).__name__}: {failure}") from failure
        sums = WeightChecksum()
        for weight in weights.values():
            sums.add(weight)
        return sums.value


class _OpenGroup:
    """The group of the last delivery; another plan makes another group."""

    def __init__(self) -> None:
        self._group: WeightGroup | None = None

    def group(self, plan: GroupPlan, rank: int) -> WeightGroup:
        if self._group is None or self._group.plan != plan:
            self.leave()
            self._group = WeightGroup(plan, rank)
        return self._group

    def leave(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None


def _write(file: Path, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Write a file that appears only when it is whole."""
    writing = file.with_suffix(".writing")
    # Copied, because safetensors refuses weights that share memory (joined layers).
    save_file({name: weight.detach().cpu().clone() for name, weight in weights}, writing)
    writing.rename(file)


@torch.no_grad()
def _read(file: Path, weights: dict[str, torch.nn.Parameter]) -> None:
    saved = load_file(file)
    if saved.keys() != weights.keys():
        raise KeyError(f"{len(saved.keys() ^ weights.keys())} weights do not fit")
    for name, weight in weights.items():
        weight.copy_(saved[name])
