"""`agentgym bench one-search`: what one search is worth, so what several are needed for.

An agent without a second round: it searches for the question as it stands, reads the best passage
in full, and answers with a fact of it. Facts are the passage's title, its names and its numbers;
of those that the question does not mention it takes the first of the kind that is asked for, and
where the question offers a choice, the one that the passage is about.

Beside what it solves stands a ceiling, which no reader of that passage can pass: how often a right
answer is among the facts at all.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence

from bench_arguments import whole_from
from rich.console import Console
from rich.table import Table

from agentgym_rl.envs.searchqa.env import SearchQA
from agentgym_rl.envs.searchqa.scoring import exact_match, normalize

_DOC = re.compile(r"Doc 1 \(Title: (?P<title>.*?)\) (?P<text>.*)")
_WORD = r"[A-Z][\w'\u2019.-]*"
_NAME = re.compile(rf"{_WORD}(?:(?: (?:of|the|de|la|and|von|van))* {_WORD})*")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_ASKS_NUMBER = re.compile(
    r"\b(how many|how much|what year|which year|when|population|area)\b", re.I
)
_OPTIONS = {"topk": 1, "max_words": 10_000}


def facts_of(title: str, text: str) -> list[str]:
    """Return what a passage states, as short texts: its title, its names, its numbers."""
    plain_title = re.sub(r" \(.*\)$", "", title)
    names = [found[0].rstrip(".") for found in _NAME.finditer(text)]
    numbers = [found[0].rstrip(".,") for found in _NUMBER.finditer(text)]
    return list(dict.fromkeys((title, plain_title, *names, *numbers)))


def answer_from(question: str, facts: Sequence[str]) -> str:
    """Return the fact that most looks like the answer."""
    asked = normalize(question)
    mentioned = [fact for fact in facts[:2] if normalize(fact) in asked]
    if " or " in question and mentioned:
        return mentioned[0]
    new = [fact for fact in facts if normalize(fact) not in asked]
    if _ASKS_NUMBER.search(question):
        new = [fact for fact in new if fact[:1].isdigit()] or new
    else:
        new = [fact for fact in new if not fact[:1].isdigit()] or new
    return new[0] if new else "unknown"


def measure(split: str, max_tasks: int | None) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return how many questions there are, are solved and could be, by category and hops."""
    env = SearchQA(**_OPTIONS)
    num_asked, num_solved, num_possible = Counter[str](), Counter[str](), Counter[str]()
    for task in env.tasks(split)[:max_tasks]:
        question = env.reset(task).removeprefix("Question: ")
        found = _DOC.search(env.step(f"<search>{question}</search>").observation)
        facts = facts_of(found["title"], found["text"]) if found else []
        answers = env.details()["answers"]
        assert isinstance(answers, Sequence)
        accepted = [str(answer) for answer in answers]
        is_solved = env.step(f"<answer>{answer_from(question, facts)}</answer>").success
        is_possible = any(exact_match(fact, accepted) for fact in facts)
        multi = "one-hop" if task.level == "1 hop" else "multi-hop"
        for name in (f"{task.category}, {task.level}", f"all {multi}"):
            num_asked[name] += 1
            num_solved[name] += is_solved
            num_possible[name] += is_possible
    env.close()
    return num_asked, num_solved, num_possible


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench one-search", description="One search.")
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=whole_from(1), help="only the first so many")
    chosen = parser.parse_args(arguments)
    num_asked, num_solved, num_possible = measure(chosen.split, chosen.tasks)
    table = Table(title=f"One search, {chosen.split} split", title_justify="left")
    for column in ("questions", "number", "solved", "among the facts"):
        table.add_column(column)
    for name, number in sorted(num_asked.items()):
        solved, possible = num_solved[name] / number, num_possible[name] / number
        table.add_row(name, str(number), f"{solved:.1%}", f"{possible:.1%}")
    Console().print(table)


if __name__ == "__main__":
    main()
