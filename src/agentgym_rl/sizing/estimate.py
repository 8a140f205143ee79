"""The memory of a run, place by place: the GPUs that do the same, or the memory of a CPU machine.

Two moments matter: learning (a pass of an update at its largest) and playing (keys and values are
there, gradients and activations are not). What is exact arithmetic and what is an allowance is in
docs/scaling.md, with what was measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgym_rl.sizing.engine import (
    paged_cache_bytes,
    pass_bytes,
    slot_cache_bytes,
    wanted_cache_bytes,
)
from agentgym_rl.sizing.learner import LearnerBytes, activation_bytes, learner_bytes, loss_bytes
from agentgym_rl.sizing.machine import GIB, Machine
from agentgym_rl.sizing.plan import MemoryPlan
from agentgym_rl.sizing.shape import ModelShape

_GPU = "GPU "

CUDA_BYTES = GIB
"""Allowance for a process on a GPU: the context, the libraries' workspaces, fragments."""
PROCESS_BYTES = GIB // 2
"""Allowance for a process with torch and transformers in a CPU's memory."""


@dataclass(frozen=True, slots=True)
class Row:
    """One use of memory, in bytes."""

    what: str
    learning: int = 0
    playing: int = 0
    is_bound: bool = False
    """Whether it can be less by far, so that it decides nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Memory that fits or does not: of one GPU, or of the machine."""

    name: str
    capacity: int
    """0 if it is not known."""
    rows: tuple[Row, ...]
    least: int
    """What an update cannot do without: weights, optimiser and gradients."""

    @property
    def learning(self) -> int:
        return sum(row.learning for row in self.rows if not row.is_bound)

    @property
    def playing(self) -> int:
        return sum(row.playing for row in self.rows if not row.is_bound)

    @property
    def fits(self) -> bool:
        return not self.capacity or max(self.learning, self.playing) <= self.capacity

    @property
    def is_hopeless(self) -> bool:
        """Whether not even weights, optimiser and gradients have room."""
        return bool(self.capacity) and self.least > self.capacity


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of a run on a machine."""

    shape: ModelShape
    plan: MemoryPlan
    machine: Machine
    places: tuple[Place, ...]
    cache_bytes: int
    """Of keys and values, all engines here together."""

    @property
    def fits(self) -> bool:
        return all(place.fits for place in self.places)

    @property
    def is_hopeless(self) -> bool:
        return any(place.is_hopeless for place in self.places)

    @property
    def cache_tokens(self) -> int:
        return self.cache_bytes // self.shape.cache_bytes(self.plan.element)


def estimate(shape: ModelShape, plan: MemoryPlan, machine: Machine) -> Estimate:
    """Return what a run takes on the machine's GPUs, or without any in its memory."""
    learner = learner_bytes(shape, plan)
    if not machine.gpus:
        cache = plan.engines * slot_cache_bytes(shape, plan) if plan.engine == "native" else 0
        place = _memory(shape, plan, machine, learner, cache)
        return Estimate(shape, plan, machine, (place,), cache)
    capacity = min(gpu.num_bytes for gpu in machine.gpus)
    places = [_gpu(shape, plan, learner, index, capacity) for index in range(plan.gpus)]
    places = [*_grouped(places), _host(shape, plan, machine, learner)]
    cache = plan.engines * _cache(shape, plan, capacity, index=plan.first_engine_gpu)
    return Estimate(shape, plan, machine, tuple(places), cache)


def _grouped(places: Sequence[Place]) -> list[Place]:
    """Return GPUs that hold the same as one place."""
    found: list[Place] = []
    for rows, group in itertools.groupby(places, key=lambda place: place.rows):
        first, *others = group
        last = others[-1].name.removeprefix(_GPU) if others else ""
        name = f"each of GPUs {first.name.removeprefix(_GPU)}-{last}" if last else first.name
        found.append(Place(name, first.capacity, rows, first.least))
    return found


def _gpu(
    shape: ModelShape, plan: MemoryPlan, learner: LearnerBytes, index: int, capacity: int
) -> Place:
    """Return the memory of one GPU."""
    learns, plays = index < plan.ranks, plan.has_engine(index)
    policy = policy_bytes(shape, plan)
    rows = list(_learner_rows(shape, plan, learner, on_gpu=True)) if learns else []
    copies = plan.policies_on(index)
    if copies:
        rows.append(Row("policy to sample with", copies * policy, copies * policy))
    if plays and plan.engine == "vllm":
        served = int(plan.memory_fraction * capacity)
        rows.append(Row("vLLM's server", served * (not plan.has_sleeping_servers), served))
    if plays and plan.engine == "native":
        buffers = pass_bytes(shape, plan)
        cache = _cache(shape, plan, capacity, index=index)
        rows.append(Row("keys and values", cache * plan.is_overlapped, cache))
        rows.append(Row("the engine's passes", buffers, buffers))
    overhead = plan.processes_on(index) * CUDA_BYTES
    rows.append(Row("CUDA and fragments", overhead, overhead))
    return Place(f"{_GPU}{index}", capacity, tuple(rows), learner.least if learns else 0)


def _learner_rows(
    shape: ModelShape, plan: MemoryPlan, learner: LearnerBytes, *, on_gpu: bool
) -> Iterable[Row]:
    yield Row("weights", learner.weights, learner.weights)
    yield Row("optimiser", learner.optimizer, learner.optimizer)
    yield Row("gradients", learner.gradients, 0)
    if learner.gathered:
        yield Row("layers gathered", learner.gathered, 0)
    computed = activation_bytes(shape, plan, on_gpu=on_gpu) + loss_bytes(shape, plan, on_gpu=on_gpu)
    # A parked reference comes back to score, before there are gradients and activations.
    scoring = policy_bytes(shape, plan) if plan.has_reference and plan.ranks == 1 else 0
    scoring += loss_bytes(shape, plan, on_gpu=on_gpu) - learner.gradients
    largest = max(computed, learner.of_pass, scoring)
    yield Row(f"a pass of {plan.rank_tokens:,} tokens", largest, 0)


def _cache(shape: ModelShape, plan: MemoryPlan, capacity: int, *, index: int) -> int:
    """Return the keys and values of one engine, whose first GPU is `index`."""
    weights = policy_bytes(shape, plan)
    if plan.engine == "native":  # it begins before the learner, beside the weights
        copies = max(1, plan.policies_on(index)) + int(plan.keeps_weights_on(index))
        return paged_cache_bytes(shape, plan, free=capacity - copies * weights - CUDA_BYTES)
    if plan.engine == "vllm":
        served = plan.tensor_parallel * int(plan.memory_fraction * capacity)
        return max(0, served - weights - plan.tensor_parallel * CUDA_BYTES)
    return 0


def _host(shape: ModelShape, plan: MemoryPlan, machine: Machine, learner: LearnerBytes) -> Place:
    """Return the memory beside the GPUs."""
    weights = policy_bytes(shape, plan)
    processes = plan.processes * PROCESS_BYTES
    rows = [Row("processes", processes, processes)]
    if plan.has_reference:
        rows.append(Row("reference", weights, weights))
    if plan.has_sleeping_servers:
        rows.append(Row("vLLM's weights, asleep", plan.engines * weights, 0))
    if plan.ranks > 1 and plan.has_cluster:
        rows.append(Row("policy to save", weights, weights))
    if learner.on_host:
        moved = plan.ranks * learner.on_host
        rows.append(Row("the learner's, offloaded", moved, moved))
    if plan.ranks > 1:
        whole = plan.ranks * 4 * shape.num_weights
        rows.append(Row("ranks while they start", whole, 0))
    return Place("memory", machine.ram_bytes, tuple(rows), plan.ranks * learner.on_host)


def _memory(
    shape: ModelShape, plan: MemoryPlan, machine: Machine, learner: LearnerBytes, cache: int
) -> Place:
    """Return the memory of a run without a GPU, all its processes together."""
    weights = policy_bytes(shape, plan)
    rows = [
        Row(row.what, plan.ranks * row.learning, plan.ranks * row.playing)
        for row in _learner_rows(shape, plan, learner, on_gpu=False)
    ]
    if learner.on_host:
        moved = plan.ranks * learner.on_host
        rows.append(Row("the learner's, offloaded", moved, moved))
    if plan.ranks > 1 or plan.has_cluster:
        copies = int(plan.ranks > 1) + plan.engines * plan.has_cluster
        rows.append(Row("policy to sample with", copies * weights, copies * weights))
    if plan.has_reference:
        rows.append(Row("reference", weights, weights))
    rows.append(Row("keys and values", cache, cache, is_bound=True))
    processes = plan.processes * PROCESS_BYTES
    rows.append(Row("processes", processes, processes))
    least = plan.ranks * (learner.least + learner.on_host)
    return Place("memory", machine.ram_bytes, tuple(rows), least)


def policy_bytes(shape: ModelShape, plan: MemoryPlan) -> int:
    """Return a whole copy of the policy's weights, with its adapter."""
    return plan.element * (shape.num_weights + shape.adapter_weights(plan.lora_rank))


def missing_cache(found: Estimate) -> float:
    """Return which share of the wanted keys and values has no room, 0 to 1.

    Without room an episode that waits for its environment loses its own, and is computed again.
    """
    wanted = wanted_cache_bytes(found.shape, found.plan)
    return max(0.0, 1.0 - found.cache_bytes / wanted) if found.plan.engine != "elsewhere" else 0.0
