"""Linear layers with the same input as one product, over the learner's own parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentgym_rl.engines.generation_model import generation_model
from agentgym_rl.engines.joined_layers import join_layers
from agentgym_rl.models.lora import add_lora
from chat_families import ARCHITECTURES, small_model


class Pair(nn.Module):
    """A feed-forward layer's two siblings."""

    def __init__(self, gate: nn.Linear, up: nn.Linear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = gate, up

    def forward(self, x: Tensor) -> Tensor:
        return self.gate_proj(x) * self.up_proj(x)


def addresses(model: nn.Module) -> dict[str, int]:
    return {name: weight.data_ptr() for name, weight in model.named_parameters()}


def num_bytes(model: PreTrainedModel) -> int:
    storages = {weight.untyped_storage() for weight in model.parameters()}
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_weights_of_siblings_lie_together_and_are_what_they_were(architecture: str):
    model = small_model(architecture, vocab_size=200)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    objects, size = list(model.parameters()), num_bytes(model)
    generation_model(model, is_compiled=False)
    for mine, theirs in zip(model.parameters(), objects, strict=True):
        assert mine is theirs
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), before[name], rtol=0, atol=0)
    assert num_bytes(model) == size
    attention = model.model.layers[0].self_attn
    storages = {
        getattr(attention, name).weight.untyped_storage().data_ptr()
        for name in ("q_proj", "k_proj", "v_proj")
    }
    assert len(storages) == 1


def test_a_second_copy_moves_nothing():
    model = small_model("qwen2", vocab_size=200)
    generation_model(model, is_compiled=False)
    joined = addresses(model)
    generation_model(model, is_compiled=False)
    assert addresses(model) == joined


def test_siblings_are_one_product_which_is_not_kept():
    pair = Pair(nn.Linear(8, 3), nn.Linear(8, 3))
    x = torch.randn(5, 8)
    expected = pair(x)
    join_layers(pair)
    num_products = 0

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            nonlocal num_products
            num_products += function is nn.functional.linear
            return function(*args, **(kwargs or {}))

    with Counting():
        torch.testing.assert_close(pair(x), expected)
    assert num_products == 1
    assert pair.gate_proj.joined.output is None


@pytest.mark.parametrize(
    "other",
    [
        nn.Linear(8, 3, bias=False),
        nn.Linear(8, 3, dtype=torch.bfloat16),
        nn.Sequential(nn.Linear(8, 3)),
    ],
    ids=["bias", "dtype", "more"],
)
def test_what_is_not_alike_is_left_alone(other: nn.Module):
    pair = Pair(nn.Linear(8, 3), other)
    join_layers(pair)
    assert type(pair.gate_proj) is nn.Linear
    assert pair.up_proj is other


def test_a_hook_is_not_lost():
    pair = Pair(nn.Linear(8, 3), nn.Linear(8, 3))
    pair.up_proj.register_forward_hook(lambda module, args, output: output + 1)
    x = torch.randn(5, 8)
    expected = pair(x)
    join_layers(pair)
    torch.testing.assert_close(pair(x), expected)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_another_input_is_computed_for_itself_in_any_order(is_compiled: bool):
    pair = Pair(nn.Linear(8, 3), nn.Linear(8, 3))
    x, y = torch.randn(5, 8), torch.randn(5, 8)
    expected = pair.up_proj(y) * pair.gate_proj(x) + pair.gate_proj(y) * pair.up_proj(x)
    join_layers(pair)

    def crossed(x: Tensor, y: Tensor) -> Tensor:
        before = pair.up_proj(y) * pair.gate_proj(x)
        return before + pair.gate_proj(y) * pair.up_proj(x)

    run = torch.compile(crossed, backend="eager", fullgraph=True) if is_compiled else crossed
    torch.testing.assert_close(run(x, y), expected)


def test_a_weight_that_layers_share_is_moved_once():
    first = Pair(nn.Linear(8, 3), nn.Linear(8, 3))
    second = Pair(nn.Linear(8, 3), first.up_proj)
    twins = Pair(first.up_proj, first.up_proj)
    layers = nn.ModuleList([first, second, twins])
    join_layers(layers)
    with torch.no_grad():
        for weight in layers.parameters():
            weight.add_(1.0)
    x = torch.randn(5, 8)
    for pair in (first, second, twins):
        gate, up = (
            nn.functional.linear(x, layer.weight, layer.bias)
            for layer in (pair.gate_proj, pair.up_proj)
        )
        torch.testing.assert_close(pair(x), gate * up)


def test_layers_with_an_adapter_stay_where_they_are():
    pytest.importorskip("peft")
    model = small_model("qwen2", vocab_size=200)
    add_lora(model, rank=2, alpha=4, seed=0)
    before = addresses(model)
    generation_model(model, is_compiled=False)
    assert addresses(model) == before


def test_an_optimizer_made_before_goes_on_and_its_steps_are_seen():
    model = small_model("llama", vocab_size=200)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    copied = generation_model(model, is_compiled=False)
    gate = model.model.layers[0].mlp.gate_proj
    before = gate.weight.detach().clone()
    torch.stack([weight.square().sum() for weight in model.parameters()]).sum().backward()
    optimizer.step()
    assert not torch.equal(gate.weight, before)
    of_copy = copied.model.layers[0].mlp.gate_proj
    x = torch.randn(4, gate.in_features)
    torch.testing.assert_close(of_copy(x), gate(x))


def test_a_joined_model_is_saved_and_loaded_as_any(tmp_path: Path):
    model = small_model("qwen2", vocab_size=200)
    generation_model(model, is_compiled=False)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    for (name, mine), (other, theirs) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(mine, theirs)
