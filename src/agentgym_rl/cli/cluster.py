"""`agentgym doctor --cluster`: what the nodes of a Ray cluster have, and what they lack."""

from __future__ import annotations

import os
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from agentgym_rl.cli.terminal import print_table
from agentgym_rl.errors import ConfigError
from agentgym_rl.preflight import require_ray


def diagnose_cluster(address: str, shared_folder: str) -> None:
    """Print a row for each node, and what keeps a run from using it; raises ConfigError then."""
    require_ray()
    if shared_folder and not Path(shared_folder).is_dir():
        raise ConfigError(f"--shared-folder={shared_folder} is not a folder of this machine")
    # An extra.
    from agentgym_rl.distributed.cluster import connected
    from agentgym_rl.distributed.probe import NodeReport, probe_nodes, versions_here

    def faults(node: NodeReport) -> list[str]:
        if node.failure:
            return [f"does not answer: {node.failure}"]
        ours = versions_here()
        found = [
            f"has {name} {version}, and this machine {ours[name]}: install the same"
            for name, version in node.versions.items()
            if version != ours[name]
        ]
        found += [
            f"cannot connect to {other}: open all ports between the nodes"
            for other in node.unreachable
        ]
        if shared_folder and not node.reads_shared:
            found.append(f"does not see files of this machine in {shared_folder}: mount it")
        return found

    with connected(address or os.environ.get("RAY_ADDRESS", "")):
        nodes = probe_nodes(shared_folder)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("node", "address", "cores", "GPUs", "usable"):
        table.add_column(column, overflow="fold")
    for node in nodes:
        gpus = ", ".join(node.gpus) or "none"
        mark = "no" if faults(node) else "yes"
        table.add_row(escape(node.name), node.address, str(node.num_cpus), escape(gpus), mark)
    print_table(table)
    lines = [f"- {node.name} ({node.address}) {fault}" for node in nodes for fault in faults(node)]
    if lines:
        raise ConfigError("\n".join(["not all nodes can be used:", *lines]))
    folder = f", all see {shared_folder}" if shared_folder else ""
    versions = ", ".join(f"{name} {version}" for name, version in versions_here().items())
    print(f"{len(nodes)} nodes, all with {versions}; all reach each other{folder}")
