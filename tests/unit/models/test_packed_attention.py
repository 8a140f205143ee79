"""Packed attention gives what transformers gives one sequence at a time, and so do gradients.

Shape legend: T packed tokens, V vocabulary.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, Gemma2ForCausalLM, PreTrainedModel

from agentgym_rl.models import attention
from agentgym_rl.models.attention import ATTENTION, PackedSequences, attend_causal, causal_mask
from agentgym_rl.models.forward import action_logprobs, packed_logits
from agentgym_rl.types import Sample
from chat_families import ARCHITECTURES, WINDOW, small_model

VOCAB_SIZE = 96
LENGTHS = [40, 1, 2, WINDOW, WINDOW + 1, 25]

architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)


def random_sequences(lengths: list[int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(VOCAB_SIZE, (length,), generator=generator) for length in lengths]


def packed(model: PreTrainedModel, sequences: list[Tensor]) -> Tensor:
    """Return the logits of every token, (T, V), in one packed pass."""
    lengths = [len(sequence) for sequence in sequences]
    positions_T = torch.cat([torch.arange(length) for length in lengths])
    keep_T = torch.arange(sum(lengths))
    return packed_logits(
        model,
        torch.cat(sequences),
        positions_T,
        keep_T,
        layout=PackedSequences(lengths, positions_T.device),
    )


def one_by_one(model: PreTrainedModel, sequences: list[Tensor]) -> Tensor:
    """Return the same with transformers' own attention, a pass for each sequence."""
    return torch.cat([model(input_ids=sequence[None]).logits[0] for sequence in sequences])


def gradients(model: PreTrainedModel, logits_TV: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a loss that every logit is in."""
    weights_TV = torch.randn(logits_TV.shape, generator=torch.Generator().manual_seed(1))
    (logits_TV.log_softmax(dim=-1) * weights_TV).mean().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def both_models(architecture: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Return a model with our attention, and the same with transformers'."""
    ours = small_model(architecture, vocab_size=VOCAB_SIZE)
    stock = small_model(architecture, vocab_size=VOCAB_SIZE, attention="sdpa")
    pairs = zip(ours.parameters(), stock.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    return ours, stock


@architectures
def test_packed_logits_equal_those_of_one_sequence_at_a_time(architecture: str):
    ours, stock = both_models(architecture)
    sequences = random_sequences(LENGTHS)
    with torch.inference_mode():
        difference = packed(ours, sequences) - one_by_one(stock, sequences)
    assert difference.abs().max() < 1e-5


@architectures
def test_packed_gradients_equal_those_of_one_sequence_at_a_time(architecture: str):
    ours, stock = both_models(architecture)
    sequences = random_sequences(LENGTHS)
    mine = gradients(ours, packed(ours, sequences))
    theirs = gradients(stock, one_by_one(stock, sequences))
    assert mine.keys() == theirs.keys()
    assert max(float(grad.abs().max()) for grad in theirs.values()) > 1e-3
    for name, grad in mine.items():
        assert (grad - theirs[name]).abs().max() < 1e-6, name


def test_two_sliding_layers_look_back_two_windows():
    ours, _ = both_models("mistral")
    (sequence,) = random_sequences([3 * WINDOW])
    changed = sequence.clone()
    changed[0] = (sequence[0] + 1) % VOCAB_SIZE
    with torch.inference_mode():
        difference = (packed(ours, [sequence]) - packed(ours, [changed])).abs().amax(dim=1)
    # A window of 16 holds the token itself and the 15 before it.
    reach = 2 * (WINDOW - 1)
    assert bool((difference[: reach + 1] > 0).all())
    assert bool((difference[reach + 1 :] == 0).all())


def test_a_token_sees_itself_and_the_window_before_it():
    seen = causal_mask(2, 5, window=3, device=torch.device("cpu"))
    assert seen.int().tolist() == [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    seen = causal_mask(2, 5, window=None, device=torch.device("cpu"))
    assert seen.int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("window", [None, 3, 6, 100])
def test_the_last_tokens_of_a_sequence_can_be_computed_apart(window: int | None):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(4, 9, 8, generator=generator) for _ in range(3))
    whole = attend_causal(query, key[:2], value[:2], scale=0.3, window=window)
    tail = attend_causal(query[:, 5:], key[:2], value[:2], scale=0.3, window=window)
    assert torch.allclose(whole[:, 5:], tail, atol=1e-6)


@architectures
def test_action_logprobs_are_those_of_the_masked_tokens(architecture: str):
    ours, stock = both_models(architecture)
    sequences = random_sequences([20, 30])
    masks = [(0,) * 5 + (1,) * 4 + (0,) * 8 + (1,) * 3, (0,) * 29 + (1,)]
    samples = [
        Sample(tuple(sequence.tolist()), mask, (), (), (), 0)
        for sequence, mask in zip(sequences, masks, strict=True)
    ]
    expected = []
    with torch.inference_mode():
        result = action_logprobs(ours, samples, temperature=0.7)
        for sequence, mask in zip(sequences, masks, strict=True):
            logprobs_TV = (stock(input_ids=sequence[None]).logits[0] / 0.7).log_softmax(dim=-1)
            for index in (index for index, masked in enumerate(mask) if masked):
                row_V = logprobs_TV[index - 1]
                expected.append((row_V[sequence[index]], -(row_V.exp() * row_V).sum()))
    logprobs_A, entropies_A = map(torch.stack, zip(*expected, strict=True))
    assert torch.allclose(result.logprobs_A, logprobs_A, atol=1e-5)
    assert torch.allclose(result.entropies_A, entropies_A, atol=1e-5)


def test_a_model_that_caps_attention_logits_is_refused():
    config = Gemma2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        attn_implementation=ATTENTION,
    )
    with pytest.raises(ValueError, match="caps attention logits, which is not supported"):
        packed(Gemma2ForCausalLM(config), random_sequences([4]))


def documented_varlen(  # noqa: PLR0913 - the signature is torch's
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float,
    window_size: tuple[int, int],
) -> Tensor:
    """Return what torch's kernel is documented to give, with plain arithmetic in a loop."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert (max_q, max_k) == (int(cu_seq_q.diff().max()), int(cu_seq_k.diff().max()))
    assert query.is_contiguous() and key.is_contiguous() and window_size[1] == 0
    shares, left = query.shape[1] // key.shape[1], window_size[0]
    parts = []
    borders = itertools.pairwise(cu_seq_q.tolist()), itertools.pairwise(cu_seq_k.tolist())
    for (start, end), (first, last) in zip(*borders, strict=True):
        k, v = (t[first:last].repeat_interleave(shares, dim=1) for t in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query[start:end], k) * scale
        num_keys = last - first  # the queries are the last of them
        behind = torch.arange(num_keys)[start - end :, None] - torch.arange(num_keys)
        is_seen = (behind >= 0) & ((behind <= left) if left >= 0 else True)
        weights = scores.masked_fill(~is_seen, -torch.inf).softmax(dim=-1)
        parts.append(torch.einsum("hqk,khd->qhd", weights, v))
    return torch.cat(parts)


@architectures
def test_the_kernel_for_packed_sequences_is_asked_for_the_same(
    architecture: str, monkeypatch: pytest.MonkeyPatch
):
    model = small_model(architecture, vocab_size=VOCAB_SIZE)
    sequences = random_sequences(LENGTHS)
    expected = gradients(model, packed(model, sequences))
    expected = {name: grad.clone() for name, grad in expected.items()}
    model.zero_grad()
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda *_: True)
    monkeypatch.setattr(attention, "_varlen_attn", documented_varlen)
    for name, grad in gradients(model, packed(model, sequences)).items():
        assert (grad - expected[name]).abs().max() < 1e-6, name


def test_only_a_gpu_has_a_kernel_for_packed_sequences():
    assert not attention.has_varlen_kernel(torch.device("cpu"), torch.bfloat16, 64)
