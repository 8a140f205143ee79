"""The rollout workers of a run: what they are told of its environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agentgym_rl.config import RunConfig
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.experiment.environments import OpenedEnv
from agentgym_rl.rollout.episode import TokenPolicy
from agentgym_rl.rollout.rewards import reward_timeout_s
from agentgym_rl.rollout.workers.messages import WorkerEnv
from agentgym_rl.rollout.workers.pool import WorkerPool, WorkersOrder, open_workers
from agentgym_rl.rollout.workers.remote import StartWorker, start_worker_here
from agentgym_rl.training.run_parts import RunEnv


async def workers_of(
    config: RunConfig,
    opened: Sequence[OpenedEnv],
    envs: Sequence[RunEnv],
    *,
    folder: Path,
    start: StartWorker | None,
) -> WorkerPool:
    """Return the workers of a run, all of them ready; the caller closes them.

    Without `start` they are processes of this machine.
    """
    pools = [env.source if isinstance(env.source, EnvPool) else None for env in opened]

    async def find_address(env: int, place: int) -> tuple[str, str]:
        pool = pools[env]
        assert pool is not None, "only an environment with servers of the run is asked for"
        return await pool.address_of(place)

    order = WorkersOrder(
        config.cluster.rollout_workers,
        tuple(_worker_env(config, env) for env in envs),
        config.reward,
        reward_timeout_s(config),
        folder,
        start or start_worker_here,
        find_address,
    )
    return await open_workers(order)


def with_workers(envs: Sequence[RunEnv], workers: WorkerPool) -> list[RunEnv]:
    """Return the environments with episodes that the workers play."""
    return [
        replace(
            env,
            participants=replace(env.participants, play_elsewhere=workers.player(number)),
        )
        for number, env in enumerate(envs)
    ]


def _worker_env(config: RunConfig, env: RunEnv) -> WorkerEnv:
    policy, of_env = env.participants.policy, env.config
    assert isinstance(policy, TokenPolicy), "an endpoint that reports text is not trained"
    return WorkerEnv(
        of_env.env,
        of_env.agent,
        policy.renderer,
        env.participants.label,
        num_servers=0 if of_env.env.urls else config.cluster.env_servers,
    )
