"""What decides the last bits of a run on a CPU: kept in its folder, and compared on a resume."""

from __future__ import annotations

import json
import logging
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

FILE = "arithmetic.json"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A run repeats to the last bit if all of this is the same and `is_exact`."""

    threads: int
    torch: str
    cpu: str
    """Architecture and instruction set, such as "x86_64 AVX512"."""
    rows: int
    """Of the smallest pass; smaller ones are padded."""
    is_exact: bool
    """Whether requests that share a pass do not affect each other's results."""

    @classmethod
    def here(cls, *, rows: int, is_exact: bool) -> Arithmetic:
        """Return the arithmetic of this process."""
        cpu = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        return cls(torch.get_num_threads(), torch.__version__, cpu, rows, is_exact)


def note_arithmetic(now: Arithmetic, folder: Path | None) -> None:
    """Write it to the folder; warn if it is not exact, or differs from the run's beginning."""
    if not now.is_exact:
        logger.warning(
            "for this model on %s with %d threads, rounding depends on which requests share a "
            "pass: runs with the same seed agree in distribution, not bit by bit; "
            "OMP_NUM_THREADS=1 may fix it",
            now.cpu,
            now.threads,
        )
    if folder is None:
        return
    file = folder / FILE
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        changed = {key: value for key, value in asdict(now).items() if before.get(key) != value}
        if changed:
            logger.warning(
                "the run began with %s, and resumes with %s: what follows agrees in distribution "
                "with a run that never stopped, not bit by bit",
                ", ".join(f"{key}={before.get(key)}" for key in changed),
                ", ".join(f"{key}={value}" for key, value in changed.items()),
            )
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(now), indent=2) + "\n", encoding="utf-8")
