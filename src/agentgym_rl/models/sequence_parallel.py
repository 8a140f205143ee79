"""Passes split over ranks by tokens (Ulysses, arXiv:2309.14509): a long episode on several GPUs.

Each rank of a group has a stretch of a pass's packed tokens and computes everything on it, except
attention: there an all-to-all gives the rank all tokens of its share of the heads, and a second one
gives the outputs back. A loss sees all action tokens, so their few numbers are put together.

Shape legend: H heads, T packed tokens, D head size, R ranks, A action tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from transformers import PreTrainedModel

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import PackedSequences, check_only_attention

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_GROUP = "_agentgym_sequence_group"
"""The attribute of a model whose passes are split."""


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """The ranks that share each pass, seen from one of them."""

    group: ProcessGroup
    rank: int
    """Its place in the group."""
    size: int


@dataclass(frozen=True, slots=True)
class OwnActions:
    """Which of a pass's action tokens a rank computes: those that its tokens predict."""

    sequence: SequenceGroup
    start: int
    end: int
    num_actions: int
    """Of the whole pass."""

    def whole(self, own_A: Tensor) -> Tensor:
        """Return the numbers of all action tokens, from each rank's own.

        All ranks of the group compute the same with the result, and their gradients are summed
        over all ranks, so each takes back only the gradient of its own numbers.
        """
        whole_A: Tensor = _Whole.apply(self, own_A)
        return whole_A


@dataclass(frozen=True, slots=True)
class SplitPass:
    """A rank's stretch of a pass."""

    ids_T: Tensor
    positions_T: Tensor
    predicted_A: Tensor
    """Where in the stretch its action tokens are predicted."""
    actions: OwnActions


def split_passes(model: nn.Module, group: SequenceGroup) -> None:
    """Make the group share the model's passes from now on."""
    setattr(model, _GROUP, group)


def sequence_group(model: nn.Module) -> SequenceGroup | None:
    """Return who shares the model's passes; None: each rank makes its own."""
    group = getattr(model, _GROUP, None)  # set by `split_passes`
    assert group is None or isinstance(group, SequenceGroup), "nothing else is put there"
    return group


def check_sequence_parallel(model: PreTrainedModel, size: int) -> None:
    """Raise ConfigError for a model whose passes cannot be split among `size` ranks."""
    check_only_attention(
        model, setting=f"training.sequence_parallel={size}", off="sequence_parallel=1"
    )
    config = model.config.get_text_config()
    num_heads = int(config.num_attention_heads)
    if num_heads % size:
        fitting = [str(n) for n in range(1, num_heads + 1) if num_heads % n == 0]
        raise ConfigError(
            f"training.sequence_parallel={size} does not divide the {num_heads} attention heads of "
            f"{type(model).__name__}: set it to one of {', '.join(fitting)}"
        )


def split_pass(
    ids_T: Tensor, positions_T: Tensor, predicted_A: Tensor, sequence: SequenceGroup
) -> SplitPass:
    """Return this rank's stretch of a pass; all stretches have the same length.

    What is missing at the end is filled with a sequence of its own, which nothing is learned from.
    """
    padding = num_padding(len(ids_T), sequence.size)
    length = (len(ids_T) + padding) // sequence.size
    start = sequence.rank * length
    first, last = torch.searchsorted(predicted_A, torch.tensor([start, start + length])).tolist()
    filled_T = torch.cat([positions_T, torch.arange(padding)])
    return SplitPass(
        F.pad(ids_T, (0, padding))[start : start + length],
        filled_T[start : start + length],
        predicted_A[first:last] - start,
        OwnActions(sequence, first, last, len(predicted_A)),
    )


def num_padding(num_tokens: int, num_ranks: int) -> int:
    """Return how many tokens a pass lacks for stretches of equal length."""
    return -num_tokens % num_ranks


class SplitSequences(PackedSequences):
    """Packed sequences of which each rank of a group has a stretch of the tokens."""

    def __init__(
        self, lengths: Sequence[int], device: torch.device, sequence: SequenceGroup
    ) -> None:
        padding = num_padding(sum(lengths), sequence.size)
        super().__init__([*lengths, padding] if padding else lengths, device)
        self._sequence = sequence

    @torch.compiler.disable  # messages between ranks, in the same order in every one
    def attend(
        self,
        query_HTD: Tensor,
        key_HTD: Tensor,
        value_HTD: Tensor,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """Return the attention output of all heads at this rank's tokens, (H, T, D)."""
        num_ranks = self._sequence.size
        num_copies = num_ranks // math.gcd(num_ranks, key_HTD.shape[0])
        if num_copies > 1:  # fewer key and value heads than ranks, or an uneven number for each
            key_HTD = key_HTD.repeat_interleave(num_copies, dim=0)
            value_HTD = value_HTD.repeat_interleave(num_copies, dim=0)
        heads = (query_HTD, key_HTD, value_HTD)
        widths = [tensor.shape[0] // num_ranks * tensor.shape[2] for tensor in heads]
        sent_RTD = torch.cat([_by_heads(tensor, num_ranks) for tensor in heads], dim=2)
        all_TD = self._exchange(sent_RTD)  # by rank, which is in the order of tokens
        query, key, value = (
            part_TD.unflatten(1, (-1, tensor.shape[2])).transpose(0, 1)
            for part_TD, tensor in zip(all_TD.split(widths, dim=1), heads, strict=True)
        )
        out_HTD = super().attend(query, key, value, scale=scale, window=window)
        out_TD = out_HTD.transpose(0, 1).flatten(1)
        back_TD = self._exchange(out_TD.unflatten(0, (num_ranks, -1)))
        back_RTHD = back_TD.unflatten(0, (num_ranks, -1)).unflatten(2, (-1, out_HTD.shape[2]))
        return back_RTHD.transpose(1, 2).flatten(0, 1)

    def _exchange(self, sent_RTD: Tensor) -> Tensor:
        """Send each rank its part; return what all sent here, one after another."""
        # Start-up time: one process needs no torch.distributed.
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        sent_TD = sent_RTD.flatten(0, 1).contiguous()
        return all_to_all_single_autograd(sent_TD, None, None, self._sequence.group)


def _by_heads(tensor_HTD: Tensor, num_ranks: int) -> Tensor:
    """Return what each rank gets: all tokens at hand, of its share of the heads."""
    return tensor_HTD.unflatten(0, (num_ranks, -1)).transpose(1, 2).flatten(2)


class _OwnContext(FunctionCtx):
    actions: OwnActions


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override] - torch leaves the arguments to each function
        ctx: _OwnContext, actions: OwnActions, own_A: Tensor
    ) -> Tensor:
        import torch.distributed as dist  # start-up time

        ctx.actions = actions
        whole_A = own_A.new_zeros(actions.num_actions)
        whole_A[actions.start : actions.end] = own_A
        dist.all_reduce(whole_A, group=actions.sequence.group)
        return whole_A

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override] - as above
        ctx: _OwnContext, grad_A: Tensor
    ) -> tuple[None, Tensor]:
        return None, grad_A[ctx.actions.start : ctx.actions.end].contiguous()
