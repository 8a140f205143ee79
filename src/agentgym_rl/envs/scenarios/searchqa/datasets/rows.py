"""One row of a data set, in any of the formats that are around, as a question.

The fields of a row show its format, so that no option has to:

    FlashRAG            question, golden_answers
    Search-R1           question, reward_model.ground_truth.target
    NQ-open             question, answer (a list)
    NQ simplified       question_text, document_text, annotations (a list)
    NQ on the hub       question.text, annotations (lists side by side)
    TriviaQA            Question, Answer (Value, Aliases)
    TriviaQA on the hub question, answer (value, aliases)
    PopQA               question, possible_answers (a list written as a string)
    HotpotQA, 2Wiki     question, answer (a string), type
    MuSiQue             question, answer, answer_aliases, answerable
    Bamboogle           Question, Answer (a string)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from agentgym_rl.envs.scenarios.searchqa.questions import Question

Row: TypeAlias = Mapping[str, object]

READ_FIELDS = frozenset(
    (
        *("question", "Question", "question_text", "golden_answers", "reward_model", "answer"),
        *("Answer", "answers", "answer_aliases", "answerable", "possible_answers", "annotations"),
        *("document_text", "data_source", "id", "type", "question_decomposition", "metadata"),
    )
)
"""All that is read of a row; a file that is stored by column needs no other columns."""

_HOPS_OF_TYPE = {"bridge_comparison": 4, "compositional": 2, "inference": 2, "comparison": 2}
_HOPS_OF_SET = {"nq": 1, "triviaqa": 1, "popqa": 1, "hotpotqa": 2, "bamboogle": 2}


def question_of_row(row: Row, *, dataset: str, index: int) -> Question:
    """Return the row as a question of this data set, which is its category.

    Raises ValueError for a row without a question or without an answer.
    """
    return Question(
        index=index,
        text=_text_of(row),
        answers=_answers_of(row),
        category=dataset,
        hops=_hops_of(row, dataset),
        gold=(),
        path=(),
    )


def is_unanswerable(row: Row) -> bool:
    """Return whether the row says of itself that it has no answer, as some of MuSiQue and NQ do."""
    if row.get("answerable") is False:
        return True
    return isinstance(row.get("annotations"), (list, Mapping)) and not _annotated_answers(row)


def _text_of(row: Row) -> str:
    texts = (
        *map(row.get, ("question", "Question", "question_text")),
        _inside(row, "question", "text"),
    )
    for text in texts:
        if isinstance(text, str) and text.strip():
            stripped = text.strip()
            return stripped if stripped.endswith("?") else f"{stripped}?"
    raise ValueError(f"no question in a row with the fields {', '.join(sorted(row))}")


def _answers_of(row: Row) -> tuple[str, ...]:
    found = (
        _strings(row.get("golden_answers"))
        or _strings(_inside(row, "reward_model", "ground_truth", "target"))
        or _strings(_inside(row, "Answer", "Value"))
        + _strings(_inside(row, "Answer", "Aliases"))
        + _strings(_inside(row, "Answer", "HumanAnswers"))
        or _strings(_inside(row, "answer", "value")) + _strings(_inside(row, "answer", "aliases"))
        or _listed_in_string(row.get("possible_answers"))
        or _annotated_answers(row)
        or _strings(row.get("answer")) + _strings(row.get("answer_aliases"))
        or _strings(row.get("Answer"))
        or _strings(row.get("answers"))
    )
    if not found:
        raise ValueError(f"no answer in a row with the fields {', '.join(sorted(row))}")
    return tuple(dict.fromkeys(found))


def _hops_of(row: Row, dataset: str) -> int:
    """Return how many passages one needs, as far as the row or its set says; else 0."""
    kind = row.get("type") or _inside(row, "metadata", "type")
    if dataset == "2wikimultihopqa" and isinstance(kind, str):
        return _HOPS_OF_TYPE.get(kind, 0)
    if dataset == "musique":
        told = re.match(r"([234])hop", str(row.get("id") or ""))
        steps = row.get("question_decomposition") or _inside(
            row, "metadata", "question_decomposition"
        )
        return int(told.group(1)) if told else len(steps) if isinstance(steps, Sequence) else 0
    return _HOPS_OF_SET.get(dataset, 0)


def _inside(row: object, *names: str) -> object:
    inner = row
    for name in names:
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    return inner


def _strings(value: object) -> list[str]:
    """Return a string, or the strings of a list, without empty ones."""
    values: list[object] = value if isinstance(value, list) else [value]
    return [text.strip() for text in values if isinstance(text, str) and text.strip()]


def _listed_in_string(value: object) -> list[str]:
    """Return the strings of `["politician", "pol"]`, a list in a cell of a table."""
    if not isinstance(value, str):
        return _strings(value)
    try:
        return _strings(json.loads(value))
    except json.JSONDecodeError as error:
        raise ValueError(f"possible_answers is not a JSON list: {value[:60]!r} ({error})") from None


def _annotated_answers(row: Row) -> list[str]:
    """Return the short answers of NQ annotations: words of the document, or yes or no."""
    annotations, document = row.get("annotations"), row.get("document_text")
    if isinstance(annotations, Mapping):
        return _hub_answers(annotations)
    if not isinstance(annotations, list) or not isinstance(document, str):
        return []
    words = document.split(" ")
    found: list[str] = []
    for annotation in annotations:
        if not isinstance(annotation, Mapping):
            continue
        spans = annotation.get("short_answers")
        for span in spans if isinstance(spans, list) else []:
            start, end = _inside(span, "start_token"), _inside(span, "end_token")
            if isinstance(start, int) and isinstance(end, int):
                found.append(" ".join(words[start:end]))
        if (verdict := annotation.get("yes_no_answer")) in ("YES", "NO"):
            found.append(str(verdict).lower())
    return _strings(found)


def _hub_answers(annotations: Row) -> list[str]:
    """Return the short answers of NQ as the hub has it: one list a field, and verdicts as numbers.

    Example: {"short_answers": [{"text": ["the Brindle"]}], "yes_no_answer": [-1]}
    """
    spans, verdicts = annotations.get("short_answers"), annotations.get("yes_no_answer")
    found = [_strings(_inside(span, "text")) for span in (spans if isinstance(spans, list) else [])]
    told = [
        {0: "no", 1: "yes"}.get(verdict)
        for verdict in (verdicts if isinstance(verdicts, list) else [])
    ]
    return _strings([*(text for texts in found for text in texts), *told])
