"""Where the processes of a run are: in its own process, on this machine, or on a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentgym_rl.config import RunConfig
from agentgym_rl.distributed.credentials import choose_token
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.create import create_engine
from agentgym_rl.envs.access.server_process import StartServer, start_here
from agentgym_rl.models.loading import Policy

if TYPE_CHECKING:  # start-up time: one process needs no torch.distributed
    from agentgym_rl.rollout.workers.remote import StartWorker
    from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner


@dataclass(frozen=True, slots=True)
class Places:
    """What makes the parts of a run that may be in other processes."""

    make_engine: Callable[[Policy, RunConfig, Path], Engine]
    """With the folder for what engines leave."""
    start_server: StartServer = start_here
    make_ranks: Callable[..., ShardedLearner] | None = None
    """As in `RunParts`."""
    start_worker: StartWorker | None = None
    """Starts a rollout worker; None: as a process of this machine."""


@contextlib.contextmanager
def places_of(config: RunConfig, run: Path) -> Iterator[Places]:
    """Give the places that the settings name while the run needs them."""
    if config.cluster.type != "ray":
        yield Places(_engine_here)
        return
    choose_token(config.cluster)
    # An extra, which other runs need not have.
    from agentgym_rl.distributed.cluster import joined
    from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner

    with joined(config, run) as cluster:
        yield Places(
            cluster.engines,
            cluster.start_server,
            partial(
                ShardedLearner,
                device=cluster.device,
                start=cluster.ranks,
                scratch_in=cluster.scratch_in,
            ),
            cluster.start_worker,
        )


def _engine_here(policy: Policy, config: RunConfig, folder: Path) -> Engine:
    # What lets engines take weights between replies is their pool, also of one vLLM server.
    if config.cluster.type == "none" and not config.rollout.overlap:
        return create_engine(policy, config.engine, folder=folder)
    # Start-up time: one process needs no torch.distributed.
    from agentgym_rl.engines.pool.local import local_pool

    return local_pool(policy, config, folder=folder)
