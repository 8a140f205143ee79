"""Scores of answers, worked out by hand."""

from __future__ import annotations

import pytest

from agentgym_rl.envs.scenarios.searchqa.scoring import exact_match, f1, normalize


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Beatles!", "beatles"),
        ("  an  Apple a day ", "apple day"),
        ("U.S.A.", "usa"),
        ("Theatre", "theatre"),
        ("don't", "dont"),
        ("1,000", "1000"),
        ("the", ""),
        ("Åland", "åland"),
        ("well-known", "wellknown"),
        ("a-ha", "aha"),
    ],
)
def test_normalisation_is_squads(text: str, normal: str):
    assert normalize(text) == normal


def test_exact_match_looks_at_every_accepted_answer():
    assert exact_match("the volga.", ("Rhine", "Volga")) == 1.0
    assert exact_match("Volga river", ("Rhine", "Volga")) == 0.0
    assert exact_match("", ("Volga",)) == 0.0
    assert exact_match("the", ("a",)) == 1.0  # both are nothing
    assert exact_match("Volga", ()) == 0.0


def test_f1_by_hand():
    # common: "andrei", 1 of 2 given and 1 of 2 wanted: P = R = 1/2
    assert f1("Andrei Petrov", ("Andrei Tarkovsky",)) == pytest.approx(0.5)
    # common: 2 of 3 given, 2 of 2 wanted: 2 * (2/3) / (5/3) = 0.8
    assert f1("film Andrei Tarkovsky", ("Andrei Tarkovsky",)) == pytest.approx(0.8)
    # a word counts as often as both have it: given b b c, wanted b c c -> common 2, P = R = 2/3
    assert f1("b b c", ("b c c",)) == pytest.approx(2 / 3)
    assert f1("the Volga", ("Volga",)) == 1.0
    assert f1("Rhine", ("Volga",)) == 0.0


def test_f1_takes_the_best_of_the_accepted_answers():
    assert f1("Mount Everest", ("Everest", "Mount Everest")) == 1.0
    # against "Everest" alone: P = 1/2, R = 1, 2 * (1/2) / (3/2) = 2/3
    assert f1("Mount Everest", ("Everest", "K2")) == pytest.approx(2 / 3)


def test_f1_of_nothing():
    assert f1("", ("Volga",)) == 0.0
    assert f1("the", ("an",)) == 1.0
    assert f1("Volga", ()) == 0.0
