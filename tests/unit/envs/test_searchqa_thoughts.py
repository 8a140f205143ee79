"""What deep search's expert thinks: plans, findings and conclusions, on made-up questions."""

from __future__ import annotations

from agentgym_rl.envs.scenarios.searchqa.actions import Action
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.envs.scenarios.searchqa.reading import Shown
from agentgym_rl.envs.scenarios.searchqa.thoughts import thought
from agentgym_rl.envs.scenarios.searchqa.trace import Event, Trace
from agentgym_rl.retrieval.passages import Passage


def question(text: str, answer: str, *path: tuple[str, str]) -> Question:
    hops = tuple(Hop(query, f"p{n}", finding) for n, (query, finding) in enumerate(path))
    gold = tuple(hop.passage_id for hop in hops)
    return Question(0, text, (answer,), "bridge", len(hops), gold, hops)


def show(trace: Trace, number: int, *, is_cut: bool = False) -> None:
    """Let a search show the passage of a hop, without its finding if it is cut."""
    hop = trace.question.path[number]
    passage = Passage(hop.passage_id, f"passage {number}", hop.finding)
    shown = Shown(passage, "..." if is_cut else hop.finding, is_cut)
    trace.events.append(Event("search", hop.query, (shown,)))


LENGTHS = question(
    "By how many minutes is a film by C longer than B?",
    "69 minutes",
    ("B minutes", "124 minutes"),
    ("films by C", "Alpha"),
    ("Alpha minutes", "193 minutes"),
)


def test_a_difference_is_planned_and_worked_out():
    trace = Trace(LENGTHS)
    assert thought(LENGTHS, trace, Action("search", "B minutes")) == (
        "Plan: 1) B minutes; 2) films by C; 3) [2] minutes, then the difference. I begin with 1."
    )
    for number in range(3):
        show(trace, number)
    assert thought(LENGTHS, trace, Action("answer", "69 minutes")) == (
        "[1] is 124 minutes; [2] is Alpha; [3] is 193 minutes. 193 - 124 = 69. "
        "So the answer is 69 minutes."
    )


def test_a_thought_names_nothing_that_was_not_shown():
    trace = Trace(LENGTHS)
    show(trace, 0)
    told = thought(LENGTHS, trace, Action("search", "films by C"))
    assert told == "[1] is 124 minutes. Next is 2."
    show(trace, 1, is_cut=True)
    assert thought(LENGTHS, trace, Action("open", "1")) == (
        "[1] is 124 minutes. A passage for 2 was cut, so I read all of it."
    )


def test_what_two_lists_share_is_said_and_long_lists_are_not_repeated():
    asked = question(
        "Who is in both?", "Eve", ("X cast", "Ann, Bob, Cid, Dan and Eve"), ("Y cast", "Eve")
    )
    trace = Trace(asked)
    show(trace, 0)
    show(trace, 1)
    assert thought(asked, trace, Action("answer", "Eve")) == (
        "[1] is the list above; [2] is Eve, also in [1]. So the answer is Eve."
    )


def test_a_search_that_failed_is_put_in_other_words():
    trace = Trace(LENGTHS)
    stranger = Shown(Passage("other", "other", "text"), "text", False)
    trace.events.append(Event("search", "B minutes", (stranger,)))
    assert thought(LENGTHS, trace, Action("search", "B running time")) == (
        "The last search did not show 1, so I search in other words."
    )
