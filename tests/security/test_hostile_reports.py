"""Pages and lists about run folders that somebody made to run code in a reader's browser or
terminal, or to read other files."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentgym_rl.cli.runs import show_runs, write_report
from agentgym_rl.report.page import report_page
from agentgym_rl.report.runs import list_runs
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.record import FILE
from case_shares import spread_over
from ui_runs import HOSTILE
from ui_servers import episode, make_run

SECRET = "the-secret-of-another-file"
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "section", "footer", "h1",
    "h2", "h3", "h4", "p", "dl", "div", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td",
    "small", "b", "code", "pre", "span", "details", "summary", "figure", "figcaption", "ul", "li",
    "svg", "g", "path", "line", "text", "circle",
}  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page and the names of their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run that has markup wherever it may have a text."""
    name = "a<b onmouseover=alert(1)>\x1b]0;title\x07"
    run = make_run(tmp_path / "runs" / name)
    config = f"[env]\nname = {json.dumps(HOSTILE.replace(chr(0), ''))}\n[algorithm]\ntype = 'x:Y'\n"
    run.config_file.write_text(config + '"<script>" = "{{ 7 * 7 }}{% raw %}"\n', encoding="utf-8")
    (run.path / FILE).write_text(
        json.dumps({"state": "failed", "error": HOSTILE, "recipe": "../../" + HOSTILE})
    )
    line = {"step": 4, "train/entropy<script>alert(1)</script>": 1.0, "rollout/success_rate": 0.5}
    run.append_metrics(line)  # type: ignore[arg-type]  # an integer is a number
    run.eval.mkdir()
    (run.eval / "step-000004.json").write_text(json.dumps({"env": HOSTILE}))
    write_episodes(run.episodes, [[episode(5, 0, texts=(HOSTILE, HOSTILE))]], phase="eval", step=4)
    return run.path


def test_no_text_of_a_run_becomes_markup(hostile: Path):
    page = report_page(hostile)
    found = Tags(page)
    assert found.tags <= ALLOWED
    assert not {name for name in found.attributes if name.startswith("on")}
    assert not {"src", "href", "srcdoc", "xlink:href"} & found.attributes
    assert "&lt;script&gt;window.stolen" in page
    assert "{{ 7 * 7 }}" in page, "what a run says is no template"
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not {character for character in page if ord(character) < 32} - {"\n", "\t"}
    assert "\u202e" not in page


def test_no_text_of_a_run_reaches_the_terminal_as_a_command(
    hostile: Path, capsys: pytest.CaptureFixture[str]
):
    show_runs(hostile.parent, as_json=False)
    printed = "".join(capsys.readouterr())
    assert "\x1b]0" not in printed and "\x07" not in printed and "failed" in printed


def test_links_that_lead_out_of_a_run_are_not_followed(tmp_path: Path):
    (tmp_path / "secret.json").write_text(json.dumps({"env": SECRET}))
    run = make_run(tmp_path / "runs" / "linked")
    run.eval.symlink_to(tmp_path)
    (run.path / FILE).symlink_to(tmp_path / "secret.json")
    run.metrics_file.unlink()
    run.metrics_file.symlink_to(tmp_path / "secret.json")
    (line,) = list_runs(tmp_path / "runs")
    assert SECRET not in str(line) and "leads out of the runs folder" in line.problem


def test_a_report_overwrites_nothing_outside_of_the_run(tmp_path: Path):
    own = tmp_path / "own.txt"
    own.write_text(SECRET)
    run = make_run(tmp_path / "runs" / "linked")
    for name in (".report.html.writing", "report.html"):
        (run.path / "report.html").unlink(missing_ok=True)
        (run.path / name).symlink_to(own)
        write_report(run.path, None)
    assert own.read_text() == SECRET
    page = run.path / "report.html"
    assert not page.is_symlink() and page.read_text().startswith("<!doctype html>")


def test_pipes_are_not_waited_for(tmp_path: Path):
    run = make_run(tmp_path / "runs" / "pipes")
    run.metrics_file.unlink()
    run.eval.mkdir()
    for file in (run.metrics_file, run.eval / "step-000001.json", run.path / FILE):
        os.mkfifo(file)
    (line,) = list_runs(tmp_path / "runs")
    assert "not a regular file" in line.problem
    assert "not a regular file" in report_page(run.path)


@pytest.mark.parametrize(
    "content", spread_over(["[" * 100_000, '{"env": 1}', '{"reports": [1]}', "\x00"], 2)
)
def test_evaluations_that_are_none_are_told(tmp_path: Path, content: str):
    run = make_run(tmp_path / "run")
    run.eval.mkdir()
    (run.eval / "step-000001.json").write_text(content)
    assert "step-000001.json cannot be read" in report_page(run.path)
