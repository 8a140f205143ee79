"""Settings that make a run fit, and the refusal of one that cannot.

Every piece of advice is checked by the same estimate before it is given. The order is from what
changes nothing of the result to what changes what is trained: more GPUs, recomputed activations,
smaller passes, the optimiser in the CPU's memory, less for keys and values, and last LoRA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentgym_rl.errors import ConfigError
from agentgym_rl.sizing.engine import PAGE_SIZE
from agentgym_rl.sizing.estimate import Estimate, Place, estimate
from agentgym_rl.sizing.machine import GIB, Machine
from agentgym_rl.sizing.plan import MemoryPlan, Offload

_LORA_RANK = 32
_LORA_LR = "1e-4"
"""An adapter wants a higher rate than all weights (docs/recipes.md)."""
_FRACTIONS = (0.4, 0.3, 0.2, 0.1, 0.05)
_FEWEST_TOKENS = 1024
_OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "all")
_MOST_GPUS = 8
"""Of a machine to recommend."""


@dataclass(frozen=True, slots=True)
class Way:
    """Settings that make the run fit."""

    plan: MemoryPlan
    settings: tuple[str, ...]
    num_gpus: int
    """How many GPUs of the machine's kind it takes; 0 without any."""


def ways_to_fit(found: Estimate) -> list[Way]:
    """Return the settings that make the run fit: one way with all weights, one with LoRA.

    Each is for the machine, or for one with as many more GPUs as it takes; the former go first.
    Where all weights need more GPUs than there are, the CPU's memory may take a part, slowly.
    """
    plan = found.plan
    bases = [plan] if plan.lora_rank else [plan, replace(plan, lora_rank=_LORA_RANK)]
    ways = [way for base in bases if (way := _way(base, found)) is not None]
    fits_here = any(
        way.num_gpus <= len(found.machine.gpus) and way.plan.lora_rank == plan.lora_rank
        for way in ways
    )
    if not fits_here and (slow := _offloaded_way(found)) is not None:
        ways.append(slow)
    return sorted(ways, key=lambda way: (way.num_gpus, way.plan.lora_rank))


def refusal(found: Estimate) -> ConfigError | None:
    """Return the error of a run that clearly cannot fit; None for all others.

    Only weights, optimiser and gradients count: they are exact, and no other setting shrinks them.
    """
    place = next((place for place in found.places if place.is_hopeless), None)
    if place is None:
        return None
    return ConfigError(
        f"weights, optimiser and gradients alone take {gib(place.least)} of {place.name}, "
        f"which has {gib(place.capacity)}: {remedy(found)}"
    )


def remedy(found: Estimate) -> str:
    """Return what to set, in one line."""
    ways = ways_to_fit(found)
    if not ways:
        need = max(max(place.learning, place.playing) for place in found.places)
        return f"no setting makes it fit; take a smaller model.path, or {gib(need)} of memory"
    return "; or ".join(_told(way, found.machine) for way in ways)


def shortage(place: Place) -> str:
    """Return what is missing where, in one line."""
    moments = (("learning", place.learning), ("playing", place.playing))
    over = [f"{gib(need)} while {moment}" for moment, need in moments if need > place.capacity]
    return f"{place.name} has {gib(place.capacity)} and is estimated to need {' and '.join(over)}"


def gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"


def _told(way: Way, machine: Machine) -> str:
    text = " ".join(way.settings)
    if way.num_gpus <= len(machine.gpus):
        return f"set {text}"
    return f"take {way.num_gpus} such GPUs and set {text}"


def _way(base: MemoryPlan, found: Estimate) -> Way | None:
    """Return the way that trains these weights on the fewest GPUs, no fewer than there are."""
    machine = found.machine
    while True:
        for ranks in _numbers_of_ranks(base, machine):
            best = _smaller(replace(base, ranks=ranks), found, machine)
            if best is not None:
                return Way(best, _settings(found.plan, best), len(machine.gpus))
        if not 0 < len(machine.gpus) < _MOST_GPUS:
            return None
        machine = replace(machine, gpus=machine.gpus * 2)


def _offloaded_way(found: Estimate) -> Way | None:
    """Return the way that has the fewest of the learner's numbers in the CPU's memory."""
    plan, machine = found.plan, found.machine
    if not machine.gpus:
        return None
    for offload in _OFFLOADS[_OFFLOADS.index(plan.offload) + 1 :]:
        for ranks in _numbers_of_ranks(plan, machine):
            if offload == "all" and ranks == 1:
                continue  # refused by the settings
            best = _smaller(replace(plan, ranks=ranks, offload=offload), found, machine)
            if best is not None:
                return Way(best, _settings(plan, best), len(machine.gpus))
    return None


def _numbers_of_ranks(plan: MemoryPlan, machine: Machine) -> Iterator[int]:
    yield plan.ranks
    ranks = 2 * plan.ranks
    while ranks <= len(machine.gpus):
        yield ranks
        ranks *= 2


def _smaller(plan: MemoryPlan, found: Estimate, machine: Machine) -> MemoryPlan | None:
    """Return the plan with as little changed as makes it fit; None if nothing does."""

    def needs(plan: MemoryPlan) -> tuple[Place, ...]:
        return estimate(found.shape, plan, machine).places

    def learns(plan: MemoryPlan) -> bool:
        return all(not p.capacity or p.learning <= p.capacity for p in needs(plan))

    if not learns(plan):
        plan = next(filter(learns, _smaller_passes(plan)), plan)
    if not learns(plan):
        return None
    for lighter in (plan, *_smaller_caches(plan)):
        found_here = estimate(found.shape, lighter, machine)
        # A reply needs the keys and values of one whole context.
        if found_here.fits and (
            lighter.engine == "elsewhere"
            or found_here.cache_tokens >= min(plan.max_tokens, found.shape.max_context) + PAGE_SIZE
        ):
            return lighter
    return None


def _smaller_passes(plan: MemoryPlan) -> Iterator[MemoryPlan]:
    if not plan.is_checkpointed:
        plan = replace(plan, is_checkpointed=True)
        yield plan
    least = max(plan.max_tokens, _FEWEST_TOKENS)
    while plan.tokens > least:
        plan = replace(plan, tokens=max(plan.tokens // 2, least))
        yield plan


def _smaller_caches(plan: MemoryPlan) -> Iterator[MemoryPlan]:
    for fraction in _FRACTIONS:
        if plan.engine == "native" and fraction < plan.cache_fraction:
            yield replace(plan, cache_fraction=fraction)
        if plan.engine == "vllm" and fraction < plan.memory_fraction:
            yield replace(plan, memory_fraction=fraction)


def _settings(old: MemoryPlan, new: MemoryPlan) -> tuple[str, ...]:
    """Return the overrides that lead from one plan to the other."""
    found: list[str] = []
    if new.ranks != old.ranks:
        found.append(f"training.shards={new.ranks}")
    if new.lora_rank != old.lora_rank:
        found.append(f"lora.rank={new.lora_rank} training.lr={_LORA_LR}")
    if new.offload != old.offload:
        found.append(f"training.offload={new.offload}")
    if new.is_checkpointed != old.is_checkpointed:
        found.append("training.gradient_checkpointing=true")
    if new.tokens != old.tokens:
        found.append(f"training.tokens_per_batch={new.tokens}")
    if new.cache_fraction != old.cache_fraction:
        found.append(f"engine.cache_fraction={new.cache_fraction:g}")
    if new.memory_fraction != old.memory_fraction:
        found.append(f"engine.memory_fraction={new.memory_fraction:g}")
    return tuple(found)
