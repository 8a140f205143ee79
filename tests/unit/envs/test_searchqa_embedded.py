"""The embedded corpus and its questions: facts, prose, splits, and what the index makes of them.

Everything is made once in a session.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import one_search_bench

from agentgym_rl.envs.scenarios.searchqa.embedded import choose, probes, screen, store
from agentgym_rl.envs.scenarios.searchqa.embedded.answers import minutes_answers
from agentgym_rl.envs.scenarios.searchqa.embedded.countries import number_in
from agentgym_rl.envs.scenarios.searchqa.embedded.draft import Draft
from agentgym_rl.envs.scenarios.searchqa.embedded.films import Film, Person
from agentgym_rl.envs.scenarios.searchqa.embedded.names import fold, listed, plain, slug
from agentgym_rl.envs.scenarios.searchqa.embedded.pool import Pool
from agentgym_rl.envs.scenarios.searchqa.embedded.screened import load_screened_out
from agentgym_rl.envs.scenarios.searchqa.embedded.splits import SPLITS, Split, split_of
from agentgym_rl.envs.scenarios.searchqa.embedded.world import World, load_world
from agentgym_rl.envs.scenarios.searchqa.env import SearchQA
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.file_lock import holding
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever
from agentgym_rl.retrieval.passages import Passage
from worked_examples import assert_example_holds

SAMPLE = 150


@pytest.fixture(scope="session")
def made() -> dict[Split, tuple[Question, ...]]:
    """All questions; making them makes the corpus as well."""
    return {split: store.embedded_questions(split) for split in SPLITS}


@pytest.fixture(scope="session")
def corpus(cache: Path, made: dict[Split, tuple[Question, ...]]) -> dict[str, Passage]:
    """The passages by id."""
    assert store.embedded_corpus_file() == next(cache.glob("searchqa/embedded-*/corpus.jsonl"))
    passages = list(store.embedded_corpus())
    assert len({passage.id for passage in passages}) == len(passages)
    return {passage.id: passage for passage in passages}


@pytest.fixture(scope="session")
def retriever(corpus: dict[str, Passage]) -> Retriever:
    """The real index of the embedded corpus."""
    return open_retriever(RetrieverOptions(corpus=str(store.embedded_corpus_file())))


@pytest.fixture(scope="session")
def world() -> World:
    return load_world()


@pytest.fixture(scope="session")
def drafts(world: World) -> dict[Split, list[Draft]]:
    """The questions with what they do not keep: kind and bridge entities."""
    screened_out = load_screened_out()
    return choose.choose(Pool(world), lambda draft: draft.key in screened_out)


def sample(questions: tuple[Question, ...]) -> list[Question]:
    """Return questions from all over the split."""
    return list(questions[:: len(questions) // SAMPLE])


def film(number: int, name: str, year: int) -> Film:
    """Return a film without any facts but these."""
    nobody: tuple[str, ...] = ()
    return Film(
        number, name, year, None, (), "", nobody, nobody, nobody, None, (), (), "", None, ()
    )


def test_names():
    assert plain("Łódź and Malmö, Tórshavn") == "Lodz and Malmo, Torshavn"
    assert fold("Who's Afraid — of Ørsted?") == "whos afraid of orsted"
    assert slug("Andrei Tarkovsky Jr.") == "andrei-tarkovsky-jr"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert minutes_answers(161)[:2] == ("161 minutes", "161")
    assert "2 hours 41 minutes" in minutes_answers(161)
    assert number_in("1.284 million sq km") == 1_284_000
    assert number_in("none") is None


def test_credits_of_two_lives_are_not_one_person():
    early, late = film(1, "a", 1968), film(2, "b", 2008)
    assert Person("Ann Lee", (late,), (), (film(3, "c", 2004),)).is_one_person
    assert not Person("Ann Lee", (late,), (), (early,)).is_one_person
    assert not Person("Madonna", (), (), (late,)).is_one_person


def test_the_corpus_is_large_and_its_titles_are_unique(corpus: dict[str, Passage]):
    assert len(corpus) >= 57_000
    titles = Counter(passage.title for passage in corpus.values())
    assert titles.most_common(1)[0][1] == 1
    kinds = Counter(passage_id.split("-")[0] for passage_id in corpus)
    assert set(kinds) == {"film", "person", "city", "country"}
    assert min(kinds.values()) > 10_000
    assert max(len(passage.text) for passage in corpus.values()) < 4000
    assert all(passage.text and "\n" not in passage.title for passage in corpus.values())


def test_facts_that_everybody_knows(corpus: dict[str, Passage], world: World):
    by_title = {passage.title: passage for passage in corpus.values()}
    alien = by_title["Alien (1979 film)"].text
    assert "Ridley Scott" in alien and "Sigourney Weaver" in alien
    assert "Alien (1979)" in by_title["Ridley Scott"].text
    assert "The capital of France is Paris." in by_title["France: Capital"].text
    assert (
        "a population of" in by_title["Toulouse"].text or "inhabitants" in by_title["Toulouse"].text
    )
    france = next(country for country in world.countries if country.name == "France")
    assert ("sp", 646.0) in france.borders


def test_the_splits_have_their_sizes_and_every_cell(made: dict[Split, tuple[Question, ...]]):
    for split, questions in made.items():
        assert 0.9 * choose.NUM_QUESTIONS[split] <= len(questions) <= choose.NUM_QUESTIONS[split]
        assert [question.index for question in questions] == list(range(len(questions)))
        cells = Counter((question.category, question.hops) for question in questions)
        assert set(cells) == set(choose.SHARES)
        assert cells["single", 1] < 0.08 * len(questions)
    texts = [question.text for questions in made.values() for question in questions]
    assert len(set(texts)) == len(texts)


def test_questions_are_whole(made: dict[Split, tuple[Question, ...]], corpus: dict[str, Passage]):
    for question in (question for questions in made.values() for question in questions):
        assert question.text.endswith("?") and question.answers and question.path
        assert question.hops == len(question.gold)
        assert set(question.gold) == {hop.passage_id for hop in question.path}
        assert all(passage_id in corpus for passage_id in question.gold)


def test_the_last_gold_passage_holds_the_answer(
    made: dict[Split, tuple[Question, ...]], corpus: dict[str, Passage]
):
    for question in made["test"]:
        if question.category != "comparison":
            text = fold(corpus[question.path[-1].passage_id].contents)
            assert fold(question.answers[0].split(" ")[0]) in text, question


def test_no_query_holds_what_it_has_yet_to_find(made: dict[Split, tuple[Question, ...]]):
    for question in made["test"]:
        known = fold(question.text)
        for hop in question.path:
            if question.category == "bridge":
                assert f" {fold(hop.finding)} " not in f" {fold(hop.query)} ", question
                assert f" {fold(hop.finding)} " not in f" {known} ", question
            known += f" {fold(hop.finding)} "


def test_splits_share_no_bridge_entity(drafts: dict[Split, list[Draft]]):
    bridges = {
        split: {bridge for draft in drafts[split] for bridge in draft.bridges} for split in SPLITS
    }
    assert all(draft.bridges for split in SPLITS for draft in drafts[split])
    assert not bridges["train"] & bridges["dev"]
    assert not bridges["train"] & bridges["test"]
    assert not bridges["dev"] & bridges["test"]


def test_what_is_hidden_is_a_bridge_entity(drafts: dict[Split, list[Draft]]):
    for draft in drafts["test"]:
        if draft.category != "bridge":
            continue
        keys = " ".join(draft.bridges)
        for hop in draft.path[:-1]:
            is_person = any(fold(hop.finding) in key for key in draft.bridges)
            assert is_person or "film " in keys or "country " in keys, draft


def test_an_entity_has_one_split():
    assert split_of(("person ann lee", "film 7 by ann lee")) in SPLITS
    many = {split_of((f"person {number}",)) for number in range(40)}
    assert many == set(SPLITS)
    assert split_of([f"person {number}" for number in range(40)]) is None


def test_the_choice_is_the_same_again(
    drafts: dict[Split, list[Draft]], made: dict[Split, tuple[Question, ...]]
):
    for split in SPLITS:
        again = [draft.as_question(index) for index, draft in enumerate(drafts[split])]
        assert tuple(again) == made[split]


def test_the_order_of_hashes_does_not_matter():
    program = (
        "from agentgym_rl.envs.scenarios.searchqa.embedded.names import digest, shuffled\n"
        "print(digest('x'), shuffled({'a', 'b', 'c', 'd'}, 's', str))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_experts_queries_find_their_passages(
    made: dict[Split, tuple[Question, ...]], retriever: Retriever
):
    hops = [hop for question in sample(made["test"]) for hop in question.path]
    found = retriever.search([hop.query for hop in hops], screen.TOPK)
    hits = [
        hop.passage_id in {hit.passage.id for hit in hits}
        for hop, hits in zip(hops, found, strict=True)
    ]
    assert sum(hits) >= 0.95 * len(hits)


def test_neither_no_search_nor_one_search_is_worth_much(
    made: dict[Split, tuple[Question, ...]], retriever: Retriever
):
    questions = [question for question in made["test"] if question.category != "single"]
    worths = one_search_bench.measure(questions, made["train"], retriever)
    assert len(worths) == 3 + 9  # categories, and each by hops
    for category in ("bridge", "comparison", "intersection"):
        worth = worths[category]
        assert worth.blind < 0.05, (category, worth)
        assert worth.one_search < 0.05, (category, worth)
        assert worth.given_away == 0, (category, worth)


def test_no_answer_is_usual(made: dict[Split, tuple[Question, ...]]):
    for split, questions in made.items():
        counts = Counter((one.category, one.hops, one.answers[0]) for one in questions)
        for (category, hops, answer), number in counts.items():
            limit = max(1, 0.02 * choose.quota(split, (category, hops)))
            assert number <= limit, (split, category, hops, answer)


def test_a_film_from_elsewhere_is_from_another_country(
    drafts: dict[Split, list[Draft]], world: World
):
    films = {film.id: film for film in world.films}
    kind = "bridge-director-film-country"
    paths = [draft.path for split in SPLITS for draft in drafts[split] if draft.kind == kind]
    assert len(paths) > 100
    for path in paths:
        named, other = films[path[0].passage_id], films[path[2].passage_id]
        assert not set(named.countries) & set(other.countries)


def test_first_searches_are_made_of_the_question():
    text = 'By how many minutes is the 2013 film "The Past" longer than "Gilda" (1946)?'
    assert probes.names_in(text) == ["The Past", "Gilda"]
    assert probes.asked_words(text) == ["minutes", "film", "longer"]
    path = (Hop("Gilda 1946 film running time", "film-1", "110 minutes"), Hop("Ann Lee", "p", "x"))
    queries = probes.first_searches(text, path)
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
    draft = Draft("k", category, text, answers, path, ())
    assert screen.gives_away(draft, found) == is_given


def test_drafts_that_give_themselves_away():
    path = (Hop("a", "film-1", "Ann Lee"), Hop("b", "film-2", "Toy Story"))
    draft = Draft("k", "bridge", 'Who made "Toy Story 2"?', ("Toy Story",), path, ())
    assert draft.gives_itself_away
    assert not Draft("k", "bridge", "Who made it?", ("Toy Story",), path, ()).gives_itself_away


def test_what_was_made_once_is_read_fast(cache: Path, made: dict[Split, tuple[Question, ...]]):
    store.embedded_questions.cache_clear()
    started = time.process_time()
    again = store.embedded_questions("train")
    # 0.2 s in a process of its own; here other tests' objects are collected meanwhile. Making
    # takes ten times the limit.
    assert time.process_time() - started < 2.0
    assert again == made["train"]
    assert not list(cache.glob("searchqa/embedded-*.*"))


def test_other_users_may_read_what_was_made(cache: Path, made: dict[Split, tuple[Question, ...]]):
    [folder] = cache.glob("searchqa/embedded-*")
    assert folder.stat().st_mode == folder.parent.stat().st_mode


def test_two_first_uses_at_once_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    both, made = Barrier(2), list[Path]()

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.3)
        folder.mkdir()

    def use(_: int) -> Path:
        both.wait()
        return store.embedded_corpus_file()

    monkeypatch.setattr(store, "_make", make)
    with ThreadPoolExecutor(2) as pool:
        files = list(pool.map(use, range(2)))
    assert made == [files[0].parent] == [files[1].parent]


def test_a_first_use_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    monkeypatch.setattr(store, "_MAKING_WAIT_S", 0.0)
    lock = tmp_path / "searchqa" / "embedded.lock"
    with (
        holding(lock, wait_s=0.0),
        pytest.raises(TimeoutError, match=r"another process has held .*embedded\.lock"),
    ):
        store.embedded_corpus_file()


def test_a_split_that_there_is_not():
    with pytest.raises(ConfigError, match="train, dev, test"):
        store.embedded_questions("validation")  # pyrefly: ignore[bad-argument-type]


def test_the_worked_example_is_a_whole_task_of_training(retriever: Retriever):
    env = SearchQA()
    film = "The Seventh Continent"
    task = next(
        task
        for task in SearchQA.tasks("train")
        if film in (first := env.reset(task)) and "highest point" in first
    )
    assert_example_holds(env, env.reset(task))
