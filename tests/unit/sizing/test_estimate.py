"""Memory by hand for a small decoder, and that every recipe of ours gets an estimate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentgym_rl.config import load_config, packaged_recipes
from agentgym_rl.engines.paged import pages
from agentgym_rl.engines.paged.engine import MAX_ROWS
from agentgym_rl.engines.paged.runner import _ROW_SIZES
from agentgym_rl.models import chunked_logprobs, gguf, loading
from agentgym_rl.models.tiny import MAX_CONTEXT
from agentgym_rl.sizing import engine, find_shape, learner, plan
from agentgym_rl.sizing.estimate import CUDA_BYTES, Place, Row, estimate
from agentgym_rl.sizing.find_shape import UnknownModelError
from agentgym_rl.sizing.learner import LearnerBytes, activation_bytes, learner_bytes, loss_bytes
from agentgym_rl.sizing.machine import GIB, Machine, imagined_machine
from agentgym_rl.sizing.of_recipe import estimate_of_recipe
from agentgym_rl.sizing.plan import MemoryPlan, plan_of
from agentgym_rl.sizing.shape import QWEN25, ModelShape, counted
from agentgym_rl.training.learner import packing

SMALL = counted(
    ModelShape(
        hidden=4,
        feed_forward=8,
        layers=2,
        heads=2,
        kv_heads=1,
        head_dim=2,
        vocab=10,
        is_tied=True,
        max_context=64,
    )
)
"""A layer: queries and output 16 each, keys and values 8 each, feed-forward 96, norms 8: 152."""
LAPTOP = Machine((), ram_bytes=16 * GIB)


def test_the_weights_of_a_small_decoder_by_hand():
    assert SMALL.num_weights == 40 + 4 + 2 * 152  # embeddings, last norm, layers
    assert (SMALL.layer_weights, SMALL.root_weights, SMALL.trunk_weights) == (152, 44, 348)
    # Of rank 1: queries and output 8 each, keys and values 6 each, the three of 4 and 8 12 each.
    assert SMALL.adapter_weights(1) == 2 * (2 * 8 + 2 * 6 + 3 * 12)
    assert SMALL.cache_bytes(2) == 2 * 2 * 2 * 2  # keys and values, layers, width, bytes
    untied = replace(SMALL, is_tied=False)
    assert counted(untied).num_weights == 388 and counted(untied).trunk_weights == 348


def test_the_learner_by_hand():
    one = learner_bytes(SMALL, MemoryPlan())
    # The largest matrix is that of the embeddings: 40 weights, whose gradient is float32 once.
    assert one == LearnerBytes(2 * 348, 12 * 348, 4 * 348, of_pass=2 * 348 + 4 * 40)
    assert learner_bytes(SMALL, MemoryPlan(element=4)) == LearnerBytes(4 * 348, 8 * 348, 4 * 348)
    four = learner_bytes(SMALL, MemoryPlan(ranks=4))
    assert (four.weights, four.optimizer, four.gradients) == (348, 2 * 348, 348)
    # In bfloat16 root and two layers, gradients of root and one; float32 of the larger.
    assert four.gathered == 2 * (44 + 2 * 152) + 2 * (44 + 152) + 4 * 152
    assert four.least == 16 * 348 // 4


def test_an_adapter_leaves_the_weights_alone():
    found = learner_bytes(SMALL, MemoryPlan(lora_rank=1))
    assert (found.weights, found.optimizer, found.gradients) == (2 * 476, 12 * 128, 4 * 128)
    ranked = learner_bytes(SMALL, MemoryPlan(lora_rank=1, ranks=2))
    assert (ranked.weights, ranked.gathered) == (4 * 476 // 2, 2 * (44 + 2 * 152))


def test_an_own_critic_doubles_the_learner_and_a_shared_one_does_not():
    plain, own, shared = (MemoryPlan(critic=kind) for kind in ("", "own", "shared"))
    assert learner_bytes(SMALL, own).least == 2 * learner_bytes(SMALL, plain).least
    assert learner_bytes(SMALL, shared) == learner_bytes(SMALL, plain)
    of_own = activation_bytes(SMALL, own, on_gpu=True)
    assert of_own == 2 * activation_bytes(SMALL, plain, on_gpu=True)


def test_what_is_offloaded_is_in_the_hosts_memory():
    one = learner_bytes(SMALL, MemoryPlan(offload="optimizer"))
    assert (one.weights, one.least, one.on_host) == (2 * 348, 2 * 348, 16 * 348)
    ranks = learner_bytes(SMALL, MemoryPlan(offload="optimizer", ranks=2))
    assert (ranks.least, ranks.on_host) == (8 * 348 // 2, 16 * 348 // 2)
    everything = learner_bytes(SMALL, MemoryPlan(offload="all", ranks=2))
    assert (everything.least, everything.on_host) == (0, 16 * 348 // 2)
    assert everything.gathered == learner_bytes(SMALL, MemoryPlan(ranks=2)).gathered


def test_activations_by_hand():
    plan = MemoryPlan(tokens=10)
    # Norms 16 x 4, attention 4 x 4 + 4 x 2 and a float per head, feed-forward 8 x 8.
    layer, ends = 10 * (64 + 24 + 8 + 64), 10 * 4 * 12
    assert activation_bytes(SMALL, plan, on_gpu=True) == 2 * layer + ends
    compiled = replace(plan, is_compiled=True)
    assert activation_bytes(SMALL, compiled, on_gpu=True) == 2 * 10 * (32 + 24 + 8 + 48) + ends
    sharing = replace(compiled, shares_prefix=True)  # up to 8 keys and values for each token
    assert activation_bytes(SMALL, sharing, on_gpu=True) == 2 * 10 * (32 + 80 + 8 + 48) + ends
    adapted = replace(plan, lora_rank=1)
    assert activation_bytes(SMALL, adapted, on_gpu=True) == 2 * 10 * (48 + 24 + 8 + 64) + ends
    # Inputs of both layers, one whole layer, and gradients of its feed-forward part.
    checkpointed = replace(plan, is_checkpointed=True)
    inputs, again = 2 * 10 * 4 * 2, layer + 3 * 2 * 10 * 8
    assert activation_bytes(SMALL, checkpointed, on_gpu=True) == inputs + again + ends
    split = replace(plan, ranks=2, sequence_parallel=2)
    assert activation_bytes(SMALL, split, on_gpu=True) == layer + ends // 2


def test_the_loss_is_what_was_measured_and_never_more_than_its_chunks():
    qwen = QWEN25["1.5B"]
    assert loss_bytes(qwen, MemoryPlan(), on_gpu=True) / GIB == pytest.approx(1.77, abs=0.01)
    head = 40  # weights; ten tokens are one chunk
    assert loss_bytes(SMALL, MemoryPlan(tokens=10), on_gpu=True) == max(
        6 * head + 10 * 100, 4 * head + 16 * 100
    )
    assert loss_bytes(SMALL, MemoryPlan(tokens=10), on_gpu=False) == 24 * 100 + 8 * head


def test_one_gpu_by_hand():
    """Policy, optimiser and gradients; while playing the cache in the place of the last."""
    shape, plan = QWEN25["1.5B"], MemoryPlan(is_compiled=True, episodes=384)
    place, host = estimate(shape, plan, imagined_machine(num_gpus=1, gpu_gib=80)).places
    rows = {row.what: row for row in place.rows}
    weights = 2 * shape.num_weights
    assert rows["weights"] == Row("weights", weights, weights)
    assert rows["optimiser"].playing == 6 * weights and rows["gradients"].playing == 0
    free = 80 * GIB - weights - CUDA_BYTES
    cache = rows["keys and values"]
    assert cache.learning == 0 and 0 <= free // 2 - cache.playing < 16 * 28672
    assert place.least == 9 * weights
    assert place.fits and host.fits, "the machine's own memory is not known"


def test_ranks_are_shown_once_and_the_first_gpu_also_has_the_policy():
    plan = MemoryPlan(ranks=4, has_reference=True)
    first, others, host = estimate(
        QWEN25["7B"], plan, imagined_machine(num_gpus=4, gpu_gib=80)
    ).places
    assert (first.name, others.name, host.name) == ("GPU 0", "each of GPUs 1-3", "memory")
    assert first.least == others.least == 16 * QWEN25["7B"].num_weights // 4
    extra = {row.what for row in first.rows} - {row.what for row in others.rows}
    assert extra == {"policy to sample with", "keys and values", "the engine's passes"}
    assert any(row.what == "reference" for row in host.rows)


def test_engines_of_their_own_are_where_they_are_put():
    machine, shape = imagined_machine(num_gpus=4, gpu_gib=80), QWEN25["7B"]
    apart = MemoryPlan(ranks=2, engines=2, has_cluster=True, is_apart=True)
    learns, plays, _ = estimate(shape, apart, machine).places
    assert (learns.name, plays.name) == ("each of GPUs 0-1", "each of GPUs 2-3")
    assert plays.least == 0 and learns.playing < learns.learning
    shared = MemoryPlan(ranks=2, engines=2, has_cluster=True)
    both, _ = estimate(shape, shared, machine).places
    assert both.name == "each of GPUs 0-1" and both.learning > learns.learning
    vllm = MemoryPlan(engine="vllm", tensor_parallel=2, memory_fraction=0.25)
    first, second, host = estimate(shape, vllm, machine).places
    assert second.playing == 20 * GIB + CUDA_BYTES and first.least
    assert any(row.what == "vLLM's weights, asleep" for row in host.rows)
    own = replace(vllm, has_cluster=True, is_apart=True)
    _, serves, host = estimate(shape, own, machine).places
    assert serves.learning == serves.playing, "with a GPU of its own it does not sleep"
    assert not any("asleep" in row.what for row in host.rows)


def test_a_bound_decides_nothing():
    rows = (Row("sure", 5, 5), Row("at most", 100, 100, is_bound=True))
    assert Place("memory", 10, rows, least=5).fits


def test_on_a_cpu_processes_share_one_memory():
    one, two = (
        estimate(SMALL, MemoryPlan(element=4, ranks=ranks), LAPTOP).places[0] for ranks in (1, 2)
    )
    assert one.name == "memory" and one.least == two.least == 16 * 348
    assert two.learning > one.learning


@pytest.mark.parametrize("name", packaged_recipes())
def test_every_recipe_has_an_estimate(name: str):
    config = load_config(name, ())
    try:
        found = estimate_of_recipe(config, imagined_machine(num_gpus=1, gpu_gib=80))
    except UnknownModelError as error:
        assert config.model.path.startswith("./runs/") and "here yet" in str(error)
        return
    for place in found.places:
        assert min(place.learning, place.playing) > 0
    assert not found.is_hopeless or config.algorithm.has_critic, name


def test_settings_become_a_plan():
    found = plan_of(load_config("paper/textcraft-ppo", ["algorithm.critic=own"]))
    assert (found.critic, found.has_reference, found.is_checkpointed) == ("own", True, True)
    assert (found.tokens, found.max_tokens, found.episodes) == (16384, 10752, 256)
    long = plan_of(load_config("quickstart", ["rollout.max_tokens=30000"]))
    assert long.tokens == 30000, "an episode longer than a batch is a pass"
    settings = ["engine.type=vllm", "engine.tensor_parallel_size=2", "training.shards=2"]
    served = plan_of(load_config("qwen_textcraft", settings))
    assert (served.engine, served.tensor_parallel, served.ranks) == ("vllm", 2, 2)
    remote = plan_of(load_config("quickstart", ["engine.type=vllm", "engine.url=http://h:1"]))
    assert remote.engine == "elsewhere"
    lora = ["lora.rank=8", "kl.coef=0.1", "warm_start.steps=0"]
    assert not plan_of(load_config("qwen_textcraft", lora)).has_reference
    assert plan_of(load_config("qwen_textcraft", [*lora[:2], "warm_start.steps=2"])).has_reference


def test_settings_of_several_processes_count():
    config = load_config(
        "qwen_textcraft",
        [
            "training.shards=4",
            "training.sequence_parallel=2",
            "training.offload=optimizer",
            "cluster.type=local",
            "cluster.engines=3",
            "cluster.shared=false",
        ],
    )
    found = plan.plan_of(config)
    assert (found.ranks, found.sequence_parallel, found.offload) == (4, 2, "optimizer")
    assert (found.engines, found.has_cluster, found.is_apart) == (3, True, True)
    assert found.gpus == 7


def test_numbers_of_modules_with_torch_are_repeated_without_it():
    assert engine.MAX_ROWS == MAX_ROWS and engine.ROW_SIZES == _ROW_SIZES
    assert pages.PAGE_SIZE == engine.PAGE_SIZE
    assert learner.LOSS_BYTES_ON_GPU == chunked_logprobs._LOSS_BYTES_ON_GPU
    assert learner.LEAST_LOGITS_ON_GPU == chunked_logprobs._LEAST_LOGITS_ON_GPU
    assert learner.MAX_LOGITS_ON_CPU == chunked_logprobs._MAX_LOGITS_ON_CPU
    assert learner.MAX_KEYS_PER_TOKEN == packing.MAX_KEYS_PER_TOKEN
    assert (plan.TINY, find_shape.SMOLLM2) == (loading.TINY, gguf.SMOLLM2)
    assert find_shape.TINY_CONTEXT == MAX_CONTEXT
