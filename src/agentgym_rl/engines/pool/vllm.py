"""A pool of engines whose vLLM servers are in processes elsewhere, wherever those are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.pool.line import OnEnd, OnMessages, StartedProcess
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.process import ProcessLine
from agentgym_rl.engines.pool.started import started_pool
from agentgym_rl.engines.vllm.channel import VllmChannel
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.far import FarEngine
from agentgym_rl.engines.vllm.hosted import ServerPlan
from agentgym_rl.engines.vllm.server import Placement, ServerOptions
from agentgym_rl.engines.vllm.weights import SharedStore, WeightStore
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import lora_rank
from agentgym_rl.runs.scratch import Scratch


@dataclass(frozen=True, slots=True)
class ServerSites:
    """Where servers are, and how weights get there."""

    num_servers: int
    placement: Placement
    start: Callable[[ServerPlan], StartedProcess]
    scratch_in: Path | None = None
    """Where a folder is made for weights; None: in the system's."""
    shares_files: bool = True
    """Whether servers read that folder."""
    take_metrics: Callable[[], dict[str, float]] = dict
    """Returns what else was counted since the last call."""


def vllm_pool(
    policy: Policy, config: VllmEngineConfig, sites: ServerSites, *, folder: Path
) -> EnginePool[VllmEngine]:
    """Return the engines as one, all of them ready; the caller closes it."""
    servers = _Servers(policy, config, sites, folder)
    return started_pool(
        servers.begin,
        sites.num_servers,
        VllmChannel(servers.store),
        clear=servers.clear,
        count=sites.take_metrics,
    )


class _Servers:
    """Begins engines of one policy, also again, all of them with its first weights.

    A server takes minutes to load its model: that of the last publication might be gone by then.
    """

    def __init__(
        self, policy: Policy, config: VllmEngineConfig, sites: ServerSites, folder: Path
    ) -> None:
        self._policy, self._config, self._sites = policy, config, sites
        self._folder = folder.absolute()
        self._scratch = Scratch("agentgym-engines-", sites.scratch_in)
        (self._scratch.path / "first").mkdir()
        self._model = WeightStore(policy, self._scratch.path / "first").save_model()
        self.store = SharedStore(policy, self._scratch.path)

    def clear(self) -> None:
        self._scratch.remove()

    def begin(self, number: int, on_end: Callable[[VllmEngine], None]) -> FarEngine:
        """Return the engine of a place, which is not ready yet."""
        placement = self._sites.placement
        options = ServerOptions(
            dtype=str(self._policy.model.dtype).removeprefix("torch."),
            is_cuda=placement.is_cuda,
            lora_rank=lora_rank(self._policy.model),
            can_transfer=False,
        )
        plan = ServerPlan(
            number, self._model, self._config, options, self._folder / f"engine-{number}"
        )
        return FarEngine(
            self._policy,
            plan,
            partial(self._line, plan),
            placement=placement,
            store=self.store,
            shares_files=self._sites.shares_files,
            on_end=on_end,
        )

    def _line(self, plan: ServerPlan, on_messages: OnMessages, on_end: OnEnd) -> ProcessLine:
        return ProcessLine(plan, self._sites.start(plan), on_messages, on_end)
