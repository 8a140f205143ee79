"""The Ray cluster of a run: joined or started, room reserved on its nodes, and left again."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray._private import worker
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from agentgym_rl.config import NativeEngineConfig, RunConfig
from agentgym_rl.distributed.actors import Actors, EngineHost, RankHost, WorkerHost
from agentgym_rl.distributed.credentials import cluster_address
from agentgym_rl.distributed.engines import engine_main
from agentgym_rl.distributed.env_servers import ActorServer, start_server
from agentgym_rl.distributed.files import read_files
from agentgym_rl.distributed.own_cluster import own_cluster
from agentgym_rl.distributed.ranks import FarRanks, rank_main
from agentgym_rl.distributed.workers import worker_main
from agentgym_rl.engines.channels.meeting import MeetingPlace
from agentgym_rl.engines.pool.line import StartedProcess
from agentgym_rl.engines.pool.messages import EnginePlan
from agentgym_rl.engines.pool.native import EngineSites, native_pool
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.envs.access.server_process import ServerOrder
from agentgym_rl.errors import ConfigError, LearnerDiedError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.workers.messages import WorkerPlan
from agentgym_rl.training.learner.sharded.rank import RankPlan
from agentgym_rl.training.learner.sharded.ranks import Ranks, StartedRank

_ROOM_TIMEOUT_S = 120.0
"""For others to leave the room that a run asks for."""


@dataclass(frozen=True, slots=True)
class _Room:
    """What a run reserves: a bundle for each rank and engine, or for a pair of both on one GPU."""

    device: str
    bundles: list[dict[str, float]]
    first_engine: int
    """The bundle of the first engine."""
    share: float
    """Of a GPU, for each rank and engine."""
    num_servers: int
    num_workers: int


class RayCluster:
    """Starts the processes of a run on nodes of a cluster; `joined` makes one."""

    def __init__(self, config: RunConfig, room: _Room, *, is_own: bool) -> None:
        self._config, self._room = config.cluster, room
        self._shares_files = is_own or bool(config.cluster.shared_folder)
        address = ray.util.get_node_ip_address()
        self._actors, self._meeting = Actors(address), MeetingPlace(address)
        self._lock, self._num_groups = threading.Lock(), 0
        self._policies: dict[Path, ray.ObjectRef[Any]] = {}
        """Of engines, which may be started again; any: of Ray."""
        self._alive = _living_nodes()
        self._groups: dict[str, PlacementGroup] = {}
        """The room of engines and ranks, of environment servers and of rollout workers."""

    def reserve(self) -> None:
        """Take the room on the nodes. Raises ConfigError where there is none."""
        room = self._room
        # GPUs of one node are the nearest to each other; on a CPU all cores are to be used.
        strategy = "PACK" if room.device == "cuda" else "SPREAD"
        groups = [
            ("engines", strategy, room.bundles),
            ("servers", "SPREAD", [{"CPU": 1.0}] * room.num_servers),
            ("workers", "SPREAD", [{"CPU": 1.0}] * room.num_workers),
        ]
        for name, strategy, bundles in groups:
            if not bundles:
                continue
            group = self._groups[name] = placement_group(bundles, strategy=strategy)
            try:
                ray.get(group.ready(), timeout=_ROOM_TIMEOUT_S)
            except GetTimeoutError:
                raise ConfigError(
                    f"the Ray cluster had no room for this run within {_ROOM_TIMEOUT_S:g} s: it "
                    f"asks for {bundles}, and {_free()} are free of {_whole()}"
                ) from None

    @property
    def device(self) -> str:
        """The type of device that engines and ranks use."""
        return self._room.device

    def engines(self, policy: Policy, config: RunConfig, folder: Path) -> EnginePool[RemoteEngine]:
        """Return the engines as one, all of them ready."""
        assert isinstance(config.engine, NativeEngineConfig), "the settings allow only these"
        shared = self._config.shared_folder
        sites = EngineSites(
            device=self._room.device,
            gpus=[""] * config.cluster.engines,
            is_shared=self._room.share < 1,
            start=self._start_engine,
            meeting_url=self._meeting_url,
            take_metrics=self.take_metrics,
            scratch_in=Path(shared) if shared else None,
            shares_files=self._shares_files,
        )
        return native_pool(policy, config.engine, sites, folder=folder)

    def ranks(self, plan: RankPlan, num_ranks: int) -> Ranks:
        """Start ranks; a `StartRanks`."""
        plan = replace(plan, meeting=self._meeting_url("ranks"))
        policy = None if self._shares_files else ray.put(read_files(plan.policy))
        processes = [
            self._actors.start(
                RankHost, self._on(rank), 2, rank_main, rank, num_ranks, plan, policy
            )
            for rank in range(num_ranks)
        ]
        try:
            started = [StartedRank(each, each.link(0), each.link(1)) for each in processes]
        except (EOFError, TimeoutError) as error:
            for each in processes:
                each.kill()
            raise LearnerDiedError(f"a learner rank did not start: {error}") from error
        kind = Ranks if self._shares_files else FarRanks
        return kind(started, timeout_s=plan.timeout_s)

    def start_worker(self, plan: WorkerPlan) -> StartedProcess:
        """Start a rollout worker; a `StartWorker`."""
        options = _options(self._groups["workers"], plan.number, gpus=0.0)
        process = self._actors.start(WorkerHost, options, 1, worker_main, plan, self._shares_files)
        return StartedProcess(process, process.link)

    async def start_server(self, order: ServerOrder) -> ActorServer:
        """Start an environment server; a `StartServer`."""
        return await start_server(order, _options(self._groups["servers"], -1, gpus=0.0))

    def take_metrics(self) -> dict[str, float]:
        """Return how many nodes have died since the last call."""
        before, self._alive = self._alive, _living_nodes()
        return {"cluster/restarts_node": float(len(before - self._alive))}

    def close(self) -> None:
        self._actors.close()
        for group in self._groups.values():
            remove_placement_group(group)

    def _start_engine(self, plan: EnginePlan) -> StartedProcess:
        policy = None if self._shares_files else self._files_of(plan.policy)
        options = self._on(self._room.first_engine + plan.number)
        process = self._actors.start(EngineHost, options, 1, engine_main, plan, policy)
        return StartedProcess(process, process.link)

    def _files_of(self, folder: Path) -> ray.ObjectRef[Any]:
        with self._lock:
            if folder not in self._policies:
                self._policies = {folder: ray.put(read_files(folder))}
            return self._policies[folder]

    def _on(self, bundle: int) -> dict[str, Any]:
        gpus = self._room.share if self._room.device == "cuda" else 0.0
        return _options(self._groups["engines"], bundle, gpus=gpus)

    def _meeting_url(self, name: str) -> str:
        with self._lock:
            self._num_groups += 1
            return self._meeting.url(f"{name}-{self._num_groups}")


@contextlib.contextmanager
def joined(config: RunConfig, run: Path) -> Iterator[RayCluster]:
    """Join the cluster of the settings, or start one on this machine, with room for the run.

    Raises ConfigError for what a user can fix.
    """
    address = cluster_address(config.cluster)
    _check_shared(config, run)
    on_sigterm, to_stdout = signal.getsignal(signal.SIGTERM), worker.print_to_stdstream
    worker.print_to_stdstream = _hide  # what Ray says of a process that died is in our metrics
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, worker, "print_to_stdstream", to_stdout)
        if ray.is_initialized():  # by the program that trains, which leaves it as well
            pass
        elif address:
            stack.enter_context(connected(address))
        else:
            stack.enter_context(own_cluster(num_cpus=_num_processes(config) + 1))
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there
        cluster = RayCluster(config, _room(config), is_own=not address)
        stack.callback(cluster.close)
        cluster.reserve()
        yield cluster


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Join the cluster there, or without an address one that runs on this machine."""
    try:
        ray.init(address=address or "auto", log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = address or "RAY_ADDRESS, nor on this machine"
        raise ConfigError(
            f"no Ray cluster answers at {where}: {error}. Start one with `ray start --head`, set "
            "cluster.address to it, and RAY_AUTH_TOKEN to its token"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_shared(config: RunConfig, run: Path) -> None:
    folder = config.cluster.shared_folder
    if not folder:
        return
    if not Path(folder).is_dir():
        raise ConfigError(f"cluster.shared_folder={folder} is not a folder of this machine")
    if not run.resolve().is_relative_to(Path(folder).resolve()):
        raise ConfigError(
            f"the run folder {run} is not below cluster.shared_folder={folder}, where the nodes "
            f"would look for it: use --run-dir {folder}/..., or leave cluster.shared_folder out"
        )


def _num_processes(config: RunConfig) -> int:
    num_others = config.cluster.env_servers * len(config.environments)
    num_others += config.cluster.rollout_workers
    return config.training.shards + config.cluster.engines + num_others


def _room(config: RunConfig) -> _Room:
    """Return what the run asks for. Raises ConfigError where the cluster can never give it."""
    num_ranks, num_engines = config.training.shards, config.cluster.engines
    envs = [of_env.env for of_env in config.environments.values()]
    num_servers = config.cluster.env_servers * sum(not env.urls for env in envs)
    num_workers = config.cluster.rollout_workers
    whole, device = _whole(), config.model.device
    if device == "auto":
        device = "cuda" if whole.get("GPU") else "cpu"
    if device == "cuda" and config.cluster.shared:
        if num_engines > num_ranks:
            raise ConfigError(
                f"cluster.engines={num_engines} share {num_ranks} GPUs with the learner "
                "(training.shards): lower cluster.engines, or set cluster.shared=false"
            )
        room = _Room(
            device, [{"CPU": 2.0, "GPU": 1.0}] * num_ranks, 0, 0.5, num_servers, num_workers
        )
    else:
        bundle = {"CPU": 1.0, "GPU": 1.0} if device == "cuda" else {"CPU": 1.0}
        bundles = [bundle] * (num_ranks + num_engines)
        room = _Room(device, bundles, num_ranks, 1.0, num_servers, num_workers)
    wanted = {"CPU": float(num_servers + num_workers), "GPU": 0.0}
    for bundle in room.bundles:
        for name, number in bundle.items():
            wanted[name] += number
    for name, number in wanted.items():
        if whole.get(name, 0.0) < number:
            raise ConfigError(
                f"the run asks for {number:g} {name}s (training.shards={num_ranks}, cluster.engines"
                f"={num_engines}, cluster.env_servers={config.cluster.env_servers}, cluster."
                f"rollout_workers={config.cluster.rollout_workers}), and the Ray cluster has "
                f"{whole.get(name, 0.0):g}: lower these, or start more nodes"
            )
    return room


def _options(group: PlacementGroup, bundle: int, *, gpus: float) -> dict[str, Any]:
    """Return options of an actor; any: those of Ray."""
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    return {"num_cpus": 1, "num_gpus": gpus, "scheduling_strategy": strategy}


def _whole() -> dict[str, float]:
    return {name: ray.cluster_resources().get(name, 0.0) for name in ("CPU", "GPU")}


def _free() -> dict[str, float]:
    return {name: ray.available_resources().get(name, 0.0) for name in ("CPU", "GPU")}


def _living_nodes() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def _hide(*_: object, **__: object) -> None:
    """Stand for Ray's printing; any arguments."""
