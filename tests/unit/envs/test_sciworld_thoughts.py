"""What SciWorld's expert thinks, on made-up moments; no simulator is asked."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.envs.scenarios.sciworld.thoughts import Moment, thought

MEASURE = (
    "Your task is to measure the temperature of lead, which is located around the workshop. "
    "If the lead temperature is above 50.0 degrees celsius, place it in the red box. "
    "If the lead temperature is below 50.0 degrees celsius, place it in the green box."
)
CONDUCT = (
    "Your task is to determine if tin is electrically conductive. If it is electrically "
    "conductive, place it in the blue box. If it is electrically nonconductive, place it in the "
    "red box."
)
FIND = "Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box."


def think(task: str, path: Sequence[str], place: int = 0, seen: Sequence[str] = ()) -> str:
    """Return the thought before the action at a place of the path."""
    read = [task, *seen]
    return thought(Moment(task, path[place], path[place + 1 :], path[:place], read))


def test_the_way_is_said_with_what_is_looked_for_and_names_nothing_unseen():
    way = ["open door to kitchen", "go to kitchen", "open door to outside", "go to outside"]
    path = [*way, "look around", "focus on baby wolf"]
    assert think(FIND, path) == (
        "I look for an animal outside and go there through the kitchen: I open the door."
    )
    assert think(FIND, path, 1) == "I walk outside through the kitchen."
    assert think(FIND, path, 4) == "I am outside now. I look for an animal."
    told = think(FIND, path, 5, ["You see: a baby wolf"])
    assert told == "The baby wolf is an animal, so I focus on it."


def test_a_box_is_chosen_by_what_was_measured():
    path = ["use thermometer on lead", "move lead to green box"]
    seen = ["the thermometer measures a temperature of 26 degrees celsius"]
    assert think(MEASURE, path, 1, seen) == "26 degrees is below 50.0, so it is the green box."


def test_a_box_is_chosen_by_what_the_circuit_shows():
    path = ["wait1", "look around", "move tin to blue box"]
    on = "This room is called the workshop. In it, you see: a red light bulb, which is on"
    assert think(CONDUCT, path, 2, [on]) == (
        "The light bulb is on, so it is conductive and goes into the blue box."
    )
    # What the last look does not show is not claimed.
    assert think(CONDUCT, path, 2, [on.replace("on", "off")]) == (
        "It is conductive, so it goes into the blue box."
    )


def test_the_second_animal_of_two_is_the_other_one():
    task = (
        "Your task is to find the animal with the longest life span, then the shortest life span."
    )
    path = ["focus on elephant", "focus on mouse"]
    assert think(task, path, 0).endswith("the elephant lives longest.")
    assert think(task, path, 1).endswith("the mouse lives shortest.")


def test_an_action_without_a_rule_is_for_the_aim():
    assert think(FIND, ["eat apple"]) == "This is the next step to find a(n) animal."
