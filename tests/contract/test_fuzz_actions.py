"""Any text is an action: nothing an agent can say breaks an environment or shows its insides.

`--fuzz-actions=100000` plays that many a scenario; the default is what a quick run can afford.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.episode import EnvEpisode
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.types import StepResult, Task
from env_servers import server_process
from odd_actions import Move, moves

DEFAULT_ACTIONS = {
    "textcraft": 9_000,
    "textcraft_generated": 9_000,
    "babyai": 2_400,
    "searchqa": 3_000,
    "sciworld": 600,
}
FEW_ACTIONS = 300
"""For an environment that the table does not name."""
LISTING_PERIODS = {"sciworld": 64}
"""How many moves go by before the actions that make sense are listed again, where that is slow."""
ACTIONS_PER_RUN = 6_000
"""Hypothesis keeps what it has drawn, so a long run is made of many."""
ACTIONS_PER_EXAMPLE = 150
HTTP_SHARE = 8
"""One in so many actions is also played over HTTP."""
INSIDES = re.compile(
    r"Traceback|Error\b|Exception|object at 0x|py4j|<class '|<function |<bound method|File \""
    r"|\.py\b|\.scala\b|java\.lang|site-packages|StepResult\(|NoneType",
)


class Player:
    """Plays moves in one environment object and looks hard at every answer."""

    def __init__(self, name: str) -> None:
        self._env: Environment = registry.make(name, {})
        self._episode = EnvEpisode(lambda: self._env)
        self._episode.build()
        self._tasks: list[Task] = [
            task for split in self._env.spec.splits for task in self._env.tasks(split)
        ]
        self._max_chars = 2 * self._longest_observation() + 5_000
        self._listing_period = LISTING_PERIODS.get(name, 4)
        self._reward = 0.0
        self.num_actions = self.num_valid = self.num_ends = 0

    def play(self, first_task: int, chosen: Sequence[Move]) -> None:
        """Play the moves, starting another task when one is over."""
        task_number = first_task
        sensible = self._start(task_number)
        for move in chosen:
            action = move.text(sensible)
            result = self._episode.step(action)
            self._check(action, result)
            if result.is_last:
                task_number += 1
                self.num_ends += 1
                sensible = self._start(task_number)
            elif move.raw is None and move.seed % self._listing_period == 0:
                sensible = self._sensible()

    def close(self) -> None:
        self._episode.close()

    def _start(self, number: int) -> list[str]:
        self._reward = 0.0
        self._episode.reset(self._tasks[number % len(self._tasks)])
        return self._sensible()

    def _sensible(self) -> list[str]:
        """Return actions that would work now; what the expert would do is a third of them."""
        listed = list(self._episode.available_actions()[:60])
        advice = self._env.expert_action()
        return listed + [advice] * (1 + len(listed) // 2) if advice is not None else listed

    def _check(self, action: str, result: StepResult) -> None:
        self.num_actions += 1
        self.num_valid += result.valid_action
        self._reward += result.reward
        text = result.observation
        assert text, f"{action[:200]!r} has an empty observation"
        assert len(text) <= self._max_chars, f"{action[:200]!r} has {len(text)} characters"
        inside = INSIDES.search(text)
        assert inside is None or inside.group().lower() in action.lower(), (action[:200], text)
        low, high = self._env.spec.reward_range
        assert low - 1e-6 <= self._reward <= high + 1e-6, f"{action[:200]!r}: {self._reward}"
        assert result.terminated or not result.success

    def _longest_observation(self) -> int:
        """Return the length of the longest observation of some experts' episodes."""
        longest = 0
        for task in self._tasks[:: max(1, len(self._tasks) // 10)]:
            longest = max(longest, len(self._episode.reset(task)))
            for _ in range(20):
                action = self._env.expert_action()
                if action is None:
                    break
                result = self._episode.step(action)
                longest = max(longest, len(result.observation))
                if result.is_last:
                    break
        return longest


def fuzz(num_actions: int, play: Callable[[int, Sequence[Move]], None]) -> None:
    """Have hypothesis draw at least `num_actions` moves and play them, one list after another."""
    for start in range(0, num_actions, ACTIONS_PER_RUN):
        _fuzz_once(min(ACTIONS_PER_RUN, num_actions - start), play, run_seed=start)


def _fuzz_once(
    num_actions: int, play: Callable[[int, Sequence[Move]], None], *, run_seed: int
) -> None:
    @seed(run_seed)
    @settings(
        max_examples=-(-num_actions // ACTIONS_PER_EXAMPLE),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        first_task=st.integers(0, 100_000),
        chosen=st.lists(moves(), min_size=ACTIONS_PER_EXAMPLE, max_size=ACTIONS_PER_EXAMPLE + 10),
    )
    def run(first_task: int, chosen: list[Move]) -> None:
        play(first_task, chosen)

    run()


SCENARIOS = [
    pytest.param(name, share, marks=pytest.mark.long if share == 1 else ())
    for name in sorted(registry.BUILTIN)
    if name not in ("miniwob", "web", "webarena")  # tests/unit/browser has what a browser is told
    for share in ((1,) if name == "sciworld" else (0.1, 1))
]
"""A tenth of the actions always, all of them in the long run; a tenth of SciWorld's few says
nothing."""


def number_of_actions(name: str, share: float, config: pytest.Config) -> int:
    asked: int | None = config.getoption("--fuzz-actions")
    return asked or int(share * DEFAULT_ACTIONS.get(name, FEW_ACTIONS))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "share"), SCENARIOS)
def test_nothing_an_agent_says_breaks_an_environment(
    name: str, share: float, pytestconfig: pytest.Config
):
    num_actions = number_of_actions(name, share, pytestconfig)
    player = Player(name)
    try:
        fuzz(num_actions, player.play)
    finally:
        player.close()
    print(f"{name}: {player.num_actions} actions, {player.num_valid} valid, {player.num_ends} ends")
    assert player.num_actions >= 0.99 * num_actions
    assert player.num_valid >= 0.02 * num_actions, "near misses should hit now and then"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "share"), SCENARIOS)
def test_over_http_the_same_is_answered_and_no_session_is_lost(
    name: str, share: float, pytestconfig: pytest.Config
):
    local = LocalEnvSource(name)
    tasks = list(local.env_class.tasks("test"))
    num_actions = number_of_actions(name, share, pytestconfig) // HTTP_SHARE

    async def compare(remote: HttpEnvSource, first_task: int, chosen: Sequence[Move]) -> None:
        task = tasks[first_task % len(tasks)]
        async with asyncio.timeout(120), await local.open() as here, await remote.open() as there:
            assert await here.reset(task) == await there.reset(task)
            sensible = await here.available_actions()
            for move in chosen:
                action = move.text(sensible)
                result = await here.step(action)
                assert await there.step(action) == result, action[:200]
                if result.is_last:
                    assert await here.reset(task) == await there.reset(task)

    with server_process(name, num_workers=1) as (url, _), asyncio.Runner() as runner:
        remote = HttpEnvSource(url)
        fuzz(num_actions, lambda first, chosen: runner.run(compare(remote, first, chosen)))
        health = runner.run(remote.health())
        runner.run(remote.aclose())
    assert (health.num_failed, health.num_restarts, health.num_episodes) == (0, 0, 0)
    assert health.num_steps >= 0.99 * num_actions
