"""How long the native engine's runner takes for a token of every row, without anything around it.

Beside it stands what the memory would allow: the time to read all weights, keys and values once,
at the speed of a copy on the same device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from agentgym_rl.engines.paged.batch_pass import CacheShape
from agentgym_rl.engines.paged.device_rows import NO_TOKEN, NewRow
from agentgym_rl.engines.paged.engine import STEPS_PER_LAUNCH
from agentgym_rl.engines.paged.pages import PAGE_SIZE, pages_for
from agentgym_rl.engines.paged.runner import PagedRunner, RunnerOptions
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import SamplingParams

_WARM_UPS = 5
"""Launches that are not timed."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What was timed."""

    context: int
    """Tokens that a row attended to, in the mean."""
    step_ms: float
    floor_ms: float
    num_ended: int
    """Rows that a stop token has ended meanwhile: they read no keys any more."""


def measure_decoding(
    policy: Policy, num_rows: int, context: int, *, is_compiled: bool, launches: int
) -> Decoding:
    """Time launches of the native engine's runner alone, with `context` tokens in the mean."""
    device = policy.model.device
    is_cuda = device.type == "cuda"
    num_steps = (launches + _WARM_UPS) * STEPS_PER_LAUNCH
    begin = _first_context(context, launches)
    each = pages_for(tokens_of_a_row(context, launches=launches))
    options = RunnerOptions(
        num_pages=num_rows * each,
        max_rows=num_rows,
        max_batch_tokens=64,
        max_steps=STEPS_PER_LAUNCH,
        is_compiled=is_compiled and is_cuda,
        uses_graphs=is_cuda,
    )
    runner = PagedRunner(policy, options)
    rows = list(range(num_rows))
    with runner.graphs.on_stream(), torch.inference_mode():
        runner.admit(
            [
                NewRow(
                    row=row,
                    key=row,
                    num_context=begin,
                    max_tokens=num_steps + 1,
                    params=SamplingParams(1.0, num_steps + 1),
                    pages=list(range(1 + row * each, 1 + (row + 1) * each)),
                )
                for row in rows
            ]
        )
        for _ in range(_WARM_UPS):
            runner.decode(rows, STEPS_PER_LAUNCH)
        wait_for_device(is_cuda)
        started = time.perf_counter()
        for _ in range(launches):
            sampled = runner.decode(rows, STEPS_PER_LAUNCH)
        wait_for_device(is_cuda)
    step_ms = 1000 * (time.perf_counter() - started) / (launches * STEPS_PER_LAUNCH)
    mean_context = begin + _steps_until_middle(launches)
    floor_ms = 1000 * _bytes_read(policy, num_rows, mean_context) / copy_speed(device)
    num_ended = int((sampled.tokens[-1] == NO_TOKEN).sum())
    return Decoding(mean_context, step_ms, floor_ms, num_ended)


def tokens_of_a_row(context: int, *, launches: int) -> int:
    """Return how long a row gets, which is what the model's context has to hold."""
    return _first_context(context, launches) + (launches + _WARM_UPS) * STEPS_PER_LAUNCH + 1


def _first_context(context: int, launches: int) -> int:
    return max(1, context - _steps_until_middle(launches))


def _steps_until_middle(launches: int) -> int:
    return _WARM_UPS * STEPS_PER_LAUNCH + launches * STEPS_PER_LAUNCH // 2


def _bytes_read(policy: Policy, num_rows: int, context: int) -> int:
    """Return the bytes of weights, keys and values that a step cannot do without."""
    model = policy.model
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    if not model.config.tie_word_embeddings:  # of the input matrix only a few rows are read
        embeddings = model.get_input_embeddings().weight
        weights -= embeddings.numel() * embeddings.element_size()
    shape = CacheShape.of(model.config.get_text_config(), model.dtype)
    return weights + num_rows * context * shape.page_bytes // PAGE_SIZE


def copy_speed(device: torch.device) -> float:
    """Return bytes a second, read and written, of a copy within the device's memory."""
    size = 2**30 if device.type == "cuda" else 2**26
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    wait_for_device(device.type == "cuda")
    started = time.perf_counter()
    for _ in range(10):
        target.copy_(source)
    wait_for_device(device.type == "cuda")
    return 10 * 2 * size / (time.perf_counter() - started)


def wait_for_device(is_cuda: bool) -> None:
    """Wait until all that was launched is done."""
    if is_cuda:
        torch.cuda.synchronize()
