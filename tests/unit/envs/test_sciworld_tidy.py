"""Paths of SciWorld's solver without detours; no simulator is asked."""

from __future__ import annotations

from agentgym_rl.envs.scenarios.sciworld.tidy import Played, room_of, tidy, with_shorter_names


def played(*actions: str) -> list[Played]:
    return [Played(action, "Done.") for action in actions]


def test_a_detour_is_left_out_and_the_room_where_something_is_done_is_looked_at():
    path = played(
        "open door to living room", "go to living room", "open door to hallway", "go to hallway",
        "open door to workshop", "go to workshop", "look around", "look around",
        "pick up battery", "go to hallway", "open door to kitchen", "go to kitchen",
        "move battery to red box",
    )  # fmt: skip
    assert tidy(path, "hallway") == [
        "open door to workshop", "go to workshop", "look around", "pick up battery",
        "go to hallway", "open door to kitchen", "go to kitchen", "look around",
        "move battery to red box",
    ]  # fmt: skip


def test_what_was_in_vain_is_left_out():
    path = [
        Played("open cupboard", "The cupboard is already open."),
        Played("examine jug", "a jug"),
        Played("pour jug in jug", "You can't move something into itself."),
        Played("mix jug", "It mixes."),
        Played("look around", "This room is called the art studio."),
    ]
    assert tidy(path, "art studio") == ["mix jug", "look around"]


def test_things_get_the_names_that_observations_show():
    long = ["move egg dove egg in inventory to red box", "focus on baby baby elephant"]
    assert with_shorter_names(long) == ["move dove egg to red box", "focus on baby elephant"]
    pot = "move flower pot 8 containing cherry tree and soil in inventory to red box"
    assert with_shorter_names([pot]) == ["move flower pot 8 to red box"]


def test_the_room_is_read_off_a_look():
    assert room_of("This room is called the art studio. In it, you see:") == "art studio"
    assert room_of("This outside location is called the outside. Here you see:") == "outside"
    assert room_of("The door is now open.") == ""
