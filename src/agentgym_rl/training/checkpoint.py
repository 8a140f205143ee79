"""Checkpoints: the weights as an ordinary model directory, and the learner beside it.

checkpoints/step-N/model/         loadable with from_pretrained, and with `agentgym eval`
checkpoints/step-N/learner.pt     the optimiser; reference and critic where there are any
checkpoints/step-N/state.json     the step, and the state of the collector
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

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


def restore_checkpoint(run: RunFolder, learner: Learner, collector: Collector | None = None) -> int:
    """Restore learner and collector from the newest checkpoint; return its step, 0 without one.

    The weights are loaded with the policy.
    """
    checkpoint = run.latest_checkpoint()
    if checkpoint is None:
        return 0
    try:
        # To the CPU first: the learner copies to where it is, which may be another device now.
        saved = torch.load(checkpoint / "learner.pt", weights_only=True, map_location="cpu")
        learner.load_state(saved)
        state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        step = int(state["step"])
        if collector is not None:
            collector.resume(step, state)
    except Exception as error:
        raise RunError(
            f"the checkpoint {checkpoint} is damaged ({type(error).__name__}); point "
            f"{run.checkpoints / 'latest'} at an older one, or start a new run"
        ) from error
    return step
