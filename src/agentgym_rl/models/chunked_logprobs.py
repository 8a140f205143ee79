"""Log-probabilities and entropies without a (tokens x vocabulary) matrix, forward or backward.

Logits are computed for a few tokens at a time and dropped; the backward pass recomputes them. It
needs only the hidden states, whose size does not depend on the vocabulary.

Shape legend: A action tokens, C those of one chunk, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from agentgym_rl.models import fused_logprobs
from agentgym_rl.models.compilation import is_compiling
from agentgym_rl.models.sharding import is_sharded, plain_class

_MAX_LOGITS_ON_CPU = 2**27
"""The most logits of a chunk. Smaller chunks save little, since there is a gradient as large as the
head anyway, and take longer, since each adds to that gradient."""

_LOSS_BYTES_ON_GPU = 1_900_000_000
"""For the loss: below 2 GiB with 152k x 1536 weights in the head."""
_LEAST_LOGITS_ON_GPU = 2**24

_ROWS_STEP = 16
"""Chunks are a multiple of this, because a CPU's rounding may depend on the rows of a product."""


def chunked_logprobs(
    model: PreTrainedModel,
    hidden_AH: Tensor,
    ids_A: Tensor,
    *,
    temperature: float,
    max_logits: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each id, and the entropy of its distribution.

    A row of `hidden_AH` is the decoder's output where the id is predicted. The gradient reaches the
    hidden states and the weights of the head, and can be taken once. At most `max_logits` exist at
    a time; 0 chooses a number for the device.
    """
    head = _Head(model)
    weights = [weight for weight in head.parameters() if weight.requires_grad]
    if not max_logits:
        num_weights = sum(weight.numel() for weight in weights)
        max_logits = _max_logits_on_gpu(num_weights) if hidden_AH.is_cuda else _MAX_LOGITS_ON_CPU
    rows = max(1, max_logits // int(model.config.get_text_config().vocab_size))
    rows = max(_ROWS_STEP, rows // _ROWS_STEP * _ROWS_STEP)
    how = _How(head, rows, temperature, is_compiling(model), is_sharded(model))
    logprobs_A, entropies_A = _ChunkedLogprobs.apply(how, ids_A, hidden_AH, *weights)
    return logprobs_A, entropies_A


def _max_logits_on_gpu(num_weights: int) -> int:
    """Return how many logits of a chunk fit beside the gradient of the head's weights.

    The gradient is a float32 sum. Beside it are either a chunk's rounded part of it, with logits
    and their gradient in float32 and the rounded gradient, or logits with three float32 copies (in
    compiled code fewer). Large chunks save calls, for which a GPU would wait.
    """
    beside_part = (_LOSS_BYTES_ON_GPU - (4 + 2) * num_weights) // (4 + 4 + 2)
    without_part = (_LOSS_BYTES_ON_GPU - 4 * num_weights) // (4 * 4)
    return max(_LEAST_LOGITS_ON_GPU, min(beside_part, without_part))


@dataclass(frozen=True, slots=True)
class _How:
    """What both passes need besides tensors."""

    head: Callable[[Tensor], Tensor]
    """Turns hidden states (C, H) into logits (C, V)."""
    rows: int
    """Tokens of a chunk."""
    temperature: float
    is_fused: bool
    """Whether the code after the head is compiled (fused_logprobs.py)."""
    is_shared: bool
    """Whether the head's weights are sharded over ranks."""


class _Hidden(nn.Module):
    """Stands in for a decoder: its input is already the decoder's output."""

    def forward(
        self,
        *,
        inputs_embeds: torch.FloatTensor,
        **_: object,  # a causal model passes its decoder the arguments of any decoder
    ) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=inputs_embeds)


class _Head(nn.Module):
    """What a causal model does after its decoder: the output layer, scaling, soft-capping.

    The model's own code runs, on a shallow copy with a stand-in decoder: families differ here, and
    a formula repeated in this file would be wrong for the next one.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        without_decoder = object.__new__(plain_class(model))
        without_decoder.__dict__.update(model.__dict__)
        without_decoder._modules = {**model._modules, model.base_model_prefix: _Hidden()}
        if is_sharded(model):
            # Its hooks would gather and give back the weights of the whole root.
            without_decoder._forward_pre_hooks = OrderedDict()
            without_decoder._forward_hooks = OrderedDict()
        self._model = without_decoder

    def forward(self, hidden_CH: Tensor) -> Tensor:
        return self._model(inputs_embeds=hidden_CH[None], use_cache=False).logits[0]


class _ChunksContext(FunctionCtx):
    how: _How
    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


class _ChunkedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override] - torch leaves the arguments to each function
        ctx: _ChunksContext, how: _How, ids_A: Tensor, hidden_AH: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.how = how
        ctx.set_materialize_grads(False)
        logprobs_A = torch.empty(ids_A.shape, device=hidden_AH.device)
        entropies_A = torch.empty_like(logprobs_A)
        read = fused_logprobs.read_logits if how.is_fused else _read_logits
        for chunk in _chunks(len(ids_A), how.rows):
            logprobs_A[chunk], entropies_A[chunk] = read(
                how.head(hidden_AH[chunk]), ids_A[chunk], how.temperature
            )
        ctx.save_for_backward(ids_A, hidden_AH, logprobs_A, entropies_A, *weights)
        return logprobs_A, entropies_A

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override] - as above
        ctx: _ChunksContext, grad_logprobs_A: Tensor | None, grad_entropies_A: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        ids_A, hidden_AH, _, _, *weights = ctx.saved_tensors
        grad_hidden_AH = torch.zeros_like(hidden_AH) if ctx.needs_input_grad[2] else None
        grad_weights: list[Tensor | None] = [None] * len(weights)
        for chunk in _chunks(len(ids_A), ctx.how.rows):
            grad_hidden_CH, *parts = _grad_chunk(
                ctx,
                chunk,
                grad_logprobs_A[chunk] if grad_logprobs_A is not None else None,
                grad_entropies_A[chunk] if grad_entropies_A is not None else None,
            )
            if grad_hidden_AH is not None and grad_hidden_CH is not None:
                grad_hidden_AH[chunk] = grad_hidden_CH
            grad_weights = list(map(_add, grad_weights, parts))
            del parts  # as large as the head, and not needed for the next chunk
        if ctx.how.is_shared and not len(ids_A):
            # Ranks add up their gradients, so one without tokens must have the same as the others.
            return None, None, grad_hidden_AH, *map(torch.zeros_like, weights)
        return None, None, grad_hidden_AH, *map(_cast_like, grad_weights, weights)


def _grad_chunk(
    ctx: _ChunksContext,
    chunk: slice,
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Return the gradient of a chunk with respect to its hidden states, then to each weight."""
    ids_A, hidden_AH, logprobs_A, entropies_A, *weights = ctx.saved_tensors
    with torch.enable_grad():
        hidden_CH = hidden_AH[chunk].detach().requires_grad_()
        logits_CV = ctx.how.head(hidden_CH)
    of_loss = grad_logprobs_C, grad_entropies_C
    made, ids_C, temperature = logits_CV.detach(), ids_A[chunk], ctx.how.temperature
    if ctx.how.is_fused:
        read_C = logprobs_A[chunk], entropies_A[chunk]
        grad_CV = fused_logprobs.grad_logits(made, ids_C, read_C, *of_loss, temperature=temperature)
    else:
        grad_CV = _grad_logits(made, ids_C, *of_loss, temperature=temperature)
    return torch.autograd.grad(logits_CV, [hidden_CH, *weights], grad_CV, allow_unused=True)


def _chunks(num_tokens: int, rows: int) -> list[slice]:
    return [slice(start, start + rows) for start in range(0, num_tokens, rows)]


def _read_logits(logits_CV: Tensor, ids_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the ids and the entropies."""
    logprobs_CV = _log_softmax(logits_CV, temperature)
    entropies_C = -(logprobs_CV.exp() * logprobs_CV).sum(dim=-1)
    return logprobs_CV.gather(1, ids_C[:, None])[:, 0], entropies_C


def _log_softmax(logits_CV: Tensor, temperature: float) -> Tensor:
    logits_CV = logits_CV.float()
    if temperature != 1.0:
        logits_CV = logits_CV / temperature
    return logits_CV.log_softmax(dim=-1)


def _grad_logits(
    logits_CV: Tensor,
    ids_C: Tensor,
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    """Return the gradient with respect to the logits, in their type.

    With z = logits / temperature, p = softmax(z), entropy S and sampled token a:
    d log p_a / d z_j = [a = j] - p_j    and    d S / d z_j = -p_j (log p_j + S).
    """
    logprobs_CV = _log_softmax(logits_CV, temperature)
    probs_CV = logprobs_CV.exp()
    factors_CV = torch.zeros_like(probs_CV[:, :1])
    if grad_entropies_C is not None:
        entropies_C = -(probs_CV * logprobs_CV).sum(dim=-1)
        factors_CV = logprobs_CV.add_(entropies_C[:, None]).mul_(-grad_entropies_C[:, None])
    if grad_logprobs_C is not None:
        factors_CV = factors_CV.sub_(grad_logprobs_C[:, None])
    grad_CV = probs_CV.mul_(factors_CV)
    if grad_logprobs_C is not None:
        grad_CV.scatter_add_(1, ids_C[:, None], grad_logprobs_C[:, None])
    return grad_CV.div_(temperature).to(logits_CV.dtype)


def _add(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    """Return the sum in float32: the parts of many chunks would lose bits in bfloat16."""
    if total is None or part is None:
        return total if part is None else part.float()
    return total.add_(part)


def _cast_like(grad: Tensor | None, weight: Tensor) -> Tensor | None:
    return None if grad is None else grad.to(weight.dtype)
