"""A move from AgentGym-RL: its script becomes a recipe, its task files choose, its logs load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import agentgym

pytestmark = pytest.mark.slow

SCRIPTS = json.loads(
    (Path(__file__).parents[1] / "data" / "agentgym_rl_scripts.json").read_text(encoding="utf-8")
)


@pytest.mark.long
def test_a_script_with_its_task_files_is_trained_and_evaluated(tmp_path: Path):
    script = SCRIPTS["examples/train/ScalingInter-RL/babyai_train.sh"]
    words = [f"    {key}={value}" for key, value in script["overrides"].items()]
    variables = [f"{key}={value}" for key, value in script["variables"].items()]
    (tmp_path / "train.sh").write_text(
        "\n".join(variables)
        + "\npython3 -m verl.agent_trainer.main_ppo \\\n"
        + " \\\n".join(words)
        + "\n"
    )
    ids = tmp_path / "AgentItemId"
    ids.mkdir()
    # Levels repeat after 40: these are tasks of the first level, of both splits here.
    trained, tested = [0, 40, 4000], [80, 120]
    for name, numbers in (("train", trained), ("test", tested)):
        items = [{"item_id": f"babyai_{number}"} for number in numbers]
        (ids / f"babyai_{name}.json").write_text(json.dumps(items))
    converted = agentgym("convert-config", "train.sh", "-o", "moved.toml", folder=tmp_path)
    assert converted.status == 0 and "19 settings carried over, 12 not" in converted.stdout
    dry = agentgym("train", "moved.toml", "--dry-run", folder=tmp_path)
    assert dry.status == 0 and 'tasks_file = "AgentItemId/babyai_train.json"' in dry.stdout
    small = (
        "model.path=tiny", "model.dtype=float32", "rollout.max_tokens_per_round=8",
        "training.steps=1", "training.tasks_per_step=3", "training.updates_per_step=1",
        "algorithm.group_size=2", "eval.tasks=0", "training.gradient_checkpointing=false",
        "rounds.rounds=[1,2,3]",
    )  # fmt: skip
    done = agentgym("train", "moved.toml", *small, "--run-dir", "run", folder=tmp_path)
    assert done.status == 0, done.output
    words = ("eval", "run", "--tasks", "AgentItemId/babyai_test.json", "--rounds", "1")
    played = agentgym(*words, "--out", "played", folder=tmp_path)
    assert played.status == 0, played.output
    report = json.loads((tmp_path / "played" / "report.json").read_text())
    assert report["overall"]["episodes"] == len(tested)


@pytest.mark.long
def test_its_rollout_logs_are_a_run_with_a_page(tmp_path: Path):
    said = [
        {"role": "user", "content": "Find the key."},
        {"role": "assistant", "content": "Action: go"},
        {"role": "user", "content": "You see it."},
        {"role": "assistant", "content": "Action: take key"},
    ]
    for step in (1, 2):
        folder = tmp_path / "executer_logs" / f"step{step}"
        folder.mkdir(parents=True)
        rows = [{"item_id": 7, "conversations": said, "reward": step - 1.0}]
        (folder / "0.json").write_text(json.dumps(rows))
    words = ("import", "executer_logs", "-o", "runs/theirs", "--env", "textcraft")
    imported = agentgym(*words, folder=tmp_path)
    assert imported.status == 0 and "2 episodes of 2 steps" in imported.stdout, imported.output
    assert "stored" in agentgym("runs", folder=tmp_path).stdout
    assert agentgym("report", "runs/theirs", folder=tmp_path).status == 0
    assert "take key" in (tmp_path / "runs" / "theirs" / "report.html").read_text()
