"""`agentgym bench memory`: what counts as growth."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from memory_bench import Sample, Watch, judge, table_of
from rich.console import Console


def sample(step: int, objects: int, resident_mb: float) -> Sample:
    return Sample(
        step, objects, resident_mb, anonymous_mb=1.0, children_mb=0.0, gpu_mb=0.0, garbage_ms=1.0
    )


def test_growth_counts_from_the_step_at_which_the_run_has_settled():
    samples = [sample(1, 100, 500), sample(50, 1000, 900), sample(100, 1049, 944)]
    assert judge(samples, settled=50) == []
    told = judge([*samples, sample(150, 1051, 950)], settled=50)
    assert told == [
        "objects grew by 5.1% after step 50",
        "resident_mb grew by 5.6% after step 50",
    ]


def test_too_few_samples_prove_nothing():
    (told,) = judge([sample(1, 100, 500), sample(50, 100, 500)], settled=50)
    assert "1 samples from step 50 on" in told


def test_only_steps_of_the_training_itself_are_sampled():
    watch = Watch(2, Console(quiet=True))
    watch.begin("warm start", 60)
    watch.on_step({"step": 2})
    watch.begin("train", 4)
    for step in range(1, 5):
        watch.on_step({"step": step, "time/garbage_s": 0.003})
        watch.begin("evaluation", 10)
    assert [one.step for one in watch.samples] == [1, 2, 4]
    assert watch.samples[-1].garbage_ms == 3 and watch.samples[-1].resident_mb > 10
    assert table_of(watch.samples).row_count == 3
