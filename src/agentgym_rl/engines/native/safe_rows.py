"""Finds numbers of rows whose results do not depend on the batch, on this machine.

A CPU's libraries choose their code by the shape of a product and the number of threads: a row may
be rounded differently with fewer rows, or at another place in a thread's share. Which requests
share a pass depends on timing, so a pass is padded to a number of rows that has been checked: with
it every row, at any place, is the same to the last bit as in a pass of the reference's size.

The check covers everything in the model but attention, which is computed sequence by sequence
(kv_cache.py): embeddings, norms, products, activations, adapters and the head. It takes the time of
one layer's pass and is made once, when a number is first needed.

Shape legend: T rows, H hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agentgym_rl.models.compilation import decoder_layers
from agentgym_rl.models.forward import packed_logits

ROWS_STEP = 16
_NUM_DISTINCT = 13
"""Rows that a check repeats; coprime to all block sizes, so that each reaches every place."""
_LEAST_REFERENCE = 256
_ROWS_PER_THREAD = 8
"""Of the reference, at least: a thread with fewer than four rows may take another path."""


def rung(number: int, *, step: int = ROWS_STEP) -> int:
    """Return the next of few numbers, multiples of `step` or at most an eighth apart.

    rung(17) is 32, rung(130) is 144, rung(257) is 288, rung(600) is 640.
    """
    blocks = max(1, -(-number // step))
    apart = 1 << max(0, (blocks - 1).bit_length() - 4)
    return -(-blocks // apart) * apart * step


class SafeRows:
    """The numbers of rows with which `compute` gives every row the same result.

    `compute` returns one result for each of this many rows, where row i is row i % 13.
    """

    def __init__(self, compute: Callable[[int], Tensor]) -> None:
        self._compute = compute
        self._is_safe: dict[int, bool] = {}
        num_threads = torch.get_num_threads()
        self._even_step = ROWS_STEP * num_threads
        """Rows that threads share evenly, without splitting a row."""
        at_least = rung(max(_LEAST_REFERENCE, _ROWS_PER_THREAD * num_threads))
        sizes = (at_least, 2 * at_least, 4 * at_least, at_least // 2, at_least // 4)
        candidates = (rung(at_least, step=self._even_step), *sizes)
        self.reference = next((size for size in candidates if self._is_even(size)), 0)
        """Rows of the pass that all others are compared with; 0 if no number will do."""

    def fit(self, number: int) -> int | None:
        """Return how many rows to compute for this many; None if it is too many for one pass.

        Without a reference all numbers are equally bad.
        """
        if not self.reference:
            return rung(number)
        return next(filter(self._check, self._sizes(number)), None)

    def _sizes(self, number: int) -> Iterator[int]:
        """Yield the sizes to try, the least wasteful first."""
        size = rung(number)
        while size <= 2 * max(number, self.reference):
            yield size
            size = rung(size + 1)
        yield rung(number, step=self._even_step)

    @property
    def least(self) -> int:
        """The number of rows of the smallest pass."""
        return self.fit(1) or 0

    def _check(self, size: int) -> bool:
        if size not in self._is_safe:
            # Computed for each check, because the weights may have changed.
            expected = _repeated(self._computed(self.reference), size)
            self._is_safe[size] = torch.equal(self._computed(size), expected)
        return self._is_safe[size]

    def _is_even(self, size: int) -> bool:
        """Return whether the place of a row makes no difference."""
        rows = self._computed(size)
        return torch.equal(rows, _repeated(rows, size))

    def _computed(self, size: int) -> Tensor:
        with torch.inference_mode():
            return self._compute(size)


def safe_layer_rows(model: PreTrainedModel) -> SafeRows:
    """Return the safe numbers of packed tokens for everything before the head."""
    short = _with_layers(model, _distinct_layers(model)).base_model

    def compute(size: int) -> Tensor:
        ids_T, positions_T = _tokens(model, size)
        return short(
            input_ids=ids_T[None], position_ids=positions_T[None], use_cache=False, layout=_Bypass()
        ).last_hidden_state[0]

    return SafeRows(compute)


def safe_head_rows(model: PreTrainedModel) -> SafeRows:
    """Return the safe numbers of rows for the head."""
    without_layers = _with_layers(model, [])

    def compute(size: int) -> Tensor:
        ids_T, positions_T = _tokens(model, size)
        return packed_logits(
            without_layers, ids_T, positions_T, torch.arange(size), layout=_Bypass()
        )

    return SafeRows(compute)


class _Bypass:
    """Leaves attention out: every token gets its own query."""

    def attend(self, layer: int, query_HTD: Tensor, *_: object, **__: object) -> Tensor:
        return query_HTD


def _repeated(rows: Tensor, size: int) -> Tensor:
    return rows[torch.arange(size) % _NUM_DISTINCT]


def _tokens(model: PreTrainedModel, size: int) -> tuple[Tensor, Tensor]:
    """Return ids and positions where row i is row i % 13."""
    config = model.config.get_text_config()
    places_T = torch.arange(size) % _NUM_DISTINCT
    # Over the whole context, because sines of large and small numbers take different paths.
    positions_T = places_T * max(1, int(config.max_position_embeddings) // _NUM_DISTINCT)
    return (places_T * 7919 + 5) % int(config.vocab_size), positions_T


def _distinct_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return a copy of one layer of each kind, without matrices of zeros.

    A fresh adapter has such matrices, and they would hide all differences.
    """
    kinds = dict[tuple[tuple[str, torch.Size, torch.dtype], ...], nn.Module]()
    for layer in decoder_layers(model):
        weights = ((name, weight.shape, weight.dtype) for name, weight in layer.named_parameters())
        kinds.setdefault(tuple(weights), layer)
    layers = [copy.deepcopy(layer) for layer in kinds.values()]
    noise = torch.Generator().manual_seed(0)
    for layer in layers:
        for weight in layer.parameters():
            if weight.ndim > 1 and not weight.any():
                weight.data.normal_(std=weight.shape[-1] ** -0.5, generator=noise)
    return layers


def _with_layers(model: PreTrainedModel, layers: list[nn.Module]) -> PreTrainedModel:
    """Return the model with other layers, and everything else shared."""
    base = model.base_model
    name = next(
        name
        for name, module in base.named_children()
        if isinstance(module, nn.ModuleList) and decoder_layers(module)
    )
    short_base, short = copy.copy(base), copy.copy(model)
    short_base._modules = {**base._modules, name: nn.ModuleList(layers)}
    short._modules = {**model._modules, model.base_model_prefix: short_base}
    return short
