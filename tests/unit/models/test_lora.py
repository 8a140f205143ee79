"""LoRA: only the adapter learns, engine and learner see it, and off it is the reference.

Precision too: a policy in bfloat16 is loaded, adapted, sampled from and trained in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config

from agentgym_rl.config import ModelConfig, NativeEngineConfig, TinyModelConfig
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.forward import action_logprobs, enable_checkpointing
from agentgym_rl.models.loading import ADAPTER, Policy, load_policy, load_pretrained
from agentgym_rl.models.lora import (
    add_lora,
    has_lora,
    load_adapter,
    merged_weights,
    reference_policy,
    save_adapter,
    save_merged,
)
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.training.learner.optimizer import MasterAdamW
from agentgym_rl.types import Sample, SamplingParams
from chat_families import ARCHITECTURES, small_model, small_policy

HEAD_TOO = ("q_proj", "v_proj", "down_proj", "lm_head")
SAMPLES = [
    Sample(tuple((k * n) % 61 for n in range(20)), (0,) * 4 + (1,) * 16, (), (), (), 0)
    for k in (3, 7, 11)
]


def adapt(model: PreTrainedModel, **changes: object) -> PreTrainedModel:
    """Add an adapter and give it weights that matter."""
    add_lora(model, **{"rank": 4, "alpha": 8, "seed": 0} | changes)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def make_model(architecture: str = "qwen3", *, is_tied: bool = False) -> PreTrainedModel:
    model = small_model(architecture, vocab_size=64)
    if is_tied:
        model.config.tie_word_embeddings = True
        model.tie_weights()
        assert model.lm_head.weight is model.get_input_embeddings().weight
    return model


def wider_model() -> PreTrainedModel:
    """The same with more hidden numbers, and heads of the same size."""
    fields = make_model().config.to_dict() | {"intermediate_size": 96, "hidden_size": 48}
    return AutoModelForCausalLM.from_config(Qwen3Config(**fields))


def round_to(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def scores(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return action_logprobs(model, SAMPLES, temperature=1.0).logprobs_A


def learn(model: PreTrainedModel, optimizer: MasterAdamW, num_updates: int) -> None:
    for _ in range(num_updates):
        (-action_logprobs(model, SAMPLES, temperature=1.0).logprobs_A.mean()).backward()
        optimizer.collect_gradients()
        assert optimizer.step(lr=1e-2, max_grad_norm=1.0).is_applied


@contextlib.contextmanager
def running(policy: Policy) -> Iterator[NativeEngine]:
    engine = NativeEngine(policy, NativeEngineConfig())
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_new_adapter_changes_nothing_and_is_all_that_learns(architecture: str):
    model = make_model(architecture)
    before, weights = scores(model), {n: p.detach().clone() for n, p in model.named_parameters()}
    add_lora(model, rank=4, alpha=8, seed=0)
    assert torch.equal(scores(model), before)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all(".lora_" in name for name in trained)
    learn(model, MasterAdamW(model.parameters(), weight_decay=0.01), 3)
    assert scores(model).mean() > before.mean() + 0.1
    for name, parameter in model.named_parameters():
        if ".lora_" not in name:
            assert torch.equal(parameter, weights[name.replace(".base_layer.", ".")]), name


def test_the_seed_decides_the_adapter_and_nothing_else_is_drawn():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models = [make_model() for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        add_lora(model, rank=4, alpha=8, seed=seed)
    assert torch.equal(torch.rand(3), expected)
    first, same, other = (
        torch.cat([p.flatten() for n, p in model.named_parameters() if "lora_A" in n])
        for model in models
    )
    assert torch.equal(first, same) and not torch.equal(first, other)


@pytest.mark.parametrize("targets", ["all-linear", HEAD_TOO])
@pytest.mark.parametrize("is_tied", [False, True])
def test_the_reference_is_the_model_without_its_adapter(targets: str, is_tied: bool):
    model = make_model(is_tied=is_tied)
    before = scores(model)
    adapt(model, targets=targets)
    after = scores(model)
    assert (after - before).abs().max() > 0.1
    with reference_policy(model) as reference:
        result = action_logprobs(reference, SAMPLES, temperature=1.0).logprobs_A
    assert torch.equal(result, before) and not result.requires_grad
    assert torch.equal(scores(model), after)
    assert all(p.requires_grad == (".lora_" in n) for n, p in model.named_parameters())


def test_the_adapter_is_back_when_the_reference_fails():
    model = adapt(make_model())
    after = scores(model)
    with pytest.raises(KeyError), reference_policy(model):
        raise KeyError
    assert torch.equal(scores(model), after)


def test_a_model_without_an_adapter_is_not_its_own_reference():
    with pytest.raises(ValueError, match="without LoRA"), reference_policy(make_model()):
        pass


def test_scoring_the_reference_between_the_passes_keeps_the_gradient():
    model = adapt(make_model())
    gradients = []
    for is_scored in (False, True):
        model.zero_grad()
        loss = action_logprobs(model, SAMPLES, temperature=1.0).logprobs_A.mean()
        if is_scored:
            with reference_policy(model):
                action_logprobs(model, SAMPLES, temperature=1.0)
        loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("is_tied", [False, True])
def test_gradients_of_an_adapted_head_are_those_of_the_plain_computation(is_tied: bool):
    model = adapt(make_model(is_tied=is_tied), targets=HEAD_TOO)
    (sample,) = SAMPLES[:1]

    def gradients() -> dict[str, Tensor]:
        found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        return found

    now = action_logprobs(model, [sample], temperature=0.7)
    (now.logprobs_A + 0.3 * now.entropies_A).sum().backward()
    found = gradients()
    stock = adapt(make_model(is_tied=is_tied), targets=HEAD_TOO)
    stock.set_attn_implementation("sdpa")
    logits = stock(input_ids=torch.tensor([sample.token_ids])).logits[0, 3:-1] / 0.7
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(1, torch.tensor(sample.token_ids[4:])[:, None])
    (chosen.sum() - 0.3 * (logprobs.exp() * logprobs).sum()).backward()
    model = stock
    expected = gradients()
    assert found.keys() == expected.keys() and any("lm_head" in name for name in found)
    for name, grad in expected.items():
        assert (found[name] - grad).norm() < 1e-5 * grad.norm(), name


def test_gradients_are_the_same_with_checkpoints():
    gradients = []
    for is_on in (False, True):
        model = adapt(make_model())
        if is_on:
            enable_checkpointing(model)
        action_logprobs(model, SAMPLES, temperature=1.0).logprobs_A.mean().backward()
        gradients.append([p.grad for p in model.parameters() if p.requires_grad])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
async def test_the_engine_samples_with_the_adapter_and_the_learner_agrees(
    dtype: torch.dtype, tolerance: float
):
    policy = small_policy("qwen3")
    adapt(round_to(policy.model, dtype))
    handler = RolloutHandler()
    with running(policy) as engine:
        session = engine.session(3)
        prompt = policy.renderer.prompt("go to the red ball")
        handler.append_prompt(prompt, "")
        handler.append_reply(await session.generate(prompt, SamplingParams(1.0, 40)), "")
    sample = handler.sample()
    sampled = torch.tensor(sample.logprobs)[torch.tensor(sample.loss_mask, dtype=torch.bool)]
    with torch.no_grad():
        learned = action_logprobs(policy.model, [sample], temperature=1.0).logprobs_A
    with reference_policy(policy.model):
        reference = action_logprobs(policy.model, [sample], temperature=1.0).logprobs_A
    assert learned.dtype == torch.float32
    assert (sampled - learned).abs().max() < tolerance
    assert (sampled - reference).abs().max() > 5 * tolerance


@pytest.mark.parametrize("targets", ["all-linear", HEAD_TOO, ("q_proj", "embed_tokens")])
@pytest.mark.parametrize("is_tied", [False, True])
def test_a_merged_model_is_an_ordinary_one(targets: str, is_tied: bool, tmp_path: Path):
    model = adapt(make_model(is_tied=is_tied), targets=targets)
    before = scores(model)
    save_merged(model, tmp_path, merged_weights(model))
    assert torch.equal(scores(model), before)
    merged = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation=ATTENTION
    )
    assert not has_lora(merged)
    assert (scores(merged.eval()) - before).abs().max() < 1e-5


def test_a_saved_adapter_is_peft_s_own_format(tmp_path: Path):
    model = adapt(make_model(), targets=HEAD_TOO)
    save_adapter(model, tmp_path)
    theirs = PeftModel.from_pretrained(make_model(), str(tmp_path)).base_model.model.eval()
    assert torch.equal(scores(theirs), scores(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_adapter_goes_on_bitwise(dtype: torch.dtype, tmp_path: Path):
    model = round_to(make_model(), dtype)
    add_lora(model, rank=4, alpha=8, seed=0)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    optimizer = MasterAdamW(model.parameters(), weight_decay=0.01)
    learn(model, optimizer, 2)
    save_adapter(model, tmp_path)
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    learn(model, optimizer, 2)

    restored = round_to(make_model(), dtype)
    load_adapter(restored, tmp_path)
    optimizer = MasterAdamW(restored.parameters(), weight_decay=0.01)
    optimizer.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    learn(restored, optimizer, 2)
    pairs = zip(model.named_parameters(), restored.named_parameters(), strict=True)
    assert all(name == other and torch.equal(a, b) for (name, a), (other, b) in pairs)


def test_a_saved_policy_holds_the_merged_weights_and_the_adapter(tmp_path: Path):
    policy = small_policy("qwen3")
    adapt(policy.model)
    policy.save(tmp_path / "model")
    assert (
        scores(load_pretrained(tmp_path / "model").model) - scores(policy.model)
    ).abs().max() < (1e-5)
    base = small_policy("qwen3")
    load_adapter(base.model, tmp_path / "model" / ADAPTER)
    assert torch.equal(scores(base.model), scores(policy.model))


def test_mistakes_are_told(tmp_path: Path):
    with pytest.raises(ConfigError, match="no LoRA adapter in"):
        load_adapter(make_model(), tmp_path)
    with pytest.raises(ConfigError, match=r"LoRA does not fit Qwen3ForCausalLM: .*'no_such'"):
        add_lora(make_model(), rank=4, alpha=8, targets=("no_such",), seed=0)
    model = adapt(make_model())
    with pytest.raises(ValueError, match="has an adapter already"):
        add_lora(model, rank=4, alpha=8, seed=0)
    save_adapter(model, tmp_path)
    # What knows only the heads' size fits: B of q, k and v, and A of o, in two layers.
    with pytest.raises(ConfigError, match="to another model: of its 28 weights 8 fit"):
        load_adapter(wider_model(), tmp_path)


@pytest.mark.parametrize("path", ["tiny", "saved"])
def test_bfloat16_weights_keep_exact_positions(path: str, tmp_path: Path):
    shape = TinyModelConfig(vocab_size=300, hidden_size=32)
    config = ModelConfig(path="tiny", tiny=shape)
    texts = ["go to the red ball", "you see a wall"]
    exact = load_policy(config, seed=0, texts=lambda: texts)
    if path == "saved":
        exact.save(tmp_path / "model")
        rounded = load_pretrained(tmp_path / "model", dtype="bfloat16")
    else:
        config = ModelConfig(path="tiny", tiny=shape, dtype="bfloat16")
        rounded = load_policy(config, seed=0, texts=lambda: texts)
    assert {parameter.dtype for parameter in rounded.model.parameters()} == {torch.bfloat16}
    assert rounded.model.dtype == torch.bfloat16
    for name, buffer in exact.model.named_buffers():
        assert torch.equal(buffer, rounded.model.get_buffer(name)), name
    assert (scores(exact.model) - scores(rounded.model)).abs().max() < 0.2
