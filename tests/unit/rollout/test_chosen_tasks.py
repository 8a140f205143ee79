"""Files of ids choose tasks, as AgentGym-RL's do."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.rollout.chosen_tasks import choose_tasks, task_splits
from agentgym_rl.types import Task

SPEC = TextCraft.spec


def written(folder: Path, content: object, name: str = "tasks.json") -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


def chosen(config: EnvConfig, *, tested: bool = False) -> list[Task]:
    splits = task_splits(config, SPEC, tested=tested)
    tasks = [task for split in splits for task in TextCraft.tasks(split)]
    return choose_tasks(config, SPEC, tasks, tested=tested)


@pytest.mark.parametrize(
    "content",
    [
        [{"item_id": "textcraft_12"}, {"item_id": "textcraft_3"}, {"item_id": "textcraft_12"}],
        ["textcraft_12", "textcraft/3"],
        [12, {"item_id": 3}],
        '{"item_id": "textcraft_12"}\n{"item_id": "textcraft_3"}\n',
    ],
)
def test_a_file_chooses_tasks_of_any_split_in_its_order(tmp_path: Path, content: object):
    config = EnvConfig(name="textcraft", tasks_file=written(tmp_path, content))
    assert [task.index for task in chosen(config)] == [12, 3]


def test_evaluation_leaves_out_what_a_file_trains_on(tmp_path: Path):
    tested = [task.index for task in TextCraft.tasks("test")]
    config = EnvConfig(name="textcraft", tasks_file=written(tmp_path, tested[:7]))
    assert [task.index for task in chosen(config, tested=True)] == tested[7:]
    every = EnvConfig(name="textcraft", tasks_file=written(tmp_path, tested))
    with pytest.raises(ValueError, match="none is left to evaluate on"):
        chosen(every, tested=True)


def test_two_files_that_overlap_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    config = EnvConfig(
        name="textcraft",
        tasks_file=written(tmp_path, [1, 2]),
        eval_tasks_file=written(tmp_path, [2, 3], "eval.json"),
    )
    with caplog.at_level(logging.WARNING):
        assert [task.index for task in chosen(config, tested=True)] == [2, 3]
    assert "1 of the 2 tasks" in caplog.text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (["textcraft_99999999"], "1 of its 1 ids are not tasks of textcraft, such as 99999999"),
        (["babyai_3"], "'babyai_3' is a task of 'babyai', not of 'textcraft'"),
        ([{"id": 3}], "item 1: {'id': 3} is not the id of a task"),
        ([True], "True is not the id"),
        ([], "holds no ids"),
        ("[1, 2", "is not a JSON list"),
        ("[" * 100_000, "is not a JSON list"),
    ],
)
def test_a_wrong_file_is_refused_in_words(tmp_path: Path, content: object, told: str):
    config = EnvConfig(name="textcraft", tasks_file=written(tmp_path, content))
    with pytest.raises(ValueError) as refused:
        chosen(config)
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"env\.tasks_file='nowhere\.json' cannot be read"):
        chosen(EnvConfig(name="textcraft", tasks_file="nowhere.json"))
