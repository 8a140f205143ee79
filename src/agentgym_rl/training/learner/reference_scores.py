"""Log-probabilities of fixed samples under the policy that a run began with: computed once, kept.

The samples of preference learning never change, and neither does their reference. So no second
model is held, and a resumed run, whose weights have changed, reads what was computed at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from agentgym_rl.errors import RunError
from agentgym_rl.runs.durable import put_in_place
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.algorithms.base import ScoredSample
from agentgym_rl.training.data.fixed_data import fingerprint
from agentgym_rl.types import Sample


def reference_logprobs(
    run: RunFolder,
    samples: Sequence[Sample],
    score: Callable[[Sequence[Sample]], list[ScoredSample]],
) -> list[Tensor]:
    """Return one tensor per sample, with an entry for each of its action tokens.

    A run without a checkpoint still has its first weights: it calls `score` and writes the result
    to the run folder. A run with a checkpoint reads it.
    """
    if run.latest_checkpoint() is not None:
        return _read(run, samples)
    parts = [torch.tensor(item.scores.logprobs) for item in score(samples)]
    writing = run.reference_scores.with_name(f".{run.reference_scores.name}.writing")
    writing.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"samples": fingerprint(samples), "logprobs": parts}, writing)
    put_in_place(writing, run.reference_scores)
    return parts


def _read(run: RunFolder, samples: Sequence[Sample]) -> list[Tensor]:
    file = run.reference_scores
    try:
        kept = torch.load(file, weights_only=True)
        written_for, parts = kept["samples"], kept["logprobs"]
    except Exception as error:
        raise RunError(
            f"the reference's scores in {file} cannot be read ({type(error).__name__}: {error}), "
            "and the weights that made them are gone: start a new run"
        ) from error
    if written_for != fingerprint(samples):
        raise RunError(
            f"the data is not what the run in {run.path} began with, and the scores in "
            f"{file.name} are for the old data; put it back, or start a new run"
        )
    return parts
