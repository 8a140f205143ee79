"""The engines of `cluster.type=local`: processes of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from agentgym_rl.config import NativeEngineConfig, RunConfig, VllmEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.channels.channel import WeightChannel
from agentgym_rl.engines.channels.delivery import PolicySource
from agentgym_rl.engines.placement import engine_gpus
from agentgym_rl.engines.pool.messages import EnginePlan
from agentgym_rl.engines.pool.native_channels import BroadcastChannel, FolderChannel
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.process import ProcessLine
from agentgym_rl.engines.pool.remote import START_TIMEOUT_S, RemoteEngine
from agentgym_rl.engines.vllm.channel import VllmChannel
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import Placement
from agentgym_rl.engines.vllm.weights import SharedStore
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import DTYPES, Policy
from agentgym_rl.models.lora import has_lora
from agentgym_rl.runs.scratch import Scratch


def local_pool(policy: Policy, config: RunConfig, *, folder: Path) -> Engine:
    """Return the engines as one, all of them ready; the caller closes it.

    `folder` keeps their logs.
    """
    engine = config.engine
    gpus = engine_gpus(config)
    if isinstance(engine, VllmEngineConfig):
        return _vllm_pool(policy, engine, gpus, is_shared=config.cluster.shared, folder=folder)
    assert isinstance(engine, NativeEngineConfig), "the settings allow only these"
    return _native_pool(policy, engine, gpus, is_shared=config.cluster.shared, folder=folder)


class _NativeEngines:
    """Starts native engines of one policy, also again."""

    def __init__(
        self,
        policy: Policy,
        config: NativeEngineConfig,
        gpus: Sequence[tuple[str, ...]],
        folder: Path,
    ) -> None:
        self._config, self._gpus, self._folder = config, gpus, folder.absolute()
        self._dtype = next(name for name, kind in DTYPES.items() if kind == policy.model.dtype)
        self._has_lora = has_lora(policy.model)
        self._scratch = Scratch("agentgym-engines-")
        self.scratch = self._scratch.path
        """What engines and learner exchange through files."""
        policy.save_apart(self.scratch / "policy")
        self._pool: EnginePool[RemoteEngine] | None = None

    def all(self) -> list[RemoteEngine]:
        """Return all engines, which start at the same time."""
        engines: list[RemoteEngine] = []
        try:
            engines += [self._begin(number) for number in range(len(self._gpus))]
            for engine in engines:
                engine.ready()
        except BaseException:
            for engine in engines:
                engine.close()
            raise
        return engines

    def one(self, number: int) -> RemoteEngine:
        """Return the engine of a place, started anew."""
        engine = self._begin(number)
        try:
            engine.ready()
        except EngineError:
            engine.close()
            raise
        return engine

    def report_to(self, pool: EnginePool[RemoteEngine], engines: Sequence[RemoteEngine]) -> None:
        """Let the pool hear of every engine that ends, also of one that has by now."""
        self._pool = pool
        for engine in engines:
            if not engine.is_alive:
                pool.engine_ended(engine)

    def clear(self) -> None:
        self._scratch.remove()

    def _begin(self, number: int) -> RemoteEngine:
        plan = EnginePlan(
            policy=self.scratch / "policy",
            dtype=self._dtype,
            device="cuda" if self._gpus[number] else "cpu",
            gpu=",".join(self._gpus[number]),
            has_lora=self._has_lora,
            num_threads=max(1, torch.get_num_threads() // len(self._gpus)),
            engine=self._config,
            folder=self._folder / f"engine-{number}",
        )
        return RemoteEngine(plan, ProcessLine, on_end=self._ended)

    def _ended(self, engine: RemoteEngine) -> None:
        if self._pool is not None:
            self._pool.engine_ended(engine)


def _native_pool(
    policy: Policy,
    config: NativeEngineConfig,
    gpus: Sequence[tuple[str, ...]],
    *,
    is_shared: bool,
    folder: Path,
) -> EnginePool[RemoteEngine]:
    starter = _NativeEngines(policy, config, gpus, folder)
    try:
        engines = starter.all()
    except BaseException:
        starter.clear()
        raise
    source, scratch = PolicySource(policy), starter.scratch
    channel: WeightChannel[RemoteEngine]
    if has_lora(policy.model):  # an adapter is small
        channel = FolderChannel(source, scratch, timeout_s=config.timeout_s)
    else:
        # NCCL takes no GPU twice, and the learner's first process uses the first one.
        backend = "nccl" if gpus[0] and not is_shared else "gloo"
        channel = BroadcastChannel(source, scratch, backend=backend, timeout_s=config.timeout_s)
    pool = EnginePool(
        engines, channel, replace=starter.one, wait_s=START_TIMEOUT_S, on_close=starter.clear
    )
    starter.report_to(pool, engines)
    return pool


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
