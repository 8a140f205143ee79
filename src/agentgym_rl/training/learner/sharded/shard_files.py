"""A learner's state as files of shards, by PyTorch's distributed checkpoints (DCP).

Each rank writes its own parts under the names of the weights; any number of ranks, or one process,
reads what it needs of them. The files are safetensors: nothing in them is ever run.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor

_BYTES_PER_FILE = 2**30
"""A file is put together in memory before it is written."""


def copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state as copies in the CPU's memory, which do not change while they are written.

    A shard stays one.
    """
    return {
        name: tensor.detach().clone() if tensor.device.type == "cpu" else tensor.detach().cpu()
        for name, tensor in state.items()
    }


def write_shards(
    state: Mapping[str, Tensor], folder: Path, group: dist.ProcessGroup | None
) -> None:
    """Write and sync the ranks' parts; all ranks of the group call it, on any thread.

    Other messages may be under way meanwhile, so the group is for nothing else.
    """
    writer = dcp.HuggingFaceStorageWriter(
        str(folder), fqn_to_index_mapping=_files(state), save_distributed=True
    )
    with _ordinary_errors():
        dcp.save(dict(state), storage_writer=writer, process_group=group)


def read_names(folder: Path) -> set[str]:
    """Return the names of all tensors; raises if a file is damaged."""
    metadata = dcp.HuggingFaceStorageReader(str(folder)).read_metadata()
    return set(metadata.state_dict_metadata)


def read_shards(folder: Path, state: Mapping[str, Tensor]) -> None:
    """Fill the tensors, of each shard this rank's part; all ranks call it with the same names."""
    reader = dcp.HuggingFaceStorageReader(str(folder))
    with _ordinary_errors(), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        dcp.load(dict(state), storage_reader=reader, no_dist=not dist.is_initialized())


@contextlib.contextmanager
def _ordinary_errors() -> Iterator[None]:
    """Raise what failed on any rank as a RuntimeError: DCP's own class is no `Exception`."""
    try:
        yield
    except dcp.CheckpointException as error:
        reasons = {rank: reason for rank, (reason, _) in error.failures.items()}
        rank, reason = min(reasons.items())
        raise RuntimeError(f"on rank {rank} {type(reason).__name__}: {reason}") from error


def _files(state: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the number of each tensor's file, the same on every rank."""
    places: dict[str, int] = {}
    number, room = 1, _BYTES_PER_FILE
    num_ranks = dist.get_world_size() if dist.is_initialized() else 1
    for name, tensor in state.items():
        size = tensor.numel() * tensor.element_size() // num_ranks
        if size > room and places:
            number, room = number + 1, _BYTES_PER_FILE
        places[name] = number
        room -= size
    return places
