"""TextArena's single-player games as environments."""

from __future__ import annotations

import random

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.adapters.seeded import Outline
from agentgym_rl.envs.adapters.textarena import textarena_class
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task
from case_shares import spread_over

GUESS = "textarena/GuessTheNumber-v0"


@pytest.mark.parametrize(
    "game", spread_over(["GuessTheNumber-v0", "Mastermind-v0-raw", "FrozenLake-v0-raw"], 1)
)
def test_games_pass_the_checker(game: str):
    num_processes = 2 if game == "GuessTheNumber-v0" else 0  # each imports the whole library
    assert check(f"textarena/{game}", tasks_per_split=5, num_processes=num_processes).problems == ()


def test_a_win_pays_one_at_the_end():
    env = registry.make(GUESS, {})
    assert "between 1 and 20" in env.reset(Task(GUESS, "train", 100))
    low, high, rewards = 1, 20, []
    while True:
        guess = (low + high) // 2
        result = env.step(str(guess))
        rewards.append(result.reward)
        assert result.valid_action
        if result.is_last:
            break
        assert f"[{guess}]" not in result.observation  # its own move is not told to the player
        low, high = (guess + 1, high) if "higher" in result.observation else (low, guess - 1)
    assert result.success and result.terminated
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_forbidden_moves_are_not_valid_and_two_in_a_row_lose():
    env = registry.make(GUESS, {})
    env.reset(Task(GUESS, "train", 100))
    first, second = env.step("[99]"), env.step("none")
    assert (first.valid_action, first.is_last) == (False, False)
    assert "outside the range" in first.observation
    assert (second.valid_action, second.terminated, second.success) == (False, True, False)


def test_raw_games_want_the_brackets():
    env = registry.make(f"{GUESS}-raw", {})
    env.reset(Task(f"{GUESS}-raw", "train", 100))
    assert not env.step("10").valid_action
    assert env.step("[10]").valid_action


def test_very_long_moves_do_not_reach_the_game():
    env = registry.make(GUESS, {})
    env.reset(Task(GUESS, "train", 100))
    assert not env.step("[" + "9" * 6000 + "]").valid_action


def test_the_global_generator_is_left_alone():
    env = registry.make(GUESS, {})
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    drawn = [random.random()]
    env.reset(Task(GUESS, "train", 100))
    drawn.append(random.random())
    env.step("3")
    drawn.append(random.random())
    assert drawn == expected


def test_options_reach_the_game():
    cls = textarena_class(
        "GuessTheNumber-v0", Outline(name="big", goal="Be quick."), options={"max_number": 77}
    )
    env = cls()
    text = env.reset(cls.tasks("test")[0])
    assert text.startswith("Be quick.") and "between 1 and 77" in text
    assert cls.spec.max_rounds == 10
    with pytest.raises(ValueError, match="refuses the options"):
        registry.make(GUESS, {"maximum": 3}).reset(Task(GUESS, "train", 100))


@pytest.mark.parametrize(
    ("game", "error", "words"),
    [
        ("GuessTheNumbr-v0", ValueError, "did you mean 'GuessTheNumber-v0'"),
        ("TicTacToe-v0", ValueError, "not a game for one player"),
        ("Debate-v0", EnvError, "cannot start"),
    ],
)
def test_other_games_are_refused(
    monkeypatch: pytest.MonkeyPatch, game: str, error: type[Exception], words: str
):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)  # Debate has a model for its jury
    with pytest.raises(error, match=words):
        registry.env_class(f"textarena/{game}")


def test_a_game_that_needs_a_download_says_so(monkeypatch: pytest.MonkeyPatch):
    import nltk

    monkeypatch.setattr(nltk, "download", lambda *names, **options: False)
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(EnvError, match=r"word lists of NLTK.*nltk.download\('words'\)"):
        registry.env_class("textarena/Hangman-v0-raw")
