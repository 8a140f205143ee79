"""Makes a data set for `searchqa` of the multi-hop questions that HippoRAG's authors sampled.

    python -m tools.multihop_sample SOURCE FOLDER

SOURCE holds 1,000 questions each of HotpotQA, 2WikiMultihopQA and MuSiQue and their passages of
Wikipedia (`hotpotqa.json`, `hotpotqa_corpus.json`, ...). FOLDER gets, for the options `data` and
`corpus`, `SET/train.jsonl` with 700 questions, `SET/test.jsonl` with the other 300, and
`passages.jsonl` with the passages of all three sets, each once.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SETS = ("hotpotqa", "2wikimultihopqa", "musique")
NUM_TEST = 300
_SEED = 0
_FIELDS = ("id", "_id", "question", "answer", "answer_aliases", "type")


def main() -> None:
    """Read the source and write the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    passages: dict[str, dict[str, str]] = {}
    for name in SETS:
        rows = json.loads((arguments.source / f"{name}.json").read_text(encoding="utf-8"))
        random.Random(_SEED).shuffle(rows)
        target = arguments.folder / name
        target.mkdir(parents=True, exist_ok=True)
        _write_lines(target / "test.jsonl", map(_question, rows[:NUM_TEST]))
        _write_lines(target / "train.jsonl", map(_question, rows[NUM_TEST:]))
        corpus = json.loads((arguments.source / f"{name}_corpus.json").read_text(encoding="utf-8"))
        for title, text in _passages(corpus):
            passages.setdefault(f"{title}\n{text}", {"title": title, "text": text})
    numbered = ({"id": str(number)} | row for number, row in enumerate(passages.values()))
    _write_lines(arguments.folder / "passages.jsonl", numbered)
    print(f"{len(SETS)} sets and {len(passages):,} passages in {arguments.folder}")


def _question(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lstrip("_"): row[name] for name in _FIELDS if name in row}


def _passages(corpus: Any) -> Iterable[tuple[str, str]]:
    """Yield titles and texts of a list of passages, or of HotpotQA's sentences by title."""
    if isinstance(corpus, dict):
        return ((title, "".join(sentences).strip()) for title, sentences in corpus.items())
    return ((row["title"], row["text"]) for row in corpus)


def _write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with file.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
