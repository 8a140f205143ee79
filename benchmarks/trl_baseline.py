"""One update with TRL's GRPO loss, the baseline of `agentgym bench train`.

TRL's trainer is set up as its documentation does, and asked for the loss of given completions:
generation and rewards are left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from agentgym_rl.models.tiny import train_tokenizer


def trl_update(
    model: PreTrainedModel, *, num_sequences: int, length: int, num_actions: int, per_pass: int
) -> Callable[[], None]:
    """Return a function that makes one update of the model, `per_pass` sequences at a time."""
    passes = [
        _inputs(model, min(per_pass, num_sequences - start), length, num_actions)
        for start in range(0, num_sequences, per_pass)
    ]
    trainer = _trainer(model)
    trainer.current_gradient_accumulation_steps = len(passes)
    model.train()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-6, fused=model.device.type == "cuda")

    def update() -> None:
        for inputs in passes:
            trainer.compute_loss(model, inputs).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def _trainer(model: PreTrainedModel) -> GRPOTrainer:
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        loss_type="grpo",
        beta=0.0,
        num_generations=2,
        per_device_train_batch_size=2,
        gradient_checkpointing=False,
        bf16=model.dtype == torch.bfloat16,
        use_cpu=model.device.type == "cpu",
        report_to="none",
    )
    return GRPOTrainer(
        model=model,
        reward_funcs=_no_reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=train_tokenizer(["go to the red ball"], vocab_size=300),
    )


def _no_reward(completions: list[str], **_: object) -> list[float]:
    return [0.0 for _ in completions]


def _inputs(
    model: PreTrainedModel, num_sequences: int, length: int, num_actions: int
) -> dict[str, Tensor]:
    device, num_prompt = model.device, length - num_actions
    generator = torch.Generator(device).manual_seed(0)
    ids = torch.randint(
        int(model.config.vocab_size), (num_sequences, length), generator=generator, device=device
    )
    ones = torch.ones_like(ids)
    return {
        "prompt_ids": ids[:, :num_prompt],
        "prompt_mask": ones[:, :num_prompt],
        "completion_ids": ids[:, num_prompt:],
        "completion_mask": ones[:, num_prompt:],
        "advantages": torch.ones(num_sequences, device=device),
    }
