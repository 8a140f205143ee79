"""What is refused, what only warns, and that every piece of advice fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentgym_rl.config import load_config
from agentgym_rl.sizing.advice import refusal, remedy, ways_to_fit
from agentgym_rl.sizing.estimate import Estimate, estimate
from agentgym_rl.sizing.machine import GIB, Machine, imagined_machine
from agentgym_rl.sizing.of_recipe import estimate_of_recipe, missing_gpus
from agentgym_rl.sizing.plan import MemoryPlan
from agentgym_rl.sizing.shape import QWEN25


def sized(model: str, plan: MemoryPlan, num_gpus: int, gpu_gib: float) -> Estimate:
    machine = imagined_machine(num_gpus=num_gpus, gpu_gib=gpu_gib)
    return estimate(QWEN25[model], plan, machine)


def test_a_refusal_names_values_and_remedies():
    error = refusal(sized("7B", MemoryPlan(), 4, 80))
    text = str(error)
    assert "alone take 127.7 GiB of GPU 0, which has 80.0 GiB" in text  # 18 bytes each
    assert "set training.shards=4 training.gradient_checkpointing=true; or set lora.rank=32" in text


def test_a_machine_that_is_too_small_is_told_how_many_gpus_it_takes():
    found = sized("7B", MemoryPlan(), 1, 80)
    slow, here, elsewhere = ways_to_fit(found)
    assert (slow.num_gpus, slow.plan.lora_rank, slow.plan.offload) == (1, 0, "optimizer")
    assert (here.num_gpus, here.plan.lora_rank, here.plan.offload) == (1, 32, "none")
    assert (elsewhere.num_gpus, elsewhere.plan.ranks, elsewhere.plan.lora_rank) == (4, 4, 0)
    assert "; or take 4 such GPUs and set training.shards=4 " in remedy(found)


@pytest.mark.parametrize(
    ("model", "plan", "num_gpus", "gpu_gib", "expected"),
    [
        # All activations do not fit, recomputed they do.
        ("1.5B", MemoryPlan(), 1, 60, ("training.gradient_checkpointing=true",)),
        # Already recomputed: a smaller pass.
        ("1.5B", MemoryPlan(is_checkpointed=True, cache_fraction=0.5), 1, 32,
         ("training.tokens_per_batch=8192", "engine.cache_fraction=0.3")),
        # Learning fits; playing needs less for keys and values.
        ("1.5B", MemoryPlan(is_checkpointed=True, cache_fraction=0.9), 1, 40,
         ("engine.cache_fraction=0.4",)),
        ("1.5B", MemoryPlan(is_checkpointed=True, engine="vllm", memory_fraction=0.9), 1, 60,
         ("engine.memory_fraction=0.4",)),
    ],
)  # fmt: skip
def test_advice_goes_from_the_harmless_to_the_rest(
    model: str, plan: MemoryPlan, num_gpus: int, gpu_gib: float, expected: tuple[str, ...]
):
    found = sized(model, plan, num_gpus, gpu_gib)
    assert not found.fits and refusal(found) is None, "uncertain, so not refused"
    assert ways_to_fit(found)[0].settings == expected


@pytest.mark.parametrize("model", ["1.5B", "7B", "32B"])
@pytest.mark.parametrize("num_gpus", [1, 4, 8])
@pytest.mark.parametrize("gpu_gib", [24, 80, 140])
def test_whatever_is_advised_fits(model: str, num_gpus: int, gpu_gib: float):
    found = sized(model, MemoryPlan(critic="own"), num_gpus, gpu_gib)
    for way in ways_to_fit(found):
        machine = imagined_machine(num_gpus=way.num_gpus, gpu_gib=gpu_gib)
        assert estimate(QWEN25[model], way.plan, machine).fits
        assert way.plan.ranks <= way.num_gpus


def test_the_settings_of_advice_are_settings():
    """They are overrides of the recipe, and the plan of the changed recipe is the advised one."""
    settings = ["model.path=Qwen/Qwen2.5-7B-Instruct", "training.gradient_checkpointing=false"]
    config = load_config("paper/textcraft-grpo", settings)
    found = estimate_of_recipe(config, imagined_machine(num_gpus=4, gpu_gib=80))
    for way in ways_to_fit(found):
        words = [word for setting in way.settings for word in setting.split()]
        changed = load_config("paper/textcraft-grpo", [*settings, *words])
        again = estimate_of_recipe(changed, found.machine)
        # LoRA needs no copy of the reference, which advice does not count on.
        assert again.fits and replace(again.plan, has_reference=True) == way.plan


def test_a_cpu_is_refused_by_its_memory():
    small = Machine((), ram_bytes=8 * GIB)
    found = estimate(QWEN25["1.5B"], MemoryPlan(element=4), small)
    assert "of memory, which has 8.0 GiB: " in str(refusal(found))
    unknown = estimate(QWEN25["1.5B"], MemoryPlan(element=4), Machine((), ram_bytes=0))
    assert refusal(unknown) is None and unknown.fits


def test_what_no_setting_helps_says_so():
    found = estimate(QWEN25["72B"], MemoryPlan(element=4), Machine((), ram_bytes=8 * GIB))
    assert "no setting makes it fit; take a smaller model.path, or " in str(refusal(found))


def test_more_ranks_than_gpus_are_named():
    found = sized("7B", MemoryPlan(ranks=4, engine="vllm", tensor_parallel=8), 2, 80)
    told = str(missing_gpus(found))
    assert "training.shards=4 and engine.tensor_parallel_size=8" in told and "lower it to 2" in told
    assert missing_gpus(sized("7B", MemoryPlan(ranks=2), 2, 80)) is None
    assert missing_gpus(estimate(QWEN25["7B"], MemoryPlan(ranks=2), Machine((), 1))) is None
