"""WebArena's 812 tasks in both versions, and which of them a set of options has.

The original's file says how an episode begins and is scored. The verified one has the same numbers
with clearer objectives, and says of each task whether it looks something up (`retrieve`), ends on a
page (`navigate`) or changes a site (`mutate`): that is `Task.level`, for both versions.

The paper trains on 372 and tests on 50 tasks that change no site, without listing them. Of the 812,
438 change nothing, and 422 of these do not begin with Wikipedia in their list of sites: as many as
the paper has. Its tables imply 15 tests in the shop, 15 in the back office, 10 on the map and 10 on
GitLab and Reddit together, which are taken here evenly over the numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from agentgym_rl.envs.scenarios.webarena.options import ArenaOptions
from agentgym_rl.envs.scenarios.webarena.package import data_folder
from agentgym_rl.errors import EnvError

ENV_NAME = "webarena"
CATEGORIES = {
    "shopping": "Shopping",
    "shopping_admin": "CMS",
    "map": "Maps",
    "gitlab": "GitLab",
    "reddit": "Reddit",
    "wikipedia": "Wikipedia",
}
"""First site of a task -> its category."""
LEVELS = ("retrieve", "navigate", "mutate")
CHANGES = "mutate"
_RAW, _VERIFIED = "test.raw.json", "webarena-verified.json"
_HARD = "subsets/webarena-verified-hard.json"
_TEST_SHARES = ((("Shopping",), 15), (("CMS",), 15), (("Maps",), 10), (("GitLab", "Reddit"), 10))
"""Categories -> how many of their tasks the paper tests on."""
_AND = " |AND| "

Json = Mapping[str, Any]  # the files have no schema that could be relied on


@dataclass(frozen=True)
class ArenaTask:
    """One task. Addresses are still names: "__SHOPPING__/checkout/cart"."""

    index: int
    sites: tuple[str, ...]
    intent: str
    start_urls: tuple[str, ...]
    level: str
    evaluation: str
    """JSON of the original's `eval`; empty in the verified version, whose package has its own."""
    needs_judge: bool
    is_broken: bool
    """Whether its evaluator fails whatever the agent does."""
    geolocation: tuple[float, float] | None

    @property
    def category(self) -> str:
        return CATEGORIES[self.sites[0]]


@dataclass(frozen=True)
class TaskChoice:
    """The tasks of each split, and how many were left out, by reason."""

    splits: Mapping[str, tuple[ArenaTask, ...]]
    left_out: Mapping[str, int]

    def told(self) -> str:
        """Return what was left out in words; empty where nothing was."""
        if not self.left_out:
            return ""
        reasons = ", ".join(f"{number} {reason}" for reason, number in self.left_out.items())
        return f"{sum(self.left_out.values())} tasks are left out: {reasons}"


def read_tasks(version: str, python: str) -> tuple[ArenaTask, ...]:
    """Return all tasks of a version. Raises EnvError where the package is missing."""
    return _read(version, data_folder(python))


@cache
def choose_tasks(options: ArenaOptions) -> TaskChoice:
    """Return the tasks of a set of options, by split."""
    tasks = read_tasks(options.version, options.python)
    if options.tasks == "paper":
        splits = _paper_splits(tasks, with_changes=options.with_changes)
    elif options.tasks == "hard":
        hard = _hard_numbers(data_folder(options.python))
        splits = {"test": tuple(task for task in tasks if task.index in hard)}
    else:
        splits = {"test": tasks}
    left_out = Counter[str]()
    kept = dict[str, tuple[ArenaTask, ...]]()
    for split, those in splits.items():
        reasons = [_reason(task, options) for task in those]
        left_out.update(reason for reason in reasons if reason)
        pairs = zip(those, reasons, strict=True)
        kept[split] = tuple(task for task, reason in pairs if not reason)
    return TaskChoice(kept, dict(left_out))


def _reason(task: ArenaTask, options: ArenaOptions) -> str:
    """Return why a task cannot be played or scored; empty where it can.

    Without any address all of them are listed, so that they can be looked at.
    """
    missing = [site for site in task.sites if site not in options.addresses]
    if missing and options.addresses:
        return "on sites without an address"
    if task.is_broken:
        return "fail in the package's own evaluator"
    if task.needs_judge and not options.judge_url:
        return "need a judge (judge_url, judge_model)"
    return ""


def _paper_splits(
    tasks: Sequence[ArenaTask], *, with_changes: bool
) -> dict[str, tuple[ArenaTask, ...]]:
    still = [task for task in tasks if task.level != CHANGES and task.category != "Wikipedia"]
    test = set[int]()
    for categories, num_wanted in _TEST_SHARES:
        group = [task.index for task in still if task.category in categories]
        places = [(2 * i + 1) * len(group) // (2 * num_wanted) for i in range(num_wanted)]
        test |= {group[place] for place in places} if group else set()
    trained = [task for task in tasks if with_changes and task.level == CHANGES] + still
    return {
        "train": tuple(
            sorted((t for t in trained if t.index not in test), key=lambda task: task.index)
        ),
        "test": tuple(task for task in still if task.index in test),
    }


@cache
def _read(version: str, folder: Path) -> tuple[ArenaTask, ...]:
    verified = {int(row["task_id"]): row for row in _rows(folder / _VERIFIED)}
    if version == "verified":
        return tuple(_verified_task(verified[index]) for index in sorted(verified))
    originals = {int(row["task_id"]): row for row in _rows(folder / _RAW)}
    return tuple(_original_task(originals[index], verified[index]) for index in sorted(originals))


def _rows(file: Path) -> Sequence[Json]:
    try:
        return cast(Sequence[Json], json.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise EnvError(f"the task file {file} cannot be read: {error}") from error


def _hard_numbers(folder: Path) -> frozenset[int]:
    table = cast(Json, _rows(folder / _HARD))
    return frozenset(int(number) for number in table["task_ids"])


def _level(verified: Json) -> str:
    """Return what the verified version says that a task does."""
    answers = [one for one in verified["eval"] if one["evaluator"] == "AgentResponseEvaluator"]
    return str(answers[0]["expected"]["task_type"])


def _breaks(evaluator: Json) -> bool:
    """Return whether the package refuses what it expects itself: a choice of one.

    Version 1.2.3 does so for tasks 699, 700 and 811, in forms that have no schema.
    """
    form = evaluator["expected"].get("post_data") or {}
    has_one = any(isinstance(value, list) and len(value) == 1 for value in form.values())
    return has_one and "post_data_schema" not in evaluator


def _verified_task(row: Json) -> ArenaTask:
    return ArenaTask(
        index=int(row["task_id"]),
        sites=tuple(row["sites"]),
        intent=str(row["intent"]),
        start_urls=tuple(row["start_urls"]),
        level=_level(row),
        evaluation="",
        needs_judge=False,
        is_broken=any(map(_breaks, row["eval"])),
        geolocation=None,
    )


def _original_task(row: Json, verified: Json) -> ArenaTask:
    references = row["eval"]["reference_answers"] or {}
    place = row["geolocation"]
    return ArenaTask(
        index=int(row["task_id"]),
        sites=tuple(row["sites"]),
        intent=str(row["intent"]),
        start_urls=tuple(str(row["start_url"]).split(_AND)),
        level=_level(verified),
        evaluation=json.dumps(row["eval"]),
        needs_judge="fuzzy_match" in references,
        is_broken=False,
        geolocation=(place["latitude"], place["longitude"]) if place else None,
    )
