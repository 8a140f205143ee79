"""The example of customer service: near misses earn nothing, and testing shares nothing."""

from __future__ import annotations

from collections import Counter

import pytest
from examples.customer_service import CustomerService
from examples.customer_service.templates import LEVELS, Request, make_request
from examples.customer_service.world import STATES

from agentgym_rl.envs.checking.checker import check
from agentgym_rl.types import Task


def task_of(level: str, split: str = "train") -> Task:
    return next(task for task in CustomerService.tasks(split) if task.level == level)


def request_of(task: Task) -> Request:
    seed = f"{task.env} {task.index} {task.seed}"
    return make_request(task.level, seed, is_test=task.split == "test")


def played(level: str, *extra: str, skip: str = "", end: str = "") -> float:
    """The reward of the expert's calls, without one, with others before the end, or another end."""
    env, task = CustomerService(), task_of(level)
    env.reset(task)
    request = request_of(task)
    calls = [step.call.text for step in request.steps if step.call.name != skip]
    first, *others = (request.world.mine[0].id, request.world.mine[1].id)
    for action in (*calls[:-1], *(text.format(first, others[0]) for text in extra)):
        assert env.step(action).valid_action, action
    result = env.step(end or calls[-1])
    env.close()
    assert result.terminated and result.success == (result.reward == 1.0)
    return result.reward


@pytest.mark.parametrize("level", LEVELS)
def test_the_expert_is_right_and_a_forbidden_change_is_not(level: str):
    assert played(level) == 1.0
    assert played(level, "look({})", "stock('mug', 'red')") == 1.0, "looking changes nothing"
    other = "cancel({1})" if level != "two" else "cancel(9)"
    if level != "two":
        assert played(level, other) == 0.0
        assert played(level, "move({1}, 'Oak Road', 99)") == 0.0


def test_near_misses_earn_nothing():
    assert played("refund", skip="refund") == 0.0
    assert played("refund", end='report("late")') == 0.0
    assert played("refund-late", end='report("done")') == 0.0
    assert played("refund-late", end='report("sent")') == 0.0, "a refusal needs its reason"
    assert played("refund-late", "refund({0})") == 0.0
    assert played("two", skip="cancel") == 0.0 and played("two", skip="refund") == 0.0
    assert played("exchange", "refund({0})") == 0.0


def test_the_state_of_an_order_cannot_be_told_without_looking():
    right = request_of(task_of("state")).answer
    for state in STATES:
        assert played("state", end=f'report("done", " {state.upper()} ")') == (state == right)
    tasks = [task for task in CustomerService.tasks("test") if task.level == "state"]
    answers = Counter(request_of(task).answer for task in tasks)
    assert set(answers) == set(STATES) and max(answers.values()) <= len(tasks) // 2


def test_of_two_requests_the_first_is_served_first():
    tasks = [task for task in CustomerService.tasks("train") if task.level == "two"]
    firsts = set[str]()
    for request in map(request_of, tasks):
        done = [step.call.name for step in request.steps if step.call.name in ("refund", "cancel")]
        assert sorted(done) == ["cancel", "refund"] and request.goal.lower().startswith(done[0])
        firsts.add(done[0])
    assert firsts == {"refund", "cancel"}


def test_what_the_database_cannot_do_is_refused_and_changes_nothing():
    env = CustomerService()
    env.reset(task_of("cancel"))
    before = env.details()
    for action in (
        f"refund({2**70})",
        "look(77)",
        "stock('sofa', 'red')",
        'stock("m\\u0000", "red")',
    ):
        result = env.step(action)
        assert not result.valid_action and not result.is_last, action
    assert env.details() == before
    env.close()


def test_training_and_testing_share_no_product_and_no_address():
    seen: dict[str, set[object]] = {"train": set(), "test": set()}
    for split, things in seen.items():
        for task in CustomerService.tasks(split):
            world = request_of(task).world
            things.update((order.kind, order.color) for order in world.mine)
            things.update((order.street, order.number) for order in world.mine)
    assert seen["train"] and seen["test"] and seen["train"].isdisjoint(seen["test"])


def test_there_are_hundreds_of_tasks_of_every_level():
    train, test = (CustomerService.tasks(split) for split in ("train", "test"))
    assert (len(train), len(test), len(LEVELS)) == (5200, 520, 13)
    assert {task.level for task in test} == {task.level for task in train} == set(LEVELS)


def test_the_contract_holds():
    report = check(CustomerService, tasks_per_split=13, num_processes=0)
    assert report.problems == () and report.expert_success_rate == 1.0
