"""The seven public data sets of deep search, and the numbers under which AgentGym knows them.

AgentGym puts the test questions of all seven one after another, then the training questions of NQ
and HotpotQA. A set without a test split is tested on its dev split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from agentgym_rl.errors import ConfigError, did_you_mean

DatasetSplit: TypeAlias = Literal["train", "dev", "test"]

COLLECTION = "RUC-NLPIR/FlashRAG_datasets"
"""The dataset collection that has all seven in one format."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One data set. Its name is its folder in the collection and the category of its questions."""

    name: str
    title: str
    source: str
    """Where its authors publish it."""


@dataclass(frozen=True, slots=True)
class ItemRange:
    """Questions that AgentGym numbers from `first` on."""

    name: str
    split: DatasetSplit
    first: int
    count: int


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("nq", "Natural Questions", "NQ-open, or Natural Questions v1.0 simplified"),
        Dataset("triviaqa", "TriviaQA", "TriviaQA 1.0, unfiltered or rc"),
        Dataset("popqa", "PopQA", "popQA.tsv of the authors"),
        Dataset("hotpotqa", "HotpotQA", "HotpotQA 1.1, distractor or fullwiki"),
        Dataset("2wikimultihopqa", "2WikiMultihopQA", "the authors' data_ids release"),
        Dataset("musique", "MuSiQue", "musique_ans_v1.0 of the authors"),
        Dataset("bamboogle", "Bamboogle", "the table of the self-ask paper"),
    )
}

_COUNTS: tuple[tuple[str, DatasetSplit, int], ...] = (
    ("nq", "test", 3610),
    ("triviaqa", "test", 11313),
    ("popqa", "test", 14267),
    ("hotpotqa", "test", 7405),
    ("2wikimultihopqa", "test", 12576),
    ("musique", "test", 2417),
    ("bamboogle", "test", 125),
    ("nq", "train", 79168),
    ("hotpotqa", "train", 90447),
)

ITEM_RANGES = tuple(
    ItemRange(name, split, sum(count for _, _, count in _COUNTS[:place]), count)
    for place, (name, split, count) in enumerate(_COUNTS)
)
"""AgentGym's ids: 0 is the first test question of NQ, 221327 the last training one of HotpotQA."""


def find_dataset(name: str) -> Dataset:
    """Return the data set of this name. Raises ConfigError for a name that is none of the seven."""
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        raise ConfigError(f"no data set {name!r}{hint}; available: {', '.join(DATASETS)}")
    return DATASETS[name]
