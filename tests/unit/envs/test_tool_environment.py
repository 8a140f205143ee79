"""ToolEnvironment: schemas from signatures, checked arguments, and what each outcome becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import pytest
from examples.tool_environment import Thermostat
from pydantic import Field

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.tools import CallRecord, Final, ToolEnvironment, ToolError
from agentgym_rl.envs.tools.described import briefing
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task

SPEC = EnvSpec("desk", "A desk.", "Serve.", "note(1)", ("train",), ("all",), 5)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    street: str
    number: int


def add(first: int, second: int = 1) -> int:
    """Add two numbers."""
    return first + second


class Desk(ToolEnvironment):
    spec = SPEC
    functions = (add,)

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        return [Task("desk", split, 0, category="all", payload={"pays": 1})]

    def begin(self, task: Task) -> str:
        self._notes = list[int]()
        return "Go."

    def note(self, number: int, why: Literal["late", "broken"] = "late") -> str:
        """Write a number down.

        Args:
            number: the number
        """
        if number > 99:
            raise ToolError("The paper is too small.")
        self._notes.append(number)
        return f"{number} {why}"

    def send(
        self,
        to: Address,
        size: Size,
        items: list[str],
        weights: dict[str, float] | None = None,
        copies: Annotated[int, Field(ge=1, description="how many")] = 1,
    ) -> dict[str, object]:
        """Send things."""
        return {"to": to, "size": size, "items": items, "weights": weights, "copies": copies}

    def crash(self) -> str:
        """Fail."""
        return {}["nothing"]

    def finish(self) -> Final:
        """End."""
        return Final()

    def score(self, calls: Sequence[CallRecord]) -> dict[str, float]:
        return {"notes": 0.5 * (len(self._notes) == 1), "brief": 0.5 * (len(calls) <= 2)}

    def _helper(self) -> str:
        """Not a tool."""
        return "no"


def started() -> Desk:
    desk = Desk()
    assert desk.reset(Desk.tasks("train")[0]) == "Go."
    return desk


def schema(name: str) -> dict[str, object]:
    (found,) = [t["function"] for t in Desk.spec.tools if t["function"]["name"] == name]
    return found


def test_the_tools_are_the_public_methods_and_the_functions():
    names = [tool["function"]["name"] for tool in Desk.spec.tools]
    assert names == ["note", "send", "crash", "finish", "add"]


def test_a_schema_has_types_defaults_choices_and_descriptions():
    assert schema("note") == {
        "name": "note",
        "description": "Write a number down.",
        "parameters": {
            "type": "object",
            "properties": {
                "number": {"type": "integer", "description": "the number"},
                "why": {"type": "string", "enum": ("late", "broken"), "default": "late"},
            },
            "required": ("number",),
        },
    }
    properties = schema("send")["parameters"]["properties"]
    assert properties["copies"] == {
        "type": "integer", "minimum": 1, "default": 1, "description": "how many"
    }  # fmt: skip
    assert "title" not in str(schema("send"))


def test_the_tools_in_words():
    told = briefing(Desk.spec)
    assert '- note(number: integer, why: "late" or "broken" = "late"): Write a number' in told
    assert '"street": text' in told and 'size: "small" or "large"' in told
    assert "items: list of text" in told and "    copies: how many" in told


def test_a_call_with_every_kind_of_argument():
    result = started().step(
        'send(to={"street": "Oak", "number": 3}, size="large", items=["a"], weights={"a": 2})'
    )
    assert result.valid_action
    assert result.observation == (
        '{"to": {"street": "Oak", "number": 3}, "size": "large", "items": ["a"], '
        '"weights": {"a": 2.0}, "copies": 1}'
    )
    assert started().step("add(2)").observation == "3"


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("note()", "the argument `number` is missing"),
        ('note("3")', "`number`: Input should be a valid integer"),
        ("note(3.5)", "`number`: Input should be a valid integer"),
        ("note(true)", "`number`: Input should be a valid integer"),
        ("note(1, 'soon')", "`why`: Input should be 'late' or 'broken'"),
        ("note(1 Call it as)", "For example: note(1)"),
        ("note(1, x=2)", "there is no argument `x`"),
        ("_helper()", "no tool '_helper'"),
        ("reset()", "no tool 'reset'"),
        ("hello", "no tool 'hello'"),
        ('send({"street": "a"}, "small", [])', "the argument `to.number` is missing"),
        ('send({"street": "a", "number": 1}, "small", [], copies=0)', "greater than or equal to 1"),
    ],
)
def test_a_wrong_call_is_an_observation_that_says_what_to_do(action: str, told: str):
    result = started().step(action)
    assert not result.valid_action and not result.is_last
    assert told in result.observation
    assert "Call it as" in result.observation or "For example: note(1)" in result.observation


def test_a_refusal_is_an_observation_and_any_other_exception_a_failure():
    desk = started()
    refused = desk.step("note(100)")
    assert (refused.observation, refused.valid_action) == ("The paper is too small.", False)
    assert refused.metrics == {"tool_calls": 1.0, "wrong_calls": 1.0}
    with pytest.raises(EnvError, match="the tool crash raised KeyError: 'nothing'"):
        desk.step("crash()")


def test_the_last_call_is_scored_in_parts():
    desk = started()
    desk.step("note(1)")
    result = desk.step("finish()")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)
    assert result.reward_parts == {"notes": 0.5, "brief": 0.5}
    desk.reset(Desk.tasks("train")[0])
    poor = desk.step("finish()")
    assert (poor.reward, poor.success) == (0.5, False)


def test_unknown_tasks_are_refused():
    (task,) = Desk.tasks("train")
    for stranger in (Task("desk", "train", 1), Task("desk", "train", 0, category="all")):
        with pytest.raises(ValueError, match="has no task like"):
            Desk().reset(stranger)
    assert Desk().reset(Task("desk", "train", 0, "all", seed=3, payload=task.payload)) == "Go."


def test_a_tool_without_type_or_docstring_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match="give the argument 'number' a type"):

        class Untyped(Desk):
            def untyped(self, number):
                """Do it."""

    with pytest.raises(TypeError, match="needs a docstring"):

        class Silent(Desk):
            def silent(self, number: int) -> str:
                return str(number)

    with pytest.raises(TypeError, match="name of a method of every environment"):

        class Clash(Desk):
            def close(self, ticket: int) -> str:
                """Close a ticket."""
                return str(ticket)


def test_the_example_keeps_the_contract():
    report = check(Thermostat, tasks_per_split=4, num_processes=0)
    assert report.problems == () and report.expert_success_rate == 1.0


def test_the_checker_finds_an_example_action_that_is_no_call():
    class Wrong(Desk):
        spec = EnvSpec("desk", "A desk.", "Serve.", "write it", ("train",), ("all",), 5)

    assert check(Wrong, num_processes=0).broken == ("spec-tools",)
