"""`agentgym bench learning five`: what is run in which order, how it resumes, and its page."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.runs.folder import RunFolder

REPOSITORY = Path(__file__).parents[3]
SMALL = """
title = "Two scenarios"
scoreboard = true
overrides = ["model.path=some/model"]

[[variants]]
name = "rooms"
recipe = "quickstart"
overrides = ["warm_start.steps=0", "training.steps=2"]

[[variants]]
name = "crafting demonstrations"
recipe = "small/textcraft-grpo"
demos = 3
overrides = ["algorithm.type=sft", "algorithm.data={demos}"]

[[variants]]
name = "crafting"
recipe = "small/textcraft-grpo"
start = "crafting demonstrations"
overrides = ["model.path={start}/model", "training.steps=4", "warm_start.steps=0"]
"""
SCORE = Score(10, 0, 0.1, 0.02, 0.4, 0.1, 8.0, invalid_rate=0.5, reply_tokens_mean=60.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    import scoreboard  # these lie in no package: their folder is on the path in these tests only
    import study_files
    import study_jobs
    import study_stretch

    return SimpleNamespace(
        board=scoreboard, files=study_files, jobs=study_jobs, stretch=study_stretch
    )


@pytest.fixture
def study(bench: SimpleNamespace, tmp_path: Path):
    file = tmp_path / "study.toml"
    file.write_text(SMALL, encoding="utf-8")
    return bench.files.read_study(str(file), ["eval.tasks=7"])


def report(step: int, score: Score) -> EvalReport:
    return EvalReport("babyai", "test", step, 8, 1.0, score, {}, {})


def test_one_seed_of_everything_comes_first_and_each_phase_needs_the_one_before(
    bench: SimpleNamespace, study, tmp_path: Path
):
    jobs = bench.jobs.plan_jobs(study, tmp_path, [0, 3], transfer=True)
    assert [job.name for job in jobs] == [
        "crafting-demonstrations-demos",
        "untrained-rooms",
        "untrained-crafting",
        "rooms-seed0",
        "crafting-demonstrations-seed0",
        "crafting-seed0",
        "rooms-seed3",
        "crafting-demonstrations-seed3",
        "crafting-seed3",
        "transfer-rooms-seed0-on-crafting",
        "transfer-crafting-seed0-on-rooms",
        "transfer-rooms-seed3-on-crafting",
        "transfer-crafting-seed3-on-rooms",
    ]
    needs = {job.name: job.needs for job in jobs}
    assert needs["crafting-demonstrations-seed3"] == ("crafting-demonstrations-demos",)
    assert needs["crafting-seed3"] == ("crafting-demonstrations-seed3",)
    assert needs["transfer-rooms-seed0-on-crafting"] == ("rooms-seed0",)


def test_a_phase_is_evaluated_by_the_next_and_the_untrained_model_is_that_of_the_first(
    bench: SimpleNamespace, study, tmp_path: Path
):
    first, last = study.variants[1], study.variants[2]
    assert study.config_of(first, tmp_path, 0).eval.tasks == 0
    assert study.config_of(last, tmp_path, 0).eval.tasks == 7
    assert study.config_of(last, tmp_path, 0).model.path.endswith("demonstrations-seed0/model")
    untrained = bench.jobs.untrained_jobs(study, tmp_path, 0)
    assert [job.model for job in untrained] == ["some/model", "some/model"]
    assert bench.jobs.untrained_jobs(study.only(["rooms"]), tmp_path, 0)[0].played == "rooms"
    with pytest.raises(ConfigError, match=r"no variant 'room' \(did you mean 'rooms'\?\)"):
        study.only(["room"])


def test_a_run_that_has_begun_is_resumed_with_its_own_command(
    bench: SimpleNamespace, study, tmp_path: Path
):
    job = bench.jobs.plan_jobs(study.only(["rooms"]), tmp_path, [0], transfer=False)[-1]
    assert job.resuming() == job.arguments()
    (tmp_path / "rooms-seed0" / "eval").mkdir(parents=True)
    assert job.resuming() == [*job.arguments(), "--resume"]


def test_a_wrong_pair_of_demonstrations_and_their_file_is_told(
    bench: SimpleNamespace, tmp_path: Path
):
    file = tmp_path / "study.toml"
    file.write_text(SMALL.replace("demos = 3\n", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"demos=NUMBER and an override with \{demos\} go togeth"):
        bench.files.read_study(str(file))


@pytest.fixture
def make_job(bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what makes a job that does a Python program, and then has a file of its name."""
    monkeypatch.setattr(bench.stretch, "_CHILD", "import sys; exec(sys.argv[1])")

    @dataclass(frozen=True, slots=True)
    class Programmed(bench.jobs.Job):
        program: str = ""

        def is_done(self) -> bool:
            return (tmp_path / self.name).exists()

        def arguments(self) -> list[str]:
            return [self.program]

        def finish(self) -> None:
            (tmp_path / self.name).touch()

    def make(name: str, program: str = "", *needs: str) -> Programmed:
        return Programmed(name, f"job {name}", name[0], needs, program)

    return make


def test_a_stopped_stretch_resumes_with_what_is_left(
    bench: SimpleNamespace, tmp_path: Path, make_job
):
    # Both the first time: one ends by itself, one only when it is stopped.
    waits = "import pathlib, time; p = pathlib.Path('again'); time.sleep(0 if p.exists() else 600)"
    waits = waits.replace("again", str(tmp_path / "again"))
    jobs = [make_job("a1"), make_job("b1", waits, "a1"), make_job("c1", "", "b1")]
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if text == "begins: job b1":
            os.kill(os.getpid(), signal.SIGTERM)  # as the end of the machine's time does

    first = bench.stretch.Stretch(jobs, tmp_path, at_once=2, say=say)
    first.run()
    assert [job.name for job in first.left()] == ["b1", "c1"]
    assert not first.failures
    assert "stops: job b1" in said
    (tmp_path / "again").touch()
    second = bench.stretch.Stretch(jobs, tmp_path, at_once=2)
    second.run()
    assert not second.left()
    records = bench.stretch.Records(tmp_path).by_name
    assert [records[name].stretches for name in ("a1", "b1", "c1")] == [1, 2, 1]
    assert records["b1"].seconds > 0
    assert records["b1"].command == [waits]


def test_a_failure_stops_its_own_variant_and_what_needs_it(
    bench: SimpleNamespace, tmp_path: Path, make_job
):
    jobs = [
        make_job("a1", "sys.exit('no Java')"),
        make_job("a2"),
        make_job("b1", "", "a1"),
        make_job("c1"),
    ]
    stretch = bench.stretch.Stretch(jobs, tmp_path, at_once=1)
    stretch.run()
    assert [job.name for job in stretch.left()] == ["a1", "a2", "b1"]
    assert list(stretch.failures) == ["a"]
    assert stretch.failures["a"].startswith("job a1 ended with 1: no Java (all of it: ")


def test_time_that_is_over_begins_nothing(bench: SimpleNamespace, tmp_path: Path, make_job):
    stretch = bench.stretch.Stretch([make_job("a1")], tmp_path, at_once=1, minutes=1e-9)
    stretch.run()
    assert [job.name for job in stretch.left()] == ["a1"]


@pytest.fixture
def filled(bench: SimpleNamespace, study, tmp_path: Path) -> Path:
    """Return a folder: rooms finished with seed 0, crafting under way, everything else missing."""
    after = replace(SCORE, success_rate=0.5, success_low=0.24, success_high=0.76, failed=1)
    report(0, SCORE).save(tmp_path / "untrained-rooms", "report")
    report(0, replace(SCORE, success_rate=0.2)).save(tmp_path / "untrained-crafting", "report")
    for name, last, has_ended in (("rooms-seed0", 2, True), ("crafting-seed0", 3, False)):
        run = RunFolder(tmp_path / name)
        run.create("")
        report(0, replace(SCORE, success_rate=0.3)).save(run.eval, "step-000000")
        report(last, after).save(run.eval, f"step-{last:06d}")
        for step in range(1, last + 1):
            counted = {"rollout/tokens": 100.0, "rollout/episodes_failed": 2.0, "time/step_s": 1.5}
            run.append_metrics({"step": step, **counted})
        if has_ended:
            run.model.mkdir()
    records = bench.stretch.Records(tmp_path)
    for job in bench.jobs.plan_jobs(study, tmp_path, [0, 1], transfer=True):
        record = records.of(job.name)
        record.command, record.seconds, record.commits = ["did", job.name], 40.0, ["abc"]
    records.save()
    return tmp_path


def test_the_page_by_hand(bench: SimpleNamespace, study, filled: Path):
    board = bench.board.read_scoreboard(study, filled, [0, 1], transfer=False, command="bench")
    board.save(filled)
    page = (filled / "scoreboard.md").read_text(encoding="utf-8")
    # 10% to 50%; two steps of 100 tokens and 2 failed episodes
    row = "| rooms | 0 | 10.0% [2.0, 40.0] | - | 50.0% [24.0, 76.0], 1 failed | +40.0 | 2 of 2 "
    assert row + "| 40 | 200 | 4 | 1 | abc |" in page
    assert "| rooms | 1 | 10.0% [2.0, 40.0] | - | - | - | 0 of 2 |" in page
    # A warm start, 3 steps of 4, two processes of 40 s; no gain before the end.
    row = "| crafting | 0 | 20.0% [2.0, 40.0] | 30.0% [2.0, 40.0] "
    assert row + "| so far 50.0% [24.0, 76.0], 1 failed | - | 3 of 4 | 80 | 300 | 6 |" in page
    assert "Mean gain over 1 of 2 scenarios: **+40.0** points." in page
    assert "| rooms | 0 | 50.0% → 50.0% | 8.0 → 8.0 | 60 → 60 | 0.0% → 0.0% |" in page
    assert "# rooms-seed0: 40 s, commit abc\nagentgym did rooms-seed0\n" in page
    data = json.loads((filled / "scoreboard.json").read_text(encoding="utf-8"))
    assert (data["gain_mean"], data["gains"]) == (40.0, {"rooms": 40.0})
    assert [row["gain"] for row in data["rows"]] == [40.0, None, None, None]
    assert data["rows"][2]["warm_start"]["success_rate"] == 0.3


def test_the_transfer_matrix_has_the_own_scenario_from_the_run(
    bench: SimpleNamespace, study, filled: Path
):
    folder = filled / "transfer-rooms-seed0-on-crafting"
    report(0, replace(SCORE, success_rate=0.7)).save(folder, "report")
    board = bench.board.read_scoreboard(study, filled, [0, 1], transfer=True)
    page = bench.board.to_markdown(board)
    assert "| trained on | rooms | crafting |" in page
    assert "| untrained | 10.0% (1) | 20.0% (1) |" in page
    assert "| rooms | 50.0% (1) | 70.0% (1) |" in page
    assert "| crafting | - | - |" in page


def test_a_model_made_by_the_run_is_untrained_at_its_first_evaluation(
    bench: SimpleNamespace, study, filled: Path
):
    file = filled / "study.toml"
    file.write_text(SMALL.replace("some/model", "tiny"), encoding="utf-8")
    tiny = bench.files.read_study(str(file))
    assert bench.jobs.untrained_jobs(tiny, filled, 0) == []
    rooms, *_, crafting, _ = bench.board.read_scoreboard(tiny, filled, [0, 1], transfer=False).rows
    assert rooms.before is not None and rooms.before.success_rate == 0.3
    assert crafting.before is None and crafting.gain is None
