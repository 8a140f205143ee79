"""What lets a run outlive its learner: its weights go back to a checkpoint, and it tries again.

What made the first attempt makes the others, from the run folder, so a run that has lost a process
of its learner writes what one that was killed and resumed writes. Engines and environments stay.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym_rl.config import RunConfig
from agentgym_rl.errors import LearnerDiedError
from agentgym_rl.models.loading import Policy
from agentgym_rl.training.setbacks import Setbacks

logger = logging.getLogger(__name__)


class Recovery:
    """Forms the learner of one run again, at most `cluster.max_restarts` times."""

    def __init__(self, config: RunConfig, setbacks: Setbacks) -> None:
        self._has_ranks = config.training.shards > 1 or config.cluster.type == "ray"
        self._most, self._num_restarts = config.cluster.max_restarts, 0
        self._setbacks = setbacks

    async def outlive(
        self,
        attempt: Callable[[], Awaitable[None]],
        policy: Policy,
        *,
        newest: Callable[[], Path | None] = lambda: None,
    ) -> None:
        """Make the attempt, and again where a process of the learner died.

        Before each of the others the policy gets the weights of the checkpoint that `newest` finds,
        or without one those that it has now. A learner that cannot even begin is not tried again.
        """
        self._setbacks.begin(has_ranks=self._has_ranks)
        can_fall = self._has_ranks and self._most > 0
        with _first_weights(policy, is_needed=can_fall and newest() is None) as first:
            while True:
                try:
                    return await attempt()
                except LearnerDiedError as error:
                    self._refuse_to_go_on(error)
                self._num_restarts += 1
                self._setbacks.learner_died()
                checkpoint = newest()
                weights = first if checkpoint is None else checkpoint / "model"
                assert weights is not None, "written while there was no checkpoint"
                policy.reload_weights(weights)

    def _refuse_to_go_on(self, error: LearnerDiedError) -> None:
        """Raise where another attempt would be of no use, or is not wanted."""
        task = asyncio.current_task()
        if not self._setbacks.has_begun or (task is not None and task.cancelling()):
            raise error
        if self._num_restarts == self._most:
            times = f"cluster.max_restarts={self._most} allows no other attempt"
            raise LearnerDiedError(f"{error}; {times}") from error
        logger.warning(
            "%s; the learner is formed again, from the newest checkpoint (%d of at most %d times)",
            error, self._num_restarts + 1, self._most,
        )  # fmt: skip


@contextmanager
def _first_weights(policy: Policy, *, is_needed: bool) -> Iterator[Path | None]:
    """Give a folder with the present weights, as `Policy.reload_weights` reads them."""
    if not is_needed:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="agentgym-first-weights-") as folder:
        policy.save_weights(Path(folder) / "model")
        yield Path(folder) / "model"
