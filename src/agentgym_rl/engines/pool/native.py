"""A pool of native engines in processes of their own, wherever those are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.channels.channel import WeightChannel
from agentgym_rl.engines.channels.delivery import PolicySource
from agentgym_rl.engines.channels.group import Backend
from agentgym_rl.engines.pool.engine_process import start_here
from agentgym_rl.engines.pool.line import OnEnd, OnMessages, StartedProcess
from agentgym_rl.engines.pool.messages import EnginePlan
from agentgym_rl.engines.pool.native_channels import BroadcastChannel, FolderChannel, PairChannel
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.process import ProcessLine
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.engines.pool.started import started_pool
from agentgym_rl.models.loading import DTYPES, Policy
from agentgym_rl.models.lora import has_lora
from agentgym_rl.runs.scratch import Scratch


@dataclass(frozen=True, slots=True)
class EngineSites:
    """Where engines are, and how weights get there."""

    device: str
    """The type of device, "cpu" or "cuda"."""
    gpus: Sequence[str]
    """What CUDA_VISIBLE_DEVICES calls the GPU of each; empty where its process sees no other."""
    is_shared: bool
    """Whether they use the learner's GPUs."""
    start: Callable[[EnginePlan], StartedProcess] = start_here
    meeting_url: Callable[[str], str] | None = None
    """The URL of a meeting place of this name; None: in a folder of this machine."""
    scratch_in: Path | None = None
    """Where a folder is made for what travels through files; None: in the system's."""
    shares_files: bool = True
    """Whether engines read that folder."""
    take_metrics: Callable[[], dict[str, float]] = dict
    """Returns what else was counted since the last call."""


def native_pool(
    policy: Policy, config: NativeEngineConfig, sites: EngineSites, *, folder: Path
) -> EnginePool[RemoteEngine]:
    """Return the engines as one, all of them ready; the caller closes it."""
    native = _NativeEngines(policy, config, sites, folder)
    return started_pool(
        native.begin,
        len(sites.gpus),
        _channel(policy, config, sites, native.scratch),
        clear=native.clear,
        count=sites.take_metrics,
    )


class _NativeEngines:
    """Begins native engines of one policy, also again."""

    def __init__(
        self, policy: Policy, config: NativeEngineConfig, sites: EngineSites, folder: Path
    ) -> None:
        self._config, self._sites, self._folder = config, sites, folder.absolute()
        self._dtype = next(name for name, kind in DTYPES.items() if kind == policy.model.dtype)
        self._has_lora = has_lora(policy.model)
        self._scratch = Scratch("agentgym-engines-", sites.scratch_in)
        self.scratch = self._scratch.path
        """What engines and learner exchange through files."""
        policy.save_apart(self.scratch / "policy")

    def clear(self) -> None:
        self._scratch.remove()

    def begin(self, number: int, on_end: Callable[[RemoteEngine], None]) -> RemoteEngine:
        """Return the engine of a place, which is not ready yet."""
        plan = EnginePlan(
            number=number,
            policy=self.scratch / "policy",
            dtype=self._dtype,
            device=self._sites.device,
            gpu=self._sites.gpus[number],
            has_lora=self._has_lora,
            num_threads=max(1, torch.get_num_threads() // len(self._sites.gpus)),
            engine=self._config,
            folder=self._folder / f"engine-{number}",
        )
        return RemoteEngine(plan, self._line, on_end=on_end)

    def _line(self, plan: EnginePlan, on_messages: OnMessages, on_end: OnEnd) -> ProcessLine:
        return ProcessLine(plan, self._sites.start(plan), on_messages, on_end)


def _channel(
    policy: Policy, config: NativeEngineConfig, sites: EngineSites, scratch: Path
) -> WeightChannel[RemoteEngine]:
    source, timeout_s, numbers = PolicySource(policy), config.timeout_s, itertools.count(1)

    def new_url() -> str:
        name = f"group-{next(numbers)}"
        if sites.meeting_url is None:
            return (scratch / name).absolute().as_uri()
        return sites.meeting_url(f"weights-{name}")

    one_by_one: FolderChannel | PairChannel
    if sites.shares_files:
        one_by_one = FolderChannel(source, scratch, timeout_s=timeout_s)
        if has_lora(policy.model):  # an adapter is small
            return one_by_one
    else:
        one_by_one = PairChannel(source, new_url, timeout_s=timeout_s)
    # NCCL takes no GPU twice, and the learner's first process uses the first one.
    backend: Backend = "nccl" if sites.device == "cuda" and not sites.is_shared else "gloo"
    return BroadcastChannel(source, one_by_one, new_url, backend=backend, timeout_s=timeout_s)
