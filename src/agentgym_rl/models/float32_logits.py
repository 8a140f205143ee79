"""Logits in float32 from a head in bfloat16.

bfloat16 has eight bits: typical logits of 20 or 40 would be rounded to an eighth or a quarter, and
the log-probabilities of engine and learner would differ by that rounding. A GPU multiplies bfloat16
and adds in float32 anyway, so the float32 sums are kept.

Shape legend: T tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from transformers import PreTrainedModel


def keep_float32_logits(model: PreTrainedModel) -> None:
    """Make the output layer return float32 instead of rounding; its weights do not change."""
    head = model.get_output_embeddings()
    if type(head) is nn.Linear:
        head.__class__ = Float32Linear


class Float32Linear(nn.Linear):
    """A linear layer whose result on a GPU is not rounded to the type of its weights."""

    def forward(self, input: Tensor) -> Tensor:
        if not input.is_cuda or input.dtype == torch.float32 or input.dtype != self.weight.dtype:
            return super().forward(input)
        result = _Product.apply(input.flatten(0, -2), self.weight)
        assert isinstance(result, Tensor), "a product is a tensor"
        result = result.unflatten(0, input.shape[:-1])
        return result if self.bias is None else result + self.bias


class _ProductContext(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor]
    needs_input_grad: tuple[bool, bool]


class _Product(torch.autograd.Function):
    """hidden @ weight.T in float32; its gradients are computed and given in the inputs' type."""

    @staticmethod
    def forward(  # pyrefly: ignore[bad-override] - torch leaves the arguments to each function
        ctx: _ProductContext, hidden_TH: Tensor, weight_VH: Tensor
    ) -> Tensor:
        ctx.save_for_backward(hidden_TH, weight_VH)
        return torch.mm(hidden_TH, weight_VH.t(), out_dtype=torch.float32)

    @staticmethod
    @once_differentiable
    def backward(  # pyrefly: ignore[bad-override] - as above
        ctx: _ProductContext, grad_TV: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        hidden_TH, weight_VH = ctx.saved_tensors
        rounded_TV = grad_TV.to(weight_VH.dtype)
        return (
            rounded_TV @ weight_VH if ctx.needs_input_grad[0] else None,
            rounded_TV.t() @ hidden_TH if ctx.needs_input_grad[1] else None,
        )
