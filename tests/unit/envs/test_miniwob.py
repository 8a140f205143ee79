"""MiniWoB++ in a real browser: its pages, its experts, and what an episode is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs.scenarios.miniwob.env import MiniWoB
from agentgym_rl.envs.scenarios.miniwob.experts import EXPERTS
from agentgym_rl.envs.scenarios.miniwob.pages import CATEGORIES, PAGES, pages_folder, tasks_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here"),
]

PLAYED = [page for pages in CATEGORIES.values() for page in pages]
OFTEN = ["click-button", "login-user", "choose-list", "click-tab-2", "enter-date", "read-table"]


@pytest.fixture(scope="module")
def env() -> Iterator[MiniWoB]:
    made = MiniWoB()
    yield made
    made.close()


def test_the_list_of_pages_is_that_of_the_package():
    assert sorted(PAGES) == sorted(
        file.stem for file in (pages_folder() / "miniwob").glob("*.html")
    )
    assert len(set(PLAYED)) == len(PLAYED) and set(PLAYED) <= set(PAGES)
    assert set(EXPERTS) <= set(PLAYED) and len(EXPERTS) >= 50


def test_splits_share_no_task():
    train, test = tasks_of("train"), tasks_of("test")
    assert len(train) == 100 * len(PLAYED) and len(test) == 10 * len(PLAYED)
    assert not {task.index for task in train} & {task.index for task in test}
    assert [task.level for task in test[: len(PLAYED)]] == PLAYED


def solve(env: MiniWoB, page: str, seed: int) -> list[str]:
    """Play an expert's episode; return its actions."""
    env.start(page, seed)
    actions: list[str] = []
    for _ in range(20):
        action = env.expert_action()
        assert action is not None, (page, seed, actions)
        actions.append(action)
        result = env.step(action)
        assert result.valid_action, (page, seed, actions, result.observation)
        if result.terminated:
            assert result.success and result.reward == 1.0, (page, seed, actions)
            return actions
    raise AssertionError((page, seed, actions))


@pytest.mark.parametrize("page", OFTEN)
def test_an_expert_solves_its_page(env: MiniWoB, page: str):
    solve(env, page, seed=0)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", sorted(set(EXPERTS) - {"navigate-tree"}))
def test_experts_solve_five_seeds(env: MiniWoB, page: str):
    for seed in range(5):
        solve(env, page, seed)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, len(PAGES), 10))
def test_every_page_starts_and_takes_actions(env: MiniWoB, first: int):
    for page in PAGES[first : first + 10]:
        assert env.start(page, 3).startswith("Your goal: ")
        assert env.step("click [1]").observation


def test_a_wrong_answer_ends_the_episode_without_a_reward(env: MiniWoB):
    env.start("choose-list", 3)
    env.step("select_option [1] [Ghana]")
    result = env.step("click [2]")
    assert result.terminated and not result.success and result.reward == 0.0


def test_a_page_shows_no_more_than_its_task(env: MiniWoB):
    seen = env.start("enter-text", 0)
    assert seen.splitlines()[1:] == ["[1] textbox", "[2] button Submit"]


def test_stopping_ends_the_episode(env: MiniWoB):
    env.start("enter-text", 0)
    result = env.step("stop [done]")
    assert result.terminated and not result.success


def test_the_window_can_be_looked_at(env: MiniWoB):
    env.start("click-button", 0)
    picture = env.render()
    assert picture is not None and picture.startswith(b"\xff\xd8\xff")  # JPEG
    assert env.details()["page"] == "click-button"


@pytest.mark.parametrize("action", ["goto [file:///etc/passwd]", "new_tab", "close_tab"])
def test_a_task_cannot_be_left(env: MiniWoB, action: str):
    seen = env.start("click-button", 0)
    result = env.step(action)
    assert not result.valid_action
    assert "There is no such action" in result.observation
    assert seen.splitlines()[-1] in result.observation


def test_an_episode_in_the_tab_of_another_is_like_one_in_its_own(env: MiniWoB):
    first = env.start("click-dialog-2", 3)
    env.step("hover [1]")
    env.close()
    env.start("click-test", 1)
    env.close()
    assert env.start("click-dialog-2", 3) == first
    assert "click-test" not in env.step("go_back").observation
    assert not env.details()["acted_on"]


def test_a_page_that_has_left_its_task_is_not_done(env: MiniWoB):
    env.start("click-test", 1)
    assert env._browsing is not None
    env._browsing.evaluate("location.replace('about:blank')")
    result = env.step("scroll [down]")
    assert not result.terminated
    assert not result.reward


@pytest.mark.parametrize("layout", ["plain", ""])
def test_an_unknown_layout_is_refused(layout: str):
    with pytest.raises(ValueError, match="compact or webarena"):
        MiniWoB(layout=layout)
