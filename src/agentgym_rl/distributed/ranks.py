"""Learner ranks as actors. Without a shared folder, what passes through files passes by the links.

`FarRanks` and `FarRank` are the two ends: orders that name a file or a folder of the controller get
contents in its place.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from agentgym_rl.distributed.files import Files, read_files, write_files
from agentgym_rl.training.learner.learner import STATE_FILE, STATE_SHARDS
from agentgym_rl.training.learner.sharded.rank import Rank, RankPlan, answer_orders
from agentgym_rl.training.learner.sharded.ranks import Ranks, StartedRank


def rank_main(
    links: Sequence[Connection], rank: int, num_ranks: int, plan: RankPlan, policy: Files | None
) -> int:
    """Be a rank, in an actor; `policy` are the files of one that reads no shared folder."""
    link, written = links
    if policy is None:
        return answer_orders(lambda: Rank(rank, num_ranks, plan, written), link)
    folder = Path(tempfile.mkdtemp(prefix="agentgym-rank-"))
    try:
        write_files(policy, folder / "policy")
        own = replace(plan, folder=folder)
        return answer_orders(lambda: FarRank(rank, num_ranks, own, written), link)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class FarRank(Rank):
    """A rank that reads and writes only its own folder."""

    def __init__(self, rank: int, num_ranks: int, plan: RankPlan, written: Connection) -> None:
        super().__init__(rank, num_ranks, plan, written)
        self._folder = plan.folder
        shutil.rmtree(plan.policy)

    def save_state(self, folder: Path) -> None:
        own = self._folder / folder.name
        own.mkdir()
        super().save_state(own)

    def _after_write(self, folder: Path) -> object:
        files = read_files(folder)
        shutil.rmtree(folder)
        return files

    def load_files(self, files: Files) -> None:
        own = self._folder / "checkpoint"
        write_files(files, own)
        self.load_state(own)
        shutil.rmtree(own)

    def restart_from(self, files: Files) -> None:
        write_files(files, self._folder)
        for name in files:
            self.restart(self._folder / name)
            (self._folder / name).unlink()

    def gather_weights(self, name: str) -> Files:
        """Return the file of the weights; only the first rank has it."""
        file = self._folder / name
        self.save_weights(file)
        if not file.exists():
            return {}
        files = {name: file.read_bytes()}
        file.unlink()
        return files


class FarRanks(Ranks):
    """Ranks that share no folder with the controller."""

    def __init__(self, started: Sequence[StartedRank], *, timeout_s: float) -> None:
        super().__init__(started, timeout_s=timeout_s)
        self._state_folder = Path()
        """Where the parts of the state go that ranks are writing."""

    def call(self, name: str, arguments: Sequence[object]) -> list[object]:
        path = arguments[0]
        if not isinstance(path, Path):
            return super().call(name, arguments)
        match name:
            case "save_weights":
                answers = super().call("gather_weights", [path.name] * len(arguments))
                for files in answers:
                    write_files(cast("Files", files), path.parent)
                return answers
            case "save_state":
                self._state_folder = path
            case "load_state":
                state = {n: c for n, c in read_files(path).items() if _is_state(n)}
                return super().call("load_files", [state] * len(arguments))
            case "restart":
                files = {path.name: path.read_bytes()}
                return super().call("restart_from", [files] * len(arguments))
        return super().call(name, arguments)

    def _on_written(self, answer: object) -> None:
        write_files(cast("Files", answer), self._state_folder)


def _is_state(name: str) -> bool:
    """Whether a file of a checkpoint is of the learner's state."""
    return Path(name).parts[0] in (STATE_FILE, STATE_SHARDS)
