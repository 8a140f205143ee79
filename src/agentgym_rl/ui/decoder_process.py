"""The process behind decoders.py: answers calls until the process that started it goes."""

from __future__ import annotations

import pickle
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection

import pyarrow as pa

# Imported before the limit holds, which is for what they decode.
import agentgym_rl.ui.episode_view
import agentgym_rl.ui.part_columns
import agentgym_rl.ui.token_texts  # noqa: F401 - called by name
from agentgym_rl.ui.decoders import MAX_ANSWER_BYTES, MAX_MEMORY_BYTES, DecodeError


def main() -> None:
    connection = Connection(int(sys.argv[1]))
    _limit_memory()
    while True:
        try:
            function, args, kwargs = connection.recv()
        except (EOFError, OSError):
            return
        connection.send_bytes(_answer(function, args, kwargs))


def _limit_memory() -> None:
    pa.set_memory_pool(pa.system_memory_pool())  # others reserve far more than they use
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    limit = _address_space() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _answer(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> bytes:
    """Return what a function returns or raises, as the caller reads it."""
    too_large = DecodeError(f"too large to show: it takes more than {MAX_MEMORY_BYTES // 10**6} MB")
    try:
        answer = pickle.dumps((True, function(*args, **kwargs)))
        if len(answer) <= MAX_ANSWER_BYTES:
            return answer
        error: Exception = too_large
    except MemoryError:
        error = too_large
    except Exception as raised:  # noqa: BLE001 - raised again in the process that called
        error = raised
    return pickle.dumps((False, error))


if __name__ == "__main__":
    main()
