"""What the expert thinks before an action of its path: what it looks for, and why this action.

The path knows where things are; a thought does not. It names a thing only once the task or an
observation has, and until then says what the task asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym_rl.envs.scenarios.sciworld.tidy import LOOK, room_of

_WAY = ("open door to ", "go to ")
_AIM = re.compile(r"[Yy]our task is to (.+?)[.,]")
_FIND = re.compile(r"find (?:a\(n\)|the) ([a-z -]+)")
_CREATE = re.compile(r"create (?:the substance )?'?([a-z -]+)'?")
_DEGREES = re.compile(r"temperature of (-?\d+(?:\.\d+)?) degrees")
_LIMITS = re.compile(
    r"is (above|below) (-?\d+(?:\.\d+)?) degrees celsius, [a-z ]+? the ([a-z]+ box)"
)
_CONDUCTION = re.compile(r"electrically (conductive|nonconductive), place it in the ([a-z]+ box)")
_SHOWN = re.compile(r"(light bulb|electric motor|electric buzzer), which is (on|off)")
_THING = re.compile(
    r"^(?:focus on|pick up|read|use|move|pour|connect|activate|open|drop|mix) (.+)$"
)
_SECOND = re.compile(r" (?:to|into|in|on) (?=[A-Za-z ]+\d*$)")


@dataclass(frozen=True, slots=True)
class Moment:
    """Where the expert stands: the task, what it does now and later, and what it has read."""

    task: str
    action: str
    later: Sequence[str]
    done: Sequence[str]
    read: Sequence[str]
    """The first observation, then one per action done."""

    @property
    def aim(self) -> str:
        found = _AIM.search(self.task)
        return found[1] if found else "do the task"

    @property
    def thing(self) -> str:
        """What the action is about, without where it goes."""
        found = _THING.match(self.action)
        return _SECOND.split(found[1], maxsplit=1)[0] if found else ""

    def knows(self, thing: str) -> bool:
        """Whether the task or an observation has named a thing."""
        return bool(thing) and any(thing.lower() in text.lower() for text in self.read)


def thought(moment: Moment) -> str:
    """Return why the expert acts so, in a sentence or two."""
    rules: tuple[tuple[str | tuple[str, ...], Callable[[Moment], str]], ...] = (
        (_WAY, _on_the_way),
        (LOOK, _looking),
        ("focus on ", _focusing),
        (("use thermometer ", "examine "), _measuring),
        ("move ", _moving),
        ("connect ", _connecting),
        (("open ", "pick up "), _getting),
        (("read ", "pour ", "mix ", "activate ", "deactivate ", "wait", "drop "), _handling),
    )
    for verb, rule in rules:
        if moment.action.startswith(verb):
            return rule(moment)
    return f"This is the next step to {moment.aim}."


def _wanted(moment: Moment) -> str:
    """Return what the next things to be done are for, in words that give nothing away."""
    idle = (*_WAY, LOOK, "open ", "wait", "use thermometer ")
    coming = next((action for action in moment.later if not action.startswith(idle)), "")
    ahead = Moment(moment.task, coming, (), (), moment.read)
    if not ahead.knows(ahead.thing):
        return _quest(moment)
    if coming.startswith("move "):
        return f"the place for the {ahead.thing}"
    is_carried = f"pick up {ahead.thing}" in moment.done
    return f"what I need to {moment.aim}" if is_carried else f"the {ahead.thing}"


def _quest(moment: Moment) -> str:
    found = _FIND.search(moment.aim)
    made = _CREATE.search(moment.aim)
    if found:
        return f"the {found[1]}" if "span" in found[1] else _one(found[1])
    return f"what I need for {made[1]}" if made else f"what I need to {moment.aim}"


def _one(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _there(room: str, *, word: str) -> str:
    """Return "outside", or with the word "in": "in the kitchen"."""
    return room if room == "outside" else f"{word} the {room}"


def _on_the_way(moment: Moment) -> str:
    rest = [moment.action, *moment.later]
    legs = next((n for n, action in enumerate(rest) if not action.startswith(_WAY)), len(rest))
    rooms = [action.rpartition(" to ")[2] for action in rest[:legs]]
    goal, next_room = rooms[-1], rooms[0]
    through = "" if goal == next_room else f" through the {next_room}"
    if moment.action.startswith("go to "):
        return f"I walk {_there(goal, word='to')}{through}."
    place = _there(goal, word="in")
    return f"I look for {_wanted(moment)} {place} and go there{through}: I open the door."


def _looking(moment: Moment) -> str:
    last = moment.done[-1] if moment.done else ""
    if last.startswith("go to "):
        room = last.removeprefix("go to ")
        return f"I am {_there(room, word='in')} now. I look for {_wanted(moment)}."
    if last.startswith("wait") and "conductive" in moment.task:
        return "The circuit is complete. I look whether current flows."
    return "I look what has changed."


def _focusing(moment: Moment) -> str:
    thing, limit = moment.thing, _limit_of(moment)
    if limit:
        return limit
    if "span" in moment.aim:
        is_second = any(action.startswith("focus on ") for action in moment.done)
        is_short = "shortest" in moment.task and ("longest" not in moment.task or is_second)
        return f"Of the animals here the {thing} lives {'shortest' if is_short else 'longest'}."
    found = _FIND.search(moment.aim)
    if found:
        return f"The {thing} is {_one(found[1])}, so I focus on it."
    if _CREATE.search(moment.aim):
        return f"I have made {thing}. The task asks me to focus on it."
    return f"The task asks me to focus on the {thing}."


def _measuring(moment: Moment) -> str:
    degrees = _last_degrees(moment)
    if moment.action.startswith("examine "):
        return "I look whether it has melted."
    if "melting point" not in moment.aim:
        return "I have both. I measure the temperature."
    if degrees is None:
        return "I measure how warm it is while it heats up."
    return f"It had {degrees} degrees. I measure again until it melts."


def _moving(moment: Moment) -> str:
    limit = _limit_of(moment)
    if limit:
        return limit
    place = moment.action.rpartition(" to ")[2]
    kind = next((k for k, box in _CONDUCTION.findall(moment.task) if box == place), "")
    if kind:
        return _conduction(moment, kind, place)
    if place.endswith("box"):
        return f"The task says that the {moment.thing} goes into the {place}."
    change = "to cool it" if place == "freezer" else "to heat it"
    why = change if "melting" in moment.aim else "where it is needed next"
    return f"I move the {moment.thing} to the {place}, {why}."


def _conduction(moment: Moment, kind: str, box: str) -> str:
    shown = _SHOWN.findall(next((text for text in reversed(moment.read) if room_of(text)), ""))
    states = {state for _, state in shown}
    if shown and (kind == "conductive") == ("on" in states):
        part = next(name for name, state in shown if (state == "on") == (kind == "conductive"))
        reason = f"The {part} is {'on' if kind == 'conductive' else 'off'}, so it is {kind}"
        return f"{reason} and goes into the {box}."
    return f"It is {kind}, so it goes into the {box}."


def _limit_of(moment: Moment) -> str:
    """Return the conclusion from a temperature where the action puts or names a box; else ""."""
    degrees = _last_degrees(moment)
    for side, limit, box in _LIMITS.findall(moment.task):
        if not moment.action.endswith(box) or degrees is None:
            continue
        what = "melting point" if "melting point" in moment.aim else "temperature"
        if (float(degrees) > float(limit)) == (side == "above"):
            return f"{degrees} degrees is {side} {limit}, so it is the {box}."
        return f"The {what} is {side} {limit} degrees, so it is the {box}."
    return ""


def _last_degrees(moment: Moment) -> str | None:
    found = (_DEGREES.search(text) for text in reversed(moment.read))
    return next((match[1] for match in found if match), None)


def _connecting(moment: Moment) -> str:
    if not any(action.startswith("connect ") for action in moment.done):
        return (
            "I wire a circuit of battery, wires, a part that shows current and the thing itself. "
            "I begin with the battery."
        )
    if "battery" in moment.action:
        return "The other end of the battery is next."
    if re.search(r"bulb|motor|buzzer", moment.action):
        return "This part will show whether current flows."
    return (
        f"Now the {moment.thing.partition(' terminal')[0]}: it closes the circuit if it conducts."
    )


def _getting(moment: Moment) -> str:
    if moment.action.startswith("pick up "):
        return f"I need the {moment.thing}, so I take it."
    return f"I look for {_wanted(moment)}, which may be in the {moment.thing}."


def _handling(moment: Moment) -> str:
    thing = moment.thing
    match moment.action.split()[0]:
        case "read":
            return f"The {thing} says what I have to mix."
        case "pour":
            return f"The {thing} is needed for {_made(moment)}."
        case "mix":
            return f"Everything for it is in the {thing}, so I mix."
        case "activate":
            return f"I switch the {thing} on, to {'get water' if thing == 'sink' else 'heat it'}."
        case "deactivate":
            return "It has done its work, so I switch it off."
        case "drop":
            return f"I put the {thing} down to work with it."
        case _:
            return "It takes a moment, so I wait."


def _made(moment: Moment) -> str:
    made = _CREATE.search(moment.aim)
    return made[1] if made else "the task"
