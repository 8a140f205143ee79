"""`agentgym runs` and the page of `agentgym report`, over run folders with known contents."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import asdict
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentgym_rl.config import dump_config, load_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.evaluation.stored import readable_reports
from agentgym_rl.report.curves import HEIGHT, WIDTH, Series, chart
from agentgym_rl.report.page import report_page
from agentgym_rl.report.runs import list_runs
from agentgym_rl.report.settings import run_settings
from agentgym_rl.report.words import age, shown
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import Locks, RunState, recorded
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.overview import Overview
from ui_servers import episode, make_run


class Page(HTMLParser):
    """The tags of a page, their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def score(rate: float, *, of: int = 100) -> Score:
    low, high = max(0.0, rate - 0.08), min(1.0, rate + 0.08)
    return Score(of, 0, rate, low, high, reward_mean=rate, rounds_mean=3.0)


def save_report(run: RunFolder, step: int, rate: float) -> None:
    report = EvalReport(
        env="textcraft",
        split="test",
        step=step,
        max_rounds=8,
        temperature=1.0,
        overall=score(rate),
        categories={"depth 1": score(rate, of=60), "depth 2": score(rate, of=40)},
        stop_reasons={"success": 1},
    )
    run.eval.mkdir(exist_ok=True)
    (run.eval / f"step-{step:06d}.json").write_text(json.dumps(asdict(report)))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A quickstart with another seed: seven steps, two evaluations."""
    config = dump_config(load_config("quickstart", ["seed=7", "training.steps=7"]))
    run = make_run(tmp_path / "runs" / "mine", num_steps=7, config=config)
    with recorded(run, recipe="quickstart", version="1"):
        save_report(run, 0, 0.25)
        save_report(run, 7, 0.75)
    return run


def test_the_list_has_state_steps_and_success(run: RunFolder):
    make_run(run.path.parent / "older", num_steps=2)
    make_run(run.warm_start, num_steps=1)
    first, second = sorted(list_runs(run.path.parent), key=lambda line: line.run)
    assert (first.run, first.state, first.recipe, first.step) == (
        "mine",
        "finished",
        "quickstart",
        7,
    )
    assert (first.success_before, first.success_now) == (0.25, 0.75)
    assert first.measured == "held-out tasks" and first.target == 7
    assert (second.run, second.state, second.success_now) == ("older", "stopped", 0.5)
    assert second.measured == "training tasks"
    with pytest.raises(ConfigError, match="there is no folder"):
        list_runs(run.path / "nowhere")


def test_the_list_has_the_states_of_the_ui_and_asks_for_locks_once(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
):
    evaluated = RunFolder(run.path.parent / "evaluated")
    evaluated.create('[env]\nname = "textcraft"\n[eval]\ntasks = 2\n')
    write_episodes(evaluated.path, [[episode(1, 0)]], phase="eval", step=0)
    asked, now = list[None](), Locks.now

    def counted() -> Locks:
        asked.append(None)
        return now()

    monkeypatch.setattr(Locks, "now", counted)
    listed = {line.run: line.state for line in list_runs(run.path.parent)}
    assert len(asked) == 1
    with closing(Decoders(1)) as decoders:
        shown = Overview(RunCatalog(run.path.parent), decoders).runs()["runs"]
    assert isinstance(shown, list)
    assert listed == {line["run"]: line["status"] for line in shown}
    assert listed["evaluated"] in (RunState.FINISHED, RunState.STORED)


def test_the_page_tells_the_whole_run_and_needs_nothing_else(run: RunFolder):
    html = report_page(run.path)
    page = Page(html)
    assert {"script", "img", "link", "iframe", "object", "base"} & set(page.tags) == set()
    outside = [value for name, value in page.attributes if name in ("src", "href", "action")]
    assert outside == [] and "url(" not in html and "@import" not in html
    assert page.tags.count("details") == 10
    assert page.text.count("not solved") == 5
    assert "Success rose from 25% to 75%: the 95% intervals do not overlap." in page.text
    assert "25% [17%, 33%]" in page.text and "Invalid actions" in page.text
    assert "I need wood." in page.text and "Goal: craft oak planks." in page.text
    assert "agentgym train quickstart seed=7 training.steps=7" in page.text
    assert page.tags.count("figure") > 4


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path):
    run = RunFolder(tmp_path / "new")
    run.create("")
    text = Page(report_page(run.path)).text
    assert "No step is complete yet." in text and "No episodes are stored." in text
    with pytest.raises(ConfigError, match="holds no run"):
        report_page(tmp_path)


def test_what_is_broken_is_told_on_the_page(run: RunFolder):
    (run.eval / "step-000007.json").write_text("{")
    (run.episodes / "train-000001.parquet").write_bytes(b"PAR1")
    with run.metrics_file.open("a") as file:
        file.write("nonsense\n")
    text = Page(report_page(run.path)).text
    assert "step-000007.json cannot be read" in text
    assert "train-000001.parquet cannot be read" in text
    assert "1 line(s) of metrics.jsonl are not the metrics of a step" in text


def test_the_command_gives_the_settings_back(run: RunFolder):
    config = load_config("quickstart", ["seed=7", "env.levels=[]", "rounds.rounds=[2,4]"])
    found = run_settings(run.path, config.model_dump(mode="json"), "quickstart")
    assert {item.key: item.value for item in found.differences} == {
        "seed": "7", "env.levels": "[]", "rounds.rounds": "[2, 4]"
    }  # fmt: skip
    assert (
        found.command == "agentgym train quickstart seed=7 'env.levels=[]' 'rounds.rounds=[2, 4]'"
    )
    unknown = run_settings(run.path, config.model_dump(mode="json"), "../../etc/passwd")
    assert unknown.base == "the defaults" and unknown.command == ""


def test_settings_that_no_override_can_write_have_no_command(run: RunFolder):
    for table in ({"when": date(2026, 1, 2)}, {"": 1}, {"env": {"": 1}}):
        found = run_settings(run.path, table, "quickstart")
        assert found.command == "" and "config.toml" in found.exact_command


def test_of_many_evaluations_the_first_and_the_newest_are_read(run: RunFolder):
    for file in run.eval.iterdir():
        file.unlink()
    for step in range(1002):
        (run.eval / f"step-{step:06d}.json").write_text("{")
    for step in (0, 1, 2, 3, 1001):
        save_report(run, step, step / 2000)
    reports, problems = readable_reports(run)
    assert [report.step for report in reports] == [0, 3, 1001]
    assert problems[0] == "of 1002 reports only the first and the last 999 are shown"


def test_a_curve_by_hand():
    drawn = chart("t", "", [Series("a", [0, 10], [0.0, 1.0])], is_share=True)
    assert drawn is not None
    # Across from 40 to 348, and up from 190 to 12.
    assert drawn.lines[0].path == "M40.0 190.0L348.0 12.0" and drawn.lines[0].last == "100%"
    assert [tick.text for tick in drawn.y_ticks][:2] == ["0%", "20%"]
    assert chart("t", "", [Series("a", [1], [None])], is_share=False) is None


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [1e300, -1e300], [1e-300, 2e-300]])
def test_odd_curves_stay_in_their_box(values: list[float]):
    drawn = chart("t", "", [Series("a", list(range(len(values))), values)], is_share=False)
    assert drawn is not None
    numbers = [float(text) for text in re.findall(r"-?[\d.]+", drawn.lines[0].path)]
    assert all(0 <= number <= max(WIDTH, HEIGHT) for number in numbers)


def test_texts_show_what_has_no_shape():
    assert shown("a\x00\u202eb\ud800", max_chars=9) == "a[U+0000][U+202E]b[U+D800]"
    assert shown("abcdef", max_chars=4) == "abcd ... (2 more characters)"
    assert [age(9), age(600), age(7200), age(400_000)] == ["9 s", "10 min", "2 h", "5 days"]


def test_long_texts_are_cut_and_counted(run: RunFolder):
    long = episode(1, 0, texts=("x" * 5000, "y"))
    write_episodes(run.episodes, [[long]], phase="eval", step=7)
    assert "(3,000 more characters)" in Page(report_page(run.path)).text
