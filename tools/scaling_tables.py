"""Writes the tables of docs/scaling.md from the code that estimates memory.

    python -m tools.scaling_tables

A table stands between `<!-- NAME -->` and `<!-- end -->`; everything else of the page is written by
hand. A test says when the page is behind the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from agentgym_rl.sizing.advice import ways_to_fit
from agentgym_rl.sizing.estimate import estimate
from agentgym_rl.sizing.learner import activation_bytes, learner_bytes, loss_bytes
from agentgym_rl.sizing.machine import GIB, imagined_machine
from agentgym_rl.sizing.plan import MemoryPlan
from agentgym_rl.sizing.shape import QWEN25, SMOLLM2_135M, ModelShape

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"

_MODELS = ("7B", "32B")
_NUM_GPUS = (1, 4, 8)
_GPU_GIB = (80.0, 140.0)
_COMPILED = MemoryPlan(is_compiled=True)

_MEASURED: tuple[tuple[str, ModelShape, MemoryPlan, float], ...] = (
    ("1.5B, 16,384 tokens, compiled, FlashAttention 4", QWEN25["1.5B"], _COMPILED, 60),
    ("1.5B, 16,384 tokens, compiled", QWEN25["1.5B"], _COMPILED, 59),
    ("1.5B, 16,384 tokens, LoRA", QWEN25["1.5B"], MemoryPlan(lora_rank=16), 46),
    ("135M, 65,536 tokens, compiled", SMOLLM2_135M, replace(_COMPILED, tokens=65536), 35),
    ("135M, 65,536 tokens", SMOLLM2_135M, MemoryPlan(tokens=65536), 49),
    ("135M, 16,384 tokens", SMOLLM2_135M, MemoryPlan(), 15),
)
"""Peaks of tensors on an H200, GiB, from docs/performance.md (`agentgym bench train`)."""


_FLOAT32 = MemoryPlan(element=4, tokens=1024)
_MEASURED_ON_CPU: tuple[tuple[str, MemoryPlan, float], ...] = (
    ("1 sequence of 1,024 tokens", _FLOAT32, 4.72),
    ("4 sequences of 256 tokens", _FLOAT32, 4.64),
    (
        "2 sequences of 1,024 tokens, recomputed",
        replace(_FLOAT32, tokens=2048, is_checkpointed=True),
        4.83,
    ),
)
"""Peaks of a process over what it took before there was a model, GiB: SmolLM2's shape with random
weights in float32, two updates of two passes each, GRPO's loss on nearly all tokens."""


def tables() -> dict[str, str]:
    """Return every generated table, by name."""
    return {
        "measured": _table(("model and pass", "measured", "estimated", "error"), _measured()),
        "cpu": _table(("a pass of", "measured", "estimated", "error"), _measured_on_cpu()),
        "learner": _table(
            (
                "model",
                "GPUs",
                "weights, optimiser, gradients",
                "layers gathered",
                "pass, kept",
                "pass, recomputed",
                "sum, kept",
                "sum, recomputed",
            ),
            _learner(),
        ),
        "engine": _table(
            ("model", "bytes per token", "weights", "tokens in 10 GiB", "256 contexts of 4,096"),
            _engine(),
        ),
        "fits": _table(("model", "GPUs", "settings that fit, all weights", "with LoRA"), _fits()),
    }


def page_with(text: str, tables: dict[str, str]) -> str:
    """Return the page with the tables in their places."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert place.search(text), f"docs/scaling.md has no place for {name!r}"
        text = place.sub(lambda found, table=table: f"{found[1]}{table}{found[2]}", text)
    return text


def learner_peak(shape: ModelShape, plan: MemoryPlan) -> int:
    """Return the most that tensors of an update take on a GPU, the engine left out."""
    state = learner_bytes(shape, plan)
    return state.least + state.gathered + max(state.of_pass, _pass(shape, plan))


def _pass(shape: ModelShape, plan: MemoryPlan) -> int:
    activations = activation_bytes(shape, plan, on_gpu=True)
    return activations + loss_bytes(shape, plan, on_gpu=True)


def _measured_on_cpu() -> Iterable[Sequence[str]]:
    for what, plan, measured in _MEASURED_ON_CPU:
        state = learner_bytes(SMOLLM2_135M, plan).least
        computed = activation_bytes(SMOLLM2_135M, plan, on_gpu=False)
        computed += loss_bytes(SMOLLM2_135M, plan, on_gpu=False)
        found = (state + computed) / GIB
        yield what, f"{measured:.2f}", f"{found:.2f}", f"{found / measured - 1:+.1%}"


def _measured() -> Iterable[Sequence[str]]:
    for what, shape, plan, measured in _MEASURED:
        found = learner_peak(shape, plan) / GIB
        yield what, f"{measured:g}", f"{found:.1f}", f"{found / measured - 1:+.1%}"


def _learner() -> Iterable[Sequence[str]]:
    for rank, what in ((0, ""), (32, ", LoRA")):
        for name in _MODELS:
            for num_gpus in _NUM_GPUS:
                kept = MemoryPlan(lora_rank=rank, ranks=num_gpus, is_compiled=True)
                yield _learner_row(f"{name}{what}", QWEN25[name], kept)


def _learner_row(name: str, shape: ModelShape, kept: MemoryPlan) -> Sequence[str]:
    recomputed = replace(kept, is_checkpointed=True)
    state = learner_bytes(shape, kept)
    cells = (
        state.least,
        state.gathered,
        _pass(shape, kept),
        _pass(shape, recomputed),
        learner_peak(shape, kept),
        learner_peak(shape, recomputed),
    )
    return name, str(kept.ranks), *(f"{cell / GIB:.1f}" if cell else "" for cell in cells)


def _engine() -> Iterable[Sequence[str]]:
    for name in ("1.5B", *_MODELS):
        shape = QWEN25[name]
        cache = shape.cache_bytes(2)
        yield (
            name,
            f"{cache:,}",
            f"{2 * shape.num_weights / GIB:.1f} GiB",
            f"{10 * GIB // cache:,}",
            f"{256 * 4096 * cache / GIB:.1f} GiB",
        )


def _fits() -> Iterable[Sequence[str]]:
    for name in _MODELS:
        for num_gpus in _NUM_GPUS:
            for gib in _GPU_GIB:
                machine = imagined_machine(num_gpus=num_gpus, gpu_gib=gib)
                cells = []
                for rank in (0, 32):
                    plan = MemoryPlan(lora_rank=rank, is_compiled=True, has_reference=not rank)
                    ways = ways_to_fit(estimate(QWEN25[name], plan, machine))
                    here = (w for w in ways if w.plan.lora_rank == rank and w.num_gpus <= num_gpus)
                    way = next(here, None)
                    cells.append(_told(way.settings) if way else "no")
                yield name, f"{num_gpus} x {gib:g} GiB", *cells


def _told(settings: Sequence[str]) -> str:
    return " ".join(f"`{setting}`" for setting in settings) or "as it is"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
