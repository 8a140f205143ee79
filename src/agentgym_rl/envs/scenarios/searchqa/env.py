"""Deep search: answer questions that take several searches (class `SearchQA`).

Search-R1's task (arXiv:2503.09516). Questions are in questions.py, search engines in retrieval/,
what the agent reads in reading.py, the expert in expert.py.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import ClassVar, Self, TypeVar

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.searchqa import texts
from agentgym_rl.envs.scenarios.searchqa.actions import Action, SearchMistake, parse
from agentgym_rl.envs.scenarios.searchqa.datasets.catalog import DATASETS
from agentgym_rl.envs.scenarios.searchqa.embedded import SPLITS, is_embedded_indexed
from agentgym_rl.envs.scenarios.searchqa.expert import SearchExpert
from agentgym_rl.envs.scenarios.searchqa.options import EMBEDDED, SearchOptions
from agentgym_rl.envs.scenarios.searchqa.questions import Catalog, Question
from agentgym_rl.envs.scenarios.searchqa.reading import information, plain_title, show_all
from agentgym_rl.envs.scenarios.searchqa.scoring import exact_match, f1
from agentgym_rl.envs.scenarios.searchqa.sources import open_engine, read_catalog
from agentgym_rl.envs.scenarios.searchqa.trace import Event, Trace
from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval.base import Retriever
from agentgym_rl.retrieval.passages import Passage
from agentgym_rl.types import StepResult, Task

CATEGORIES = ("single", "bridge", "comparison", "intersection")
"""Of the embedded questions; a data set's questions are a category."""
_NUMBER = re.compile(r"(?:doc ?)?\[?([0-9]{1,3})\]?", re.IGNORECASE | re.ASCII)
_TITLE_HITS = 100
"""How many passages are looked through for those of one title, which may be a common word."""


SearchT = TypeVar("SearchT", bound="SearchQA")


def make_spec(options: SearchOptions) -> EnvSpec:
    """Return the spec under these options; other data than the embedded is read for it."""
    splits, categories = SPLITS, CATEGORIES
    if options.data != EMBEDDED:
        found = read_catalog(options.data).splits
        splits = tuple(split for split in SPLITS if split in found)
        categories = tuple(DATASETS)
    tools = ("search", "open", *(["python"] if options.python else []), "answer")
    return EnvSpec(
        name="searchqa",
        summary="Answer questions that take several searches in a collection of texts",
        instructions=texts.instructions(
            has_python=options.python, on_wrong_answer=options.on_wrong_answer
        ),
        example_action="<search>director of the film Stalker</search>",
        splits=splits,
        categories=categories,
        max_rounds=10,
        success="the answer equals an accepted one after normalisation (exact match)",
        action_tags=tools,
        has_answer=True,
        replay_is_safe=options.only_computes,
    )


class SearchQA(Environment):
    """Search, read, answer. Reward 1 for an exact match, else 0; options pay in parts."""

    spec: ClassVar[EnvSpec] = make_spec(SearchOptions())
    data: ClassVar[str] = EMBEDDED
    max_per_level: ClassVar[int] = 0
    # The options are the fields of SearchOptions, and the registry asks for the signature.
    __signature__: ClassVar[inspect.Signature] = inspect.signature(SearchOptions)

    def __new__(cls, **options: object) -> Self:
        """Make an object of the class for these options (see `with_options`)."""
        return super().__new__(cls.with_options(options))

    def __init__(self, **options: object) -> None:
        """Take the fields of `SearchOptions`; the first object of a process may build an index."""
        self._options = SearchOptions(**options)  # type: ignore[arg-type]  # checked by itself
        self._engine = self._open_engine(self._options)
        if self._options.python:
            _require_sandbox()
        self._trace: Trace | None = None
        self._expert: SearchExpert | None = None
        self._is_over = True
        self._f1 = 0.0

    @classmethod
    def with_options(cls, options: Mapping[str, object]) -> type[Self]:
        """Return the class for these options: the data and the tools are in its spec.

        Where there is an index to build, it is built here, because no deadline runs yet.
        """
        chosen = SearchOptions(**options)  # type: ignore[arg-type]  # checked by itself
        if chosen.retriever == "bm25":
            cls._open_engine(chosen)
        return _variant(cls, make_spec(chosen), chosen.data, chosen.max_per_level)

    @classmethod
    def is_prepared(cls) -> bool:
        return is_embedded_indexed()

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the questions of a split; `Task.level` says how many hops it takes."""
        cls.require_split(split)
        return _tasks(cls.catalog(), split, cls.max_per_level)

    @classmethod
    def catalog(cls) -> Catalog:
        """Return all questions; read once per process."""
        return read_catalog(cls.data)

    @classmethod
    def _open_engine(cls, options: SearchOptions) -> Retriever:
        return open_engine(options)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        found = self.catalog().by_index.get(task.index)
        if found is None:
            raise ValueError(f"searchqa has no question {task.index}")
        question = found[1]
        level = _level(question)
        if task.level not in ("", level):
            raise ValueError(f"searchqa question {task.index} is {level!r}, not {task.level!r}")
        self._trace = Trace(question)
        self._expert = SearchExpert(question, self._shown_by, self._title_of)
        self._is_over = False
        self._f1 = 0.0
        return f"Question: {question.text}"

    def step(self, action: str) -> StepResult:
        trace = self._running()
        parsed = parse(action, self.spec.action_tags)
        num_gold = len(trace.gold_seen)
        if isinstance(parsed, SearchMistake):
            result = self._refuse(action, parsed.reply)
        else:
            result = self._do(parsed)
        num_new = len(trace.gold_seen) - num_gold
        result = replace(result, metrics=self._metrics(trace))
        if not num_new or not self._options.gold_reward:
            return result
        bonus = self._options.gold_reward * num_new / len(trace.question.gold)
        return replace(result, reward=result.reward + bonus, reward_parts={"gold": bonus})

    def available_actions(self) -> tuple[str, ...]:
        """Return the openings of what was found last; queries and answers cannot be listed."""
        if self._is_over:
            return ()
        numbers = range(1, len(self._running().last_found) + 1)
        return tuple(f"<open>{number}</open>" for number in numbers)

    def expert_action(self) -> str | None:
        """Return the next action along the question's path; None where it has no path."""
        if self._is_over or self._expert is None:
            return None
        advice = self._expert.advise(self._running())
        return None if advice is None else f"<{advice.tag}>{advice.text}</{advice.tag}>"

    def expert_thought(self) -> str | None:
        """Return what is known so far and what the next action is for."""
        if self._is_over or self._expert is None:
            return None
        return self._expert.explain(self._running())

    def details(self) -> Mapping[str, JsonValue]:
        """Return the question with its answers, and the search trace; {} without an episode."""
        if self._trace is None:
            return {}
        question = self._trace.question
        return {
            "goal": question.text,
            "category": question.category,
            "hops": question.hops,
            "answers": question.answers,
            "gold": question.gold,
            "gold_seen": sorted(self._trace.gold_seen),
            "path": [asdict(hop) for hop in question.path],
            "trace": self._trace.as_json(),
        }

    def close(self) -> None:
        """End the episode. The search engine serves others and stays open."""
        self._trace = self._expert = None
        self._is_over = True

    def _running(self) -> Trace:
        assert self._trace is not None and not self._is_over, "reset before the first step"
        return self._trace

    def _do(self, action: Action) -> StepResult:
        match action.tag:
            case "search":
                return self._search(action.text)
            case "open":
                return self._open(action.text)
            case "python":
                return self._run_python(action.text)
            case _:
                return self._answer(action.text)

    def _search(self, query: str) -> StepResult:
        shown = show_all(self._find(query, self._options.topk), self._options.max_words)
        self._running().events.append(Event("search", query, shown))
        return StepResult(information(shown))

    def _open(self, name: str) -> StepResult:
        passages = self._look_up(name)
        if not passages:
            return self._refuse(name, "There is no such passage. Open a Doc of your last search.")
        shown = show_all(passages, self._options.open_words)
        self._running().events.append(Event("open", name, shown))
        return StepResult(information(shown))

    def _run_python(self, code: str) -> StepResult:
        # Late: it runs on Linux only, and few use it.
        from agentgym_rl.sandbox.interpreter import SandboxLimits, run_code

        result = run_code(code, SandboxLimits())
        self._running().events.append(Event("python", code))
        return StepResult(texts.output_of(result))

    def _answer(self, answer: str) -> StepResult:
        trace = self._running()
        accepted = trace.question.answers
        is_right = bool(exact_match(answer, accepted))
        self._f1 = f1(answer, accepted)
        trace.events.append(Event("answer", answer, is_right=is_right))
        if not is_right and self._options.on_wrong_answer == "retry":
            return StepResult(texts.WRONG_RETRY)
        self._is_over = True
        options = self._options
        score = float(is_right) if options.reward == "em" else self._f1
        parts = {"answer": (1.0 - options.format_reward - options.gold_reward) * score}
        if options.format_reward:
            parts["format"] = options.format_reward * (not trace.has_mistakes)
        text = texts.CORRECT if is_right else texts.WRONG
        result = StepResult(text, sum(parts.values()), terminated=True, success=is_right)
        has_parts = options.format_reward or options.gold_reward
        return replace(result, reward_parts=parts) if has_parts else result

    def _metrics(self, trace: Trace) -> dict[str, float]:
        """Return how the search goes: searches, and how much of what it takes was found."""
        searches = sum(event.kind == "search" for event in trace.events)
        gold = trace.question.gold
        found = {"gold_seen": len(trace.gold_seen) / len(gold)} if gold else {}
        return {"searches": searches, "f1": self._f1, **found}

    def _refuse(self, text: str, reply: str) -> StepResult:
        self._running().events.append(Event("mistake", text[:200]))
        return StepResult(reply, valid_action=False)

    def _find(self, query: str, topk: int) -> list[Passage]:
        """Return the best passages. Raises EnvError when the search engine fails."""
        return [hit.passage for hit in self._engine.search([query], topk)[0]]

    def _shown_by(self, tag: str, text: str) -> frozenset[str]:
        """Return the ids of what a search or an opening would show."""
        found = self._find(text, self._options.topk) if tag == "search" else self._look_up(text)
        return frozenset(passage.id for passage in found)

    def _title_of(self, passage_id: str) -> str | None:
        passage = self._engine.get(passage_id)
        return None if passage is None else passage.title

    def _look_up(self, name: str) -> list[Passage]:
        """Return the passage of a number or an id, or all those that have the title."""
        trace = self._running()
        last = trace.last_found
        number = _NUMBER.fullmatch(name)
        if number is not None and 1 <= int(number[1]) <= len(last):
            return [last[int(number[1]) - 1].passage]
        if (seen := trace.find(name)) is not None:
            return [seen.passage]
        if (passage := self._engine.get(name)) is not None:
            return [passage]
        titles = (name.casefold(), plain_title(name).casefold())
        return [
            one
            for one in self._find(name, _TITLE_HITS)
            if one.title.casefold() in titles or plain_title(one.title).casefold() in titles
        ]


@cache
def _variant(cls: type[SearchT], spec: EnvSpec, data: str, max_per_level: int) -> type[SearchT]:
    """Return the class of other questions or tools, the same for the same."""
    if (spec, data, max_per_level) == (cls.spec, cls.data, cls.max_per_level):
        return cls
    return type(cls.__name__, (cls,), {"spec": spec, "data": data, "max_per_level": max_per_level})


@cache
def _tasks(catalog: Catalog, split: str, max_per_level: int) -> tuple[Task, ...]:
    kept, num_kept = list[Task](), Counter[tuple[str, str]]()
    for question in catalog.splits[split]:
        kind = (question.category, _level(question))
        if max_per_level and num_kept[kind] == max_per_level:
            continue
        num_kept[kind] += 1
        kept.append(Task("searchqa", split, question.index, question.category, level=kind[1]))
    return tuple(kept)


def _level(question: Question) -> str:
    if not question.hops:
        return question.category
    return f"{question.hops} hop" + "s" * (question.hops > 1)


def _require_sandbox() -> None:
    from agentgym_rl.sandbox.interpreter import why_unavailable  # Linux only

    if reason := why_unavailable():
        raise EnvError(
            f"the Python tool of searchqa cannot be used here: {reason}; leave out python=true"
        )
