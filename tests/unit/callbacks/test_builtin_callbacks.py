"""Early stopping, the best model, the card and the upload, on run folders made here."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest

from agentgym_rl.callbacks import Callbacks, EarlyStop, KeepBest, PushToHub
from agentgym_rl.callbacks.model_card import write_card
from agentgym_rl.config import RunConfig, dump_config, parse_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import RunFolder

SUCCESS = "eval/babyai/success_rate"


def config_of(*overrides: str) -> RunConfig:
    return parse_config({"env": {"name": "babyai"}}, overrides, source="test")


def new_run(folder: Path, *overrides: str) -> tuple[RunFolder, Run]:
    files = RunFolder(folder / "my-run")
    files.create(dump_config(config_of(*overrides)))
    return files, Run(files.path)


def report_of(step: int, rate: float) -> EvalReport:
    score = Score(4, 0, rate, rate / 2, (1 + rate) / 2, rate, 2.0)
    return EvalReport("babyai", "test", step, 8, 1.0, score, {}, {"success": 4})


def follow(callbacks: Callbacks, files: RunFolder, values: dict[int, float]) -> int | None:
    """Make steps whose success is given, each with a checkpoint; return where the run stops."""
    for step, value in values.items():
        line = {"step": step, "rollout/success_rate": value, SUCCESS: value}
        files.append_metrics(line)
        written = files.checkpoints / ".writing"
        (written / "model").mkdir(parents=True)
        (written / "model" / "model.safetensors").write_text(str(step))
        path = files.complete_checkpoint(written, step, keep=1)
        callbacks.on_step(line)
        callbacks.on_checkpoint(path, step)
        if callbacks.stop_reason() is not None:
            return step
    return None


@pytest.mark.parametrize(
    ("values", "settings", "stop"),
    [
        ([0.1, 0.3, 0.3, 0.2], {"patience": 2}, 4),
        ([0.1, 0.3, 0.2, 0.4], {"patience": 2}, None),
        ([0.1, 0.15, 0.19], {"patience": 2, "min_change": 0.1}, 3),
        ([0.5, 0.4, 0.3, 0.35], {"patience": 1, "mode": "min"}, 4),
    ],
)
def test_early_stop_waits_for_improvements(
    tmp_path: Path, values: list[float], settings: dict[str, object], stop: int | None
):
    files, run = new_run(tmp_path)
    callbacks = Callbacks([EarlyStop("rollout/success_rate", **settings)])  # type: ignore[arg-type]
    callbacks.on_run_start(run)
    assert follow(callbacks, files, dict(enumerate(values, start=1))) == stop


def test_early_stop_counts_the_evaluation_before_the_first_step(tmp_path: Path):
    files, run = new_run(tmp_path)
    callbacks = Callbacks([EarlyStop(patience=2)])
    callbacks.on_run_start(run)
    report_of(0, 0.5).save(files.eval, "step-000000")
    assert follow(callbacks, files, {1: 0.5, 2: 0.5}) == 2


@pytest.mark.parametrize("resumed_after", [1, 2, 3])
def test_early_stop_of_a_resumed_run_stops_at_the_same_step(tmp_path: Path, resumed_after: int):
    values = {1: 0.3, 2: 0.2, 3: 0.1, 4: 0.2, 5: 0.2}
    files, run = new_run(tmp_path)
    before = Callbacks([EarlyStop("rollout/success_rate", patience=3)])
    before.on_run_start(run)
    assert follow(before, files, {k: v for k, v in values.items() if k <= resumed_after}) is None
    after = Callbacks([EarlyStop("rollout/success_rate", patience=3)])
    after.on_run_start(run)
    assert follow(after, files, {k: v for k, v in values.items() if k > resumed_after}) == 4
    killed_then = Callbacks([EarlyStop("rollout/success_rate", patience=3)])
    killed_then.on_run_start(run)
    assert "has not improved 3 times in a row" in str(killed_then.stop_reason())


def test_the_best_model_survives_the_end_of_its_checkpoint(tmp_path: Path):
    files, run = new_run(tmp_path)
    callbacks = Callbacks([KeepBest()])
    callbacks.on_run_start(run)
    follow(callbacks, files, {1: 0.2, 2: 0.7, 3: 0.7, 4: 0.5})
    assert [path.name for path in files.checkpoints.glob("step-*")] == ["step-4"]
    assert (run.folder / "model.best" / "model.safetensors").read_text() == "2"
    facts = json.loads((run.folder / "model.best" / "best.json").read_text())
    assert facts == {"step": 2, "metric": SUCCESS, "value": 0.7}


def test_the_best_model_after_a_kill_is_that_of_a_whole_run(tmp_path: Path):
    files, run = new_run(tmp_path)
    killed = Callbacks([KeepBest("rollout/success_rate")])
    killed.on_run_start(run)
    follow(killed, files, {1: 0.2, 2: 0.3})
    # Killed right after the checkpoint of step 3, before the callback heard of it.
    follow(Callbacks(), files, {3: 0.9})
    resumed = Callbacks([KeepBest("rollout/success_rate")])
    resumed.on_run_start(run)
    follow(resumed, files, {4: 0.4})
    assert (run.folder / "model.best" / "model.safetensors").read_text() == "3"


def test_the_best_model_of_steps_that_are_made_again_is_forgotten(tmp_path: Path):
    files, run = new_run(tmp_path)
    callbacks = Callbacks([KeepBest("rollout/success_rate")])
    callbacks.on_run_start(run)
    follow(callbacks, files, {1: 0.2, 2: 0.9})
    files.checkpoint_path(2).rename(files.checkpoint_path(1))
    (files.checkpoints / "latest").unlink()
    files.forget_after(1)
    again = Callbacks([KeepBest("rollout/success_rate")])
    again.on_run_start(run)
    facts = json.loads((run.folder / "model.best" / "best.json").read_text())
    assert (facts["step"], facts["value"]) == (1, 0.2)


def test_a_metric_that_no_step_has_is_refused_in_the_first(tmp_path: Path):
    files, run = new_run(tmp_path)
    callbacks = Callbacks([EarlyStop("rollout/sucess_rate", patience=1)])
    callbacks.on_run_start(run)
    with pytest.raises(ConfigError, match=r"did you mean 'rollout/success_rate'.*callbacks.metric"):
        follow(callbacks, files, {1: 0.5})


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["callbacks.metric=loss"], "is not a metric"),
        (["eval.tasks=0"], "eval.tasks=0: raise it"),
        (["callbacks.early_stop=2"], "eval.every=0 makes none during training"),
        (["callbacks.metric=eval/babbyai/success_rate"], "no environment 'babbyai'"),
        (["callbacks.metric=eval/babyai/sucess_rate"], "did you mean 'success_rate'"),
        (["callbacks.metric=eval/sucess_rate"], "the only mean over environments"),
        (["callbacks.mode=most"], "callbacks.mode"),
    ],
)
def test_what_cannot_be_judged_is_refused(overrides: list[str], told: str):
    with pytest.raises(ConfigError, match=told):
        config_of("callbacks.keep_best=true", *overrides)


def test_the_card_has_results_versions_and_the_recipe(tmp_path: Path):
    files, run = new_run(tmp_path, "model.path=Qwen/Qwen2.5-0.5B-Instruct", "training.lr=3e-5")
    report_of(0, 0.25).save(files.eval, "step-000000")
    report_of(8, 0.75).save(files.eval, "step-000008")
    write_card(run)
    card = (files.model / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "base_model: Qwen/Qwen2.5-0.5B-Instruct\n" in card
    row = "| babyai | test | 4 | 25.0% [12.5%, 62.5%] (step 0) | 75.0% [37.5%, 87.5%] (step 8) |"
    assert row in card
    assert (
        "transformers 5" in card and "lr = 3e-05" in card and "agentgym train recipe.toml" in card
    )


def test_the_card_has_no_rate_of_an_evaluation_in_which_nothing_completed(tmp_path: Path):
    files, run = new_run(tmp_path)
    failed = Score(0, 4, 0.0, 0.0, 1.0, 0.0, 0.0)
    report = EvalReport("babyai", "test", 8, 8, 1.0, failed, {}, {"env_error": 4})
    report.save(files.eval, "step-000008")
    write_card(run)
    card = (files.model / "README.md").read_text()
    assert "| babyai | test | 0 |  | no episode completed (step 8) |" in card


def test_a_model_of_this_machine_is_no_base_model_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/mine", "tiny", "smollm2-135m", "models/my.gguf"):
        (tmp_path / "runs" / "mine").mkdir(parents=True, exist_ok=True)
        files, run = new_run(tmp_path / name.replace("/", "-"), f"model.path={name}")
        write_card(run)
        assert "base_model" not in (files.model / "README.md").read_text()


class HubStandIn(BaseHTTPRequestHandler):
    """Answers as the Hub does to a new repository and a commit of small files."""

    received: dict[str, bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.received[self.path] = body
        where = "http://127.0.0.1/me/agent"
        answer: dict[str, object] = {"url": where, "commitUrl": f"{where}/commit/1",
                                     "commitOid": "1" * 40, "name": "me/agent"}  # fmt: skip
        if "preupload" in self.path:
            files = json.loads(body)["files"]
            answer = {"files": [{"path": file["path"], "uploadMode": "regular",
                                 "shouldIgnore": False} for file in files]}  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    handler = type("Handler", (HubStandIn,), {"received": dict[str, bytes]()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        yield handler.received
        server.shutdown()


def test_the_model_is_uploaded_with_its_card(tmp_path: Path, hub: dict[str, bytes]):
    files, run = new_run(tmp_path)
    files.model.mkdir()
    (files.model / "config.json").write_text("{}")
    write_card(run)
    PushToHub("me/agent").on_run_end(run)
    assert json.loads(hub["/api/repos/create"])["visibility"] == "private"
    (commit,) = [body for path, body in hub.items() if "/commit/" in path]
    lines = [json.loads(line) for line in commit.splitlines()]
    sent = {line["value"]["path"] for line in lines if line["key"] == "file"}
    assert sent == {"README.md", "config.json"}


def test_an_upload_that_fails_says_how_to_upload_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    files, run = new_run(tmp_path)
    files.model.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING):
        PushToHub("me/agent").on_run_end(run)
    assert f"upload it later with: hf upload me/agent {files.model}" in caplog.text


def test_a_repository_needs_an_owner():
    with pytest.raises(ConfigError, match="write it like me/my-agent"):
        PushToHub("agent")
