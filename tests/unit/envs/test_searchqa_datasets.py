"""The seven data sets, from small files in every format that is around."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from agentgym_rl.envs.scenarios.searchqa.datasets.catalog import DATASETS, ITEM_RANGES
from agentgym_rl.envs.scenarios.searchqa.datasets.load import load_dataset
from agentgym_rl.errors import ConfigError

FILES = Path(__file__).parent / "searchqa_files"


def write_search_r1(file: Path) -> None:
    """Write rows as Search-R1's scripts do: all sets in one file, answers under reward_model."""
    rows = [
        {
            "data_source": name,
            "question": f"question {number} of {name}?",
            "prompt": [{"role": "user", "content": "..."}],
            "ability": "fact-reasoning",
            "reward_model": {"style": "rule", "ground_truth": {"target": [f"{name} {number}"]}},
            "extra_info": {"split": "test", "index": number},
        }
        for number in range(2)
        for name in ("nq", "musique")
    ]
    parquet.write_table(pa.Table.from_pylist(rows), file)


@pytest.mark.parametrize(
    ("name", "text", "answers", "hops"),
    [
        (
            "nq",
            "which river runs through the town of elmford?",
            ("the Brindle", "Brindle River"),
            1,
        ),
        (
            "triviaqa",
            "Which river gives the town of Elmford its water?",
            ("The Brindle", "Brindle", "River Brindle"),
            1,
        ),
        ("popqa", "What is Ada Fenwick's occupation?", ("engineer", "civil engineer"), 1),
        (
            "hotpotqa",
            "Who built the lighthouse on the rock north of Elmford?",
            ("Ada Fenwick",),
            2,
        ),
        (
            "2wikimultihopqa",
            "Which lighthouse has the older builder, Tern Rock or Gull Head?",
            ("Gull Head",),
            4,
        ),
        (
            "musique",
            "Which river runs through the birthplace of the builder of Tern Rock Lighthouse?",
            ("Brindle", "the Brindle", "River Brindle"),
            3,
        ),
        (
            "bamboogle",
            "Who was mayor of Elmford when Tern Rock Lighthouse was lit?",
            ("John Harrow",),
            2,
        ),
    ],
)
def test_every_set_is_read_in_its_format(name: str, text: str, answers: tuple[str, ...], hops: int):
    question = load_dataset(FILES, name, "test")[0]
    assert (question.index, question.category) == (0, name)
    assert (question.text, question.answers, question.hops) == (text, answers, hops)
    assert (question.gold, question.path) == ((), ())


def test_answers_of_nq_open_and_of_the_annotated_documents():
    assert [question.answers for question in load_dataset(FILES, "nq", "train")] == [
        ("1911",),
        ("the Harrow family", "Harrows"),
    ]
    # Words 6 and 7 of the first document; the third question has no answer and is left out.
    dev = load_dataset(FILES, "nq", "dev")
    assert [question.answers for question in dev] == [("42 kilometres",), ("no",)]


def test_unanswerable_questions_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    (tmp_path / "musique").mkdir()
    text = (FILES / "musique" / "dev.jsonl").read_text(encoding="utf-8")
    (tmp_path / "musique" / "dev.jsonl").write_text(text, encoding="utf-8")
    with caplog.at_level("WARNING"):
        assert len(load_dataset(tmp_path, "musique", "dev")) == 1
    assert "left out 1" in caplog.text


def test_one_file_with_all_sets(tmp_path: Path):
    write_search_r1(tmp_path / "test.parquet")
    questions = load_dataset(tmp_path, "musique", "test")
    assert [question.answers for question in questions] == [("musique 0",), ("musique 1",)]
    assert [question.index for question in questions] == [0, 1]


CONTEXT = {"title": ["Elmford"], "sentences": [["A town."]]}
AUTHORS: dict[str, dict[str, object]] = {
    "nq": {"question": "which river is it", "answer": ["the Brindle", "Brindle"]},
    "nq (all of it)": {
        "id": "7",
        "document": {"title": "Elmford", "html": "<p>"},
        "question": {"text": "which river is it", "tokens": ["which"]},
        "annotations": {
            "id": ["1", "2"],
            "short_answers": [
                {"start_token": [3], "end_token": [5], "text": ["the Brindle"]},
                {"start_token": [4], "end_token": [5], "text": ["Brindle"]},
            ],
            "yes_no_answer": [-1, -1],
        },
    },
    "triviaqa": {
        "question": "which river is it?",
        "question_id": "tc_1",
        "entity_pages": {"title": ["Elmford"]},
        "answer": {
            "aliases": ["the Brindle", "Brindle"],
            "normalized_aliases": ["brindle"],
            "type": "WikipediaEntity",
            "value": "the Brindle",
        },
    },
    "popqa": {
        "id": 1, "subj": "Elmford", "obj": "the Brindle", "question": "which river is it?",
        "possible_answers": '["the Brindle", "Brindle"]',
    },
    "hotpotqa": {
        "id": "5a", "question": "which river is it?", "answer": "the Brindle", "type": "bridge",
        "level": "hard", "context": CONTEXT,
    },
    "2wikimultihopqa": {
        "_id": "13f", "type": "bridge_comparison", "question": "which river is it?",
        "context": "[]", "answer": "the Brindle", "answer_id": "Q1",
    },
    "musique": {
        "id": "2hop__1_2", "paragraphs": [{"idx": 0, "title": "Elmford"}],
        "question": "which river is it?",
        "question_decomposition": [{"id": 1}, {"id": 2}],
        "answer": "the Brindle", "answer_aliases": ["Brindle"], "answerable": True,
    },
    "bamboogle": {"Question": "which river is it?", "Answer": "the Brindle"},
}  # fmt: skip
"""A row of each set with the field names that its authors give it on the hub."""


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("title", AUTHORS)
def test_the_authors_own_fields_are_read(tmp_path: Path, title: str, suffix: str):
    name = title.partition(" ")[0]
    file = tmp_path / name / f"test{suffix}"
    file.parent.mkdir()
    if suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist([AUTHORS[title]]), file)
    else:
        file.write_text(json.dumps(AUTHORS[title]))
    (question,) = load_dataset(tmp_path, name, "test")
    assert question.text == "which river is it?"
    assert question.answers[0] == "the Brindle"
    has_aliases = name in ("nq", "triviaqa", "popqa", "musique")
    assert question.answers[1:] == (("Brindle",) if has_aliases else ())
    assert question.hops == {"2wikimultihopqa": 4}.get(
        name, 2 if name in ("hotpotqa", "musique", "bamboogle") else 1
    )


def test_a_question_of_nq_without_a_short_answer_is_left_out(tmp_path: Path):
    rows = [
        {
            "question": {"text": f"is it {number}"},
            "annotations": {"short_answers": [{"text": []}], "yes_no_answer": [verdict]},
        }
        for number, verdict in enumerate((-1, 0, 1))
    ]
    (tmp_path / "nq").mkdir()
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "nq" / "test.parquet")
    found = load_dataset(tmp_path, "nq", "test")
    assert [(one.text, one.answers) for one in found] == [
        ("is it 1?", ("no",)),
        ("is it 2?", ("yes",)),
    ]


def test_parquet_of_one_set_and_packed_lines(tmp_path: Path):
    (tmp_path / "popqa").mkdir()
    rows = [{"id": "0", "question": "who?", "golden_answers": ["Ada", "A. Fenwick"]}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "popqa" / "test.parquet")
    assert load_dataset(tmp_path, "popqa", "test")[0].answers == ("Ada", "A. Fenwick")
    (tmp_path / "bamboogle").mkdir()
    with gzip.open(tmp_path / "bamboogle" / "test.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"question": "who", "golden_answers": ["Ada"]}) + "\n")
    assert load_dataset(tmp_path, "bamboogle", "test")[0].text == "who?"


@pytest.mark.parametrize(
    ("file", "content", "place"),
    [
        ("test.jsonl", '{"question": "a?", "golden_answers": ["b"]}\n{"question": \n', "line 2"),
        ("test.jsonl", '{"question": "a?", "golden_answers": []}\n', "line 1: no answer"),
        ("test.jsonl", '\n\n{"golden_answers": ["b"]}\n', "line 3: no question"),
        ("test.jsonl", "[1, 2]\n", "line 1: not an object"),
        ("test.json", '[{"question": "a?", "answer": "b"}, 7]', "entry 2"),
        ("test.json", '[{"question": "a?",\n "answer" "b"}]', "line 2"),
        ("test.json", '{"Version": 1}', "Data"),
        ("test.csv", "Question,Answer\nwho?,Ada,Fenwick\n", "line 2"),
        ("test.tsv", "question\tpossible_answers\nwho?\t[Ada\n", "line 2: possible_answers"),
        ("test.parquet", "no parquet", "not a Parquet file"),
    ],
)
def test_a_bad_row_is_named_by_file_and_place(tmp_path: Path, file: str, content: str, place: str):
    (tmp_path / "nq").mkdir()
    (tmp_path / "nq" / file).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=place) as caught:
        load_dataset(tmp_path, "nq", "test")
    assert file in str(caught.value)


def test_missing_files_say_where_to_get_them(tmp_path: Path):
    with pytest.raises(ConfigError, match="FlashRAG_datasets") as caught:
        load_dataset(tmp_path, "popqa", "test")
    assert "option data" in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_name_that_is_none_of_the_seven(tmp_path: Path):
    with pytest.raises(ConfigError, match="hotpotqa"):
        load_dataset(tmp_path, "hotpot", "test")


def test_agentgym_ids_by_the_table():
    ranges = [(r.name, r.split, r.first, r.first + r.count - 1) for r in ITEM_RANGES]
    assert ranges == [
        ("nq", "test", 0, 3609),
        ("triviaqa", "test", 3610, 14922),
        ("popqa", "test", 14923, 29189),
        ("hotpotqa", "test", 29190, 36594),
        ("2wikimultihopqa", "test", 36595, 49170),
        ("musique", "test", 49171, 51587),
        ("bamboogle", "test", 51588, 51712),
        ("nq", "train", 51713, 130880),
        ("hotpotqa", "train", 130881, 221327),
    ]
    assert {place.name for place in ITEM_RANGES} == set(DATASETS)
