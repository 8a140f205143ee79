"""Checkpoints: the weights as an ordinary model directory, and the learner beside it.

checkpoints/step-N/model/         loadable with from_pretrained, and with `agentgym eval`
checkpoints/step-N/learner.pt     the optimiser; reference and critic where there are any
checkpoints/step-N/state.json     the step; what the collector of episodes has to remember, if any
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.collect.collection import Collector
from agentgym_rl.training.learner.learner import Learner


def save_checkpoint(
    run: RunFolder,
    policy: Policy,
    learner: Learner,
    *,
    step: int,
    keep: int,
    collector: Mapping[str, object] | None = None,
) -> Path:
    """Write a checkpoint; it appears under its name only when it is whole."""
    written = run.checkpoints / f".writing-{step}"
    shutil.rmtree(written, ignore_errors=True)
    written.mkdir(parents=True)
    policy.save(written / "model")
    torch.save(learner.state(), written / "learner.pt")
    state = {"step": step, **(collector or {})}
    (written / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return run.complete_checkpoint(written, step, keep=keep)


def restore_learner(run: RunFolder, learner: Learner) -> int:
    """Restore the learner from the newest checkpoint; return its step, 0 without one.

    The weights are loaded with the policy.
    """
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return 0
    try:
        # To the CPU first: the learner copies to where it is, which may be another device now.
        saved = torch.load(checkpoint / "learner.pt", weights_only=True, map_location="cpu")
        learner.load_state(saved)
        return int(_read_state(checkpoint)["step"])
    except Exception as error:
        raise _damaged(run, checkpoint, error) from error


def restore_collector(run: RunFolder, collector: Collector) -> None:
    """Let the collector resume where the newest checkpoint was written, if there is one."""
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return
    try:
        state = _read_state(checkpoint)
        collector.resume(int(state["step"]), state)
    except Exception as error:
        raise _damaged(run, checkpoint, error) from error


def _read_state(checkpoint: Path) -> dict[str, Any]:  # Any: what JSON holds is checked by the user
    return json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))


def _damaged(run: RunFolder, checkpoint: Path, error: Exception) -> RunError:
    return RunError(
        f"the checkpoint {checkpoint} is damaged ({type(error).__name__}); point "
        f"{run.checkpoints / 'latest'} at an older one, or start a new run"
    )
