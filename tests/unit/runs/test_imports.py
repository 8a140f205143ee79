"""Episodes of other programs become a run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.runs.episodes import read_episodes, read_groups
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.imports import import_episodes

STARTER = [
    {"role": "user", "content": "You craft things."},
    {"role": "assistant", "content": "OK. I'll do my best."},
]


def rollout(item_id: int, reward: float) -> dict[str, object]:
    talk = [
        {"role": "user", "content": "Goal: planks"},
        {"role": "assistant", "content": "Thought:\nwood\n\nAction:\nget 1 log"},
        {"role": "user", "content": "Got 1 log"},
        {"role": "assistant", "content": "Thought: done\nAction: craft planks"},
    ]
    return {"item_id": item_id, "conversations": STARTER + talk, "reward": reward}


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def test_rollout_logs_of_several_steps_and_ranks(tmp_path: Path):
    logs = tmp_path / "logs"
    write(logs / "step1" / "0.json", [rollout(7, 0.0), rollout(8, 0.0)])
    write(logs / "step1" / "1.json", [rollout(7, 1.0)])
    write(logs / "step12" / "0.json", [rollout(9, 1.0)])
    run = RunFolder(tmp_path / "run")
    summary = import_episodes(logs, run, env="textcraft")
    assert (summary.num_steps, summary.num_episodes) == (2, 4)
    assert summary.reward_mean == 0.5 and summary.success_rate == 0.5
    first, second = read_groups(run.episodes / "train-000001.parquet")
    assert [(e.task.index, e.sample_index, e.reward) for e in first] == [(7, 0, 0.0), (7, 1, 1.0)]
    assert second[0].task.env == "textcraft" and second[0].task.index == 8
    assert [line["step"] for line in run.read_metrics()] == [1, 12]
    assert run.read_metrics()[0]["rollout/reward_mean"] == pytest.approx(1 / 3)


def test_rounds_are_replies_but_for_the_acknowledgement(tmp_path: Path):
    file = write(tmp_path / "log.json", [rollout(7, 1.0)])
    run = RunFolder(tmp_path / "run")
    import_episodes(file, run)
    (episode,) = read_episodes(run.episodes / "train-000000.parquet")
    assert [(r.action, r.observation, r.reward) for r in episode.rounds] == [
        ("get 1 log", "Got 1 log", 0.0),
        ("craft planks", "", 1.0),
    ]
    assert len(episode.messages) == 6 and episode.samples == ()


def test_conversations_of_agentgym(tmp_path: Path):
    talk = [
        {"from": "human", "loss": None, "value": "Rules."},
        {"from": "gpt", "loss": False, "value": "I see."},
        {"from": "human", "loss": None, "value": "Look."},
        {"from": "gpt", "loss": True, "value": "Action: go"},
        {"from": "human", "loss": None, "value": "Done."},
    ]
    rows = [
        {"item_id": "babyai_400", "conversations": talk},
        {"item_id": "sciworld_3", "conversations": talk, "reward": 100, "success": True},
    ]
    file = tmp_path / "talks.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    run = RunFolder(tmp_path / "run")
    import_episodes(file, run)
    demo, scored = read_episodes(run.episodes / "train-000000.parquet")
    assert (demo.task.env, demo.task.index, demo.reward) == ("babyai", 400, None)
    assert not demo.success and [r.action for r in demo.rounds] == ["go"]
    assert demo.rounds[0].observation == "Done."
    assert scored.success and scored.reward == 100.0 and scored.task.env == "sciworld"


def test_what_is_no_log_is_told_with_its_place(tmp_path: Path):
    def problem(content: object) -> str:
        file = write(tmp_path / "bad.json", content)
        with pytest.raises(ConfigError) as caught:
            import_episodes(file, RunFolder(tmp_path / "bad_run"))
        assert not (tmp_path / "bad_run").exists()
        return str(caught.value)

    assert "item 1" in problem([{"item_id": 3, "conversations": []}])
    assert "role" in problem([{"item_id": 3, "conversations": [{"from": "human"}]}])
    assert "reward" in problem([rollout(1, 0.0) | {"reward": "high"}])
    assert "object" in problem([3]) and "no episodes" in problem([])
    with pytest.raises(ConfigError, match="step<N>"):
        import_episodes(tmp_path, RunFolder(tmp_path / "x"))
    with pytest.raises(ConfigError, match="no file or folder"):
        import_episodes(tmp_path / "nothing", RunFolder(tmp_path / "x"))


def test_a_run_is_not_written_over(tmp_path: Path):
    file = write(tmp_path / "log.json", [rollout(7, 1.0)])
    run = RunFolder(tmp_path / "run")
    import_episodes(file, run)
    with pytest.raises(RunError, match="holds a run already"):
        import_episodes(file, run)
