"""Names of environments: lookup, options, and the words of a failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EnvError
from fakes import CountingEnv, fake_spec


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a user's package has one environment."""
    points = [EntryPoint("my-counting", "fakes:CountingEnv", registry.ENTRY_POINT_GROUP)]
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: points)
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def test_every_builtin_name_is_the_name_in_its_spec():
    for name in registry.BUILTIN:
        assert registry.env_class(name).spec.name == name


def test_entry_points_are_listed_and_found(installed: None):
    assert registry.names() == (*registry.BUILTIN, "my-counting")
    assert registry.env_class("my-counting") is CountingEnv


def test_a_class_is_found_by_module_and_name():
    assert registry.env_class("fakes:CountingEnv") is CountingEnv
    assert isinstance(registry.make("fakes:CountingEnv", {"largest": 2}), CountingEnv)


def test_unknown_name_lists_the_known_ones_and_a_guess():
    with pytest.raises(ValueError, match=r"'textcaft' \(did you mean 'textcraft'\?\).*babyai"):
        registry.env_class("textcaft")


@pytest.mark.parametrize("name", ["no_such_module:Env", "fakes:NoSuchEnv", "fakes:fake_spec"])
def test_wrong_class_string_is_refused(name: str):
    with pytest.raises(ValueError, match="environment"):
        registry.env_class(name)


def test_unknown_option_names_the_legal_ones():
    with pytest.raises(ValueError, match=r"'larges' \(did you mean 'largest'\?\).*are largest"):
        registry.make("fakes:CountingEnv", {"larges": 2})
    with pytest.raises(ValueError, match="it has no options"):
        registry.make("fakes:BrokenStartEnv", {"size": 2})


class OptionsEnv(CountingEnv):
    def __init__(self, *, name: str = "", share: float = 0.0, most: int | None = None) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("option", "value", "wanted"),
    [
        ("name", 1, "a text"),
        ("share", "half", "a number"),
        ("share", True, "a number"),
        ("most", 1.5, "a whole number"),
    ],
)
def test_an_option_of_another_type_is_refused(option: str, value: object, wanted: str):
    with pytest.raises(ValueError, match=f"{option!r} of .* must be {wanted}, got {value!r}"):
        registry.check_options(OptionsEnv, {option: value})


def test_a_whole_number_is_a_float_and_none_may_be():
    registry.check_options(OptionsEnv, {"share": 1, "most": None, "name": "x"})


class UnlicensedEnv(CountingEnv):
    def __init__(self) -> None:
        raise ValueError("no licence")


def test_an_environment_that_cannot_be_made_is_named():
    with pytest.raises(ValueError, match="environment 'counting' cannot be made: no licence"):
        registry.make(f"{__name__}:UnlicensedEnv", {})


class TunedEnv(CountingEnv):
    """Has another spec where the option is large."""

    @classmethod
    def with_options(cls, options: Mapping[str, object]) -> type[Environment]:
        return LargeEnv if options.get("largest") == 9 else cls


class LargeEnv(TunedEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", max_rounds=3)


async def test_options_can_choose_the_class_and_so_its_spec():
    assert type(registry.make(f"{__name__}:TunedEnv", {"largest": 2})) is TunedEnv
    assert type(registry.make(f"{__name__}:TunedEnv", {"largest": 9})) is LargeEnv
    assert (await LocalEnvSource(TunedEnv, options={"largest": 9}).spec()).max_rounds == 3
    with pytest.raises(ValueError, match="did you mean 'largest'"):
        registry.configured(TunedEnv, {"larges": 9})


def test_missing_package_says_which_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "needy_env.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "BUILTIN", {"babyai": "needy_env:Env"})
    monkeypatch.setattr(registry, "install_command", "get {}".format)
    with pytest.raises(
        EnvError, match="'a_package_nobody_has', which is not installed: get babyai"
    ):
        registry.env_class("babyai")
    with pytest.raises(EnvError, match="install 'a_package_nobody_has'"):
        registry.env_class("needy_env:Env")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("gymnasium/FrozenLake-v1", "gymnasium", "gymnasium"),
        ("textarena/GuessTheNumber-v0", "textarena", "textarena"),
        ("reasoning_gym/leg_counting", "reasoning_gym", "reasoning-gym"),
    ],
)
def test_a_family_whose_library_is_missing_names_its_extra(name: str, package: str, extra: str):
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from agentgym_rl.envs import registry\n"
        "from agentgym_rl.errors import EnvError\n"
        "registry.install_command = 'get {}'.format\n"
        f"try: registry.env_class({name!r})\n"
        "except EnvError as error: print(error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert f"needs {package!r}" in result.stdout
    assert f"get {extra}" in result.stdout


def test_the_registry_imports_no_environment():
    program = (
        "import sys, agentgym_rl.envs.registry\n"
        "libraries = {'gymnasium', 'textarena', 'reasoning_gym', 'minigrid', 'numpy'}\n"
        "assert not libraries & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_servers_and_clients_start_without_torch():
    program = (
        "import sys, agentgym_rl.envs.access.serve, agentgym_rl.envs.service.client.http\n"
        "import agentgym_rl.envs.checking.checker\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_local_client_needs_no_http_library():
    program = (
        "import sys, agentgym_rl.envs.execution.local\n"
        "assert not {'aiohttp', 'starlette', 'uvicorn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
