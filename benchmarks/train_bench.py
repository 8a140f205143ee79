"""`agentgym bench train`: updates of the learner, with what makes them smaller or faster.

A model directory, or a known shape with random weights, is trained with the GRPO loss on packed
sequences: forward pass, backward pass and AdamW step. Every row is a new model; updates before the
measured ones are not counted (they compile and fill caches), and a figure is the median over
updates. Tokens are all of a sequence; its last part, `--action-share`, are action tokens. MFU is as
in models/flops.py, against the dense bfloat16 peak of the device. Memory is the most that tensors
took at a time.

With `--shared` the sequences are in groups (`--group`) that begin alike, as episodes of a task do,
and a second row of some ways computes these beginnings once (`training.share_prefix`). Tokens per
second still count all tokens of all sequences; MFU is of what is computed.

The last row is TRL's GRPO loss on the same number of tokens and of passes, in batches of whole
sequences of one length (which no padding slows down), with weights in bfloat16 and torch's fused
AdamW on them: it keeps no float32 masters, and takes 12 bytes a weight less than ours.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from bench_arguments import DEVICES, device, part, whole_from
from decoding_speed import wait_for_device
from model_sizes import SIZES, random_model
from rich.console import Console
from rich.table import Table
from transformers import PreTrainedModel

from agentgym_rl.config import RunConfig, TrainingConfig
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.flops import UpdateFlops, peak_flops_of, update_flops
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import DTYPES, Policy, load_pretrained
from agentgym_rl.models.lora import add_lora
from agentgym_rl.models.tiny import train_tokenizer
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.make import make_algorithm
from agentgym_rl.types import Sample


@dataclass(frozen=True, slots=True)
class Load:
    """What every row computes."""

    model: str
    dtype: str
    device: torch.device
    num_sequences: int
    length: int
    tokens_per_pass: int
    num_actions: int
    """Of each sequence."""
    num_updates: int
    num_warm: int
    group_size: int = 1
    num_shared: int = 0
    """Tokens that the sequences of a group begin with in common."""

    @property
    def num_tokens(self) -> int:
        return self.num_sequences * self.length

    @property
    def num_groups(self) -> int:
        return -(-self.num_sequences // self.group_size)

    def work(self, flops: UpdateFlops, *, shares_prefix: bool) -> float:
        """Return the operations of an update; beginnings are shared within groups."""
        num_shared = self.num_shared if shares_prefix else 0
        lengths = [self.length - num_shared] * self.num_sequences
        starts = [num_shared] * self.num_sequences
        if num_shared:
            lengths += [num_shared] * self.num_groups
            starts += [0] * self.num_groups
        return flops.total(lengths, starts, num_actions=self.num_sequences * self.num_actions)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to train."""

    name: str
    checkpoints: bool = False
    compiles: bool = False
    rank: int = 0
    shares_prefix: bool = False


WAYS = (
    Way("plain"),
    Way("checkpointing", checkpoints=True),
    Way("compile", compiles=True),
    Way("compile, checkpointing", compiles=True, checkpoints=True),
    Way("LoRA", rank=16),
    Way("LoRA, compile", rank=16, compiles=True),
    Way("shared prefix", shares_prefix=True),
    Way("compile, shared prefix", compiles=True, shares_prefix=True),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Medians of one row."""

    seconds: float
    mfu: float | None
    peak_bytes: int
    warm_up_s: float


def measure_way(load: Load, way: Way) -> Measurement:
    """Train one way."""
    policy = _policy(load)
    if way.rank:
        add_lora(policy.model, rank=way.rank, alpha=32, seed=0)
    if way.checkpoints:
        enable_checkpointing(policy.model)
    if way.compiles:
        enable_compilation(policy.model)
    config = TrainingConfig(tokens_per_batch=load.tokens_per_pass, share_prefix=way.shares_prefix)
    learner = Learner(policy, config, temperature=1.0)
    loss = make_algorithm(RunConfig()).loss
    samples = _samples(load, int(policy.model.config.vocab_size))
    update = partial(learner.update, samples, loss)
    return measure(load, policy.model, update, shares_prefix=way.shares_prefix)


def measure_trl(load: Load, *, attention: str) -> Measurement:
    """Train with TRL's loss."""
    from trl_baseline import trl_update  # an optional baseline

    dtype = DTYPES[load.dtype]
    model = random_model(load.model, dtype=dtype, device=load.device, attention=attention)
    update = trl_update(
        model,
        num_sequences=load.num_sequences,
        length=load.length,
        num_actions=load.num_actions,
        per_pass=max(1, load.tokens_per_pass // load.length),
    )
    return measure(load, model, update)


def measure(
    load: Load,
    model: PreTrainedModel,
    update: Callable[[], object],
    *,
    shares_prefix: bool = False,
) -> Measurement:
    """Return what updates take."""
    seconds, peak_bytes, warm_up_s = _timed(load, update)
    flops, peak = update_flops(model), peak_flops_of(model)
    mfu = None
    if flops is not None and peak is not None:
        mfu = load.work(flops, shares_prefix=shares_prefix) / seconds / peak
    return Measurement(seconds, mfu, peak_bytes, warm_up_s)


def _timed(load: Load, update: Callable[[], object]) -> tuple[float, int, float]:
    """Return the median seconds of an update, the peak of memory, and the seconds of warming up."""
    is_cuda = load.device.type == "cuda"
    seconds, warm_up_s = [], 0.0
    began = time.monotonic()
    for number in range(load.num_warm + load.num_updates):
        wait_for_device(is_cuda)
        if number == load.num_warm:
            warm_up_s = time.monotonic() - began
            if is_cuda:
                torch.cuda.reset_peak_memory_stats()
        started = time.monotonic()
        update()
        wait_for_device(is_cuda)
        seconds.append(time.monotonic() - started)
    peak_bytes = torch.cuda.max_memory_allocated() if is_cuda else 0
    return statistics.median(seconds[load.num_warm :]), peak_bytes, warm_up_s


def _policy(load: Load) -> Policy:
    if load.model not in SIZES:
        return load_pretrained(load.model, dtype=load.dtype, device=load.device.type)
    model = random_model(load.model, dtype=DTYPES[load.dtype], device=load.device)
    tokenizer = train_tokenizer(["go to the red ball"], vocab_size=300)  # nothing is encoded
    return Policy(model=model, tokenizer=tokenizer, renderer=ChatRenderer(tokenizer))


def _samples(load: Load, vocab_size: int) -> list[TrainingSample]:
    generator = torch.Generator().manual_seed(0)
    mask = tuple(int(place >= load.length - load.num_actions) for place in range(load.length))
    logprobs, zeros = tuple(-1.0 * masked for masked in mask), (0.0,) * load.length
    samples = []
    prompt = tuple[int, ...]()
    for number in range(load.num_sequences):
        if number % load.group_size == 0:
            prompt = _random_ids(load.num_shared, vocab_size, generator)
        ids = prompt + _random_ids(load.length - load.num_shared, vocab_size, generator)
        sample = Sample(ids, mask, logprobs=logprobs, rewards=zeros, segments=(), version=0)
        samples.append(TrainingSample(sample, (1.0 if number % 2 else -1.0,) * load.num_actions))
    return samples


def _random_ids(num: int, vocab_size: int, generator: torch.Generator) -> tuple[int, ...]:
    return tuple(torch.randint(vocab_size, (num,), generator=generator).tolist())


def row(load: Load, name: str, measured: Callable[[], Measurement]) -> list[str]:
    """Return the cells of a row; what cannot be measured says why."""
    gc.collect()
    torch._dynamo.reset()
    if load.device.type == "cuda":
        torch.cuda.empty_cache()
    try:
        found = measured()
    except torch.cuda.OutOfMemoryError:
        return [name, "out of memory", "", "", "", ""]
    return [
        name,
        f"{load.num_tokens / found.seconds:,.0f}",
        "-" if found.mfu is None else f"{found.mfu:.1%}",
        f"{found.peak_bytes / 2**30:.1f}" if found.peak_bytes else "-",
        f"{found.seconds * 1e3:,.0f}",
        f"{found.warm_up_s:.0f}",
    ]


def why_no_trl(load: Load) -> str:
    """Return why TRL cannot be measured; empty where it can."""
    missing = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    return "" if load.model in SIZES else "for named sizes only"


def print_table(load: Load, ways: Sequence[Way], *, trl_attention: str) -> None:
    """Measure and print every row."""
    where = "CPU"
    if load.device.type == "cuda":
        where = torch.cuda.get_device_name(load.device)
    shared = ""
    if load.num_shared:
        shared = f", groups of {load.group_size} with {load.num_shared} tokens in common"
    table = Table(
        title=f"{load.model}, {load.dtype}, {where}, torch {torch.__version__}: updates of "
        f"{load.num_sequences} x {load.length} tokens, {load.tokens_per_pass} a pass, "
        f"{load.num_actions} action tokens each{shared}; medians of {load.num_updates}",
        title_justify="left",
    )
    table.add_column("way")
    for column in ("tokens/s", "MFU", "peak GiB", "ms an update", "warm-up s"):
        table.add_column(column, justify="right")
    has_peft = importlib.util.find_spec("peft") is not None
    for way in ways:
        if way.rank and not has_peft:
            table.add_row(way.name, "peft not installed")
            continue
        table.add_row(*row(load, way.name, partial(measure_way, load, way)))
    name, reason = f"TRL's GRPO loss ({trl_attention})", why_no_trl(load)
    if reason:
        table.add_row(name, reason)
    else:
        table.add_row(*row(load, name, partial(measure_trl, load, attention=trl_attention)))
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="agentgym bench train", description="Updates of the learner."
    )
    parser.add_argument("--model", default="qwen2.5-1.5b", help=f"{', '.join(SIZES)}, or a folder")
    parser.add_argument("--device", type=device, default="auto", metavar="|".join(DEVICES))
    parser.add_argument("--dtype", default="bfloat16", choices=sorted(DTYPES))
    parser.add_argument("--length", type=whole_from(2), default=4096, help="tokens of a sequence")
    parser.add_argument(
        "--sequences", type=whole_from(1), default=16, help="sequences of an update"
    )
    parser.add_argument("--tokens-per-pass", type=whole_from(64), default=16384)
    parser.add_argument("--action-share", type=part, default=0.5)
    parser.add_argument("--group", type=whole_from(2), default=8, help="sequences of a group")
    parser.add_argument(
        "--shared", type=part, help="share of a sequence that its group has in common; none"
    )
    parser.add_argument(
        "--updates", type=whole_from(1), default=5, help="measured updates of a row"
    )
    parser.add_argument("--warm", type=whole_from(0), default=2, help="updates before them")
    parser.add_argument("--ways", nargs="*", choices=[way.name for way in WAYS], help="all")
    parser.add_argument("--trl-attention", default="sdpa", help="attn_implementation of TRL's row")
    chosen = parser.parse_args(arguments)
    if chosen.model not in SIZES and not Path(chosen.model).exists():
        parser.error(f"--model {chosen.model}: not a folder, and none of {', '.join(SIZES)}")
    load = Load(
        model=chosen.model,
        dtype=chosen.dtype,
        device=chosen.device,
        num_sequences=chosen.sequences,
        length=chosen.length,
        tokens_per_pass=chosen.tokens_per_pass,
        num_actions=max(1, min(chosen.length - 1, int(chosen.length * chosen.action_share))),
        num_updates=chosen.updates,
        num_warm=chosen.warm,
        group_size=chosen.group if chosen.shared else 1,
        num_shared=int(chosen.length * (chosen.shared or 0.0)),
    )
    ways = [
        way
        for way in WAYS
        if (chosen.ways is None or way.name in chosen.ways)
        and (load.num_shared or not way.shares_prefix)
    ]
    print_table(load, ways, trl_attention=chosen.trl_attention)


if __name__ == "__main__":
    main()
