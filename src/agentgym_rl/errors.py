"""The exception tree.

    AgentGymError
    ├── ConfigError            a recipe or an override is wrong (the user can fix it)
    ├── EnvError               an environment, or the way to it, failed
    │   ├── EnvTimeoutError    a call to an environment passed its deadline
    │   ├── EnvAwayError       its server cannot be reached
    │   ├── EnvGoneError       the episode is no longer there (reaped, closed, its worker died)
    │   ├── EnvBusyError       the server has no free place; try again later
    │   └── PromptTooLongError a task's first prompt leaves no room for a reply
    ├── EngineError            generation failed
    ├── LearnerDiedError       a process of a sharded learner is gone
    ├── AgentError             an agent's own code failed
    └── RunError               a run folder cannot be used as asked
        └── RunFailedError     a run or an evaluation ended without its result

`ValueError` is for an argument that the caller can fix; `assert` for what only a bug can break.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

TRAINING_PACKAGES = frozenset(
    {"jinja2", "matplotlib", "safetensors", "tokenizers", "torch", "transformers"}
)
"""What the extra `train` brings; the environment module works without it."""
_REPOSITORY = Path(__file__).parents[2]
"""The clone that this runs from, if it does."""
_BESIDE_SETUP = frozenset({"flash4", "smollm2", "vllm", "webarena"})
"""Extras that `make setup` does not install."""


class AgentGymError(Exception):
    """Base of every failure that crosses a module border."""


class ConfigError(AgentGymError):
    """A recipe, an override or a combination of settings is refused; the message has the remedy."""


class EnvError(AgentGymError):
    """An environment failed. Never the agent's fault, never a reward."""


class EnvTimeoutError(EnvError):
    """A call to an environment passed its deadline."""


class EnvAwayError(EnvError):
    """The server of an environment cannot be reached, or the connection to it was lost."""


class EnvGoneError(EnvError):
    """The episode is no longer on the server."""


class EnvBusyError(EnvError):
    """The server is at capacity."""


class PromptTooLongError(EnvError):
    """A task's first prompt leaves no room for a reply; another try would find the same."""


class EngineError(AgentGymError):
    """Generation failed."""


class LearnerDiedError(AgentGymError):
    """A process of a sharded learner is gone, or does not answer; all of them have been ended."""


class AgentError(AgentGymError):
    """An agent's own code failed; its exception is the cause."""


class RunError(AgentGymError):
    """A run folder is missing, in use, or does not fit what was asked."""


class RunFailedError(RunError):
    """A run or an evaluation ended without its result, for reasons that are not its settings'."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the nearest of the known words, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def some_of(names: Iterable[str], *, most: int = 8) -> str:
    """Return names for a message, "a, b, c"; of many the first, and how many more."""
    known = list(names)
    left = len(known) - most
    return ", ".join(known[:most]) + (f" and {left} more" if left > 0 else "")


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from PyPI or in a clone of the repository."""
    if not (_REPOSITORY / "scripts" / "setup.sh").is_file():
        return f"pip install 'agentgym-rl[{extra}]'"
    return f"pip install -e '.[{extra}]'" if extra in _BESIDE_SETUP else "make setup"


def missing_training_package(error: ModuleNotFoundError) -> str | None:
    """Return the remedy for a package that only training needs; None for any other package."""
    package = (error.name or "").partition(".")[0]
    if package not in TRAINING_PACKAGES:
        return None
    return f"this needs the extra 'train' ({package} is not installed): {install_command('train')}"


def how_it_ended(status: int | None) -> str:
    """Return how a process ended, "was killed by signal 9; ..." or "exited (1)"."""
    if status is None or status >= 0:
        return f"exited ({status})"
    hint = "; the system may have run out of memory" if status == -9 else ""
    return f"was killed by signal {-status}{hint}"


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Turn whatever an environment raises into one line for the user."""
    try:
        yield
    except (AgentGymError, ValueError):
        raise
    except Exception as error:
        raise EnvError(f"{what} raised {type(error).__name__}: {error}") from error
