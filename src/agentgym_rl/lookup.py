"""Objects by name: "module:Class" wherever a recipe or a command names code of the user's own.

A module is imported when its object is asked for, so only what a command or a recipe of the user
names may come here: names in a run folder are data.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TypeVar

from agentgym_rl.errors import did_you_mean

_Class = TypeVar("_Class")


class ImportFailedError(ValueError):
    """The module behind a name raised something while it was imported: the cause."""


OBJECT_MARKER = "<object>:"
"""What the name of an object begins with that a program handed over and no import finds."""


def is_own(name: object) -> bool:
    """Return whether a value is of the form "module:Class", as no built-in name is."""
    return isinstance(name, str) and ":" in name


def load_object(name: str, *, given: str, form: str = "module:Class") -> object:
    """Return what "module:Class" (or "module:Outer.Inner") names.

    `given` begins every message, e.g. "agent.type='chess:Player'". Raises ValueError where there is
    no such object, and ImportFailedError where the module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f'{given} is not of the form "{form}"')
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise ImportFailedError(
                f"{given}: importing {module_name!r} failed: {missing!r} is not installed"
            ) from error
        raise ValueError(
            f"{given}: there is no module {missing!r}; check the spelling, and that it is "
            "installed or on PYTHONPATH"
        ) from error
    except Exception as error:  # whatever a module of the user's own raises
        reason = f"{type(error).__name__}: {error}"
        raise ImportFailedError(f"{given}: importing {module_name!r} failed: {reason}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if callable(getattr(found, each))]
            hint = did_you_mean(part, [each for each in known if not each.startswith("_")])
            raise ValueError(f"{given}: module {module_name!r} has no {attribute!r}{hint}")
        found = getattr(found, part)  # the name is the user's
    return found


def load_class(name: str, base: type[_Class], *, setting: str) -> type[_Class]:
    """Return the subclass of `base` that a setting names. Raises ValueError as `load_object`."""
    given = f"{setting}={name!r}"
    found = load_object(name, given=given)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{given} is not a subclass of {base.__name__}: {found!r}")
    return found


def check_call(made: type, *arguments: object, given: str) -> None:
    """Raise ValueError where a class of the user's own cannot be made with these arguments."""
    try:
        inspect.signature(made).bind(*arguments)
    except TypeError as error:
        kinds = " and ".join(type(argument).__name__ for argument in arguments)
        raise ValueError(f"{given} is made with {kinds}: {error}") from error


def importable_name(thing: object) -> str:
    """Return "module:Class" where an import finds this very object; else an empty text.

    Nothing in a script that runs or in a notebook has such a name, nor has what a function made.
    """
    module = getattr(thing, "__module__", None)  # an object of the user's own
    name = getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        return ""
    return f"{module}:{name}" if found is thing else ""
