"""The data set of sampled multi-hop questions: what is written, and that searchqa reads it."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

import agentgym_rl
from tools import multihop_sample


def _write_sample(folder: Path) -> None:
    for name in multihop_sample.SETS:
        rows = [
            {
                "_id": f"{name}-{number}",
                "question": f"Who wrote book {number} of {name}?",
                "answer": f"Author {number}",
                "type": "bridge",
                "context": [["Title", ["Distractor."]]],
            }
            for number in range(multihop_sample.NUM_TEST + 5)
        ]
        (folder / f"{name}.json").write_text(json.dumps(rows))
    listed = [{"title": "Book 7", "text": "Book 7 was written by Author 7."}]
    (folder / "hotpotqa_corpus.json").write_text(json.dumps({"Book 7": [listed[0]["text"], " "]}))
    (folder / "2wikimultihopqa_corpus.json").write_text(json.dumps(listed))
    (folder / "musique_corpus.json").write_text(json.dumps([{"title": "Book 8", "text": "None."}]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    _write_sample(source)
    target = tmp_path / "made"
    monkeypatch.setattr(sys, "argv", ["multihop_sample", str(source), str(target)])
    multihop_sample.main()
    return target


def test_training_and_test_share_no_question_and_passages_are_there_once(folder: Path):
    for name in multihop_sample.SETS:
        train, test = (
            [json.loads(line)["id"] for line in (folder / name / f"{split}.jsonl").open()]
            for split in ("train", "test")
        )
        assert len(train) == 5
        assert len(test) == multihop_sample.NUM_TEST
        assert not set(train) & set(test)
    passages = [json.loads(line) for line in (folder / "passages.jsonl").open()]
    assert [(row["id"], row["title"]) for row in passages] == [("0", "Book 7"), ("1", "Book 8")]


def test_searchqa_asks_its_questions(folder: Path):
    options = {"data": str(folder), "corpus": str(folder / "passages.jsonl")}
    with closing(agentgym_rl.make("searchqa", **options)) as env:
        tasks = env.tasks("test")
        assert len(tasks) == multihop_sample.NUM_TEST * len(multihop_sample.SETS)
        assert "Who wrote book" in env.reset(tasks[0])
