"""Mappings that cannot be changed, and what they refuse to hold."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, replace

import numpy as np
import orjson
import pytest

from agentgym_rl.frozen import FrozenDict, frozen_payload, named_numbers, parts_sum_to
from agentgym_rl.types import StepResult, Task


def task_with(payload: dict[str, object]) -> Task:
    return Task("counting", "train", 3, payload=payload)  # type: ignore[arg-type]  # tried out


def test_a_payload_is_copied_and_cannot_be_changed():
    given = {"question": "who?", "answers": ["a", "b"], "meta": {"hops": 2}}
    task = task_with(given)
    given["question"] = "when?"
    assert task.payload["question"] == "who?"
    assert task.payload["answers"] == ("a", "b")
    with pytest.raises(TypeError, match=r"cannot be changed; make a copy with dict\(\.\.\.\)"):
        task.payload["question"] = "where?"  # type: ignore[index]  # what is refused
    inner = task.payload["meta"]
    assert isinstance(inner, FrozenDict)
    changes = (inner.clear, inner.popitem, lambda: inner.update(hops=3), lambda: inner.pop("hops"))
    for change in (*changes, lambda: inner.setdefault("x", 1), lambda: inner.__delitem__("hops")):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert inner == {"hops": 2}


def test_tasks_with_payloads_are_keys_and_equal_after_a_round_trip():
    task = task_with({"answers": ["a"], "n": 1})
    again = task_with(json.loads(json.dumps(task.payload)))
    assert (task, hash(task)) == (again, hash(again))
    assert {task: 1}[again] == 1
    assert task != task_with({"answers": ["b"], "n": 1})
    assert task != replace(task, payload={})
    assert orjson.loads(orjson.dumps(task))["payload"] == {"answers": ["a"], "n": 1}


def test_tasks_with_payloads_are_pickled_and_copied():
    task = task_with({"answers": ["a"], "meta": {"hops": 2}})
    for other in (pickle.loads(pickle.dumps(task)), copy.deepcopy(task)):
        assert other == task
        assert isinstance(other.payload["meta"], FrozenDict)
    assert asdict(task)["payload"]["meta"] == {"hops": 2}


def test_a_task_without_a_payload_is_as_before():
    assert Task("babyai", "test", 4).payload == {}
    assert Task("babyai", "test", 4, payload={}) == Task("babyai", "test", 4)


def test_messages_are_not_filled_with_payloads():
    assert "payload" not in repr(task_with({"text": "x" * 1000}))


deep: dict[str, object] = {}
for _ in range(40):
    deep = {"in": deep}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"score": float("nan")}, r"payload.score must be finite, not nan"),
        ({"items": [1, {2, 3}]}, r"payload.items\[1\] must be plain JSON, not set"),
        ({"n": np.int64(3)}, r"payload.n must be plain JSON, not int64"),
        ({3: 1}, r"the keys of payload must be str, not int"),
        ({"n": 2**70}, r"payload.n is an int of more than 64 bits"),
        ({"text": "\udcff"}, r"payload.text holds lone surrogates"),
        (deep, r"is nested more than 32 deep"),
        ([1], r"the payload of a task must be a mapping, not list"),
    ],
)
def test_what_a_payload_refuses(payload: dict[str, object], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        task_with(payload)


def test_floats_of_numpy_become_plain():
    payload = frozen_payload({"x": np.float64(0.5)})
    assert type(payload["x"]) is float


def test_named_numbers_become_floats():
    given = {"depth": 2, "found_key": True, "loss": np.float32(0.5)}
    numbers = named_numbers(given, "metrics")
    assert numbers == {"depth": 2.0, "found_key": 1.0, "loss": 0.5}
    assert {type(value) for value in numbers.values()} == {float}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": float("inf")}, r"metrics: 'loss' must be finite, not inf"),
        ({"loss": "0.5"}, r"metrics: 'loss' must be a number, not str"),
        ({"loss": None}, r"metrics: 'loss' must be a number, not NoneType"),
        ({"a/b": 1.0}, r"metrics has the name 'a/b'; a name has letters, digits and underscores"),
        ({"1st": 1.0}, r"begins with no digit"),
        ({"": 1.0}, r"metrics has the name ''"),
        ({"n" * 65: 1.0}, r"at most 64 characters"),
        ({f"n{i}": 0.0 for i in range(65)}, r"metrics has 65 names; at most 64 are allowed"),
        ([("a", 1.0)], r"metrics must be a mapping of names to numbers, not list"),
    ],
)
def test_what_named_numbers_refuse(values: dict[str, float], message: str):
    with pytest.raises((TypeError, ValueError), match=message):
        named_numbers(values, "metrics")


def test_parts_sum_to_their_reward_but_for_rounding():
    assert parts_sum_to({"a": 0.1, "b": 0.2}, 0.3)
    assert parts_sum_to({}, 0.0)
    assert not parts_sum_to({"a": 0.1, "b": 0.2}, 0.31)


def test_a_result_reports_nothing_unless_it_is_told_to():
    assert (StepResult("x").metrics, StepResult("x").reward_parts) == ({}, {})
