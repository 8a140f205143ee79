"""Questions of the seven data sets, from files that the user has.

The folder is laid out as the FlashRAG collection is, `nq/test.jsonl`; files of the sets' authors go
to the same places, e.g. `hotpotqa/dev.json`. The Parquet files that Search-R1 and AgentGym make,
`train.parquet` and `test.parquet` with all sets in one, do as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from agentgym_rl.envs.scenarios.searchqa.datasets.catalog import (
    COLLECTION,
    DatasetSplit,
    find_dataset,
)
from agentgym_rl.envs.scenarios.searchqa.datasets.files import SUFFIXES, PlacedRow, read_rows
from agentgym_rl.envs.scenarios.searchqa.datasets.rows import is_unanswerable, question_of_row
from agentgym_rl.envs.scenarios.searchqa.questions import Question
from agentgym_rl.errors import ConfigError

logger = logging.getLogger(__name__)

_STAND_INS: dict[DatasetSplit, tuple[DatasetSplit, ...]] = {
    "test": ("test", "dev", "train"),
    "dev": ("dev",),
    "train": ("train",),
}
"""Where a split comes from: sets that keep their test answers secret are tested on another."""


@cache
def load_dataset(data_dir: str | Path, name: str, split: DatasetSplit) -> tuple[Question, ...]:
    """Return the questions of one data set in the file's order, numbered from 0.

    Raises ConfigError that says where to get the files if there are none, and ValueError with
    file and line for a row that cannot be read.
    """
    name = find_dataset(name).name
    questions: list[Question] = []
    num_unanswerable = 0
    for place, row in _rows_of(Path(data_dir).expanduser(), name, split):
        if is_unanswerable(row):
            num_unanswerable += 1
            continue
        try:
            questions.append(question_of_row(row, dataset=name, index=len(questions)))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
    if num_unanswerable:
        logger.warning("%s %s: left out %d without an answer", name, split, num_unanswerable)
    return tuple(questions)


def _rows_of(folder: Path, name: str, split: DatasetSplit) -> Iterator[PlacedRow]:
    for stand_in in _STAND_INS[split]:
        for suffix in SUFFIXES:
            file = folder / name / f"{stand_in}{suffix}"
            if file.is_file():
                return read_rows(file)
    combined = folder / f"{split}.parquet"
    if combined.is_file():
        return _rows_of_set(combined, name)
    raise ConfigError(_where_to_get(folder, name, split))


def _rows_of_set(file: Path, name: str) -> Iterator[PlacedRow]:
    """Yield the rows of one set in a file that has several."""
    for place, row in read_rows(file):
        if "data_source" not in row:
            raise ValueError(f"{file} has no column data_source, which tells the sets apart")
        if row["data_source"] == name:
            yield place, row


def _where_to_get(folder: Path, name: str, split: DatasetSplit) -> str:
    dataset = find_dataset(name)
    splits = "/".join(_STAND_INS[split])
    return (
        f"no {split} questions of {dataset.title} in {folder}: expected {name}/{splits} with one "
        f"of {', '.join(SUFFIXES)}, or {split}.parquet with all sets. Get the folder {name} of the "
        f"dataset collection {COLLECTION}, or the original ({dataset.source}), and name the folder "
        "that holds it in the option data"
    )
