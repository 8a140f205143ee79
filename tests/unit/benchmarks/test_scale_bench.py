"""`agentgym bench scale`: what it reads from runs, and what it prints."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from agentgym_rl.errors import RunError

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import scale_bench
from overlap_bench import Times, run_way
from scale_bench import Row, Split, best_of, split_of, splits_of
from scale_model import EpisodePlan, Job, Outcome, Simulation, Speeds
from scale_parts import Reply, Stored, fit_engine, fit_learner, loads_of, measure, read_run

SHORT = Times(reply_s=0.01, latency_s=0.02, update_s=0.05, steps=5, groups=2, group_size=2)


def reply(seconds: float, wait_s: float = 0.0, **known: float) -> Reply:
    fields = {"sampled": 1, "context": 0, "in_flight": 1.0} | known
    return Reply(
        seconds, wait_s, int(fields["sampled"]), int(fields["context"]), fields["in_flight"]
    )


def stored(*replies: Reply, start_s: float = 0.0) -> Stored:
    return Stored(1, 0, 10, start_s, replies)


def test_replies_under_way_beside_each_other():
    # A reply from 0 to 4; others from 1 to 2 and, after 1 s of the environment and a pause of 1,
    # from 4 to 6: the first has a second one beside it in one of its four seconds.
    episodes = [stored(reply(4.0)), stored(reply(1.0, 1.0), reply(2.0), start_s=2.0)]
    assert loads_of(episodes) == [[pytest.approx(1.25)], [pytest.approx(2.0), pytest.approx(1.0)]]


def test_the_speed_of_an_engine_is_found_again():
    # 10 ms per token and 1 ms more per reply under way; a token that is read takes a tenth.
    replies = [
        reply(
            (sampled + 0.1 * context) * (0.010 + 0.001 * load),
            sampled=sampled,
            context=context,
            in_flight=load,
        )
        for sampled in (5, 20, 50)
        for context in (100, 300, 1000)
        for load in (1.0, 4.0, 16.0)
    ]
    assert fit_engine(replies) == pytest.approx((0.010, 0.001, 0.1), rel=0.02)


def test_an_engine_of_which_one_load_is_known_is_as_fast_with_any():
    token_s, each, share = fit_engine([reply(0.5, sampled=5)] * 3)
    assert token_s + each == pytest.approx(0.1) and share == 0.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scale") / "run"
    asyncio.run(run_way("synchronous", SHORT, folder))
    return folder


def test_parts_are_those_of_the_run(run: Path):
    measured = read_run(run)
    assert [int(line["step"]) for line in measured.lines] == [2, 3, 4, 5]  # the first warms up
    parts = measure([measured])
    assert (parts.num_episodes, parts.rounds_mean) == (16, 3.0)
    plan = parts.groups[0][0]
    reply_s = [work * (parts.speeds.token_s + parts.speeds.token_s_each) for work in plan.work]
    assert all(0.005 < seconds < 0.5 for seconds in reply_s)
    assert parts.env_s > 0.005
    assert parts.speeds.update_s == 0.0  # all steps are alike
    tokens = sum(plan.num_tokens for group in parts.groups for plan in group) / 4
    assert parts.speeds.learner_token_s * tokens >= SHORT.update_s
    # The model repeats the run that it was measured in.
    job = Job("synchronous", 20, SHORT.groups, engines=SHORT.engines)
    found = Simulation(job, parts.speeds, lambda n: parts.draw(n, size=SHORT.group_size)).run()
    took_s = sum(line["time/step_s"] for line in measured.lines) / 4
    assert found.step_s == pytest.approx(took_s, rel=0.5)


def test_an_update_has_a_part_that_more_gpus_do_not_shorten(run: Path):
    measured = read_run(run)
    lines = [{"step": step, "time/update_s": 2.0 + 0.01 * 10 * step} for step in range(1, 6)]
    episodes = [Stored(step, 0, 10, 0.0, ()) for step in range(1, 6) for _ in range(step)]
    made = type(measured)(run, measured.config, lines, episodes)
    assert fit_learner([made]) == pytest.approx((2.0, 0.01))


def test_the_table_fits_a_terminal_and_the_file_has_all(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "scale.json"
    words = [*("--from", str(run), "--gpus", "64", "--steps", "3"), *("--json", str(file))]
    scale_bench.main([*words, "--against", str(run)])
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if not line.startswith(str(run))]
    assert max(map(len, lines)) <= 80
    assert "best: " in shown and "predicted" in shown
    found = json.loads(file.read_text())
    assert len(found["rows"]) == 2 + 7 * 4  # shared GPUs do not overlap
    assert found["best"]["way"] in ("carried", "1", "2")
    assert found["against"][0]["measured_s"] > 0


def test_a_folder_without_a_run_is_told(tmp_path: Path):
    with pytest.raises(RunError, match="holds no run"):
        read_run(tmp_path)


def test_splits_are_read_and_made():
    assert split_of("12+4") == Split(12, 4)
    assert split_of("8") == Split(8, 8, is_shared=True)
    assert list(map(str, splits_of(8, 2))) == ["8", "6+2", "4+4", "2+6"]
    assert list(map(str, splits_of(2, 1))) == ["2", "1+1"]


def test_the_least_stale_of_equally_fast_ways_is_the_best():
    outcomes = [
        Simulation(
            Job(way, 4, 2), Speeds(1.0), lambda _: [EpisodePlan([1], [1], [1], [1.0], 1)]
        ).run()
        for way in ("synchronous", "1")
    ]
    assert isinstance(outcomes[0], Outcome)
    rows = [Row(Split(1, 1), way, outcomes[0], {}) for way in ("synchronous", "carried")]
    stale = Row(Split(1, 1), "1", outcomes[1], {})
    assert best_of([stale, *rows]) in ([stale] if stale.outcome.step_s < 1.9 else rows)
