"""`agentgym convert`."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.cli.progress import quiet_transformers
from agentgym_rl.cli.terminal import suggest
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import DTYPES, load_pretrained
from agentgym_rl.runs.durable import writing_in


def convert_model(model: str, folder: Path, *, dtype: str) -> None:
    """Write the model to a folder that is not there yet."""
    if dtype not in DTYPES:
        raise ConfigError(f"no --dtype {dtype!r}; available: {', '.join(DTYPES)}")
    if folder.exists():
        raise ConfigError(f"{folder} already exists; choose another directory")
    quiet_transformers()
    policy = load_pretrained(model, dtype=dtype, device="cpu")
    with writing_in(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        policy.save(folder)
    num_weights = sum(weight.numel() for weight in policy.model.parameters())
    print(f"{folder}: {type(policy.model).__name__}, {num_weights:,} weights")
    suggest(
        ["agentgym", "train", "quickstart", f"model.path={folder}"],
        ["agentgym", "eval", folder, "--env", "babyai"],
    )
