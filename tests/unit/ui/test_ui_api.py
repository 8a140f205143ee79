"""`agentgym ui`: the JSON API over run folders, asked as the page asks it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentgym_rl.runs.episodes import write_episodes
from ui_servers import UiClient, episode, make_run, read_whole, ui_process
from waiting import ask_until

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\x1b[31m'\"; DROP TABLE episodes; \u202e\u0000 </textarea>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "first")
    make_run(folder / "study" / "variant")
    (folder / "outside").symlink_to("/etc")
    return folder


@pytest.fixture(scope="module")
def ui(runs: Path) -> Iterator[UiClient]:
    with ui_process(runs) as client:
        read_whole(client, "first")
        yield client


def test_runs_are_found_with_how_they_stand(ui: UiClient):
    lines = ask_until(
        lambda: ui.get("runs")["runs"],
        lambda lines: all(line["num_episodes"] is not None for line in lines),
    )
    found = {line["run"]: line for line in lines}
    assert set(found) == {"first", "study/variant"}
    line = found["first"]
    assert (line["env"], line["algorithm"], line["model"], line["format"]) == (
        "textcraft", "grpo", "tiny", "react",
    )  # fmt: skip
    assert (line["steps"], line["target_steps"], line["num_episodes"]) == (3, 3, 12)
    assert line["status"] == "stopped"  # there is no model, so it did not end by itself
    assert line["latest"]["rollout/success_rate"] == 0.75
    assert line["problem"] is None


def test_metrics_by_name_and_after_a_step(ui: UiClient):
    assert "train/entropy" in ui.get("metric_names", run="first")["names"]
    found = ui.get("metrics", run="first", names="train/entropy,train/none", after=1)
    assert found["steps"] == [2, 3]
    assert found["values"] == {"train/entropy": [0.5, 1 / 3], "train/none": [None, None]}


def test_the_config_is_given_as_it_is(ui: UiClient):
    assert 'name = "textcraft"' in ui.get("config", run="first")["toml"]


def test_facets(ui: UiClient):
    found = ui.get("facets", run="first")
    assert found["num_episodes"] == 12
    assert found["steps"] == [1, 3] and found["rounds"] == [2, 2]
    assert found["stop_reasons"] == ["max_rounds", "success"]
    assert (found["phases"], found["envs"], found["categories"]) == (
        ["train"], ["textcraft"], ["depth 1"],
    )  # fmt: skip


def test_filters_narrow_a_list(ui: UiClient):
    def total(**wanted: object) -> object:
        return ui.get("episodes", run="first", **wanted)["total"]

    assert total() == 12
    assert total(step_min=2) == 8 and total(step_min=2, step_max=2) == 4
    assert total(outcome="success") == 3 and total(outcome="failure") == 9
    assert total(outcome="failed") == 0
    assert total(stop_reason="max_rounds") == 9
    assert total(rounds_min=3) == 0 and total(rounds_max=2) == 12
    assert total(env="babyai") == 0 and total(category="depth 1") == 12
    assert total(text="OAK LOG") == 12 and total(text="action: look") == 3
    assert total(group=0, step_min=1, step_max=1) == 2
    assert total(task_index=21) == 2


def test_lists_are_sorted_and_paged(ui: UiClient):
    page = ui.get("episodes", run="first", sort="reward", order="desc", limit=3)
    assert [row["reward"] for row in page["rows"]] == [1.0, 1.0, 1.0]
    assert page["rows"][0]["episode"] == "train-000003:0"
    rest = ui.get("episodes", run="first", sort="reward", order="desc", limit=100, offset=3)
    assert len(rest["rows"]) == 9 and {row["reward"] for row in rest["rows"]} == {0.0}
    by_time = ui.get("episodes", run="first", sort="seconds", order="asc", limit=1)["rows"]
    assert by_time[0]["seconds"] == 0.5


def test_a_row_tells_what_a_list_shows(ui: UiClient):
    (row,) = ui.get("episodes", run="first", limit=1, step_max=1, outcome="success")["rows"]
    shown = {
        "episode": "train-000001:0", "phase": "train", "step": 1, "env": "textcraft",
        "split": "train", "task_index": 10, "category": "depth 1", "group": 0, "sample_index": 0,
        "success": True, "reward": 1.0, "num_rounds": 2, "num_tokens": 6,
        "num_sampled_tokens": 3, "num_invalid": 1, "stop_reason": "success", "seconds": 0.5,
        "error": None,
    }  # fmt: skip
    assert row.items() >= shown.items()


def test_an_episode_has_its_rounds_with_their_parts(ui: UiClient):
    found = ui.get("episode", run="first", episode="train-000002:1")
    first, second = found["rounds"]
    assert first["action"] == "look" and first["valid_action"]
    assert first["parts"] == [
        {"kind": "thought", "text": "I need wood. Action: "},
        {"kind": "action", "text": "look"},
    ]
    assert second["action"] is None and not second["valid_action"]
    assert found["samples"] == [{"index": 0, "num_tokens": 6, "try": 0, "version": 3}]
    assert [message["role"] for message in found["messages"]] == ["user", "assistant"] * 2
    assert [m.get("round") for m in found["messages"]] == [None, 0, None, 1]


def test_tokens_without_a_tokenizer_are_their_ids(ui: UiClient):
    found = ui.get("tokens", run="first", episode="train-000001:0", sample=0)
    assert found["ids"] == [5, 8, 31, 2, 9, 7]
    assert found["tokens"][0] == "<5>" and "tokenizer" in found["problem"]
    assert found["mask"] == [0, 0, 1, 1, 0, 1]
    assert found["segments"][1] == {"kind": "thought", "start": 2, "end": 3, "round": 0}
    assert ui.ask("tokens", run="first", episode="train-000001:0", sample=4).status_code == 404


@pytest.mark.parametrize(
    "run",
    ["..", "../first", "/etc", "first/../..", "outside", "a\0b", "", "~", "nothing", "first/model"],
)
def test_paths_out_of_the_runs_folder_are_refused(ui: UiClient, run: str):
    for route in ("config", "metrics", "facets", "episodes", "reports"):
        response = ui.ask(route, run=run)
        assert response.status_code in (400, 403, 404), response.text
        assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    "wanted",
    ["../config:0", "train-000001", "train-000001:x", "train-000001:99", ":0", "a\0:0", "nix:0",
     "train-000001:-1", "/etc/passwd:0"],
)  # fmt: skip
def test_ids_that_are_no_episodes_are_refused(ui: UiClient, wanted: str):
    assert ui.ask("episode", run="first", episode=wanted).status_code in (400, 404)


def test_bad_parameters_are_told(ui: UiClient):
    response = ui.ask("episodes", run="first", limit="many")
    assert response.status_code == 400 and "limit" in response.json()["error"]["message"]
    assert ui.ask("episodes", run="first", sort="1; DROP TABLE episodes").status_code == 400
    assert ui.ask("nothing").status_code == 404


def test_other_pages_are_refused(ui: UiClient):
    def status(**headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ui.session.get(f"{ui.url}/api/runs", headers=named, timeout=10).status_code

    port = urlsplit(ui.url).port
    assert status(Origin="http://evil.example") == 403
    assert status(Host=f"evil.example:{port}") == 403
    assert status(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors") == 403
    assert status(Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors") == 403
    link = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert status(Sec_Fetch_Site="cross-site", **link) == 403  # a link leads to the page alone
    assert status(Sec_Fetch_Site="none", **link) == 200
    assert status(Origin=ui.url) == 200
    assert status(Host=f"localhost:{port}") == 200


def test_answers_forbid_foreign_scripts(ui: UiClient):
    for path in ("/", "/api/runs", "/vendor/plotly.min.js", "/nothing"):
        response = ui.session.get(ui.url + path, timeout=10)
        policy = response.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "default-src 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_page_and_plotly_come_from_here(ui: UiClient):
    page = ui.session.get(ui.url + "/", timeout=10)
    assert page.status_code == 200 and "text/html" in page.headers["content-type"]
    script = ui.session.get(ui.url + "/vendor/plotly.min.js", timeout=10)
    assert script.status_code == 200 and "javascript" in script.headers["content-type"]
    assert len(script.content) > 1_000_000


def test_static_paths_do_not_lead_out(ui: UiClient):
    host, port = urlsplit(ui.url).hostname, urlsplit(ui.url).port
    for path in ("/../app.py", "/..%2fapp.py", "/%2e%2e/app.py", "//etc/passwd"):
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert b" 404 " in connection.recv(4096).split(b"\r\n")[0]


def test_hostile_text_passes_as_text(tmp_path: Path):
    run = make_run(tmp_path / "run", num_steps=0)
    write_episodes(
        run.episodes,
        [[episode(1, 0, action=HOSTILE, texts=(HOSTILE, "ok"))]],
        phase="train",
        step=1,
    )
    with ui_process(tmp_path) as ui:
        found = ui.get("episode", run="run", episode="train-000001:0")
        assert found["messages"][0]["content"] == HOSTILE
        assert found["rounds"][0]["action"] == HOSTILE
        assert read_whole(ui, "run", text=HOSTILE)["total"] == 1
        assert ui.get("episodes", run="run", text="' OR 1=1 --")["total"] == 0


def test_the_server_starts_without_torch_and_only_where_it_is_safe(tmp_path: Path):
    program = (
        "import sys, pathlib\n"
        "from agentgym_rl.ui.server import UiServer\n"
        "UiServer(pathlib.Path(sys.argv[1]))\n"
        "assert not {'torch', 'transformers', 'plotly'} & set(sys.modules)\n"
        "try:\n    UiServer(pathlib.Path(sys.argv[1]), host='0.0.0.0')\n"
        "except ValueError as error:\n    assert '--public' in str(error)\n"
        "else:\n    raise SystemExit('it listens to all')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True, text=True, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
