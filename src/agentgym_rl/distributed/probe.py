"""What the nodes of a Ray cluster have: versions, GPUs, a shared folder, the way to each other."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_ANSWER_S = 120.0
"""For a node to start a process that imports torch and looks around."""
_CONNECT_S = 5.0
_PACKAGES = ("agentgym-rl", "ray", "torch", "transformers")
_Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What one node says of itself."""

    name: str
    address: str
    versions: Mapping[str, str]
    gpus: tuple[str, ...]
    num_cpus: int
    reads_shared: bool
    """Whether it found the file that this machine wrote into the shared folder."""
    unreachable: tuple[str, ...] = ()
    """Addresses of machines that it cannot connect to."""
    failure: str = ""
    """Why it said nothing; the rest is then empty."""


class Prober:
    """The actor on each node."""

    def look(self, mark: str) -> tuple[NodeReport, _Address]:
        """Report what is here, and listen for the others at an address."""
        self._door = _listen(own := ray.util.get_node_ip_address())
        report = NodeReport(
            name=socket.gethostname(),
            address=own,
            versions=versions_here(),
            gpus=_gpus(),
            num_cpus=os.cpu_count() or 0,
            reads_shared=bool(mark) and Path(mark).is_file(),
        )
        return report, self._door.getsockname()

    def unreachable(self, others: Sequence[_Address]) -> list[str]:
        """Return the addresses that cannot be connected to from here."""
        return [host for host, port in others if not _is_reachable(host, port)]


def versions_here() -> dict[str, str]:
    """Return the versions that nodes must agree on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def probe_nodes(shared_folder: str) -> list[NodeReport]:
    """Ask all living nodes; one that does not answer is reported as well. Ray must be joined."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    # Any: Ray makes methods of it that have no types.
    probers: list[Any] = [
        ray.remote(Prober)
        .options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        .remote()
        for node in nodes
    ]
    with _listen(ray.util.get_node_ip_address()) as door, _marked(shared_folder) as mark:
        asked = [prober.look.remote(mark) for prober in probers]
        found: list[NodeReport] = []
        doors: list[_Address] = [door.getsockname()]
        answering: list[Any] = []
        for node, prober, answer in zip(nodes, probers, asked, strict=True):
            try:
                report, address = ray.get(answer, timeout=_ANSWER_S)
            except (RayError, GetTimeoutError) as error:
                found.append(_silent(node, f"{type(error).__name__}: {error}"))
                continue
            found.append(report)
            doors.append(address)
            answering.append((len(found) - 1, prober))
        for place, prober in answering:
            lost = ray.get(prober.unreachable.remote(doors), timeout=_ANSWER_S)
            found[place] = replace(found[place], unreachable=tuple(lost))
    for prober in probers:
        ray.kill(prober)
    return found


@contextlib.contextmanager
def _marked(folder: str) -> Iterator[str]:
    """Give the path of a file in the folder; empty without a folder."""
    if not folder:
        yield ""
        return
    with tempfile.NamedTemporaryFile(dir=folder, prefix="agentgym-doctor-") as file:
        yield file.name


def _silent(node: Mapping[str, Any], failure: str) -> NodeReport:
    name, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
    return NodeReport(name, address, {}, (), 0, False, failure=failure.splitlines()[0])


def _listen(address: str) -> socket.socket:
    """Return a socket that accepts connections, and keeps none."""
    door = socket.create_server((address, 0))
    threading.Thread(target=_admit, args=(door,), daemon=True).start()
    return door


def _admit(door: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it was closed
        while True:
            door.accept()[0].close()


def _is_reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _gpus() -> tuple[str, ...]:
    """Return the names of all GPUs; Ray hides them from an actor that asked for none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    line = [program, "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=_ANSWER_S / 2, check=False)
    return tuple(done.stdout.splitlines()) if done.returncode == 0 else ()
