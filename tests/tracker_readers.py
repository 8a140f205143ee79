"""Reads back what trackers wrote: the numbers of a run by step, and how often each is there."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

Numbers = dict[tuple[str, int], float]
"""By name and step."""
_BLOCK = 32768


def tensorboard_numbers(run: Path) -> Numbers:
    """Read event files with TensorBoard's own reader, which drops what a restart replaced."""
    found = EventAccumulator(str(run / "tracking" / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    return _unique(
        ((tag, event.step), event.value)
        for tag in found.Tags()["scalars"]
        for event in found.Scalars(tag)
    )


def tensorboard_texts(run: Path) -> list[str]:
    found = EventAccumulator(str(run / "tracking" / "tensorboard"))
    found.Reload()
    return [
        event.tensor_proto.string_val[0].decode()
        for tag in found.Tags()["tensors"]
        for event in found.Tensors(tag)
    ]


def wandb_rows(run: Path) -> list[dict[str, object]]:
    """Return the history of the one offline folder of a run."""
    (file,) = (run / "tracking" / "wandb").glob("offline-run-*/run-*.wandb")
    rows = []
    for data in _log_records(file.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append(
                {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                    for item in items
                }
            )
    return rows


def wandb_numbers(run: Path) -> Numbers:
    return _unique(
        ((key, int(str(row["step"]))), float(value))
        for row in wandb_rows(run)
        for key, value in row.items()
        if isinstance(value, int | float) and "/" in key and not key.startswith("episodes/")
    )


def mlflow_numbers(store: Path, id_: str) -> Numbers:
    """Read a file store with MLflow's client."""
    client = MlflowClient(store.as_uri())
    (experiment,) = [item for item in client.search_experiments() if item.name != "Default"]
    (run,) = client.search_runs([experiment.experiment_id], f"tags.`agentgym_rl.id` = '{id_}'")
    return _unique(
        ((name, item.step), item.value)
        for name in run.data.metrics
        for item in client.get_metric_history(run.info.run_id, name)
    )


def _unique(items: Iterator[tuple[tuple[str, int], float]]) -> Numbers:
    listed = list(items)
    twice = [key for key, count in Counter(key for key, _ in listed).items() if count > 1]
    assert twice == []
    return dict(listed)


def _log_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file in LevelDB's log format, which begins with W&B's own 7 bytes."""
    place, record = 7, b""
    while place + 7 <= len(data):
        if _BLOCK - place % _BLOCK < 7:
            place += _BLOCK - place % _BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield record
            record = b""
