"""Single-player games of TextArena as environments.

    "textarena/GuessTheNumber-v0"                                by the game's id
    Easy = textarena_class("Mastermind-v0", options={"code_length": 3})    in your own module

An id that ends in "-raw" takes moves as the game reads them; others add the square brackets that
an agent left out. Games for several players are refused, and so are those that need a download.
Games draw from Python's global generator. Each object keeps a state of its own for it and puts
that in place for the time of a call, under one lock.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import textarena
from textarena.envs.registration import ENV_REGISTRY
from textarena.wrappers import ActionFormattingWrapper

from agentgym_rl.envs.adapters.seeded import SPLITS, Outline, SeededEnvironment, seed_of
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.errors import EnvError, did_you_mean
from agentgym_rl.types import StepResult, Task

_DEFAULT_ROUNDS = 50
_MAX_CHARS = 2000
"""Games read numbers of any length, and Python refuses very long ones."""
_MIN_SUCCESS_REWARD = 0.999

_global_random = threading.Lock()


def textarena_class(
    game: str,
    outline: Outline | None = None,
    *,
    options: Mapping[str, object] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> type[SeededEnvironment]:
    """Return the environment of a game; `options` are arguments of the game's constructor.

    A game pays once, at its end; what it pays is cut to `reward_range`. Raises ValueError for an
    unknown game or one for several players, and EnvError for a game that cannot start.
    """
    if game not in ENV_REGISTRY:
        raise ValueError(f"TextArena has no game {game!r}{did_you_mean(game, ENV_REGISTRY)}")
    given = outline or Outline()
    settings = dict(options or {})
    max_turns = _try_out(game, settings)

    class Adapted(TextArenaEnvironment):
        spec: ClassVar[EnvSpec] = EnvSpec(
            name=given.name or f"textarena/{game}",
            summary=f"The game {game} of TextArena, for one player.",
            instructions=given.instructions
            or f"You play the game {game}. The first observation has the rules. Your action is "
            "one move, written as the rules say.",
            example_action=given.example_action or "[1]",
            splits=SPLITS,
            categories=(game,),
            max_rounds=given.max_rounds or max_turns or _DEFAULT_ROUNDS,
            reward_range=reward_range,
            success="the game pays 1, which is a win",
        )
        outline: ClassVar[Outline] = given
        shares_thread: ClassVar[bool] = given.shares_thread
        _game_id: ClassVar[str] = game
        _settings: ClassVar[Mapping[str, object]] = settings

    return Adapted


class TextArenaEnvironment(SeededEnvironment):
    """One game. The reward comes at the end; a move that the rules forbid is not valid."""

    _game_id: ClassVar[str]
    _settings: ClassVar[Mapping[str, object]]

    def __init__(self, **options: object) -> None:
        """Take arguments of the game's constructor, which only TextArena can list."""
        self._options = {**self._settings, **options}
        self._game: textarena.Env | None = None
        self._adds_brackets = False
        self._random_state = random.Random(0).getstate()

    def reset(self, task: Task) -> str:
        """Start a new game: objects of games keep things from one to the next."""
        self._check_task(task)
        seed = seed_of(task)
        self._random_state = random.Random(seed).getstate()
        with self._own_random():
            game = _make_game(self._game_id, self._options)
            is_wrapped = isinstance(game, textarena.Wrapper)
            self._adds_brackets = is_wrapped and game.is_wrapped_with(ActionFormattingWrapper)
            self._game = _unwrapped(game)
            self._game.reset(num_players=1, seed=seed)
            text = self._new_messages()
        return f"{self.outline.goal}\n\n{text}" if self.outline.goal else text

    def step(self, action: str) -> StepResult:
        """Make one move. Two forbidden moves in a row end most games."""
        assert self._game is not None, "reset before the first step"
        if len(action) > _MAX_CHARS:
            reply = f"A move can have at most {_MAX_CHARS} characters."
            return StepResult(reply, valid_action=False)
        if self._adds_brackets and "[" not in action and "]" not in action:
            action = f"[{action.strip()}]"
        state = _state_of(self._game)
        num_errors = state.error_count
        with self._own_random():
            is_over, _ = self._game.step(action)
            text = self._new_messages()
        # The count starts anew with a valid move, and the last straw is noted elsewhere.
        is_valid = state.error_count <= num_errors and not state.game_info[0]["invalid_move"]
        if not is_over:
            return StepResult(text or "(nothing to see)", valid_action=is_valid)
        return self._last_result(text, is_valid=is_valid)

    def details(self) -> Mapping[str, JsonValue]:
        if self._game is None:
            return {}
        state = _state_of(self._game)
        return {"game": self._game_id, "turn": int(state.turn), "max_turns": state.max_turns}

    def _last_result(self, text: str, *, is_valid: bool) -> StepResult:
        assert self._game is not None
        rewards, infos = self._game.close()
        paid: object = (rewards or {}).get(0)
        # Some games mix up two arguments and pay in words for a second forbidden move.
        reward = float(paid) if isinstance(paid, int | float) else 0.0
        low, high = self.spec.reward_range
        reason = str(infos[0].get("reason") or "The game is over.")
        return StepResult(
            f"{text}\n{reason}".strip(),
            reward=min(max(reward, low), high),
            terminated=True,
            success=reward >= _MIN_SUCCESS_REWARD,
            valid_action=is_valid,
        )

    def _new_messages(self) -> str:
        """Return what the game has said since the last look, without the player's own moves."""
        assert self._game is not None
        _, messages = self._game.get_observation()
        texts = (str(text).strip() for sender, text, _ in messages if sender == textarena.GAME_ID)
        return "\n".join(text for text in texts if text)

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        with _global_random:
            outside = random.getstate()
            random.setstate(self._random_state)
            try:
                yield
            finally:
                self._random_state = random.getstate()
                random.setstate(outside)


def _make_game(game: str, options: Mapping[str, object]) -> textarena.Env:
    """Return a new game; a failure says what is missing."""
    try:
        return textarena.make(game, **options)
    except LookupError as error:
        lines = [line.strip() for line in str(error).splitlines() if "nltk.download" in line]
        command = lines[0].removeprefix(">>> ") if lines else "nltk.download(...)"
        raise EnvError(
            f"TextArena's {game} needs word lists of NLTK, which are not installed: run "
            f'python -c "import nltk; {command}" where there is a network'
        ) from error
    except TypeError as error:
        raise ValueError(f"TextArena's {game} refuses the options {options}: {error}") from error
    except Exception as error:
        raise EnvError(f"TextArena's {game} cannot start: {error!r}") from error


def _try_out(game: str, options: Mapping[str, object]) -> int | None:
    """Return the game's limit on turns, if it has one; refuse games for several players."""
    made = _unwrapped(_make_game(game, options))
    with _global_random:
        outside = random.getstate()
        try:
            made.reset(num_players=1, seed=0)
            return _state_of(made).max_turns
        except Exception as error:  # each game has its own way to refuse a single player
            raise ValueError(
                f"TextArena's {game} is not a game for one player: choose another"
            ) from error
        finally:
            random.setstate(outside)


def _state_of(game: textarena.Env) -> textarena.SinglePlayerState:
    state = getattr(game, "state", None)  # every game sets it in reset, none declares it
    assert isinstance(state, textarena.SinglePlayerState), type(state)
    return state


def _unwrapped(game: textarena.Env) -> textarena.Env:
    """Wrappers repeat the whole game in every observation; an agent here has the conversation."""
    while isinstance(game, textarena.Wrapper):
        game = game.env
    return game
