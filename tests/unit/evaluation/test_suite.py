"""Reports over several environments, the paper's 27 tasks, tries with reflection, and pictures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.evaluation.metrics import wilson_interval
from agentgym_rl.evaluation.pictures import draw_horizons, draw_report, draw_suite
from agentgym_rl.evaluation.report import EvalReport, load_report, score
from agentgym_rl.evaluation.samples import score_reflection
from agentgym_rl.evaluation.suite import NUM_PAPER_TASKS, PAPER_TASKS, SuiteReport
from agentgym_rl.types import Episode, Group, Message, ReplyUsage, Round, StopReason, Task

PNG = b"\x89PNG\r\n\x1a\n"


def make_episode(*, is_solved: bool, try_index: int = 0, num_invalid: int = 0) -> Episode:
    rounds = [
        Round("r", "a", "o", 0.0, valid_action=i >= num_invalid, try_index=try_index)
        for i in range(4)
    ]
    return Episode(
        task=Task("textcraft", "test", 1, category="depth 1"),
        sample_index=0,
        stop_reason=StopReason.SUCCESS if is_solved else StopReason.MAX_ROUNDS,
        reward=float(is_solved),
        success=is_solved,
        rounds=tuple(rounds),
        messages=(Message("user", "q"), Message("assistant", "r")) * 4,
        samples=(),
        seconds=0.0,
        usage=ReplyUsage(20),
    )


def make_report(env: str, *categories: str, max_rounds: int = 8) -> EvalReport:
    scored = score([make_episode(is_solved=True), make_episode(is_solved=False, num_invalid=2)])
    return EvalReport(
        env=env,
        split="test",
        step=0,
        max_rounds=max_rounds,
        temperature=1.0,
        overall=scored,
        categories=dict.fromkeys(categories, scored),
        stop_reasons={"success": 1, "max_rounds": 1},
        model="a model",
        success="the item is there",
    )


def test_the_paper_has_27_tasks():
    assert NUM_PAPER_TASKS == 27
    assert [len(tasks) for tasks in PAPER_TASKS.values()] == [5, 7, 4, 6, 5]


@pytest.mark.parametrize("env", ["textcraft", "babyai", "sciworld"])
def test_every_task_of_the_paper_is_a_category_of_its_environment(env: str):
    spec = registry.env_class(env).spec
    assert set(PAPER_TASKS[env]) <= set(spec.categories)
    categories = {task.category for task in registry.env_class(env).tasks("test")}
    assert set(PAPER_TASKS[env]) <= categories
    assert spec.success != registry.env_class("fakes:CountingEnv").spec.success, "its own words"


def test_invalid_actions_and_replies_are_means_over_all_of_them():
    scored = make_report("textcraft", "depth 1").overall
    assert scored.invalid_rate == 2 / 8
    assert scored.reply_tokens_mean == 40 / 8


def test_a_suite_lists_what_is_missing(tmp_path: Path):
    suite = SuiteReport(
        {
            "textcraft": [make_report("textcraft", "depth 1", "depth 2")],
            "babyai": [make_report("babyai", *PAPER_TASKS["babyai"], "Other")],
        },
        {"webarena": "unknown environment 'webarena'", "sciworld": "needs Java | now"},
    )
    suite.save(tmp_path, "report")
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "# a model on 2 environments, test" in text
    assert "## Tasks (8 of the paper's 27)" in text  # 2 of TextCraft, 6 of BabyAI
    assert "| **mean of 2** | | | 50.0% |" in text
    assert "| webarena | Shopping |  | missing: unknown environment 'webarena' |" in text
    assert "| sciworld | Find |  | missing: needs Java \\| now |" in text
    assert "| textcraft | depth 4 |  | none among the tasks evaluated |" in text
    assert "| babyai | Other (not of the paper) | 2 |" in text
    assert "- textcraft: the item is there" in text
    assert text.count("searchqa") == 0, "it was not asked for"
    saved = json.loads((tmp_path / "report.json").read_text())["reports"]
    assert saved == [dataclasses.asdict(r) for rs in suite.reports.values() for r in rs]
    draw_suite(tmp_path / "report.png", suite)
    assert (tmp_path / "report.png").read_bytes().startswith(PNG)


def test_a_suite_has_a_column_for_each_horizon():
    reports = [make_report("textcraft", "depth 1", max_rounds=rounds) for rounds in (4, 8)]
    text = SuiteReport({"textcraft": reports}, {}).to_markdown()
    assert "| environment | task | episodes | success, horizon 1 | success, horizon 2 |" in text
    assert "| **mean of 1, horizon 2** |" in text


def test_an_environment_without_a_completed_episode_is_no_zero_in_the_mean():
    failed = dataclasses.replace(make_report("babyai"), overall=score([]))
    text = SuiteReport({"textcraft": [make_report("textcraft")], "babyai": [failed]}, {})
    assert "| **mean of 1** | | | 50.0% |" in text.to_markdown()
    assert "| babyai | 8 rounds | 0 | - | - | - | - | 0 |" in text.to_markdown()
    nothing = SuiteReport({"babyai": [failed]}, {}).to_markdown()
    assert "| **mean of 0** | | | - |" in nothing


def test_pictures_of_a_report_and_of_horizons(tmp_path: Path):
    reports = [make_report("textcraft", "depth 1", max_rounds=rounds) for rounds in (8, 4)]
    draw_report(tmp_path / "a" / "report.png", reports[0])
    draw_horizons(tmp_path / "horizons.png", reports)
    assert (tmp_path / "a" / "report.png").read_bytes().startswith(PNG)
    assert (tmp_path / "horizons.png").read_bytes().startswith(PNG)


def test_success_by_the_number_of_tries():
    solved = [make_episode(is_solved=True, try_index=try_index) for try_index in (0, 1, 1, 2)]
    missed = make_episode(is_solved=False, try_index=2)
    groups = [Group(item.task, (item,)) for item in (*solved, missed)]
    found = score_reflection(groups, tries=3)
    assert [item.success_rate for item in found.values()] == [0.2, 0.6, 0.8]
    assert (found["2"].success_low, found["2"].success_high) == wilson_interval(3, 5)
    several = [Group(missed.task, (solved[0], missed)), Group(missed.task, (solved[3], missed))]
    assert [i.success_rate for i in score_reflection(several, tries=3).values()] == [
        0.25,
        0.25,
        0.5,
    ]


def test_tries_are_in_the_report_and_come_back(tmp_path: Path):
    group = Group(Task("textcraft", "test", 1), (make_episode(is_solved=True, try_index=1),))
    report = dataclasses.replace(
        make_report("textcraft"), reflection=score_reflection([group], tries=2)
    )
    report.save(tmp_path, "report")
    assert load_report(tmp_path / "report.json") == report
    assert "| 1 | 0.0% |" in report.to_markdown() and "| 2 | 100.0% |" in report.to_markdown()
