"""Draws a token from logits with noise that depends only on (session, position).

One uniform number per token inverts the cumulative distribution. The number is a hash of the
session's key and the token's position, so other requests in the batch cannot change what is drawn.

Shape legend: B requests, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


def session_key(*parts: str | int) -> int:
    """Return 64 well-mixed bits that depend on every part."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform(key: int, position: int) -> float:
    """Return the number in [0, 1) that decides the token at `position` of session `key`.

    The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
    """
    z = (key + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def uniforms(keys_B: Tensor, positions_B: Tensor) -> Tensor:
    """Return `uniform` of each key (its 64 bits as a signed number) and position, in float64."""
    z_B = keys_B + (positions_B + 1) * signed(0x9E3779B97F4A7C15)
    z_B = (z_B ^ _shifted(z_B, 30)) * signed(0xBF58476D1CE4E5B9)
    z_B = (z_B ^ _shifted(z_B, 27)) * signed(0x94D049BB133111EB)
    return _shifted(z_B ^ _shifted(z_B, 31), 11).double() * 2.0**-53


def draw(
    logits_BV: Tensor, temperatures: Sequence[float], uniforms: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Return the tokens drawn and their log-probabilities under the distribution drawn from.

    Temperature 0 takes the most likely token, whose log-probability is then 0.
    """
    return draw_rows(
        logits_BV,
        torch.tensor(temperatures, device=logits_BV.device),
        torch.tensor(uniforms, dtype=torch.float64, device=logits_BV.device),
    )


def draw_rows(
    logits_BV: Tensor, temperatures_B: Tensor, uniforms_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Do what `draw` does with numbers that are already on the device."""
    is_greedy_B = temperatures_B == 0
    logits_BV = logits_BV.float() / torch.where(is_greedy_B, 1.0, temperatures_B)[:, None]
    logprobs_BV = logits_BV.log_softmax(dim=-1)
    cumulative_BV = logprobs_BV.double().exp().cumsum(dim=-1)
    # Scaled by the total, because rounding leaves the last sum a little off 1.
    thresholds_B = uniforms_B * cumulative_BV[:, -1]
    drawn_B = torch.searchsorted(cumulative_BV, thresholds_B[:, None], right=True)[:, 0]
    tokens_B = torch.where(
        is_greedy_B, logits_BV.argmax(dim=-1), drawn_B.clamp(max=logits_BV.shape[1] - 1)
    )
    logprobs_B = logprobs_BV.gather(1, tokens_B[:, None])[:, 0]
    return tokens_B, torch.where(is_greedy_B, 0.0, logprobs_B)


def cut_rows(logits_BV: Tensor, temperatures_B: Tensor, cuts_B3: Tensor) -> Tensor:
    """Return the logits with -inf for tokens that must not be drawn.

    `cuts_B3` has `top_p`, `top_k` and `min_p` (types.SamplingParams) of each row. All three apply
    to the distribution at the temperature. Each sets a lowest logit, and the highest of these
    counts. Tokens as likely as the last one allowed are allowed, too.
    """
    is_greedy_B = temperatures_B == 0
    scaled_BV = logits_BV.float() / torch.where(is_greedy_B, 1.0, temperatures_B)[:, None]
    ordered_BV = scaled_BV.sort(dim=-1, descending=True).values
    probs_BV = ordered_BV.softmax(dim=-1)
    top_p_B1, top_k_B1, min_p_B1 = cuts_B3.split(1, dim=1)
    last = ordered_BV.shape[1] - 1
    # A token is in the nucleus if those before it do not yet reach top_p.
    num_in_p_B1 = (probs_BV.cumsum(dim=-1) - probs_BV < top_p_B1).sum(dim=-1, keepdim=True)
    num_in_k_B1 = torch.where(top_k_B1 > 0, top_k_B1, last + 1).long()
    places_B1 = (torch.minimum(num_in_p_B1, num_in_k_B1) - 1).clamp(0, last)
    lowest_B1 = ordered_BV.gather(1, places_B1)
    lowest_B1 = torch.maximum(lowest_B1, ordered_BV[:, :1] + min_p_B1.log())
    return logits_BV.masked_fill(scaled_BV < lowest_B1, float("-inf"))


def signed(number: int) -> int:
    """Return 64 bits as a signed number, as torch has them."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _shifted(z_B: Tensor, bits: int) -> Tensor:
    """Return the bits shifted to the right, filled with zeros, not with the sign."""
    return (z_B >> bits) & ((1 << (64 - bits)) - 1)
