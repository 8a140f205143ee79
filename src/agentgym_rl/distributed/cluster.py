"""The Ray cluster of a run: joined or started, room reserved on its nodes, and left again."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray._private import worker
from ray.exceptions import GetTimeoutError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from agentgym_rl.config import NativeEngineConfig, RunConfig, VllmEngineConfig
from agentgym_rl.distributed.actors import (
    Actors,
    EngineHost,
    Host,
    Main,
    RankHost,
    VllmHost,
    WorkerHost,
)
from agentgym_rl.distributed.credentials import cluster_address
from agentgym_rl.distributed.engines import engine_main
from agentgym_rl.distributed.env_servers import ActorServer, start_server
from agentgym_rl.distributed.files import read_files
from agentgym_rl.distributed.own_cluster import own_cluster
from agentgym_rl.distributed.ranks import FarRanks, rank_main
from agentgym_rl.distributed.room import Room, room_of
from agentgym_rl.distributed.vllm_servers import server_main
from agentgym_rl.distributed.workers import worker_main
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.channels.meeting import MeetingPlace
from agentgym_rl.engines.pool.line import StartedProcess
from agentgym_rl.engines.pool.messages import EnginePlan
from agentgym_rl.engines.pool.native import EngineSites, native_pool
from agentgym_rl.engines.pool.vllm import ServerSites, vllm_pool
from agentgym_rl.engines.vllm.hosted import ServerPlan
from agentgym_rl.engines.vllm.server import Placement
from agentgym_rl.envs.access.server_process import ServerOrder
from agentgym_rl.errors import ConfigError, LearnerDiedError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.workers.messages import WorkerPlan
from agentgym_rl.training.learner.sharded.rank import RankPlan
from agentgym_rl.training.learner.sharded.ranks import Ranks, StartedRank

_ROOM_TIMEOUT_S = 120.0
_LISTENER_S = 5.0
"""For others to leave the room that a run asks for."""


class RayCluster:
    """Starts the processes of a run on nodes of a cluster; `joined` makes one."""

    def __init__(self, config: RunConfig, room: Room, *, is_own: bool) -> None:
        self._config, self._room = config.cluster, room
        self._shares_files = is_own or bool(config.cluster.shared_folder)
        address = ray.util.get_node_ip_address()
        self._actors, self._meeting = Actors(address), MeetingPlace(address)
        self._lock, self._num_groups = threading.Lock(), 0
        self._policies: dict[Path, ray.ObjectRef[Any]] = {}
        """Of engines, which may be started again; any: of Ray."""
        self._alive = _names_of_nodes()
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
                    f"asks for {bundles}, and {_of(ray.available_resources())} are free "
                    f"of {_of(ray.cluster_resources())}"
                ) from None

    @property
    def device(self) -> str:
        """The type of device that engines and ranks use."""
        return self._room.device

    @property
    def scratch_in(self) -> Path | None:
        """Where folders are made for what travels through files; None: in the system's."""
        shared = self._config.shared_folder
        return Path(shared) if shared else None

    def engines(self, policy: Policy, config: RunConfig, folder: Path) -> Engine:
        """Return the engines as one, all of them ready."""
        room = self._room
        if isinstance(config.engine, VllmEngineConfig):
            servers = ServerSites(
                config.cluster.engines,
                Placement(room.device == "cuda", room.is_shared),
                self._start_vllm,
                scratch_in=self.scratch_in,
                shares_files=self._shares_files,
                take_metrics=self.take_metrics,
            )
            return vllm_pool(policy, config.engine, servers, folder=folder)
        assert isinstance(config.engine, NativeEngineConfig), "the settings allow only these"
        sites = EngineSites(
            device=room.device,
            gpus=[""] * config.cluster.engines,
            is_shared=room.is_shared,
            start=self._start_engine,
            meeting_url=self._meeting_url,
            take_metrics=self.take_metrics,
            scratch_in=self.scratch_in,
            shares_files=self._shares_files,
        )
        return native_pool(policy, config.engine, sites, folder=folder)

    def ranks(self, plan: RankPlan, num_ranks: int) -> Ranks:
        """Start ranks; a `StartRanks`."""
        plan = replace(plan, meeting=self._meeting_url("ranks"))
        policy = None if self._shares_files else ray.put(read_files(plan.policy))
        gpus = self._room.rank_gpus
        processes = [
            self._actors.start(
                RankHost, self._on(rank, gpus), 2, rank_main, rank, num_ranks, plan, policy
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
        before, self._alive = self._alive, _names_of_nodes()
        return {"cluster/restarts_node": float(len(before - self._alive))}

    def close(self) -> None:
        self._actors.close()
        for group in self._groups.values():
            remove_placement_group(group)

    def _start_engine(self, plan: EnginePlan) -> StartedProcess:
        return self._start_one(EngineHost, plan, engine_main, plan.policy)

    def _start_vllm(self, plan: ServerPlan) -> StartedProcess:
        return self._start_one(VllmHost, plan, server_main, plan.model)

    def _start_one(
        self, kind: type[Host], plan: EnginePlan | ServerPlan, main: Main, model: Path
    ) -> StartedProcess:
        """Start an engine in its room; `model` is the folder with its first weights."""
        files = None if self._shares_files else self._files_of(model)
        options = self._on(self._room.first_engine + plan.number, self._room.engine_gpus)
        process = self._actors.start(kind, options, 1, main, plan, files)
        return StartedProcess(process, process.link)

    def _files_of(self, folder: Path) -> ray.ObjectRef[Any]:
        with self._lock:
            if folder not in self._policies:
                self._policies = {folder: ray.put(read_files(folder))}
            return self._policies[folder]

    def _on(self, bundle: int, gpus: float) -> dict[str, Any]:
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
        cluster = RayCluster(
            config,
            room_of(config, [node["Resources"] for node in _living_nodes()]),
            is_own=not address,
        )
        stack.callback(cluster.close)
        cluster.reserve()
        yield cluster


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Join the cluster there, or without an address one that runs on this machine."""
    _require_listener(address)
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


def _require_listener(address: str) -> None:
    """Raise ConfigError where nothing listens at "host:port", for which Ray would wait long."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTENER_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at {address}: {error}. Start one with `ray start --head`, "
            "or name the right address (cluster.address, --address)"
        ) from error


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


def _options(group: PlacementGroup, bundle: int, *, gpus: float) -> dict[str, Any]:
    """Return options of an actor; any: those of Ray."""
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    return {"num_cpus": 1, "num_gpus": gpus, "scheduling_strategy": strategy}


def _of(resources: Mapping[str, float]) -> dict[str, float]:
    return {name: resources.get(name, 0.0) for name in ("CPU", "GPU")}


def _names_of_nodes() -> set[str]:
    return {node["NodeID"] for node in _living_nodes()}


def _living_nodes() -> list[dict[str, Any]]:
    """Return what Ray says of them; any: of Ray."""
    return [node for node in ray.nodes() if node["Alive"]]


def _hide(*_: object, **__: object) -> None:
    """Stand for Ray's printing; any arguments."""
