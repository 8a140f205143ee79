"""Your own algorithm in one class: GRPO that learns only from what went well.

From a recipe:
    agentgym train quickstart algorithm.type=examples.custom_algorithm:OnlyBetter

From Python:
    python examples/custom_algorithm.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import agentgym_rl as ag


class OnlyBetter(ag.GRPO):
    """Ignores what did worse than its group, as RAFT does (arXiv:2304.06767).

    `groups` are the episodes of each task, with what the learner computed for their tokens. The
    batch has every sample with one advantage per action token. Settings, loss and the rest are
    GRPO's; `config_class` could name other settings.
    """

    def advantages(self, groups: Sequence[Sequence[ag.ScoredEpisode]]) -> ag.Batch:
        batch = super().advantages(groups)
        kept = [[_only_better(sample) for sample in group] for group in batch.groups]
        tokens = [a for group in batch.groups for sample in group for a in sample.advantages]
        share = sum(advantage > 0 for advantage in tokens) / max(1, len(tokens))
        return ag.Batch(kept, batch.metrics | {"train/better_share": share})


def _only_better(sample: ag.TrainingSample) -> ag.TrainingSample:
    return replace(sample, advantages=tuple(max(0.0, a) for a in sample.advantages))


if __name__ == "__main__":
    run = ag.train("quickstart", algorithm=OnlyBetter)
    print(run.metrics)
