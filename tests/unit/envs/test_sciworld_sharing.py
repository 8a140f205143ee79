"""Many SciWorld episodes in one Java process: each goes as it would alone, none is left behind."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentgym_rl.envs.scenarios.sciworld.env import SciWorld
from agentgym_rl.envs.scenarios.sciworld.jvm import shared_jvm
from agentgym_rl.envs.scenarios.sciworld.tasks import TOPICS
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task

Transcript = list[str | StepResult]
Script = tuple[Task, list[str]]

WANDER = (
    "open door to kitchen",
    "open door to hallway",
    "open door to outside",
    "open door to greenhouse",
    "go to hallway",
    "go to greenhouse",
    "open bee hive",
    "wait",
    "pick up thermometer",
    "look around",
    "no such action",
    "go to outside",
    "activate sink",
    "inventory",
    "wait1",
)


def wandering(num_scripts: int, num_actions: int, seed: int) -> list[Script]:
    """Return tasks of all kinds, each with actions that many worlds answer, drawn at random."""
    rng = random.Random(seed)
    return [
        (
            Task("sciworld", "train", topic.start + rng.randrange(topic.num_variations)),
            rng.choices(WANDER, k=num_actions),
        )
        for topic in rng.sample(TOPICS, num_scripts)
    ]


def solving(names: list[str], folder: Path) -> list[Script]:
    """Return tasks with the expert's actions."""
    scripts: list[Script] = []
    env = SciWorld(gold_dir=str(folder))
    for topic in TOPICS:
        if topic.name not in names:
            continue
        task, actions = Task("sciworld", "train", topic.start + 1), []
        env.reset(task)
        while (action := env.expert_action()) is not None:
            actions.append(action)
            env.step(action)
        scripts.append((task, actions))
    return scripts


def play_alone(scripts: list[Script]) -> list[Transcript]:
    """Play one episode after another."""
    env, transcripts = SciWorld(), []
    for task, actions in scripts:
        transcript: Transcript = [env.reset(task)]
        transcript += [env.step(action) for action in actions]
        transcripts.append(transcript)
    env.close()
    return transcripts


def play_together(scripts: list[Script], seed: int) -> list[Transcript]:
    """Play all episodes at once; the next to act is drawn at random."""
    rng = random.Random(seed)
    envs = [SciWorld() for _ in scripts]
    transcripts: list[Transcript] = [[] for _ in scripts]
    left = list(range(len(scripts)))
    while left:
        number = rng.choice(left)
        task, actions = scripts[number]
        done = transcripts[number]
        done.append(envs[number].step(actions[len(done) - 1]) if done else envs[number].reset(task))
        if len(done) > len(actions):
            left.remove(number)
            envs[number].close()
    return transcripts


@pytest.mark.long
@pytest.mark.parametrize(
    ("num_scripts", "num_actions"), [(4, 6), pytest.param(12, 12, marks=pytest.mark.long)]
)
def test_episodes_in_turns_go_as_they_go_alone(num_scripts: int, num_actions: int):
    scripts = wandering(num_scripts=num_scripts, num_actions=num_actions, seed=0)
    assert play_together(scripts, seed=1) == play_alone(scripts)


def test_simplified_and_plain_episodes_do_not_mix():
    task = Task("sciworld", "train", 3)
    plain, easy = SciWorld(), SciWorld(simplifications="easy")
    plain.reset(task)
    easy.reset(task)
    for _ in range(2):
        assert not plain.step("teleport to kitchen").valid_action
        assert easy.step("teleport to kitchen").valid_action
        assert "teleport OBJ" in easy.simulation.action_templates()
        assert "teleport OBJ" not in plain.simulation.action_templates()


@pytest.mark.long
def test_threads_take_turns():
    scripts = wandering(num_scripts=6, num_actions=8, seed=2)
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda script: play_alone([script])[0], scripts))
    assert together == play_alone(scripts)


@pytest.mark.long
def test_expert_paths_in_turns_solve_their_tasks(tmp_path: Path):
    names = ["boil", "power-component", "find-animal", "chemistry-mix", "use-thermometer"]
    scripts = solving(names, tmp_path)
    together = play_together(scripts, seed=3)
    for (task, _), transcript in zip(scripts, together, strict=True):
        last = transcript[-1]
        assert isinstance(last, StepResult) and last.success, task
    assert together == play_alone(scripts)


@pytest.mark.long
def test_an_episode_is_the_same_in_another_process():
    scripts = wandering(num_scripts=2, num_actions=10, seed=4)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_sciworld_sharing import *\n"
        "print(play_alone(wandering(num_scripts=2, num_actions=10, seed=4)))"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == repr(play_alone(scripts))


def count_objects_held() -> int:
    """Return how many objects Java keeps for us."""
    jvm = shared_jvm()
    with jvm.calls():
        gateway = jvm.gateway.java_gateway_server.getGateway()
        bindings = gateway.getBindings()
        held = bindings.size()
    jvm.free(gateway)
    jvm.free(bindings)
    return held


@pytest.mark.long
def test_java_holds_nothing_for_episodes_that_are_over():
    def play() -> None:
        env = SciWorld()
        for number in range(3):
            env.reset(Task("sciworld", "train", number))
            env.step("open door to kitchen")
            env.available_actions()
            env.details()
        env.close()
        SciWorld().reset(Task("sciworld", "train", 0))  # dropped without close

    play()
    before = count_objects_held()
    for _ in range(3):
        play()
    # At most the last episode, which is freed with the next call.
    assert count_objects_held() <= before + 1


@pytest.mark.long
def test_after_the_java_process_died_episodes_fail_and_new_ones_start():
    env, task = SciWorld(), Task("sciworld", "train", 0)
    first = env.reset(task)
    os.kill(shared_jvm().pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="Java process"):
        env.step("look around")
    with pytest.raises(EnvError, match="gone"):
        env.step("look around")
    env.close()
    assert SciWorld().reset(task) == first
    assert env.reset(task) == first


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_java_ends_with_a_process_that_is_killed_and_not_with_its_forks():
    program = (
        "import os, sys, time\n"
        "from agentgym_rl.envs.scenarios.sciworld.jvm import shared_jvm\n"
        "jvm = shared_jvm()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert not jvm.is_alive\n"
        "    time.sleep(60)\n"
        "print(jvm.pid, child, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    java, child = map(int, process.stdout.readline().split())
    try:
        assert is_running(java)
        process.kill()
        process.wait()
        deadline = time.monotonic() + 20
        while is_running(java) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert is_running(child)  # it lives on, and does not keep Java alive
        assert not is_running(java)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
