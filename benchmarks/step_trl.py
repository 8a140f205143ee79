"""Whole GRPO steps of TRL on our TextCraft, with vLLM in the same process: a row of `bench step`.

    PYTHON step_trl.py --model DIR --steps 6 --way fastest

It runs in an environment that has TRL, vLLM and this package. TRL trains and vLLM generates;
TextCraft, the agent's prompts and the token ids are ours, played in TRL's interface for rollouts of
one's own (`rollout_func`). So tasks, prompts and limits are those of `agentgym train`, and what
differs is how a step is made. Two ways:

    fastest   weights in bfloat16 without float32 masters, no correction of log-probabilities, no
              checkpointed layers, and an episode asks for its next reply as soon as it has acted
    defaults  float32 weights under autocast, log-probabilities computed again, checkpointed
              layers, and rounds in lockstep, as TRL's own loop over tools has them

It prints one line of JSON for each step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from datasets import Dataset
from peer_vllm import VllmInProcess
from step_episodes import EpisodeLimits, Generator, PeerEpisode, play_lockstep, play_stream
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs import registry
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.tasks import EpochSampler

FASTEST = "fastest"
WAYS = (FASTEST, "defaults")


class StepClock(TrainerCallback):
    """Times whole steps and their parts, and prints a line for each."""

    def __init__(self, num_episodes: int) -> None:
        self._num_episodes, self._started = num_episodes, 0.0
        self.parts: dict[str, float] = {}

    def on_step_begin(self, *_: object, **__: object) -> None:
        self.parts.clear()
        self._started = now()

    def on_step_end(self, _: object, state: Any, *__: object, **___: object) -> None:
        step_s, parts = now() - self._started, self.parts
        line = {
            "step": state.global_step,
            "step_s": step_s,
            "rollout_s": parts["rollout_s"],
            "publish_s": parts.get("publish_s", 0.0),
            "update_s": step_s - parts["rollout_s"] - parts.get("publish_s", 0.0),
            **{name: parts[name] for name in ("tokens", "success", "rounds_mean")},
            "episodes": self._num_episodes,
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return `work` with a clock around it."""

        def run(*arguments: object, **options: object) -> object:
            started = now()
            result = work(*arguments, **options)
            self.parts[name] = self.parts.get(name, 0.0) + now() - started
            return result

        return run


class Rollouts:
    """TRL's `rollout_func` on TextCraft."""

    def __init__(self, options: argparse.Namespace, clock: StepClock) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
        self._renderer = ChatRenderer(self.tokenizer)
        cls = registry.env_class("textcraft")
        self._agent = Agent(AgentConfig(), cls.spec)
        self._make, self._clock = cls, clock
        self._limits = EpisodeLimits(
            options.rounds, options.max_tokens_per_round, options.max_tokens, options.discount
        )
        self._play = play_stream if options.way == FASTEST else play_lockstep
        tasks = cls.tasks("train")
        self._by_index = {str(task.index): task for task in tasks}
        order = EpochSampler(tasks, seed=options.seed)  # as `agentgym train` takes them
        self.prompts = [
            str(task.index)
            for step in range(1, options.steps + 2)
            for task in order.take(step, options.tasks)
        ]

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Play an episode for each prompt, which is the number of a task."""
        started = now()
        episodes = [
            PeerEpisode(
                self._make(), self._agent, self._renderer, self._by_index[prompt], self._limits
            )
            for prompt in prompts
        ]
        self._play(self.generator(trainer), episodes)
        self._clock.parts |= {
            "rollout_s": now() - started,
            "tokens": sum(sum(episode.mask) for episode in episodes),
            "success": sum(episode.success for episode in episodes) / len(episodes),
            "rounds_mean": sum(episode.num_rounds for episode in episodes) / len(episodes),
        }
        return {
            "prompt_ids": [episode.prompt_ids for episode in episodes],
            "completion_ids": [episode.completion_ids for episode in episodes],
            "logprobs": [episode.logprobs for episode in episodes],
            "env_mask": [episode.mask for episode in episodes],
            "episode_reward": [episode.reward for episode in episodes],
        }

    def generator(self, trainer: Any) -> Generator:
        return VllmInProcess(trainer.vllm_generation.llm, self._renderer.stop_token_ids)


def now() -> float:
    """Return the time when all that the GPU was asked for is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def episode_reward(
    completions: Sequence[object],
    episode_reward: Sequence[float],
    **_: object,
) -> list[float]:
    """Return what the environment paid."""
    return [float(value) for value in episode_reward]


def make_config(options: argparse.Namespace) -> GRPOConfig:
    """Return TRL's settings: one generation and one update of all episodes per step."""
    is_fastest, num_episodes = options.way == FASTEST, options.tasks * options.group
    return GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        max_steps=options.steps,
        per_device_train_batch_size=options.per_pass,
        gradient_accumulation_steps=num_episodes // options.per_pass,
        num_generations=options.group,
        shuffle_dataset=False,
        learning_rate=options.lr,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="grpo",  # the mean over episodes of the means over their tokens
        scale_rewards="none",
        temperature=1.0,
        max_completion_length=options.max_tokens,
        use_vllm=not options.cpu,
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=options.vllm_memory,
        vllm_max_model_length=options.max_tokens,
        vllm_importance_sampling_correction=not is_fastest,
        bf16=not options.cpu,
        use_cpu=options.cpu,
        gradient_checkpointing=not is_fastest,
        model_init_kwargs={
            "dtype": "bfloat16" if is_fastest else "float32",
            "attn_implementation": options.attention,
        },
        disable_tqdm=True,
        save_strategy="no",
        report_to="none",
        seed=options.seed,
    )


def train(options: argparse.Namespace, make_rollouts: type[Rollouts] = Rollouts) -> None:
    """Make the steps."""
    num_episodes = options.tasks * options.group
    clock = StepClock(num_episodes)
    rollouts = make_rollouts(options, clock)
    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=episode_reward,
        args=make_config(options),
        train_dataset=Dataset.from_dict({"prompt": rollouts.prompts}),
        processing_class=rollouts.tokenizer,
        rollout_func=rollouts,
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    if not options.cpu:
        generation = trainer.vllm_generation
        generation.sync_weights = clock.timed("publish_s", generation.sync_weights)
    trainer.train()


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = found.add_argument
    add("--model", required=True, help="a directory with weights")
    add("--way", choices=WAYS, default=FASTEST)
    add("--steps", type=int, default=6)
    add("--tasks", type=int, default=32)
    add("--group", type=int, default=8)
    add("--rounds", type=int, default=10)
    add("--max-tokens-per-round", type=int, default=128)
    add("--max-tokens", type=int, default=4096)
    add("--per-pass", type=int, default=8, help="sequences of one forward and backward pass")
    add("--attention", default="sdpa", help="as transformers names it")
    add("--vllm-memory", type=float, default=0.25, help="share of the GPU's memory for vLLM")
    add("--lr", type=float, default=5e-6)
    add("--discount", type=float, default=0.95)
    add("--seed", type=int, default=0)
    add("--cpu", action="store_true", help="without vLLM: for tests")
    return found


if __name__ == "__main__":
    train(parser().parse_args())
