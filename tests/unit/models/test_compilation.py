"""Compiled layers: the same gradients, and nothing is compiled again for a layer or a batch."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

import varlen_on_cpu
from agentgym_rl.models import attention, chunked_logprobs, compilation, fused_logprobs
from agentgym_rl.models.attention import PackedSequences
from agentgym_rl.models.compilation import enable_compilation, is_compiling
from agentgym_rl.models.forward import action_logprobs, enable_checkpointing, packed_logits
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Sample
from chat_families import small_model

VOCAB_SIZE = 96
pytestmark = pytest.mark.slow  # compilers are

BATCHES = ([5, 9], [30, 7, 12], [20], [13, 14, 15, 8])


@pytest.fixture(params=["aot_eager"])
def counter(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CompileCounterWithBackend]:
    """Count what is compiled, by a backend that needs no C compiler."""
    torch._dynamo.reset()
    counters.clear()
    counting = CompileCounterWithBackend(request.param)

    def with_counter(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return torch.compile(function, dynamic=True, backend=counting)

    counted = cache(with_counter)
    monkeypatch.setattr(compilation, "compiled", counted)
    monkeypatch.setattr(fused_logprobs, "compiled", counted)
    yield counting
    torch._dynamo.reset()


def samples_of(lengths: list[int]) -> list[Sample]:
    generator = torch.Generator().manual_seed(sum(lengths))
    samples = []
    for length in lengths:
        ids = tuple(torch.randint(VOCAB_SIZE, (length,), generator=generator).tolist())
        zeros = (0.0,) * length
        mask = (0, 0, *(1 for _ in range(length - 2)))
        samples.append(Sample(ids, mask, logprobs=zeros, rewards=zeros, segments=(), version=0))
    return samples


def gradients(model: PreTrainedModel, lengths: list[int]) -> dict[str, Tensor]:
    model.zero_grad()
    now = action_logprobs(model, samples_of(lengths), temperature=0.7)
    (now.logprobs_A.square().mean() + now.entropies_A.mean()).backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert grads
    return grads


@pytest.mark.parametrize(
    ("architecture", "is_checkpointed", "rank"),
    [
        pytest.param("qwen2", False, 0, marks=pytest.mark.long),
        pytest.param("qwen3", True, 0, marks=pytest.mark.long),
        pytest.param("llama", True, 4, marks=pytest.mark.long),
    ],
)
def test_gradients_are_the_same_and_nothing_is_compiled_twice(
    architecture: str,
    is_checkpointed: bool,
    rank: int,
    counter: CompileCounterWithBackend,
    monkeypatch: pytest.MonkeyPatch,
):
    if architecture != "qwen2":  # what follows the layers is the same for every model
        monkeypatch.setattr(chunked_logprobs, "is_compiling", lambda _: False)
    model = small_model(architecture, vocab_size=VOCAB_SIZE)
    if is_checkpointed:
        enable_checkpointing(model)
    if rank:
        add_lora(model, rank=rank, alpha=8, seed=0)
    plain = [gradients(model, lengths) for lengths in BATCHES]
    assert counter.frame_count == 0
    enable_compilation(model)
    counts = []
    for lengths, expected in zip(BATCHES, plain, strict=True):
        for name, grad in gradients(model, lengths).items():
            assert (grad - expected[name]).abs().max() < 1e-5, name
        counts.append(counter.frame_count)
    # Two layers: with LoRA the first has an input without a gradient, which is another program.
    assert 0 < counts[0] <= 20
    assert len(set(counts)) == 1


def run_forward(model: PreTrainedModel, lengths: list[int]) -> None:
    with torch.no_grad():
        action_logprobs(model, samples_of(lengths), temperature=0.7)


@pytest.mark.parametrize("counter", ["eager"], indirect=True)
@pytest.mark.long
def test_a_copy_of_a_compiled_model_is_compiled_too(counter: CompileCounterWithBackend):
    model = small_model("qwen2", vocab_size=VOCAB_SIZE)
    enable_compilation(model)
    run_forward(model, BATCHES[0])
    copied = copy.deepcopy(model)
    assert is_compiling(copied)
    before = counter.frame_count
    assert before > 0
    run_forward(copied, BATCHES[1])
    assert counter.frame_count == before, "the copy runs what was compiled for the first"


@pytest.mark.long
@pytest.mark.parametrize("counter", ["eager"], indirect=True)
def test_generation_is_not_compiled(counter: CompileCounterWithBackend):
    model = small_model("qwen2", vocab_size=VOCAB_SIZE)
    enable_compilation(model)
    run_forward(model, BATCHES[0])
    before = counter.frame_count
    assert before > 0
    places_T = torch.arange(6)

    class OfEngine:
        """Stands for a layout of an engine; only its type differs."""

        def __init__(self) -> None:
            self._packed = PackedSequences([6], places_T.device)

        def attend(
            self,
            layer: int,
            query_HTD: Tensor,
            key_HTD: Tensor,
            value_HTD: Tensor,
            *,
            scale: float,
            window: int | None,
        ) -> Tensor:
            return self._packed.attend(query_HTD, key_HTD, value_HTD, scale=scale, window=window)

    with torch.inference_mode():
        packed_logits(model, places_T, places_T, places_T, layout=OfEngine())
    assert counter.frame_count == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "is_checkpointed", "rank", "num_programs"),
    [
        ("qwen2", False, 0, 1),
        pytest.param("qwen3", True, 0, 1, marks=pytest.mark.long),
        pytest.param("llama", True, 4, 2, marks=pytest.mark.long),
    ],
)
def test_a_layer_with_its_attention_is_one_program(
    architecture: str,
    is_checkpointed: bool,
    rank: int,
    num_programs: int,
    counter: CompileCounterWithBackend,
    monkeypatch: pytest.MonkeyPatch,
):
    varlen_on_cpu.install()
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda *_: True)
    model = small_model(architecture, vocab_size=VOCAB_SIZE)
    if is_checkpointed:
        enable_checkpointing(model)
    if rank:
        add_lora(model, rank=rank, alpha=8, seed=0)
    plain = [gradients(model, lengths) for lengths in BATCHES]
    enable_compilation(model)
    monkeypatch.setattr(chunked_logprobs, "is_compiling", lambda _: False)  # layers alone
    for lengths, expected in zip(BATCHES, plain, strict=True):
        for name, grad in gradients(model, lengths).items():
            assert (grad - expected[name]).abs().max() < 1e-5, name
        # What Dynamo began and took up again, knowing more, is left behind empty.
        assert sum(len(graph.graph.nodes) > 0 for graph in counter.graphs) == num_programs
    assert not counters["graph_break"]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler of C++")
def test_compiled_layers_round_as_plain_ones():
    torch._dynamo.reset()
    model = small_model("llama", vocab_size=VOCAB_SIZE).bfloat16()
    samples = samples_of([60])
    with torch.no_grad():
        plain_A = action_logprobs(model, samples, temperature=1.0).logprobs_A
        enable_compilation(model)
        compiled_A = action_logprobs(model, samples, temperature=1.0).logprobs_A
    # 0.02 where float32 is kept between operations.
    assert (plain_A - compiled_A).abs().mean() < 1e-4
