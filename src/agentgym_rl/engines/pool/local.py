"""The engines of `cluster.type=local`: processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentgym_rl.config import NativeEngineConfig, RunConfig, VllmEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.placement import engine_gpus
from agentgym_rl.engines.pool.native import EngineSites, native_pool
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.remote import START_TIMEOUT_S
from agentgym_rl.engines.vllm.channel import VllmChannel
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import Placement
from agentgym_rl.engines.vllm.weights import SharedStore
from agentgym_rl.models.loading import Policy


def local_pool(policy: Policy, config: RunConfig, *, folder: Path) -> Engine:
    """Return the engines as one, all of them ready; the caller closes it.

    `folder` keeps their logs.
    """
    engine = config.engine
    gpus = engine_gpus(config)
    if isinstance(engine, VllmEngineConfig):
        return _vllm_pool(policy, engine, gpus, is_shared=config.cluster.shared, folder=folder)
    assert isinstance(engine, NativeEngineConfig), "the settings allow only these"
    sites = EngineSites(
        device="cuda" if gpus[0] else "cpu",
        gpus=[",".join(own) for own in gpus],
        is_shared=config.cluster.shared,
    )
    return native_pool(policy, engine, sites, folder=folder)


def _vllm_pool(
    policy: Policy,
    config: VllmEngineConfig,
    gpus: Sequence[tuple[str, ...]],
    *,
    is_shared: bool,
    folder: Path,
) -> EnginePool[VllmEngine]:
    folder.mkdir(parents=True, exist_ok=True)
    store = SharedStore(policy, folder)

    def start(number: int) -> VllmEngine:
        own = gpus[number]
        return VllmEngine(
            policy,
            config,
            folder=folder / f"engine-{number}",
            placement=Placement(bool(own), is_shared, own),
            store=store,
        )

    with ThreadPoolExecutor(len(gpus), thread_name_prefix="vllm-start") as threads:
        started = [threads.submit(start, number) for number in range(len(gpus))]
    try:
        engines = [future.result() for future in started]
    except BaseException:
        for future in started:
            if future.exception() is None:
                future.result().close()
        store.clear()
        raise
    return EnginePool(engines, VllmChannel(store), wait_s=START_TIMEOUT_S)
