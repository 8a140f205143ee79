"""The episode store: Parquet parts that give every field back."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from agentgym_rl.runs.episode_columns import SCHEMA, TokenScores
from agentgym_rl.runs.episodes import read_episodes, write_episodes
from agentgym_rl.types import (
    Episode,
    Message,
    ReplyUsage,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

SAMPLE = Sample(
    token_ids=(5, 8, 31, 2, 9, 7),
    loss_mask=(0, 0, 1, 1, 0, 1),
    logprobs=(0.0, 0.0, -0.5, -1.25, 0.0, -2.0),
    rewards=(0.0, 0.0, 0.0, 0.0, 0.0, 0.75),
    segments=(
        Segment(SegmentKind.PROMPT, 0, 2, 0),
        Segment(SegmentKind.ACTION, 2, 4, 0, version=2),
        Segment(SegmentKind.OBSERVATION, 4, 5, 0),
        Segment(SegmentKind.ACTION, 5, 6, 1, version=3),
    ),
    version=3,
)
SOLVED = Episode(
    task=Task("babyai", "train", 44, category="GoTo", level="GoToLocal", seed=7),
    sample_index=1,
    stop_reason=StopReason.SUCCESS,
    reward=0.75,
    success=True,
    rounds=(
        Round("mumble", None, "No action found.", 0.0, False, 0, 0.5, 0.25),
        Round("Action: gö", "gö", "Done. 🎉\n", 0.75, valid_action=True),
    ),
    messages=(Message("user", "Goal: go"), Message("assistant", "mumble")),
    samples=(SAMPLE,),
    seconds=1.5,
    num_restarts=1,
    num_replies_cut=1,
)
PAYLOAD = {"goal": "gö", "doors": [{"at": [1, 2]}, None]}
REPORTING = replace(
    SOLVED,
    task=replace(SOLVED.task, payload=PAYLOAD),
    rounds=(
        SOLVED.rounds[0],
        replace(
            SOLVED.rounds[1],
            metrics={"distance": 0.0, "steps": 3.0},
            reward_parts={"goal": 1.0, "length": -0.25},
        ),
    ),
)
FAILED = Episode(
    task=Task("babyai", "train", 45),
    sample_index=0,
    stop_reason=StopReason.ENV_ERROR,
    reward=None,
    success=False,
    rounds=(),
    messages=(),
    samples=(),
    seconds=0.25,
    num_restarts=2,
    error="env babyai: step raised KeyError",
)


def as_stored(round_: Round) -> dict[str, object]:
    """Return a round as Parquet has it: named numbers are pairs, and null where there are none."""
    own = {
        "metrics": list(round_.metrics.items()) or None,
        "reward_parts": list(round_.reward_parts.items()) or None,
    }
    return asdict(round_) | own


def test_every_field_of_an_episode_comes_back(tmp_path: Path):
    path = write_episodes(tmp_path, [[REPORTING]], phase="train", step=12)
    assert path == tmp_path / "train-000012.parquet"
    (row,) = pq.read_table(path).to_pylist()
    assert row == {
        "phase": "train",
        "step": 12,
        "env": "babyai",
        "split": "train",
        "task_index": 44,
        "task_seed": 7,
        "category": "GoTo",
        "level": "GoToLocal",
        "payload": '{"goal": "gö", "doors": [{"at": [1, 2]}, null]}',
        "group": 0,
        "sample_index": 1,
        "stop_reason": "success",
        "success": True,
        "reward": 0.75,
        "env_reward": None,
        "num_rounds": 2,
        "num_tokens": 6,
        "num_sampled_tokens": 3,
        "num_restarts": 1,
        "num_replies_cut": 1,
        "seconds": 1.5,
        "error": None,
        "messages": [asdict(message) for message in REPORTING.messages],
        "rounds": [as_stored(round_) for round_ in REPORTING.rounds],
        "samples": [as_lists(SAMPLE)],
        "usage": None,
    }


def test_what_an_endpoint_tells_of_its_tokens_comes_back(tmp_path: Path):
    told = replace(SOLVED, samples=(), usage=ReplyUsage(12, -0.25))
    silent = replace(SOLVED, samples=(), usage=ReplyUsage(12))
    part = write_episodes(tmp_path, [[told, silent, SOLVED]], phase="eval", step=0)
    assert read_episodes(part) == [told, silent, SOLVED]


def test_a_failed_episode_has_no_reward_and_says_why(tmp_path: Path):
    (row,) = pq.read_table(write_episodes(tmp_path, [[FAILED]], phase="eval", step=0)).to_pylist()
    assert row["reward"] is None and row["success"] is False
    assert (row["stop_reason"], row["num_restarts"]) == ("env_error", 2)
    assert row["error"] == "env babyai: step raised KeyError"
    assert row["samples"] == row["rounds"] == row["messages"] == []


def test_rows_keep_the_order_of_groups_and_episodes(tmp_path: Path):
    groups = [[FAILED, SOLVED], [SOLVED, FAILED, SOLVED]]
    table = pq.read_table(write_episodes(tmp_path, groups, phase="train", step=1))
    assert table["group"].to_pylist() == [0, 0, 1, 1, 1]
    assert table["success"].to_pylist() == [False, True, True, False, True]


def test_parts_of_all_failed_and_of_no_episodes_have_the_same_columns(tmp_path: Path):
    for step, groups in enumerate([[[SOLVED]], [[FAILED]], []]):
        path = write_episodes(tmp_path, groups, phase="train", step=step)
        assert pq.read_schema(path).equals(SCHEMA)
    assert pq.read_table(tmp_path).num_rows == 2


def test_a_part_is_replaced_whole_and_nothing_is_left_beside(tmp_path: Path):
    for groups in ([[SOLVED, SOLVED]], [[FAILED]]):
        path = write_episodes(tmp_path / "episodes", groups, phase="train", step=1)
    assert pq.read_table(path).num_rows == 1
    assert [file.name for file in path.parent.iterdir()] == ["train-000001.parquet"]


def as_lists(sample: Sample) -> dict[str, object]:
    """Return the sample as Parquet gives it back: tuples are lists."""
    fields = asdict(sample) | {"learner_logprobs": None, "advantages": None, "entropies": None}
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in fields.items()
    }


def test_parts_without_tries_are_read_as_of_the_first(tmp_path: Path):
    path = write_episodes(tmp_path, [[SOLVED]], phase="train", step=1)
    (row,) = pq.read_table(path).to_pylist()
    for item in (*row["rounds"], *row["samples"]):
        del item["try_index"]
    pq.write_table(pa.Table.from_pylist([row]), path)
    assert read_episodes(path) == [SOLVED]


def test_parts_with_the_names_of_before_are_read(tmp_path: Path):
    second = replace(SOLVED.rounds[1], try_index=1)
    written = replace(
        FAILED, rounds=(SOLVED.rounds[0], second), samples=(replace(SAMPLE, try_index=1),)
    )
    path = write_episodes(tmp_path, [[written]], phase="train", step=1)
    (row,) = pq.read_table(path).to_pylist()
    for item in (*row["rounds"], *row["samples"]):
        item["attempt"] = item.pop("try_index")
    row["num_attempts"] = row.pop("num_restarts") + 1
    row["stop_reason"] = "cancelled"
    pq.write_table(pa.Table.from_pylist([row]), path)
    assert read_episodes(path) == [replace(written, stop_reason=StopReason.TIMEOUT)]


def test_what_training_made_of_a_sample_is_aligned_to_its_tokens(tmp_path: Path):
    known = TokenScores((-0.5, -1.0, -2.0), (0.25, 0.25, -1.0), None)
    path = write_episodes(
        tmp_path,
        [[SOLVED, FAILED, replace(SOLVED, samples=(replace(SAMPLE), SAMPLE))]],
        phase="train",
        step=1,
        scores_of=lambda sample: known if sample is SAMPLE else None,
    )
    rows = pq.read_table(path).to_pylist()
    (first,), second = rows[0]["samples"], rows[2]["samples"]
    assert first["learner_logprobs"] == [None, None, -0.5, -1.0, None, -2.0]
    assert first["advantages"] == [None, None, 0.25, 0.25, None, -1.0]
    assert first["entropies"] is None
    assert second[0]["advantages"] is None
    assert second[1]["advantages"] == first["advantages"]
    assert read_episodes(path)[0] == SOLVED


def test_parts_of_earlier_versions_are_read(tmp_path: Path):
    path = write_episodes(tmp_path, [[SOLVED]], phase="train", step=1)
    (row,) = pq.read_table(path).to_pylist()
    for name in ("num_tokens", "num_sampled_tokens"):
        del row[name]
    for item in row["rounds"]:
        del item["generation_s"], item["environment_s"]
    for item in row["samples"]:
        del item["learner_logprobs"], item["advantages"], item["entropies"]
        for segment in item["segments"]:
            del segment["version"]
    pq.write_table(pa.Table.from_pylist([row]), path)
    segments = tuple(replace(segment, version=None) for segment in SAMPLE.segments)
    assert read_episodes(path) == [replace(SOLVED, samples=(replace(SAMPLE, segments=segments),))]


def test_own_numbers_and_payloads_come_back(tmp_path: Path):
    part = write_episodes(tmp_path, [[REPORTING, FAILED]], phase="train", step=1)
    assert read_episodes(part) == [REPORTING, FAILED]
    (solved, failed) = read_episodes(part)
    assert solved.task.payload == PAYLOAD | {"doors": ({"at": (1, 2)}, None)}
    assert solved.metrics == {"distance": 0.0, "steps": 3.0}
    assert (failed.task.payload, failed.metrics) == ({}, {})


def test_parts_from_before_there_were_own_numbers_are_read(tmp_path: Path):
    part = write_episodes(tmp_path, [[REPORTING]], phase="train", step=1)
    table = pq.read_table(part).drop_columns(["payload"])
    rounds = [
        {name: item[name] for name in item if name not in ("metrics", "reward_parts")}
        for item in table.column("rounds").to_pylist()[0]
    ]
    place = table.column_names.index("rounds")
    pq.write_table(table.set_column(place, "rounds", [[rounds]]), part)
    (episode,) = read_episodes(part)
    assert episode.task == replace(REPORTING.task, payload={})
    assert (episode.metrics, episode.reward_parts) == ({}, {})
    assert episode.reward == 0.75


def test_duckdb_finds_metrics_by_name(tmp_path: Path):
    part = write_episodes(tmp_path, [[REPORTING]], phase="train", step=1)
    query = f"SELECT rounds[-1].metrics['steps'], payload->>'goal' FROM '{part}'"
    assert duckdb.sql(query).fetchall() == [(3.0, "gö")]
