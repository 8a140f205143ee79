"""`import agentgym_rl as ag`: which names there are, and what they load."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import agentgym_rl as ag
from agentgym_rl.envs.base import Environment
from fakes import CountingEnv


def in_fresh_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_listed():
    for name in ag.__all__:
        assert getattr(ag, name) is not None
    assert set(ag.__all__) <= set(dir(ag))
    assert len(set(ag.__all__)) == len(ag.__all__) == len(ag._MODULE_OF)


def test_type_checkers_see_the_names_that_there_are():
    source = inspect.getsource(ag)
    block = source[source.index("if TYPE_CHECKING:") : source.index("__version__")]
    assert all(name in block for name in ag.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ag.nothing  # pyrefly: ignore[missing-attribute] - which is the point


def test_the_package_and_the_names_of_environments_load_no_torch():
    program = (
        "import sys, agentgym_rl as ag\n"
        "assert not {'torch', 'transformers', 'pydantic'} & set(sys.modules)\n"
        "env = ag.make('textcraft')\n"
        "ag.Environment, ag.EnvSpec, ag.Task, ag.StepResult, ag.check, ag.Agent, ag.Episode\n"
        "ag.load_config('quickstart'), ag.RunConfig, ag.Group, ag.Callback, ag.Run, ag.EvalReport\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    in_fresh_process(program)


@pytest.mark.long  # 5 s: torch and transformers in a fresh process
def test_rollout_is_the_function_whatever_is_imported_first():
    program = (
        "import agentgym_rl as ag\n"
        "import agentgym_rl.rollout.tasks\n"
        "from agentgym_rl.rollout import limits\n"
        "print(ag.rollout.__module__, limits.__name__)\n"
    )
    assert in_fresh_process(program).split() == [
        "agentgym_rl.api.playing",
        "agentgym_rl.rollout.limits",
    ]


def test_make_takes_a_name_or_a_class_and_options():
    env = ag.make("textcraft")
    env.reset(env.tasks("test")[0])
    assert env.step("inventory").observation.startswith("Inventory")
    assert isinstance(ag.make(CountingEnv), Environment)
    with pytest.raises(ValueError, match="no option 'colour'"):
        ag.make("textcraft", colour="red")
    with pytest.raises(ValueError, match="did you mean 'textcraft'"):
        ag.make("textcrft")
