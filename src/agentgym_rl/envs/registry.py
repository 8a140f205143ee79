"""Names of environments, and how a name becomes a class.

    "babyai"                 built in (BUILTIN below)
    "chess"                  a user's own, through the entry-point group "agentgym_rl.envs"
    "my_package.chess:Chess" any importable class
    "gymnasium/Taxi-v4"      an id of another library, through an adapter (FAMILIES below)

A class is imported when it is first asked for, so a missing extra matters only to who uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import metadata

from agentgym_rl.envs.base import Environment
from agentgym_rl.errors import EnvError, did_you_mean, install_command
from agentgym_rl.lookup import ImportFailedError, load_object

ENTRY_POINT_GROUP = "agentgym_rl.envs"

_PLAIN_TYPES: Mapping[str, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
}
"""Annotation -> what it is to a user."""

BUILTIN: Mapping[str, str] = {
    "textcraft": "agentgym_rl.envs.scenarios.textcraft.env:TextCraft",
    "textcraft_generated": (
        "agentgym_rl.envs.scenarios.textcraft.generated_env:GeneratedTextCraft"
    ),
    "babyai": "agentgym_rl.envs.scenarios.babyai.env:BabyAI",
    "sciworld": "agentgym_rl.envs.scenarios.sciworld.env:SciWorld",
    "searchqa": "agentgym_rl.envs.scenarios.searchqa.env:SearchQA",
    "miniwob": "agentgym_rl.envs.scenarios.miniwob.env:MiniWoB",
    "web": "agentgym_rl.envs.scenarios.web.env:WebEnvironment",
    "webarena": "agentgym_rl.envs.scenarios.webarena.env:WebArena",
}
"""Name -> "module:Class". The extra that an environment needs, if any, has the environment's
name."""

FAMILIES: Mapping[str, str] = {
    "gymnasium": "agentgym_rl.envs.adapters.gymnasium:gymnasium_class",
    "textarena": "agentgym_rl.envs.adapters.textarena:textarena_class",
    "reasoning_gym": "agentgym_rl.envs.adapters.reasoning_gym:reasoning_gym_class",
    "mcp": "agentgym_rl.envs.adapters.mcp:configured_class",
}
"""Prefix -> "module:function" that makes a class of the id after the slash. The extra has the
prefix's name, with a hyphen for an underscore."""


def names() -> tuple[str, ...]:
    """Return every known name: the built-in ones in their order, then users' own, sorted."""
    return (*BUILTIN, *sorted(set(_installed()) - set(BUILTIN)))


def env_class(name: str) -> type[Environment]:
    """Return the class behind a name or a "module:Class" string.

    Raises ValueError when there is none, and EnvError when importing it fails.
    """
    family, slash, env_id = name.partition("/")
    if slash and family in FAMILIES:
        return _family_class(family, env_id)
    loaded = _import_class(_target(name), name)
    if not (isinstance(loaded, type) and issubclass(loaded, Environment)):
        raise ValueError(f"environment {name!r} is not a subclass of Environment: {loaded!r}")
    if not hasattr(loaded, "spec"):
        raise ValueError(f"environment {name!r} has no `spec`; give the class an EnvSpec")
    return loaded


def make(name: str, options: Mapping[str, object]) -> Environment:
    """Return a new environment object. Raises ValueError for an unknown name or option."""
    return construct(configured(env_class(name), options), options)


def configured(cls: type[Environment], options: Mapping[str, object]) -> type[Environment]:
    """Return the class for these options. Raises ValueError for one that it does not take."""
    check_options(cls, options)
    return cls.with_options(options)


def construct(cls: type[Environment], options: Mapping[str, object]) -> Environment:
    """Return `cls(**options)`; a missing package becomes an EnvError with the remedy."""
    try:
        return cls(**options)
    except ModuleNotFoundError as error:
        raise _missing_package(cls.spec.name, error) from error
    except ValueError as error:
        raise ValueError(f"environment {cls.spec.name!r} cannot be made: {error}") from error


def check_options(cls: type[Environment], options: Mapping[str, object]) -> None:
    """Raise ValueError when the constructor does not take an option, or not such a value."""
    parameters = inspect.signature(cls).parameters
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    legal = list(parameters)
    for option, value in options.items():
        if option in parameters:
            _check_type(cls.spec.name, parameters[option], value)
        elif not is_open:
            choices = f"its options are {', '.join(legal)}" if legal else "it has no options"
            raise ValueError(
                f"environment {cls.spec.name!r} has no option {option!r}"
                f"{did_you_mean(option, legal)}; {choices}"
            )


def _check_type(env: str, option: inspect.Parameter, value: object) -> None:
    """Raise ValueError for a plain value where the annotation asks for another plain type."""
    annotation = inspect.formatannotation(option.annotation).strip("'")
    types = [name for name in annotation.split(" | ") if name != "None"]
    given = type(value).__name__
    if given not in _PLAIN_TYPES or given in types or not _PLAIN_TYPES.keys() >= set(types):
        return
    if not (given == "int" and "float" in types):
        wanted = " or ".join(_PLAIN_TYPES[name] for name in types)
        raise ValueError(
            f"option {option.name!r} of environment {env!r} must be {wanted}, got {value!r}"
        )


@cache  # the same name is the same class, and making one starts the environment once
def _family_class(family: str, env_id: str) -> type[Environment]:
    """Return the class that an adapter makes of another library's id."""
    name = f"{family}/{env_id}"
    make_class = _import_class(FAMILIES[family], name)
    assert callable(make_class)
    try:
        made: type[Environment] = make_class(env_id)
    except ModuleNotFoundError as error:
        raise _missing_package(name, error) from error
    return made


def _target(name: str) -> str:
    if ":" in name:
        return name
    target = BUILTIN.get(name) or _installed().get(name)
    if target is None:
        _, slash, env_id = name.partition("/")
        known = [f"{prefix}/{env_id}" for prefix in FAMILIES] if slash else names()
        raise ValueError(
            f"unknown environment {name!r}{did_you_mean(name, known)}; available: "
            f"{', '.join(names())}, {', '.join(f'{prefix}/ID' for prefix in FAMILIES)}, and any "
            'class as "module:Class"'
        )
    return target


def _import_class(target: str, name: str) -> object:
    try:
        return load_object(target, given=f"environment {name!r}")
    except ImportFailedError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise _missing_package(name, error.__cause__) from error
        raise EnvError(str(error)) from error


def _missing_package(name: str, error: ModuleNotFoundError) -> EnvError:
    missing = error.name or str(error)
    family = name.partition("/")[0]
    extra = family.replace("_", "-") if family in FAMILIES else name
    has_extra = family in FAMILIES or name in BUILTIN
    remedy = install_command(extra) if has_extra else f"install {missing!r}"
    return EnvError(f"environment {name!r} needs {missing!r}, which is not installed: {remedy}")


@cache  # reading every installed distribution takes milliseconds
def _installed() -> Mapping[str, str]:
    """Return name -> "module:Class" of the entry points."""
    return {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
