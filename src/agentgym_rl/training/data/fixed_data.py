"""A run that learns from fixed data resumes only with the data that it began with."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agentgym_rl.errors import RunError
from agentgym_rl.runs.folder import RunFolder, write_atomically
from agentgym_rl.types import Sample


def hold_to_data(run: RunFolder, samples: Sequence[Sample]) -> None:
    """Record the data of a run that begins; refuse other data for a run that resumes."""
    name, file = fingerprint(samples), run.data_fingerprint
    if run.latest_checkpoint() is None or not file.exists():
        write_atomically(file, name + "\n")
    elif file.read_text(encoding="utf-8").strip() != name:
        raise RunError(
            f"the data is not what the run in {run.path} began with; put the old data back, or "
            "start a new run"
        )


def fingerprint(samples: Sequence[Sample]) -> str:
    """Return a name of the tokens that are learned from, in order."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(repr((sample.token_ids, sample.loss_mask)).encode())
    return digest.hexdigest()
