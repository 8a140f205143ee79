"""What the expert thinks: a plan with numbered searches, what each has found, and the conclusion.

Example, over three rounds:
    Plan: 1) Linz city country; 2) [1] median age. I begin with 1.
    [1] is Austria. Next is 2.
    [1] is Austria; [2] is 44.5 years. So the answer is 44.5 years.

A thought names only what has been shown so far; what later searches will find is a number in
brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym_rl.envs.scenarios.searchqa.actions import Action
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.envs.scenarios.searchqa.trace import Trace

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MAX_LISTED = 4
"""Longer lists, such as a cast, stand in the passage and are not written out."""


def thought(question: Question, trace: Trace, advice: Action) -> str:
    """Return why the expert takes this action now."""
    known = [number for number, hop in enumerate(question.path) if trace.has_read(hop)]
    if advice.tag == "answer":
        return f"{_findings(question, known)} {_conclusion(question, advice.text)}"
    number = next(n for n, hop in enumerate(question.path) if not trace.has_read(hop))
    if not trace.events:
        return _plan(question)
    found = f"{_findings(question, known)} " if known else ""
    if advice.tag == "open":
        return f"{found}A passage for {number + 1} was cut, so I read all of it."
    if trace.last_search_failed:
        return f"{found}The last search did not show {number + 1}, so I search in other words."
    return f"{found}Next is {number + 1}."


def _plan(question: Question) -> str:
    path = question.path
    if len(path) == 1:
        return f"One search is enough: {path[0].query}."
    steps = (f"{n + 1}) {_query_without_findings(path, n)}" for n in range(len(path)))
    end = ", then the difference" if _difference(question) else ""
    return f"Plan: {'; '.join(steps)}{end}. I begin with 1."


def _query_without_findings(path: Sequence[Hop], number: int) -> str:
    """Return a hop's query with the numbers of earlier hops in place of what they find."""
    query = path[number].query
    for earlier in reversed(range(number)):
        query = query.replace(path[earlier].finding, f"[{earlier + 1}]")
    return query


def _findings(question: Question, known: Sequence[int]) -> str:
    return f"{'; '.join(_finding(question, number) for number in known)}."


def _finding(question: Question, number: int) -> str:
    hop, earlier = question.path[number], question.path[:number]
    items = _items(hop.finding)
    text = f"[{number + 1}] is {hop.finding}"
    if len(items) > _MAX_LISTED:
        return f"[{number + 1}] is the list above"
    if "longest" in question.text and hop.query.endswith("border countries"):
        return f"{text}, with the longest border"
    for place, other in enumerate(earlier):
        listed = _items(other.finding)
        if len(listed) > 1 and hop.finding in listed:
            return f"{text}, also in [{place + 1}]"
    return text


def _items(finding: str) -> list[str]:
    """Return the members of "A, B and C"; one for anything else."""
    head, conjunction, last = finding.rpartition(" and ")
    return [*head.split(", "), last] if conjunction else [finding]


def _conclusion(question: Question, answer: str) -> str:
    return f"{_difference(question)}So the answer is {answer}."


def _difference(question: Question) -> str:
    """Return the subtraction that the answer is the result of; empty where it is a finding."""
    answer = question.answers[0]
    if any(hop.finding == answer for hop in question.path):
        return ""
    wanted = _NUMBER.match(answer)
    numbers = [found[0] for hop in question.path if (found := _NUMBER.match(hop.finding))]
    for high in numbers:
        for low in numbers:
            if wanted is not None and abs(float(high) - float(low) - float(wanted[0])) < 1e-6:
                return f"{high} - {low} = {wanted[0]}. "
    return ""
