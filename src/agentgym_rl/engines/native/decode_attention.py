"""Attention of one new token per session over cached keys, independent of the rest of the pass.

Sessions are computed together over the keys of their slots, and shorter ones are padded with masked
keys. Padding must not change a result, which is checked on this machine for every pair of lengths
that occurs. Lengths that agree are computed together, others separately.

Shape legend: S slots, H heads, L cached tokens, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from agentgym_rl.engines.native.safe_rows import rung

LENGTH_STEP = 64
_SLOTS_IN_CHECK = (2, 3)
"""Never one: with one head it would be one piece of work, which all threads share."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What decides how a model's attention is computed."""

    num_heads: int
    num_key_heads: int
    head_dim: int
    dtype: torch.dtype


def attend_last(
    query_SHD: Tensor, keys: Tensor, values: Tensor, mask_S11L: Tensor, *, scale: float
) -> Tensor:
    """Return the output (S, H, D) of one token per slot; `keys` and `values` are (S, H, L, D)."""
    return F.scaled_dot_product_attention(
        query_SHD[:, :, None],
        keys,
        values,
        attn_mask=mask_S11L,
        scale=scale,
        enable_gqa=query_SHD.shape[1] != keys.shape[1],
    )[:, :, 0]


def sees(past_S: Tensor, length: int, *, window: int | None) -> Tensor:
    """Return which of `length` cached tokens each slot's token sees, (S, 1, 1, L)."""
    places_L = torch.arange(length)
    mask_SL = places_L <= past_S[:, None]
    if window is not None:
        mask_SL &= places_L > past_S[:, None] - window
    return mask_SL[:, None, None]


class AgreeingLengths:
    """Decides which sessions are computed together."""

    def __init__(self, shape: HeadShape) -> None:
        self._shape = shape
        self._agree: dict[tuple[int, int], bool] = {}
        self.is_exact = self.agree(LENGTH_STEP, LENGTH_STEP)
        """Whether the number of sessions in a call makes no difference."""

    def groups(self, pasts: list[int]) -> list[tuple[int, list[int]]]:
        """Return the lengths to compute, each with its sessions (indices of `pasts`).

        The length of a session depends only on its past. It is computed with that length, or with
        a longer one that gives the same result.
        """
        members: dict[int, list[int]] = {}
        for place, past in enumerate(pasts):
            members.setdefault(rung(past + 1, step=LENGTH_STEP), []).append(place)
        groups: list[tuple[int, list[int]]] = []
        left = sorted(members)
        while left:
            longest = left[-1]
            together = [own for own in left if own == longest or self.agree(own, longest)]
            groups.append((longest, [place for own in together for place in members[own]]))
            left = [own for own in left if own not in together]
        return groups

    def agree(self, own: int, longer: int) -> bool:
        """Return whether a session of length `own` gets the same result padded to `longer`."""
        if (own, longer) not in self._agree:
            with torch.inference_mode():
                self._agree[own, longer] = self._check(own, longer)
        return self._agree[own, longer]

    def _check(self, own: int, longer: int) -> bool:
        shape, few, more = self._shape, *_SLOTS_IN_CHECK
        noise = torch.Generator().manual_seed(own)
        keys, values = (
            torch.rand(more, shape.num_key_heads, longer, shape.head_dim, generator=noise) - 0.5
            for _ in range(2)
        )
        query_SHD = torch.rand(more, shape.num_heads, shape.head_dim, generator=noise)
        query_SHD, keys, values = (t.to(shape.dtype) for t in (query_SHD, keys, values))
        # The first is the session in question; it is repeated as the last.
        for tensor in (query_SHD, keys, values):
            tensor[-1] = tensor[0]
        past_S = torch.tensor([own - 1, *[longer - 1] * (more - 2), own - 1])
        for past in (own - 1, own // 2):
            past_S[0] = past_S[-1] = past
            alone_HD, first_HD, last_HD = (
                attend_last(
                    query_SHD[:num],
                    keys[:num, :, :length],
                    values[:num, :, :length],
                    sees(past_S[:num], length, window=None),
                    scale=shape.head_dim**-0.5,
                )[place]
                for num, length, place in ((few, own, 0), (more, longer, 0), (more, longer, -1))
            )
            copied_HD = attend_last(
                query_SHD[:few],
                keys[:few, :, :own].contiguous(),
                values[:few, :, :own].contiguous(),
                sees(past_S[:few], own, window=None),
                scale=shape.head_dim**-0.5,
            )[0]
            results = (first_HD, last_HD, copied_HD)
            if not all(torch.equal(alone_HD, result_HD) for result_HD in results):
                return False
        return True
