"""The model as generation runs it: the learner's weights, one compiled function for all layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from transformers import PreTrainedModel

from agentgym_rl.engines.generation_model import generation_model
from agentgym_rl.engines.paged.attention import running_pass
from agentgym_rl.engines.paged.batch_pass import CacheShape, PagedPass
from agentgym_rl.models.attention import PackedSequences
from agentgym_rl.models.compilation import enable_compilation, prepare_layers
from agentgym_rl.models.forward import packed_logits
from agentgym_rl.models.lora import add_lora
from chat_families import ARCHITECTURES, small_model

VOCABULARY = 200


def learner_logits(model: PreTrainedModel, ids_T: Tensor) -> Tensor:
    places_T = torch.arange(len(ids_T))
    with torch.inference_mode():
        return packed_logits(
            model, ids_T, places_T, places_T, layout=PackedSequences([len(ids_T)], ids_T.device)
        )


def paged_logits(model: PreTrainedModel, ids_T: Tensor) -> Tensor:
    places_T = torch.arange(len(ids_T))
    shape = CacheShape.of(model.config, torch.float32)
    paged = PagedPass(
        pages=shape.pages_in(torch.zeros(10 * shape.page_bytes, dtype=torch.uint8)),
        table_RP=torch.tensor([[4, 2, 9, 1, 3]], dtype=torch.int32),
        rows_T=torch.zeros_like(ids_T),
        positions_T=places_T,
        block_starts_N=places_T,
        block_lengths_N=torch.ones_like(ids_T),
        block_tokens=1,
    )
    with torch.inference_mode(), running_pass(paged):
        output = model(
            input_ids=ids_T[None],
            position_ids=places_T[None],
            logits_to_keep=places_T,
            use_cache=False,
        )
    return output.logits[0]


def some_ids(num: int) -> Tensor:
    return torch.randint(VOCABULARY, (num,), generator=torch.Generator().manual_seed(num))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_gives_what_the_learner_s_model_gives(architecture: str):
    model = small_model(architecture, vocab_size=VOCABULARY)
    copied = generation_model(model, is_compiled=False)
    ids_T = some_ids(40)
    torch.testing.assert_close(paged_logits(copied, ids_T), learner_logits(model, ids_T))


@pytest.mark.parametrize(
    ("architecture", "num_kinds"), [("gemma3", 2), pytest.param("qwen3", 1, marks=pytest.mark.long)]
)
def test_each_kind_of_layer_is_compiled_once_whatever_the_tokens(architecture: str, num_kinds: int):
    model = small_model(architecture, vocab_size=VOCABULARY)
    counter = CompileCounter()
    torch._dynamo.reset()
    copied = generation_model(model, is_compiled=True, backend=counter)
    for num in (40, 24, 5):
        ids_T = some_ids(num)
        torch.testing.assert_close(paged_logits(copied, ids_T), learner_logits(model, ids_T))
    assert counter.frame_count == num_kinds


@pytest.mark.long
def test_layers_with_an_adapter_are_compiled_too():
    pytest.importorskip("peft")
    model = small_model("qwen2", vocab_size=VOCABULARY)
    add_lora(model, rank=2, alpha=4, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.fill_(0.3)
    counter = CompileCounter()
    torch._dynamo.reset()
    copied = generation_model(model, is_compiled=True, backend=counter)
    ids_T = some_ids(33)
    torch.testing.assert_close(paged_logits(copied, ids_T), learner_logits(model, ids_T))
    assert counter.frame_count == 1


@pytest.mark.long  # compiles a model for its whole length: 20 s
def test_updates_in_place_are_seen_and_the_learner_s_model_is_as_it_was():
    model = small_model("qwen2", vocab_size=VOCABULARY)
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    copied = generation_model(model, is_compiled=True)
    for name, module in model.named_modules():
        assert vars(module) == before[name]
    assert model.config._attn_implementation == "agentgym"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    ids_T = some_ids(20)
    want = learner_logits(model, ids_T)
    torch.testing.assert_close(paged_logits(copied, ids_T), want, rtol=1e-3, atol=1e-4)
    plain = generation_model(model, is_compiled=False)
    torch.testing.assert_close(paged_logits(plain, ids_T), want)
    for mine, theirs in zip(copied.parameters(), model.parameters(), strict=True):
        assert mine is theirs


def test_what_the_learner_has_compiled_is_not_what_generation_runs():
    model = small_model("qwen2", vocab_size=VOCABULARY)
    enable_compilation(model)
    prepare_layers(model)
    copied = generation_model(model, is_compiled=False)
    assert all(module._compiled_call_impl is None for module in copied.modules())
