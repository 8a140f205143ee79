"""Weights by torch.distributed: one process broadcasts, engines receive, a bucket at a time.

The group is apart from a learner's own group, and made without `init_process_group`, of which a
process has only one. Gloo carries buckets through the CPUs' memory, also where engine and learner
share a GPU, which NCCL refuses; NCCL carries them from GPU to GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from agentgym_rl.engines.channels.meeting import meet, own_address

Backend = Literal["gloo", "nccl"]
_BUCKET_BYTES = {"gloo": 16 << 20, "nccl": 256 << 20}
_JOIN_S = 60.0
"""For all to meet: they are alive and have nothing else to do."""
_LOOK_S = 0.0005


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Who meets where: rank 0 sends, the others receive."""

    url: str
    """Of the meeting place (meeting.py); never used twice."""
    size: int
    backend: Backend
    timeout_s: float
    """Deadline of one bucket."""


class WeightGroup:
    """One process's place in a group; raises RuntimeError where a peer is gone or too slow."""

    def __init__(self, plan: GroupPlan, rank: int) -> None:
        self.plan = plan
        wait = timedelta(seconds=min(_JOIN_S, plan.timeout_s))
        store = meet(plan.url, rank, plan.size, wait)
        store.set_timeout(wait)
        self._device = torch.device("cpu")
        if plan.backend == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())
        # Any: torch's types lack `broadcast` of these classes.
        self._group: Any = _nccl(plan, rank, store) if self._is_nccl else _gloo(plan, rank, store)
        self._bucket = torch.empty(
            _BUCKET_BYTES[plan.backend],
            dtype=torch.uint8,
            device=self._device,
            pin_memory=not self._is_nccl and torch.cuda.is_initialized(),
        )

    @property
    def _is_nccl(self) -> bool:
        return self.plan.backend == "nccl"

    def send(self, weights: Iterable[Tensor]) -> None:
        """Send the weights to all; all of them are taken from the iterable, also after a failure.

        Ranks that gather them together would otherwise wait for each other.
        """
        failure: RuntimeError | None = None
        for parts in _buckets(weights, len(self._bucket)):
            if failure is not None:
                continue
            try:
                length = 0
                for part in parts:
                    self._bucket[length : length + len(part)].copy_(part)
                    length += len(part)
                self._broadcast(length)
            except RuntimeError as error:
                failure = error
        if failure is not None:
            raise failure

    @torch.no_grad()
    def receive(self, weights: Iterable[Tensor]) -> None:
        """Fill the weights, which have the shapes, types and order of those that are sent."""
        for parts in _buckets(weights, len(self._bucket)):
            self._broadcast(sum(len(part) for part in parts))
            start = 0
            for part in parts:
                part.copy_(self._bucket[start : start + len(part)])
                start += len(part)

    def close(self) -> None:
        """Leave; peers that still wait for something fail at once with gloo."""
        self._group.abort()

    def _broadcast(self, length: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        work = self._group.broadcast([self._bucket[:length]], options)
        if not self._is_nccl:
            work.wait()
            return
        # `wait` would only make the stream wait, and NCCL does not notice that a peer has died.
        deadline = time.monotonic() + self.plan.timeout_s
        while not work.is_completed():
            if time.monotonic() > deadline:
                self._group.abort()
                raise RuntimeError(f"no bucket within {self.plan.timeout_s:g} s")
            time.sleep(_LOOK_S)


def _gloo(plan: GroupPlan, rank: int, store: dist.Store) -> object:
    gloo: Any = dist.ProcessGroupGloo  # as above: its options and devices
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=own_address(plan.url))]
    options._timeout = timedelta(seconds=plan.timeout_s)
    return gloo(store, rank, plan.size, options)


def _nccl(plan: GroupPlan, rank: int, store: dist.Store) -> dist.ProcessGroupNCCL:
    # Making a communicator has no deadline of its own: everybody must be here before it is begun.
    store.set(f"here-{rank}", "1")
    store.wait([f"here-{peer}" for peer in range(plan.size)])
    options = dist.ProcessGroupNCCL.Options()
    # Its watchdog would end the process; `_broadcast` gives up before.
    options._timeout = timedelta(seconds=2 * plan.timeout_s)
    return dist.ProcessGroupNCCL(store, rank, plan.size, options)


def _buckets(weights: Iterable[Tensor], size: int) -> Iterator[list[Tensor]]:
    """Yield the weights as bytes, in order, `size` at a time."""
    parts: list[Tensor] = []
    room = size
    for weight in weights:
        rest = weight.detach().view(-1).view(torch.uint8)
        while len(rest):
            part, rest = rest[:room], rest[room:]
            parts.append(part)
            room -= len(part)
            if not room:
                yield parts
                parts, room = list[Tensor](), size
    if parts:
        yield parts
