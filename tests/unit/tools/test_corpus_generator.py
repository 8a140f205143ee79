"""The generator of the embedded corpus: names, drafts, splits, and that it still makes the data.

The slow tests need the packages with the facts (tools/embedded_corpus/requirements.txt).
"""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agentgym_rl.envs.scenarios.searchqa.embedded import SPLITS, Split, embedded_questions
from agentgym_rl.envs.scenarios.searchqa.questions import Hop
from benchmarks.shortcuts import fold
from tools.embedded_corpus import build, packages
from tools.embedded_corpus.answers import minutes_answers
from tools.embedded_corpus.choose import quota
from tools.embedded_corpus.countries import number_in
from tools.embedded_corpus.draft import Draft
from tools.embedded_corpus.films import Film, Person
from tools.embedded_corpus.names import listed, slug
from tools.embedded_corpus.splits import split_of
from tools.embedded_corpus.world import World, load_world

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def world() -> World:
    """All facts."""
    try:
        packages.check_packages()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    return load_world()


@pytest.fixture(scope="module")
def drafts(world: World) -> dict[Split, list[Draft]]:
    """The questions with what they do not keep: kind and bridge entities."""
    return build.choose_questions(world)


def film(number: int, name: str, year: int) -> Film:
    """Return a film without any facts but these."""
    nobody: tuple[str, ...] = ()
    return Film(
        number, name, year, None, (), "", nobody, nobody, nobody, None, (), (), "", None, ()
    )


def test_names():
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


@pytest.mark.long
def test_splits_share_no_bridge_entity(drafts: dict[Split, list[Draft]]):
    bridges = {
        split: {bridge for draft in drafts[split] for bridge in draft.bridges} for split in SPLITS
    }
    assert all(draft.bridges for split in SPLITS for draft in drafts[split])
    assert not bridges["train"] & bridges["dev"]
    assert not bridges["train"] & bridges["test"]
    assert not bridges["dev"] & bridges["test"]


@pytest.mark.long
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


@pytest.mark.long
def test_the_generator_still_makes_the_data_of_the_package(
    world: World, drafts: dict[Split, list[Draft]]
):
    made = dict(build.make_files(world, drafts))
    assert len(made) == 4
    for file, lines in made.items():
        assert lzma.decompress(file.read_bytes()) == lines, file


def test_a_file_with_the_same_lines_is_left_alone(tmp_path: Path):
    file = tmp_path / "data" / "dev.jsonl.xz"
    assert build.write(file, b"one\n")
    first = file.read_bytes()
    assert not build.write(file, b"one\n") and file.read_bytes() == first
    assert build.write(file, b"two\n") and lzma.decompress(file.read_bytes()) == b"two\n"


def test_other_versions_of_the_facts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pins = tmp_path / "requirements.txt"
    monkeypatch.setattr(packages, "REQUIREMENTS", pins)
    for line, told in (
        ("orjson==0.0.1", "the facts are those of 0.0.1"),
        ("no-such==1", "no-such"),
    ):
        pins.write_text(f"# a comment\n{line}\n")
        with pytest.raises(ModuleNotFoundError, match=rf"{told}.*: pip install -r "):
            packages.check_packages()


def test_the_pins_are_those_of_the_development_environment():
    constraints = (REPOSITORY / "constraints.txt").read_text().replace("_", "-").splitlines()
    pins = packages.REQUIREMENTS.read_text().splitlines()[1:]
    assert len(pins) == 3 and set(pins) <= set(constraints)


def test_the_order_of_hashes_does_not_matter():
    program = (
        "from tools.embedded_corpus.names import digest, shuffled\n"
        "print(digest('x'), shuffled({'a', 'b', 'c', 'd'}, 's', str))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_no_answer_is_usual():
    for split in SPLITS:
        questions = embedded_questions(split)
        counts = Counter((one.category, one.hops, one.answers[0]) for one in questions)
        for (category, hops, answer), number in counts.items():
            limit = max(1, 0.02 * quota(split, (category, hops)))
            assert number <= limit, (split, category, hops, answer)


@pytest.mark.long
def test_borders_are_those_of_the_factbook(world: World):
    france = next(country for country in world.countries if country.name == "France")
    assert ("sp", 646.0) in france.borders


@pytest.mark.long
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


def test_drafts_that_give_themselves_away():
    path = (Hop("a", "film-1", "Ann Lee"), Hop("b", "film-2", "Toy Story"))
    draft = Draft("k", "bridge", 'Who made "Toy Story 2"?', ("Toy Story",), path, ())
    assert draft.gives_itself_away
    assert not Draft("k", "bridge", "Who made it?", ("Toy Story",), path, ()).gives_itself_away
