"""A sharded learner of one rank with NCCL: the numbers, speed and memory of one without ranks.

One rank is not what anybody trains with (`training.shards=1` makes no process group), but it is all
that a machine with one GPU can show of the code that several run.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.sharding import Shards
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner
from agentgym_rl.training.sft import negative_logprob
from chat_families import family
from gpu_models import CUDA, random_qwen2, random_samples

GIB = 2**30
NUM_WARM, NUM_TIMED = 2, 4
LENGTHS = [4096, 2048, 6144, 3000, 1096] * 2
"""Two passes of 16384 tokens."""
CONFIG = TrainingConfig(lr=1e-5, tokens_per_batch=16384, gradient_checkpointing=True)
SPAWN = multiprocessing.get_context("spawn")
DEADLINE_S = 280.0


@dataclass(frozen=True, slots=True)
class Measured:
    tokens_per_s: float
    peak_bytes: int
    grad_norm: float


def model_of_1_5b() -> PreTrainedModel:
    """Return a model of the size and shape of Qwen2.5-1.5B with random weights, on the CPU."""
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(CUDA):  # random numbers take long on a CPU
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=ATTENTION, dtype=torch.bfloat16
        )
    return model.eval().cpu()


def measure(is_sharded: bool, folder: Path) -> Measured:
    """Make updates in this process; return what they took after the first ones."""
    chat, model = family("qwen"), model_of_1_5b()
    torch.cuda.empty_cache()
    enable_checkpointing(model)
    shards = None
    if is_sharded:
        rendezvous = (folder / "rendezvous").absolute().as_uri()
        dist.init_process_group("nccl", init_method=rendezvous, rank=0, world_size=1)
        shards = Shards(init_device_mesh("cuda", (1,)))
    else:
        torch.nn.Module.to(model, CUDA)
    policy = Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)
    learner = Learner(policy, CONFIG, temperature=1.0, shards=shards)
    samples = random_samples(LENGTHS, vocab_size=model.config.vocab_size)
    items = [TrainingSample(sample, (1.0,) * sample.num_action_tokens) for sample in samples]
    first = learner.update(items, negative_logprob)
    for _ in range(NUM_WARM - 1):
        learner.update(items, negative_logprob)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    started = time.monotonic()
    for _ in range(NUM_TIMED):
        learner.update(items, negative_logprob)
    torch.cuda.synchronize()
    seconds = time.monotonic() - started
    found = Measured(
        NUM_TIMED * sum(LENGTHS) / seconds, torch.cuda.max_memory_allocated(), first.grad_norm
    )
    if is_sharded:
        dist.destroy_process_group()
    return found


def test_one_rank_is_nearly_as_fast_as_none_and_needs_no_more_memory(tmp_path: Path):
    if torch.cuda.get_device_properties(0).total_memory < 60 * GIB:
        pytest.skip("1.5B weights with their optimiser, and a pass, need 60 GiB")
    found = []
    for is_sharded in (False, True):
        with SPAWN.Pool(1) as pool:  # a process for each, which takes all of the GPU's memory back
            found.append(pool.apply_async(measure, (is_sharded, tmp_path)).get(DEADLINE_S))
    plain, sharded = found
    for name, one in (("one process", plain), ("one rank", sharded)):
        print(f"{name}: {one.tokens_per_s:.0f} tokens/s, peak {one.peak_bytes / GIB:.1f} GiB")
    assert math.isclose(plain.grad_norm, sharded.grad_norm, rel_tol=0.01), found
    assert sharded.tokens_per_s >= 0.9 * plain.tokens_per_s, found
    assert sharded.peak_bytes <= plain.peak_bytes, found


@pytest.mark.parametrize("offload", ["none", "optimizer", "all"])
def test_one_rank_has_the_numbers_of_none_and_its_state_is_read_without_ranks(
    offload: str, tmp_path: Path
):
    chat = family("qwen")
    config = TrainingConfig(lr=1e-3, tokens_per_batch=256)
    policies = [
        Policy(
            random_qwen2(vocab_size=len(chat.tokenizer), dtype=torch.float32),
            chat.tokenizer,
            chat.renderer,
        )
        for _ in range(2)
    ]
    samples = random_samples([120, 33, 257, 64, 90], vocab_size=len(chat.tokenizer))
    items = [TrainingSample(sample, (1.0,) * sample.num_action_tokens) for sample in samples]
    plain = Learner(policies[0], config, temperature=1.0)
    # Only `training.shards` above 1 is a user's way to offload all; one rank can do it, too.
    on_rank = config.model_copy(update={"offload": offload})
    sharded = ShardedLearner(policies[1], on_rank, temperature=1.0)
    try:
        for _ in range(3):
            losses = [one.update(items, negative_logprob).loss for one in (plain, sharded)]
            assert math.isclose(*losses, rel_tol=1e-3)
        sharded.fetch_weights()
        write = sharded.save_state(tmp_path)
        write()
    finally:
        sharded.close()
    resumed = Learner(policies[1], config, temperature=1.0)
    resumed.restore_state(tmp_path)
    losses = [one.update(items, negative_logprob).loss for one in (plain, resumed)]
    assert math.isclose(*losses, rel_tol=1e-3)
