"""The 40 levels of BabyAI, and which tasks belong to which split and category.

A task index is AgentGym's: level number - 1 = index % 40, seed of the simulator = index // 40.
Building the simulator of a level is left to simulator.py.

A few tasks cannot be solved by anybody, because minigrid puts the only key behind the door that it
opens: of seeds 0 to 109, GoToImpUnlock with 6, 14, 35, 63, 107 and Unlock with 63. They stay in the
splits, so that an index means what it means in AgentGym.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.types import Task

ENV_NAME = "babyai"

_NAMES = (
    # 1 - 11
    "GoToRedBallGrey",
    "GoToRedBall",
    "GoToRedBallNoDists",
    "GoToObjS6",
    "GoToLocalS8N7",
    "GoToObjMazeS7",
    "GoToImpUnlock",
    "GoToSeqS5R2",
    "GoToRedBlueBall",
    "GoToDoor",
    "GoToObjDoor",
    # 12 - 16
    "Open",
    "OpenRedDoor",
    "OpenDoorLoc",
    "OpenRedBlueDoorsDebug",
    "OpenDoorsOrderN4Debug",
    # 17 - 21
    "Pickup",
    "UnblockPickup",
    "PickupLoc",
    "PickupDistDebug",
    "PickupAbove",
    # 22 - 29
    "PutNextLocalS6N4",
    "PutNextS7N4Carrying",
    "Unlock",
    "UnlockLocalDist",
    "KeyInBox",
    "UnlockPickupDist",
    "BlockedUnlockPickup",
    "UnlockToUnlock",
    # 30 - 40
    "ActionObjDoor",
    "FindObjS7",
    "KeyCorridorS6R3",
    "OneRoomS20",
    "MoveTwoAcrossS8N9",
    "SynthS5R2",
    "SynthLoc",
    "SynthSeq",
    "MiniBossLevel",
    "BossLevel",
    "BossLevelNoUnlock",
)

CATEGORIES = (
    "GoTo",
    "Pickup",
    "ActionObjDoor",
    "FindObjS7",
    "OneRoomS20",
    "SynthLoc",
    "Other",
)

MAX_INDEX = 2**53
"""Above it numbers in JSON are not exact."""

SPLIT_SEEDS = {"train": range(100, 1100), "test": range(100)}


@dataclass(frozen=True, slots=True)
class Level:
    """One family of missions.

    Example: Level(13, "OpenRedDoor", gym_id="BabyAI-OpenRedDoor-v0", category="Other")
    """

    number: int
    """From 1, as in AgentGym."""
    name: str
    gym_id: str
    category: str


def level_of(index: int) -> Level:
    """Return the level of the task with this index. Raises ValueError where there is none.

    Seeds continue beyond the splits, as they do in AgentGym.
    """
    if not 0 <= index < MAX_INDEX:
        raise ValueError(f"babyai has tasks 0 to {MAX_INDEX - 1}, not {index}")
    return LEVELS[index % len(LEVELS)]


def seed_of(index: int) -> int:
    return index // len(LEVELS)


def tasks_of(split: str) -> tuple[Task, ...]:
    """Return the tasks of a split by rising index; within a seed, by level."""
    if split not in SPLIT_SEEDS:
        raise ValueError(f"babyai has no split {split!r}; it has {', '.join(SPLIT_SEEDS)}")
    seeds = SPLIT_SEEDS[split]
    indices = range(seeds.start * len(LEVELS), seeds.stop * len(LEVELS))
    return tuple(
        Task(ENV_NAME, split, index, category=level.category, level=level.name)
        for index in indices
        for level in (level_of(index),)
    )


def _category(number: int, name: str) -> str:
    """Return the paper's group of a level.

    The paper reports four levels by name and two groups. Its 55 "GoTo" test tasks are 5 of each of
    the levels 1 to 11. Its 15 "Pickup" tasks are of three levels that it does not name; here the
    group is all five whose mission is a single pick-up (17 to 21). What the paper leaves out
    is "Other".
    """
    if number <= 11:
        return "GoTo"
    if 17 <= number <= 21:
        return "Pickup"
    return name if name in CATEGORIES else "Other"


def _level(number: int, name: str) -> Level:
    # AgentGym's minigrid (2.3) has rooms of 4 x 4 cells under this name. Later ones withdrew it as
    # wrong and have the same level as S4.
    id_name = "GoToObjS4" if name == "GoToObjS6" else name
    return Level(number, name, f"BabyAI-{id_name}-v0", _category(number, name))


LEVELS = tuple(_level(number, name) for number, name in enumerate(_NAMES, start=1))
