"""The engine's memory: keys and values, and the buffers of its passes."""

from __future__ import annotations

from agentgym_rl.sizing.plan import MemoryPlan
from agentgym_rl.sizing.shape import ModelShape

# As in engines/paged, whose modules import torch; a test compares them.
MAX_ROWS = 1024
MAX_CHUNKS = 256
PAGE_SIZE = 16
ROW_SIZES = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def paged_cache_bytes(shape: ModelShape, plan: MemoryPlan, *, free: int) -> int:
    """Return what the native engine takes on a GPU with `free` bytes when it begins.

    It is `engine.cache_fraction` of them, whole pages, at most as many as its rows can use.
    """
    page = PAGE_SIZE * shape.cache_bytes(plan.element)
    useful = MAX_ROWS * -(-shape.max_context // PAGE_SIZE)
    return page * min(useful, int(max(0, free) * plan.cache_fraction) // page)


def wanted_cache_bytes(shape: ModelShape, plan: MemoryPlan) -> int:
    """Return the keys and values of all episodes at once, each as long as it may become."""
    length = min(plan.max_tokens, shape.max_context)
    return plan.episodes * length * shape.cache_bytes(plan.element)


def slot_cache_bytes(shape: ModelShape, plan: MemoryPlan) -> int:
    """Return the most that the native engine takes on a CPU (engines/native/kv_cache.py).

    Slots double as episodes begin; each holds as many tokens as the longest context so far.
    """
    slots = 8
    while slots < plan.episodes:
        slots *= 2
    length = min(plan.max_tokens, shape.max_context)
    return slots * length * shape.cache_bytes(plan.element)


def pass_bytes(shape: ModelShape, plan: MemoryPlan) -> int:
    """Return the buffers of the native engine's largest passes on a GPU, which graphs keep.

    Float32 logits of every row and of the prompts that end, and a layer of a prompt pass.
    """
    rows = next((size for size in ROW_SIZES if size >= plan.episodes), MAX_ROWS)
    logits = 4 * shape.vocab * (rows + min(MAX_CHUNKS, plan.max_batch_tokens // 16))
    widths = 4 * shape.hidden + 2 * (shape.query_width + shape.kv_width) + 3 * shape.feed_forward
    return logits + plan.element * plan.max_batch_tokens * widths
