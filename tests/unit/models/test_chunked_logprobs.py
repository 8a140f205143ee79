"""Chunked log-probabilities: the plain computation's numbers and gradients, in far less memory.

Shape legend: A action tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    PhiConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from agentgym_rl.models import chunked_logprobs as chunked_logprobs_module
from agentgym_rl.models import fused_logprobs
from agentgym_rl.models.attention import ATTENTION, PackedSequences
from agentgym_rl.models.chunked_logprobs import chunked_logprobs
from agentgym_rl.models.forward import (
    action_hidden,
    action_logprobs,
    enable_checkpointing,
    packed_logits,
)
from agentgym_rl.types import Sample
from chat_families import ARCHITECTURES, small_model

VOCAB_SIZE = 96
TEMPERATURE = 0.7
SMALL_CHUNKS = 16 * VOCAB_SIZE
"""Logits of sixteen tokens, the smallest chunk."""

SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
HEADS: dict[str, PretrainedConfig] = {
    "tied": LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "untied": LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "with a bias": PhiConfig(**SHAPE),
    "divided": GraniteConfig(**SHAPE, logits_scaling=3.0),
    "multiplied": Cohere2Config(**SHAPE, logit_scale=0.25),
    "soft-capped": Gemma3TextConfig(**SHAPE, head_dim=8, final_logit_softcapping=2.0),
}

Pair = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def make_model(config: PretrainedConfig, *, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=ATTENTION, dtype=dtype
        ).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # which are zero in a new model
                torch.nn.init.normal_(parameter, std=0.5)
    return model


def make_samples(lengths: Sequence[int] = (40, 1, 25, 30)) -> list[Sample]:
    """Samples of random tokens, two of three of them sampled by the policy."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for length in lengths:
        ids = torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist()
        mask = tuple(int(place % 3 > 0) for place in range(length))
        samples.append(Sample(tuple(ids), mask, (), (), (), 0))
    return samples


def plain(model: PreTrainedModel, samples: Sequence[Sample]) -> Pair:
    """The textbook computation over all logits at once."""
    lengths = [len(sample.token_ids) for sample in samples]
    ids_T = torch.tensor([token for sample in samples for token in sample.token_ids])
    mask_T = torch.tensor([masked for sample in samples for masked in sample.loss_mask])
    positions_T = torch.cat([torch.arange(length) for length in lengths])
    actions_A = mask_T.nonzero()[:, 0]
    logits_AV = packed_logits(
        model, ids_T, positions_T, actions_A - 1, layout=PackedSequences(lengths, ids_T.device)
    )
    logprobs_AV = (logits_AV.float() / TEMPERATURE).log_softmax(dim=-1)
    entropies_A = -(logprobs_AV.exp() * logprobs_AV).sum(dim=-1)
    return logprobs_AV.gather(1, ids_T[actions_A, None])[:, 0], entropies_A


def chunked(model: PreTrainedModel, samples: Sequence[Sample]) -> Pair:
    actions = action_hidden(model, samples)
    return chunked_logprobs(
        model,
        actions.hidden_AH,
        actions.ids_A,
        temperature=TEMPERATURE,
        max_logits=SMALL_CHUNKS,
    )


def gradients(model: PreTrainedModel, loss_A: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a sum in which every token has another weight."""
    model.zero_grad()
    (loss_A * torch.linspace(-1.0, 2.0, len(loss_A))).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def relative_error(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the largest error of a parameter's gradient relative to that gradient's norm."""
    assert found.keys() == expected.keys()
    return max(
        float((found[name].double() - grad.double()).norm() / grad.double().norm().clamp(min=1e-12))
        for name, grad in expected.items()
        if grad.abs().max() > 0
    )


def logprob_loss(logprobs_A: Tensor, entropies_A: Tensor) -> Tensor:
    return logprobs_A


def entropy_loss(logprobs_A: Tensor, entropies_A: Tensor) -> Tensor:
    return entropies_A


def mixed_loss(logprobs_A: Tensor, entropies_A: Tensor) -> Tensor:
    return (0.1 * logprobs_A).exp() * entropies_A - 0.3 * logprobs_A


heads = pytest.mark.parametrize("head", HEADS)
losses = pytest.mark.parametrize("loss", [logprob_loss, entropy_loss, mixed_loss])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_one_chunk_the_numbers_are_bitwise_those_of_the_plain_computation(architecture: str):
    model, samples = small_model(architecture, vocab_size=VOCAB_SIZE), make_samples()
    with torch.no_grad():
        logprobs_A, entropies_A = plain(model, samples)
        found = action_logprobs(model, samples, temperature=TEMPERATURE)
    assert torch.equal(found.logprobs_A, logprobs_A)
    assert torch.equal(found.entropies_A, entropies_A)


@heads
def test_in_many_chunks_the_numbers_are_those_of_the_plain_computation(head: str):
    model, samples = make_model(HEADS[head]), make_samples()
    with torch.inference_mode():
        for found_A, expected_A in zip(chunked(model, samples), plain(model, samples), strict=True):
            assert len(found_A) == 62
            assert (found_A - expected_A).abs().max() < 1e-6


@heads
@losses
def test_gradients_are_those_of_the_plain_computation(head: str, loss: Loss):
    model, samples = make_model(HEADS[head]), make_samples()
    expected = gradients(model, loss(*plain(model, samples)))
    found = gradients(model, loss(*chunked(model, samples)))
    assert relative_error(found, expected) < 1e-5


@losses
def test_bfloat16_gradients_are_the_plain_ones_and_no_further_from_the_true_ones(loss: Loss):
    exact, samples = make_model(HEADS["tied"]), make_samples()
    model = make_model(HEADS["tied"], dtype=torch.bfloat16)
    exact.load_state_dict(model.state_dict())
    true = gradients(exact, loss(*plain(exact, samples)))
    expected = gradients(model, loss(*plain(model, samples)))
    found = gradients(model, loss(*chunked(model, samples)))
    # A bfloat16 has eight significant bits, and sums in another order differ in the last.
    assert relative_error(found, expected) < 2**-8
    assert relative_error(found, true) < 1.1 * relative_error(expected, true)


def test_a_frozen_head_gets_no_gradient_and_the_decoder_the_same():
    model, samples = make_model(HEADS["untied"]), make_samples()
    expected = gradients(model, mixed_loss(*plain(model, samples)))
    del expected["lm_head.weight"]
    model.lm_head.requires_grad_(False)
    model.lm_head.weight.grad = None
    found = gradients(model, mixed_loss(*chunked(model, samples)))
    assert relative_error(found, expected) < 1e-5


def test_a_frozen_decoder_gets_no_gradient_and_the_head_the_same():
    model, samples = make_model(HEADS["untied"]), make_samples()
    expected = gradients(model, mixed_loss(*plain(model, samples)))
    model.model.requires_grad_(False)
    model.zero_grad()
    found = gradients(model, mixed_loss(*chunked(model, samples)))
    assert relative_error(found, {"lm_head.weight": expected["lm_head.weight"]}) < 1e-5


@pytest.mark.parametrize("samples", [[], [Sample((1, 2, 3), (0, 0, 0), (), (), (), 0)] * 2])
def test_a_batch_without_action_tokens_has_no_numbers_and_no_gradient(samples: list[Sample]):
    model = make_model(HEADS["tied"])
    result = action_logprobs(model, samples, temperature=TEMPERATURE)
    assert len(result.logprobs_A) == len(result.entropies_A) == 0
    (result.logprobs_A - result.entropies_A).sum().backward()
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
    with torch.no_grad():
        assert len(action_logprobs(model, samples, temperature=TEMPERATURE).logprobs_A) == 0


def test_a_sample_that_starts_with_an_action_is_a_bug():
    model = make_model(HEADS["tied"])
    with pytest.raises(AssertionError, match="nothing predicts a first token"):
        action_logprobs(model, [Sample((1, 2), (1, 1), (), (), (), 0)], temperature=1.0)


def test_a_sample_without_action_tokens_changes_no_other():
    model, samples = make_model(HEADS["tied"]), make_samples()
    silent, empty = Sample((1, 2), (0, 0), (), (), (), 0), Sample((), (), (), (), (), 0)
    expected = gradients(model, mixed_loss(*chunked(model, samples)))
    found = gradients(model, mixed_loss(*chunked(model, [silent, empty, *samples, silent])))
    assert relative_error(found, expected) < 1e-5


def test_the_same_seed_gives_bitwise_the_same_gradients():
    results = []
    for _ in range(2):
        model = make_model(HEADS["tied"])
        results.append(gradients(model, mixed_loss(*chunked(model, make_samples()))))
    assert all(torch.equal(results[0][name], grad) for name, grad in results[1].items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradients_are_bitwise_the_same_with_checkpoints(architecture: str):
    model, samples = small_model(architecture, vocab_size=VOCAB_SIZE), make_samples()
    expected = gradients(model, mixed_loss(*chunked(model, samples)))
    enable_checkpointing(model)
    found = gradients(model, mixed_loss(*chunked(model, samples)))
    assert all(torch.equal(found[name], grad) for name, grad in expected.items())
    assert not any(module.training for module in model.modules())


def test_checkpoints_save_memory_and_recompute_each_layer_once():
    calls = {}
    for is_on in (False, True):
        model = make_model(HEADS["tied"])
        if is_on:
            enable_checkpointing(model)
        seen: list[str] = []
        model.model.layers[0].mlp.register_forward_pre_hook(
            lambda *_, seen=seen: seen.append("mlp")
        )
        memory = LiveBytes()
        with memory:
            loss_A = mixed_loss(*chunked(model, make_samples([64, 64])))
            memory.kept = memory.live
            gradients(model, loss_A)
        with torch.no_grad():
            chunked(model, make_samples())
        calls[is_on] = (len(seen), memory.kept)
    # A pass forward and one for scoring; with checkpoints another in the backward pass.
    assert calls[False][0] == 2 and calls[True][0] == 3
    assert calls[True][1] < 0.5 * calls[False][1]


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operations make, from birth to death."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = self.kept = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),  # whatever an operation takes
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, storage.nbytes())

    def _forget(self, key: int, num_bytes: int) -> None:
        self._known.discard(key)
        self.live -= num_bytes


def peak_bytes(compute: Callable[[Tensor], Pair], num_tokens: int) -> int:
    """Return the most bytes alive at once in a forward and a backward pass over hidden states."""
    hidden_AH = torch.randn(num_tokens, 8, generator=torch.Generator().manual_seed(0))
    hidden_AH.requires_grad_()
    with LiveBytes() as memory:
        mixed_loss(*compute(hidden_AH)).sum().backward()
    return memory.peak


def bytes_per_token(vocab_size: int, *, is_chunked: bool) -> float:
    """Return how much the peak grows with each further token."""
    config = LlamaConfig(**SHAPE | {"vocab_size": vocab_size, "hidden_size": 8})
    model = make_model(config)

    def compute(hidden_AH: Tensor) -> Pair:
        ids_A = torch.arange(len(hidden_AH)) % vocab_size
        if is_chunked:
            return chunked_logprobs(
                model, hidden_AH, ids_A, temperature=1.0, max_logits=16 * vocab_size
            )
        logprobs_AV = model.lm_head(hidden_AH).log_softmax(dim=-1)
        entropies_A = -(logprobs_AV.exp() * logprobs_AV).sum(dim=-1)
        return logprobs_AV.gather(1, ids_A[:, None])[:, 0], entropies_A

    few, many = 32, 160
    return (peak_bytes(compute, many) - peak_bytes(compute, few)) / (many - few)


def test_memory_grows_with_tokens_and_not_with_tokens_times_the_vocabulary():
    small, large = (bytes_per_token(size, is_chunked=True) for size in (1024, 65536))
    # Hidden states, ids and the like: a few numbers for each token, whatever the vocabulary.
    assert large == pytest.approx(small, rel=0.1)
    assert large < 50 * 8 * 4
    # The same measure finds the matrices of the plain computation, at least two of them.
    assert bytes_per_token(65536, is_chunked=False) > 2 * 65536 * 4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("has_logprobs", [True, False])
@pytest.mark.parametrize("has_entropies", [True, False])
def test_what_is_written_to_be_compiled_is_the_same(
    temperature: float, has_logprobs: bool, has_entropies: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fused_logprobs, "compiled", lambda function: function)
    generator = torch.Generator().manual_seed(0)
    logits_CV = 4 * torch.randn(7, 50, generator=generator)
    ids_C = torch.randint(50, (7,), generator=generator)
    plain = chunked_logprobs_module._read_logits(logits_CV, ids_C, temperature)
    fused = fused_logprobs.read_logits(logits_CV, ids_C, temperature)
    for mine, theirs in zip(fused, plain, strict=True):
        assert (mine - theirs).abs().max() < 1e-5
    grads = [
        torch.randn(7, generator=generator) if is_there else None
        for is_there in (has_logprobs, has_entropies)
    ]
    expected_CV = chunked_logprobs_module._grad_logits(
        logits_CV, ids_C, *grads, temperature=temperature
    )
    found_CV = fused_logprobs.grad_logits(logits_CV, ids_C, fused, *grads, temperature=temperature)
    assert (found_CV - expected_CV).abs().max() < 1e-5
    if has_logprobs or has_entropies:
        assert expected_CV.abs().max() > 0.1
