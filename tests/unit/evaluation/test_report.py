"""Reports of an evaluation: intervals, means, files and the learning curve."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_rl.evaluation.curve import draw_learning_curve
from agentgym_rl.evaluation.metrics import wilson_interval
from agentgym_rl.evaluation.report import EvalReport, eval_metrics, load_report, score
from agentgym_rl.types import Episode, Round, StopReason, Task

PNG = b"\x89PNG\r\n\x1a\n"


def make_episode(reason: StopReason, reward: float | None, *, num_rounds: int = 1) -> Episode:
    return Episode(
        task=Task("counting", "test", 1, category="small"),
        sample_index=0,
        stop_reason=reason,
        reward=reward,
        success=reason is StopReason.SUCCESS,
        rounds=(Round("add 1", "add 1", "Count: 1.", 0.0, valid_action=True),) * num_rounds,
        messages=(),
        samples=(),
        seconds=0.0,
        error="it broke" if reason.is_failure else None,
    )


def make_report(step: int = 8) -> EvalReport:
    solved = make_episode(StopReason.SUCCESS, 0.75, num_rounds=2)
    missed = make_episode(StopReason.MAX_ROUNDS, 0.0, num_rounds=4)
    broken = make_episode(StopReason.ENV_ERROR, None)
    return EvalReport(
        env="counting",
        split="test",
        step=step,
        max_rounds=4,
        temperature=0.5,
        overall=score([solved, missed, broken, solved]),
        categories={"small": score([solved, missed]), "large": score([broken, solved])},
        stop_reasons={"success": 2, "max_rounds": 1, "env_error": 1},
    )


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [
        # z^2 = 3.8415. Upper end: (0.19207 + 1.96 * sqrt(0.0096037)) / 1.38415 = 0.2775
        (0, 10, 0.0, 0.2775),
        # Centre (0.8 + 0.19207) / 1.38415 = 0.71674, spread 1.96 * 0.15998 / 1.38415 = 0.22654
        (8, 10, 0.4902, 0.9433),
        (10, 10, 0.7225, 1.0),
        (50, 100, 0.4038, 0.5962),
        (1, 1, 0.2065, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_by_hand(successes: int, total: int, low: float, high: float):
    assert wilson_interval(successes, total) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_of_none_and_of_all_ends_exactly_there():
    for total in range(1, 401):
        assert wilson_interval(0, total)[0] == 0.0
        assert wilson_interval(total, total)[1] == 1.0


@given(total=st.integers(1, 500), data=st.data())
def test_wilson_interval_laws(total: int, data: st.DataObject):
    successes = data.draw(st.integers(0, total))
    low, high = wilson_interval(successes, total)
    assert 0.0 <= low <= successes / total <= high <= 1.0
    mirrored_low, mirrored_high = wilson_interval(total - successes, total)
    assert (1 - mirrored_high, 1 - mirrored_low) == pytest.approx((low, high))
    four_times = wilson_interval(4 * successes, 4 * total)
    assert four_times[1] - four_times[0] < high - low


def test_means_are_over_the_episodes_that_completed():
    scored = score(
        [
            make_episode(StopReason.SUCCESS, 0.5, num_rounds=2),
            make_episode(StopReason.ENV_ERROR, None, num_rounds=9),
            make_episode(StopReason.TERMINATED, 0.0, num_rounds=3),
            make_episode(StopReason.TIMEOUT, None, num_rounds=9),
            make_episode(StopReason.MAX_ROUNDS, 0.25, num_rounds=4),
            make_episode(StopReason.SUCCESS, 0.25, num_rounds=3),
        ]
    )
    assert (scored.episodes, scored.failed) == (4, 2)
    assert scored.success_rate == 0.5  # 2 of 4, not of 6
    assert scored.reward_mean == 0.25  # (0.5 + 0 + 0.25 + 0.25) / 4
    assert scored.rounds_mean == 3.0  # (2 + 3 + 4 + 3) / 4
    assert (scored.success_low, scored.success_high) == wilson_interval(2, 4)


@pytest.mark.parametrize("episodes", [[], [make_episode(StopReason.ENGINE_ERROR, None)]])
def test_a_score_of_nothing_says_that_nothing_is_known(episodes: list[Episode]):
    scored = score(episodes)
    assert (scored.episodes, scored.failed) == (0, len(episodes))
    assert (scored.success_low, scored.success_high) == (0.0, 1.0)
    text = dataclasses.replace(make_report(), overall=scored).to_markdown()
    assert f"| **all** | 0 | - | - | - | - | - | - | {len(episodes)} |" in text


def test_an_evaluation_that_completed_nothing_has_no_numbers():
    done = make_report()
    failed = dataclasses.replace(done, env="other", overall=score([]))
    assert eval_metrics([failed]) == {}
    assert eval_metrics([failed, done]) == eval_metrics([done])
    assert eval_metrics([done, done])["eval/success_rate"] == pytest.approx(2 / 3)


def test_a_saved_report_comes_back(tmp_path: Path):
    report = make_report()
    report.save(tmp_path / "eval", "step-000008")
    assert load_report(tmp_path / "eval" / "step-000008.json") == report
    files = sorted(file.name for file in (tmp_path / "eval").iterdir())
    assert files == ["step-000008.json", "step-000008.md"]
    assert (
        json.loads((tmp_path / "eval" / "step-000008.json").read_text())["overall"]["failed"] == 1
    )


def test_markdown_has_a_row_for_each_category_and_for_all(tmp_path: Path):
    report = make_report()
    report.save(tmp_path, "report")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text == report.to_markdown()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    assert len({len(row) for row in rows}) == 1
    assert [row[:3] for row in rows[2:]] == [
        ["small", "2", "50.0%"],
        ["large", "1", "100.0%"],
        ["**all**", "3", "66.7%"],
    ]
    assert [row[-1] for row in rows[2:]] == ["0", "1", "1"], "failed episodes are shown"
    assert "success 2, max_rounds 1, env_error 1" in text
    assert "step 8" in text and "At most 4 rounds, temperature 0.5" in text


def test_the_learning_curve_of_a_run_that_solves_everything(tmp_path: Path):
    # At 24 of 24 the upper end of the interval, as computed, would fall short of the rate.
    solved = score([make_episode(StopReason.SUCCESS, 1.0)] * 24)
    report = dataclasses.replace(make_report(), overall=solved)
    metrics = [{"step": 1.0, "rollout/success_rate": 1.0, "rollout/max_rounds": 2.0}]
    draw_learning_curve(tmp_path / "curve.png", metrics, [report], title="a run")
    assert (tmp_path / "curve.png").exists()


@pytest.mark.parametrize("num_steps", [1, 12])
@pytest.mark.parametrize("num_reports", [0, 1, 3])
def test_the_learning_curve_is_a_picture(tmp_path: Path, num_steps: int, num_reports: int):
    metrics = [
        {
            "step": float(step),
            "rollout/success_rate": step / num_steps,
            "rollout/max_rounds": 2.0 if step <= 4 else 3.0,
            "time/step_s": 20.0 + step,
        }
        for step in range(1, num_steps + 1)
    ]
    reports = [make_report(4 * index) for index in range(num_reports)]
    path = tmp_path / "new folder" / "curve.png"
    draw_learning_curve(path, metrics, reports, title="a run")
    content = path.read_bytes()
    assert content.startswith(PNG) and len(content) > 5_000


def test_levels_have_a_table_of_their_own():
    solved = make_episode(StopReason.SUCCESS, 0.75, num_rounds=2)
    plain = make_report()
    assert "| level |" not in plain.to_markdown()
    by_level = dataclasses.replace(plain, levels={"1": score([solved]), "2": plain.overall})
    lines = by_level.to_markdown().splitlines()
    place = lines.index(
        "| level | episodes | success | interval | reward | rounds | invalid | reply | failed |"
    )
    assert lines[place + 2].startswith("| 1 | 1 | 100.0%")
