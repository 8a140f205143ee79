"""`agentgym bench one-search`: what no search and what one search are worth.

A question of several hops must yield to neither. Two numbers say whether it does, each the success
of the best of many fixed rules (`shortcut_readers.py`) on a category of questions:

- blind: an answer without a search, such as a name of the question or what is usual in training;
- one search: one of seven queries made of the question, its first three passages in full, and one
  of eight ways to take an answer from them. The best pair counts, chosen on these very questions.
  A guess at random among the candidates of the right kind counts with its chance to be right.

Beside them stands how often the passages of some first search give the answer away, by whatever
rule (`gives_away`). It is 0 for questions that have been screened with this search engine.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_arguments import whole_from
from rich.console import Console
from rich.table import Table
from shortcut_readers import QUERIES, READERS, blind_guesses, candidates
from shortcuts import TOPK, first_searches, gives_away

from agentgym_rl.envs.scenarios.searchqa.embedded import embedded_questions
from agentgym_rl.envs.scenarios.searchqa.options import SearchOptions
from agentgym_rl.envs.scenarios.searchqa.questions import Question
from agentgym_rl.envs.scenarios.searchqa.scoring import exact_match
from agentgym_rl.envs.scenarios.searchqa.sources import open_engine
from agentgym_rl.retrieval.base import Retriever


@dataclass(frozen=True, slots=True)
class Worth:
    """What shortcuts are worth on some questions: shares of them, with the rule that is best."""

    num_questions: int
    blind: float
    blind_rule: str
    one_search: float
    one_search_rule: str
    given_away: float


def measure(
    questions: Sequence[Question], training: Sequence[Question], engine: Retriever
) -> dict[str, Worth]:
    """Return the worth of shortcuts by category, and by category and hops."""
    num_asked, num_given = Counter[str](), Counter[str]()
    blind: defaultdict[str, Counter[str]] = defaultdict(Counter)
    read: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    guesses = blind_guesses(training, questions)
    for question in questions:
        guessed = [rule for rule, guess in guesses.items() if _is_right(guess(question), question)]
        solved = _solved_by(question, engine)
        is_given = any(
            gives_away(question, hits)
            for hits in engine.search(first_searches(question.text, question.path), TOPK)
        )
        for name in (question.category, f"{question.category}, {question.hops} hops"):
            num_asked[name] += 1
            num_given[name] += is_given
            blind[name].update(guessed)
            for rule, chance in solved.items():
                read[name][rule] += chance
    return {
        name: _worth(number, blind[name], read[name], num_given[name])
        for name, number in sorted(num_asked.items())
    }


def _solved_by(question: Question, engine: Retriever) -> dict[str, float]:
    """Return the chance that each pair of a query and a reader solves the question."""
    chances: dict[str, float] = {}
    found = engine.search([query(question) for query in QUERIES.values()], TOPK)
    for query, hits in zip(QUERIES, found, strict=True):
        passages = [hit.passage for hit in hits]
        for name, reader in READERS.items():
            answer = reader(question.text, passages)
            chances[f"{query}, {name}"] = float(_is_right(answer, question))
        options = set(candidates(question.text, passages))
        num_right = sum(_is_right(option, question) for option in options)
        chances[f"{query}, at random"] = num_right / max(1, len(options))
    return chances


def _is_right(answer: str, question: Question) -> bool:
    return bool(answer) and bool(exact_match(answer, question.answers))


def _worth(
    number: int, blind: Mapping[str, int], read: Mapping[str, float], num_given: int
) -> Worth:
    blind_rule, guessed = _best(blind)
    read_rule, solved = _best(read)
    return Worth(
        number, guessed / number, blind_rule, solved / number, read_rule, num_given / number
    )


def _best(scores: Mapping[str, float]) -> tuple[str, float]:
    """Return the best rule; none where nothing is ever right."""
    rule = max(scores, key=lambda name: scores[name], default="")
    return (rule, scores[rule]) if rule and scores[rule] else ("none", 0.0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="agentgym bench one-search", description="What no search and one search are worth."
    )
    parser.add_argument("--split", default="test", choices=("train", "dev", "test"))
    parser.add_argument("--tasks", type=whole_from(1), help="only the first N tasks")
    chosen = parser.parse_args(arguments)
    questions = embedded_questions(chosen.split)[: chosen.tasks]
    worths = measure(questions, embedded_questions("train"), open_engine(SearchOptions()))
    table = Table(title=f"Shortcuts, {chosen.split} split", title_justify="left")
    for column in ("questions", "number", "blind", "rule", "one search", "rule", "given away"):
        table.add_column(column)
    for name, worth in worths.items():
        table.add_row(
            name,
            str(worth.num_questions),
            f"{worth.blind:.1%}",
            worth.blind_rule,
            f"{worth.one_search:.1%}",
            worth.one_search_rule,
            f"{worth.given_away:.1%}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
