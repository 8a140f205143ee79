"""`agentgym bench attention`: the kernel of attention over pages, cut in several ways.

For decoding, every way is timed on one layer of a model's shape and set beside the time that a
copy needs for the same keys and values. Prompts are timed as well, at their arithmetic.
What comes out best belongs into `attention_kernels.default_tuning`.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from bench_arguments import whole_from
from decoding_speed import copy_speed
from model_sizes import SIZES
from rich.console import Console
from rich.table import Table

from agentgym_rl.engines.paged.batch_pass import CacheShape, PagedPass
from agentgym_rl.engines.paged.pages import PAGE_SIZE, pages_for

_CUDA = torch.device("cuda")


def make_pass(
    shape: CacheShape, *, num_rows: int, past: int, num_new: int, num_splits: int
) -> tuple[PagedPass, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return a pass in which every row has `past` cached and `num_new` new tokens."""
    each = pages_for(past + num_new)
    block_tokens = 1 if num_new == 1 else shape.prefill_block_tokens
    blocks = [
        (row * num_new + offset, min(block_tokens, num_new - offset))
        for row in range(num_rows)
        for offset in range(0, num_new, block_tokens)
    ]
    starts, lengths = torch.tensor(blocks, device=_CUDA).T.contiguous()
    rows = torch.arange(num_rows, device=_CUDA)
    num_pages = num_rows * each + 1  # page 0 is scrap
    memory = torch.empty(num_pages * shape.page_bytes, dtype=torch.uint8, device=_CUDA)
    paged = PagedPass(
        pages=shape.pages_in(memory).normal_(),
        table_RP=(1 + torch.randperm(num_rows * each, device=_CUDA)).view(num_rows, each).int(),
        rows_T=rows.repeat_interleave(num_new),
        positions_T=torch.arange(past, past + num_new, device=_CUDA).repeat(num_rows),
        block_starts_N=starts,
        block_lengths_N=lengths,
        block_tokens=block_tokens,
        num_splits=num_splits,
    )
    heads = (shape.num_query_heads, shape.num_kv_heads, shape.num_kv_heads)
    tokens = tuple(
        torch.randn(num_rows * num_new, num, shape.head_dim, device=_CUDA, dtype=shape.dtype)
        for num in heads
    )
    return paged, tokens


def measure(chosen: argparse.Namespace, tell: Callable[[str, str, str], None]) -> None:
    """Time all ways, for decoding and for prompts."""
    # Triton comes with the builds of torch for GPUs only.
    from triton.testing import do_bench_cudagraph

    from agentgym_rl.engines.paged.attention_kernels import Tuning, attend_paged

    shape = replace(CacheShape.of(SIZES[chosen.model], torch.bfloat16), num_layers=1)
    layer = torch.zeros((), dtype=torch.long, device=_CUDA)
    speed = copy_speed(_CUDA)
    sizes = [(rows, chosen.context - 1, 1) for rows in chosen.rows]
    sizes += [(8, 0, chosen.context)]
    for (num_rows, past, num_new), num_splits in itertools.product(sizes, chosen.splits):
        if num_new > 1 and num_splits > 1:
            continue
        paged, tokens = make_pass(
            shape, num_rows=num_rows, past=past, num_new=num_new, num_splits=num_splits
        )
        times = {}
        for keys, warps, stages in itertools.product((32, 64, 128), (2, 4, 8), (2, 3, 4)):
            tuning = Tuning(keys, warps, stages)
            try:
                times[tuning] = do_bench_cudagraph(
                    lambda paged=paged, tokens=tokens, tuning=tuning: attend_paged(
                        paged, layer, *tokens, scale=shape.head_dim**-0.5, window=0, tuning=tuning
                    )
                )
            except Exception as error:  # noqa: BLE001 - a way that does not fit the GPU is no way
                tell(f"{tuning}", "does not run", str(error)[:60])
        floor = 1000 * num_rows * chosen.context * shape.page_bytes / PAGE_SIZE / speed
        for tuning in sorted(times, key=times.__getitem__)[: chosen.best]:
            tell(
                f"{num_rows} rows, {num_new} new after {past}, {num_splits} splits",
                f"{1000 * times[tuning]:.1f} us ({floor / times[tuning]:.0%} of a copy's speed)",
                f"{tuning.block_keys} keys, {tuning.num_warps} warps, {tuning.num_stages} stages",
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench attention", description="The kernel.")
    parser.add_argument("--model", default="smollm2-135m", choices=list(SIZES))
    parser.add_argument("--rows", nargs="+", type=whole_from(1), default=[16, 64, 512])
    parser.add_argument("--context", type=whole_from(1), default=512)
    parser.add_argument("--splits", nargs="+", type=whole_from(1), default=[1, 2, 4])
    parser.add_argument("--best", type=whole_from(1), default=3, help="ways told of each size")
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error(
            "the kernel runs on a GPU, and torch finds none (`agentgym doctor` tells more)"
        )
    table = Table("size", "time of a layer", "way", title=chosen.model)
    measure(chosen, table.add_row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
