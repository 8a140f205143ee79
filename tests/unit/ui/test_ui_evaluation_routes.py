"""Evaluations as the UI gives them: all, one in full, two compared, and files that are none."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from agentgym_rl.evaluation.report import EvalReport, score
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode
from ui_servers import CONFIG, UiClient, episode, ui_process

pytestmark = pytest.mark.slow

AFTER = {"env": "textcraft", "run": "run", "step": 4}


def evaluated(pattern: str) -> list[list[Episode]]:
    """Return an episode a task; "1" is a success."""
    return [[episode(index, 0, success=mark == "1")] for index, mark in enumerate(pattern)]


def save(run: RunFolder, pattern: str, *, step: int, max_rounds: int = 5) -> EvalReport:
    groups = evaluated(pattern)
    write_episodes(run.episodes, groups, phase="eval", step=step)
    episodes = [item for group in groups for item in group]
    whole = score(episodes)
    report = EvalReport(
        env="textcraft", split="train", step=step, max_rounds=max_rounds, temperature=1.0,
        overall=whole, categories={"depth 1": whole},
        stop_reasons=dict(Counter(str(item.stop_reason) for item in episodes)),
    )  # fmt: skip
    report.save(run.eval, f"step-{step:06d}")
    return report


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    runs = tmp_path_factory.mktemp("runs")
    run = RunFolder(runs / "run")
    run.create(CONFIG)
    report = save(run, "0000000011", step=0)
    save(run, "1111111101", step=4)
    save(run, "1111111101", step=8, max_rounds=9)
    other = RunFolder(runs / "odd")
    other.create(CONFIG)
    other.eval.mkdir(exist_ok=True)
    odd = asdict(report) | {"overall": {"success_rate": "<b>", "episodes": 1e999}, "levels": 3}
    (other.eval / "step-000000.json").write_text(json.dumps(odd | {"categories": {"a": [1]}}))
    (other.eval / "step-000001.json").write_text('{"overall": 3}')
    with ui_process(runs) as client:
        yield client


def test_all_evaluations_are_listed(ui: UiClient):
    found = ui.get("evaluations")["evaluations"]
    assert isinstance(found, list)
    named = [(item["run"], item["step"], item["overall"].get("success_rate")) for item in found]
    assert named == [("odd", 0, None), ("run", 0, 0.2), ("run", 4, 0.9), ("run", 8, 0.9)]
    assert all(item["is_of_training"] for item in found)


def test_one_evaluation_is_given_in_full(ui: UiClient):
    found = ui.get("evaluation", **AFTER)
    assert found["stop_reasons"] == {"success": 9, "max_rounds": 1}
    assert isinstance(found["categories"], dict)
    assert found["categories"]["depth 1"]["episodes"] == 10
    assert ui.ask("evaluation", **(AFTER | {"step": 5})).status_code == 404


def test_two_are_compared_task_by_task(ui: UiClient):
    sides = {
        "run_a": "run",
        "step_a": 0,
        "env_a": "textcraft",
        "run_b": "run",
        "env_b": "textcraft",
    }
    found = ui.get("compare", **sides, step_b=4)
    comparison = found["comparison"]
    assert isinstance(comparison, dict)
    # Worked out by hand: B alone solves 8, A alone 1; p = 2 * (1 + 9) / 2**9.
    assert (comparison["only_a"], comparison["only_b"]) == (1, 8)
    assert comparison["p"] == pytest.approx(20 / 512)
    assert comparison["verdict"].startswith("B is better: by 70.0 points")
    assert found["conditions"] == [] and found["num_changed"] == 9
    changed = found["changed"]
    assert isinstance(changed, list)
    assert changed[0] == {
        "task": "textcraft/8", "category": "depth 1", "goal": "craft oak planks.",
        "a": 1.0, "b": 0.0, "group_a": 8, "group_b": 8,
        "episode_a": "eval-000000:8", "episode_b": "eval-000004:8",
    }  # fmt: skip
    # Another horizon is told of; without stored episodes there is nothing to compare.
    assert ui.get("compare", **sides, step_b=8)["conditions"] == ["rounds: 5 / 9"]
    refused = ui.ask("compare", **(sides | {"run_b": "odd"}), step_b=0)
    assert refused.status_code == 409 and "no episodes are stored" in refused.text
