"""Objects in the place of names: what config.toml says of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.agents.agent import Agent
from agentgym_rl.api.arguments import names_and_objects
from agentgym_rl.api.plan import RunPlan, opened, plan_run
from agentgym_rl.callbacks import Callbacks
from agentgym_rl.config import AgentConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.objects import Objects
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode
from fakes import CountingEnv


class LastWord(Agent):
    """Like any other, by another name."""


def plan(run_dir: Path, objects: Objects, *, resume: bool = False) -> RunPlan:
    recipe = None if resume else "quickstart"
    return plan_run(recipe, run_dir=run_dir, resume=resume, objects=objects)


def test_what_can_be_imported_is_named(tmp_path: Path):
    config = plan(tmp_path / "a", Objects(env=CountingEnv, agent=LastWord)).config
    assert config.env.name == "fakes:CountingEnv"
    assert config.agent.type == f"{__name__}:LastWord"


def test_another_environment_does_not_inherit_what_the_recipe_says_of_its_own(tmp_path: Path):
    assert ag.load_config("quickstart").env.levels
    assert plan(tmp_path / "a", Objects(env=CountingEnv)).config.env.levels == ()


def test_what_cannot_be_imported_is_marked_and_needed_again(tmp_path: Path):
    class Hidden(CountingEnv):
        pass

    def mine(episode: Episode) -> float:
        return float(episode.success)

    objects = Objects(env=Hidden, reward=mine)
    first = plan(tmp_path / "a", objects)
    assert first.config.env.name.startswith("<object>:") and "Hidden" in first.config.env.name
    assert first.config.reward.function.startswith("<object>:")
    with opened(first):
        first.folder.metrics_file.write_text("")  # begun
    with pytest.raises(ConfigError, match=r"Hidden.*pass them again.*env=\.\.\., reward=\.\.\."):
        plan(tmp_path / "a", Objects(), resume=True)
    with pytest.raises(ConfigError, match=r"env=\.\.\.\)"):
        plan(tmp_path / "a", Objects(reward=mine), resume=True)
    assert plan(tmp_path / "a", objects, resume=True).config == first.config
    with pytest.raises(ConfigError, match=r"changed against.*env\.name"):
        plan(tmp_path / "a", Objects(env=CountingEnv, reward=mine), resume=True)


def test_an_agent_that_is_made_says_its_own_settings(tmp_path: Path):
    agent = LastWord(AgentConfig(format="react"), CountingEnv.spec)
    objects = Objects(env=CountingEnv, agent=agent)
    config = plan(tmp_path / "a", objects).config
    assert config.agent.format == "react" and config.agent.type.startswith("<object>:")
    assert objects.make_agent(config.agent, CountingEnv.spec) is agent
    other = ag.make("textcraft").spec
    with pytest.raises(ValueError, match=rf"was made for '{CountingEnv.spec.name}'.*'textcraft'"):
        objects.make_agent(config.agent, other)


def test_workers_need_a_class_that_they_can_import(tmp_path: Path):
    class Hidden(CountingEnv):
        pass

    objects = Objects(env=Hidden)
    env = plan(tmp_path / "a", objects).config.env
    with pytest.raises(ConfigError, match="Hidden cannot be imported"):
        objects.source(env.model_copy(update={"workers": 2}))
    with pytest.raises(ConfigError, match="give one of the two"):
        objects.source(env.model_copy(update={"url": "http://127.0.0.1:1"}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": CountingEnv()}, "pass the class, env=CountingEnv"),
        ({"env": 3}, "env=3 is not an environment"),
        ({"env": Path}, "is not an environment"),
        ({"agent": CountingEnv}, "is not a subclass of Agent"),
        ({"agent": 3}, "agent=3 is not a subclass of Agent"),
        ({"algorithm": CountingEnv}, "is not an algorithm"),
        ({"algorithm": 3}, "algorithm=3 is not an algorithm"),
        ({"reward": 1.0}, "reward=1.0 is not a function"),
    ],
)
def test_what_is_no_such_object_is_refused(arguments: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        names_and_objects(**arguments)  # pyrefly: ignore[bad-argument-type] - mistakes


def test_mistakes_in_the_call_are_named():
    with pytest.raises(ConfigError, match=r"folder of the run .*in Python run_dir"):
        ag.train(resume=True)
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        ag.train("quickstrt")
    with pytest.raises(ConfigError, match="recipe=3 is a int"):
        ag.train(3)  # pyrefly: ignore[bad-argument-type] - a mistake
    with pytest.raises(ValueError, match="not the class"):
        Callbacks([ag.Callback])  # pyrefly: ignore[bad-argument-type] - a mistake
    with pytest.raises(ValueError, match="pass a list of callbacks, not <built"):
        Callbacks(print)  # pyrefly: ignore[bad-argument-type] - a mistake
    with pytest.raises(ValueError, match="is not a Callback"):
        Callbacks([print])  # pyrefly: ignore[bad-argument-type] - a mistake
    with pytest.raises(ValueError, match="goes with a loaded model"):
        ag.train(tokenizer=object())  # pyrefly: ignore[bad-argument-type] - a mistake


def test_a_refused_run_leaves_no_folder(tmp_path: Path):
    made = plan(tmp_path / "runs" / "a", Objects(env=CountingEnv))
    with pytest.raises(ValueError, match="late"), opened(made):
        raise ValueError("too late")
    assert list(tmp_path.iterdir()) == []


def test_reading_a_run_imports_nothing_that_it_names(tmp_path: Path):
    folder = RunFolder(tmp_path / "run")
    folder.create(
        '[algorithm]\ntype = "no_module:A"\nown = 3\n'
        '[agent]\ntype = "no_module:B"\nformat = "no_module:C"\n'
    )
    config = ag.Run(folder.path).config
    assert config.algorithm.type == "no_module:A"
    assert (config.agent.type, config.agent.format) == ("no_module:B", "no_module:C")
