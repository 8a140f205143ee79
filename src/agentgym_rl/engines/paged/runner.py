"""The passes of the paged engine on the device: prompts, and one token for many rows.

A pass is padded to a fixed size, so that it can be recorded as a CUDA graph. All state is on the
device; the host passes in the packed tokens of prompts and the rows to decode, and gets the sampled
tokens in memory that is ready after a later event.

Shape legend: T packed tokens, N chunks of a prompt pass, B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from agentgym_rl.engines.generation_model import generation_model
from agentgym_rl.engines.paged.attention import running_pass
from agentgym_rl.engines.paged.batch_pass import CacheShape, PagedPass
from agentgym_rl.engines.paged.device_rows import DeviceRows, NewRow, to_device
from agentgym_rl.engines.paged.graphs import GraphCache
from agentgym_rl.engines.paged.pages import pages_for
from agentgym_rl.engines.paged.returnable_memory import ReturnableMemory
from agentgym_rl.engines.sampling import cut_rows, draw_rows
from agentgym_rl.models.loading import Policy

# torch.compile makes separate code for a size of 1, which would not be faster.
_ROW_SIZES = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_FEWEST_TOKENS = 64
_MAX_SPLITS = 16
_WITH_CUTS = " with cuts"


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """The sizes of passes, and how they are run."""

    num_pages: int
    max_rows: int
    max_batch_tokens: int
    max_steps: int
    """Most tokens decoded in one launch."""
    is_compiled: bool
    uses_graphs: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one row, from position `start` of its context."""

    row: int
    start: int
    ids: list[int]
    is_last: bool
    """Whether the prompt ends here, and a token is sampled."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens and log-probabilities in host memory, readable after a later event."""

    tokens: Tensor
    logprobs: Tensor


class PromptInputs:
    """Inputs of the prompt pass of one size, in a single tensor: one copy fills them."""

    def __init__(self, num_tokens: int, block_tokens: int, idle_row: int, device: torch.device):
        self.num_tokens = num_tokens
        self.max_chunks = min(max(num_tokens // 16, 16), 256)
        self._block_tokens, self._idle_row = block_tokens, idle_row
        num_blocks = num_tokens // block_tokens + self.max_chunks
        num_blocks = -(-num_blocks // 16) * 16  # all parts begin at aligned addresses
        sizes = [num_tokens] * 3 + [num_blocks] * 2 + [self.max_chunks] * 2
        self._all = torch.zeros(sum(sizes), dtype=torch.long, device=device)
        self._sizes = sizes
        parts = self._all.split(sizes)
        self.ids_T, self.rows_T, self.positions_T, self.starts, self.lengths = parts[:5]
        self.ends_N, self.end_rows_N = parts[5:]

    def has_room(self, num_tokens: int, chunks: Sequence[Chunk]) -> bool:
        return num_tokens <= self.num_tokens and len(chunks) <= self.max_chunks

    def load(self, chunks: Sequence[Chunk]) -> None:
        """Copy the chunks to the device, one after another; with none, all is padding."""
        ids: list[int] = []
        rows: list[int] = []
        positions: list[int] = []
        starts: list[int] = []
        lengths: list[int] = []
        ends: list[int] = []
        end_rows: list[int] = []
        for chunk in chunks:
            begin, num = len(ids), len(chunk.ids)
            ids += chunk.ids
            rows += [chunk.row] * num
            positions += range(chunk.start, chunk.start + num)
            for offset in range(0, num, self._block_tokens):
                starts.append(begin + offset)
                lengths.append(min(self._block_tokens, num - offset))
            if chunk.is_last:
                ends.append(begin + num - 1)
                end_rows.append(chunk.row)
        columns = (ids, rows, positions, starts, lengths, ends, end_rows)
        padding = (0, self._idle_row, -1, 0, 0, 0, self._idle_row)
        flat: list[int] = []
        for column, size, pad in zip(columns, self._sizes, padding, strict=True):
            assert len(column) <= size, f"{len(column)} numbers in a pass made for {size}"
            flat += column
            flat += [pad] * (size - len(column))
        self._all.copy_(to_device(torch.tensor(flat), self._all.device))


class PagedRunner:
    """Holds the device's state and runs passes; see the top of the file."""

    def __init__(self, policy: Policy, options: RunnerOptions) -> None:
        model = policy.model
        self._options = options
        self._device = model.device
        self._model = generation_model(model, is_compiled=options.is_compiled)
        self._shape = CacheShape.of(model.config.get_text_config(), model.dtype)
        num_pages = options.num_pages + 1  # page 0 is scrap
        self.memory = ReturnableMemory(num_pages * self._shape.page_bytes, self._device)
        """Of keys and values."""
        self._pages = self._shape.pages_in(self.memory.bytes)
        max_pages = pages_for(policy.max_context)
        self._rows = DeviceRows(
            options.max_rows, max_pages, policy.stop_token_ids, device=self._device
        )
        self._draw = _drawing(self._device)
        self._newest = self._compiled(self._rows.newest)
        self._noise = self._compiled(self._rows.noise)
        self._accept = self._compiled(self._rows.accept)
        self._row_sizes = [size for size in _ROW_SIZES if size < options.max_rows]
        self._row_sizes.append(options.max_rows)
        self._prompts = [
            PromptInputs(size, self._shape.prefill_block_tokens, options.max_rows, self._device)
            for size in _token_sizes(options.max_batch_tokens)
        ]
        self._make_buffers()
        self.graphs = GraphCache(self._device, is_enabled=options.uses_graphs)
        self.graphs.wait_for(self.graphs.others())

    def _make_buffers(self) -> None:
        steps, rows = self._options.max_steps, self._options.max_rows
        numbers = partial(torch.zeros, dtype=torch.long, device=self._device)
        self._rows_B = numbers(rows)
        self._places_B = torch.arange(rows, device=self._device)
        self._ones_B = torch.ones_like(self._places_B)
        self._step = numbers(1)
        self._tokens = numbers(steps, rows)
        self._logprobs = torch.zeros(steps, rows, device=self._device)
        self._first_tokens_N = numbers(self.max_chunks)
        self._first_logprobs_N = torch.zeros(self.max_chunks, device=self._device)

    @property
    def max_chunks(self) -> int:
        """Most chunks of one prompt pass."""
        return self._prompts[-1].max_chunks

    def _compiled(self, function: Callable[P, T]) -> Callable[P, T]:
        return torch.compile(function, dynamic=True) if self._options.is_compiled else function

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Begin replies; their prompts follow in the next passes."""
        self._rows.admit(new_rows)

    def prefill(self, chunks: Sequence[Chunk], *, has_cuts: bool = False) -> Sampled:
        """Compute chunks of prompts; return the first tokens of those that end, in order.

        Passes that exclude tokens (`has_cuts`) sort the vocabulary, and are slower.
        """
        num_tokens = sum(len(chunk.ids) for chunk in chunks)
        inputs = next(inputs for inputs in self._prompts if inputs.has_room(num_tokens, chunks))
        run = partial(self._prompt_pass, inputs, has_cuts)
        key = ("prompts" + _WITH_CUTS * has_cuts, inputs.num_tokens)
        self.graphs.ensure(key, run, idle=partial(inputs.load, []))
        inputs.load(chunks)
        self.graphs.run(key, run)
        num_ends = sum(chunk.is_last for chunk in chunks)
        return _sampled(self._first_tokens_N[:num_ends], self._first_logprobs_N[:num_ends])

    def decode(self, rows: Sequence[int], num_steps: int, *, has_cuts: bool = False) -> Sampled:
        """Sample up to `num_steps` tokens for every row; results are (steps, rows)."""
        size = next(size for size in self._row_sizes if size >= len(rows))
        run = partial(self._decode_pass, size, has_cuts)
        key = ("decoding" + _WITH_CUTS * has_cuts, size)
        self.graphs.ensure(key, run, idle=partial(self._load_rows, [], size))
        self._load_rows(rows, size)
        for _ in range(num_steps):
            self.graphs.run(key, run)
        done = (slice(num_steps), slice(len(rows)))
        return _sampled(self._tokens[done], self._logprobs[done])

    def give_memory_back(self) -> None:
        """Give back the memory of the pages; nothing can run until `memory.take()`."""
        self.graphs.finish()
        self.memory.give_back()

    def _load_rows(self, rows: Sequence[int], size: int) -> None:
        padded = [*rows, *[self._rows.idle_row] * (size - len(rows))]
        self._rows_B[:size].copy_(to_device(torch.tensor(padded), self._device))
        self._step.zero_()

    def _prompt_pass(self, inputs: PromptInputs, has_cuts: bool) -> None:
        paged = PagedPass(
            self._pages,
            self._rows.table_RP,
            inputs.rows_T,
            inputs.positions_T,
            inputs.starts,
            inputs.lengths,
            self._shape.prefill_block_tokens,
            num_splits=self._num_splits(inputs.num_tokens // self._shape.prefill_block_tokens),
        )
        logits_NV = self._logits(paged, inputs.ids_T, inputs.ends_N)
        tokens_N, logprobs_N = self._sample(inputs.end_rows_N, logits_NV, has_cuts)
        self._first_tokens_N[: inputs.max_chunks].copy_(tokens_N)
        self._first_logprobs_N[: inputs.max_chunks].copy_(logprobs_N)

    def _decode_pass(self, size: int, has_cuts: bool) -> None:
        rows_B, places_B = self._rows_B[:size], self._places_B[:size]
        ids_B, positions_B = self._newest(rows_B)
        paged = PagedPass(
            self._pages,
            self._rows.table_RP,
            rows_B,
            positions_B,
            places_B,
            self._ones_B[:size],
            block_tokens=1,
            num_splits=self._num_splits(size),
        )
        logits_BV = self._logits(paged, ids_B, places_B)
        tokens_B, logprobs_B = self._sample(rows_B, logits_BV, has_cuts)
        self._tokens[:, :size].index_copy_(0, self._step, tokens_B[None])
        self._logprobs[:, :size].index_copy_(0, self._step, logprobs_B[None])
        self._step.add_(1)

    def _logits(self, paged: PagedPass, ids_T: Tensor, keep_N: Tensor) -> Tensor:
        with running_pass(paged):
            output = self._model(
                input_ids=ids_T[None],
                position_ids=paged.positions_T.clamp(min=0)[None],
                logits_to_keep=keep_N,
                use_cache=False,
            )
        return output.logits[0]

    def _sample(self, rows_B: Tensor, logits_BV: Tensor, has_cuts: bool) -> tuple[Tensor, Tensor]:
        temperatures_B, uniforms_B = self._noise(rows_B)
        if has_cuts:
            logits_BV = cut_rows(logits_BV, temperatures_B, self._rows.cuts(rows_B))
        tokens_B, logprobs_B = self._draw(logits_BV, temperatures_B, uniforms_B)
        return self._accept(rows_B, tokens_B, logprobs_B), logprobs_B

    def _num_splits(self, num_blocks: int) -> int:
        """Divide the keys so that even a few blocks use every multiprocessor."""
        if self._device.type != "cuda":
            return 1
        multiprocessors = torch.cuda.get_device_properties(self._device).multi_processor_count
        programs = num_blocks * self._shape.num_kv_heads
        splits = 1
        while splits < _MAX_SPLITS and splits * programs < 2 * multiprocessors:
            splits *= 2
        return splits


def _drawing(device: torch.device) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    if device.type != "cuda":
        return draw_rows
    # Triton comes only with GPU builds of torch.
    from agentgym_rl.engines.paged.sampling_kernels import draw_rows_fused

    return draw_rows_fused


def _token_sizes(max_tokens: int) -> list[int]:
    sizes = [_FEWEST_TOKENS]
    while sizes[-1] < max_tokens:
        sizes.append(min(2 * sizes[-1], max_tokens))
    return sizes


def _sampled(tokens: Tensor, logprobs: Tensor) -> Sampled:
    return Sampled(_to_host(tokens), _to_host(logprobs))


def _to_host(numbers: Tensor) -> Tensor:
    """Return a copy in host memory, without waiting for it to be filled."""
    if not numbers.is_cuda:
        return numbers.clone()
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    return host.copy_(numbers.contiguous(), non_blocking=True)
