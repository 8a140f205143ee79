"""Rows "vLLM in process" of `bench rollout`; rollout_vllm.py measures them in another Python."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from model_sizes import SIZES

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy

_MAX_CONTEXT = 4096
"""What vLLM is to keep room for; longer prompts and replies raise it."""
_PARTS = ("generate", "episodes")


def peer_rows(policy: Policy, chosen: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """Yield what is measured, of which size, the result and what stands beside it."""
    parts = [part for part in _PARTS if part in chosen.parts]
    if not parts:
        return
    with weights_of(policy, chosen.model) as folder:
        done = subprocess.run(
            peer_words(policy, chosen, folder, parts),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ConfigError(
            f"vLLM in process failed with status {done.returncode}; see the log above. "
            f"{chosen.peer} must have vllm and agentgym-rl[train,textcraft]"
        )
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):  # what libraries print
            row = json.loads(line)
            if isinstance(row, dict) and "timings" in row:
                yield _row(row, chosen)


def peer_words(
    policy: Policy, chosen: argparse.Namespace, folder: Path, parts: list[str]
) -> list[str]:
    """Return the command that measures the same load."""
    settings: dict[str, object] = {
        "model": folder,
        "dtype": chosen.dtype,
        "prompt": chosen.prompt,
        "new": chosen.new,
        "rounds": chosen.rounds,
        "reply-tokens": chosen.reply_tokens,
        "format": chosen.format,
        "group": chosen.group,
        "repeats": chosen.repeats,
        "memory": chosen.vllm_memory,
        "max-context": min(policy.max_context, max(_MAX_CONTEXT, chosen.prompt + chosen.new)),
    }
    lists = {
        "parts": parts, "sequences": chosen.sequences, "concurrency": chosen.concurrency,
    }  # fmt: skip
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    words += [word for key, values in lists.items() for word in (f"--{key}", *map(str, values))]
    return [chosen.peer, str(Path(__file__).with_name("rollout_vllm.py")), *words]


@contextlib.contextmanager
def weights_of(policy: Policy, name: str) -> Iterator[Path]:
    """Give a folder with the policy's weights, which random ones are written to."""
    if name not in SIZES:
        yield Path(name)
        return
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as folder:
        policy.save(Path(folder))
        yield Path(folder)


def _row(row: dict[str, object], chosen: argparse.Namespace) -> tuple[str, str, str, str]:
    timings = row["timings"]
    assert isinstance(timings, list), "as rollout_vllm.py writes it"
    speed = statistics.median(num_tokens / seconds for num_tokens, seconds in timings)
    num = statistics.median(num_tokens for num_tokens, _ in timings)
    size = f"{row['number']} prompts of {chosen.prompt}, {chosen.new} new"
    if row["part"] == "episodes":
        size = f"{row['number']} at once, {chosen.rounds} rounds of {chosen.reply_tokens}"
    name = f"{row['part']} (vLLM in process)"
    return name, size, f"{speed:,.0f} tokens/s", f"{num:,.0f} tokens, no seeds"
