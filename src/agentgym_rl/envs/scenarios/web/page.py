"""What an expert sees and how it acts (`Page`).

An expert is a script: a generator that yields actions and is resumed after each was carried out,
when `Page` shows what came of it. It acts by role and name on what the agent sees too: what is not
on the screen is scrolled to first.

    def expert(self, case, page):
        yield from page.click("link", "Books")
        yield from page.type("textbox", "Search", "tolkien")      # and Enter
        yield from page.answer(case.answer)                       # scrolls until it can be read
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping

from agentgym_rl.browser.page_tree import Node
from agentgym_rl.envs.scenarios.web.hindsight import Taken, arguments

Script = Iterator[str]
"""Actions, one after another."""
_MAX_SCROLLS = 40
_MAX_PAGES = 8
_ROLES = {"searchbox": "textbox", "Date": "date", "DateTime": "date", "InputTime": "time"}
"""As the compact layout calls them."""
_NUMBER = re.compile(r"\[(\d+)\]")
_ELEMENT = re.compile(r"\[\d+\] [a-z]+ ?|^(?:link|button) ")
"""The number of an element and its role, or a role without a number."""
_MAX_QUOTED = 120
"""Characters of a line, in a thought."""


class LostError(Exception):
    """An expert does not find what it looks for; the message says what."""


class Page:
    """The last observation. The environment keeps it current."""

    def __init__(self) -> None:
        self.text = ""
        self.url = ""
        self.objective = ""
        """What the agent is told to do."""
        self.secrets: frozenset[str] = frozenset()
        """What the agent has to find out, as the names of elements have it."""
        self.thought = ""
        """Why the next action is taken, in a sentence: from the objective, where it names what is
        acted on, and else from the page."""
        self.leads_on, self._way = False, ""
        """Whether nothing but `_way` can be thought, which says that this leads on."""
        self._elements: Mapping[int, Node] = {}
        self._screens: list[str] = []

    def show(self, text: str, url: str, elements: Mapping[int, Node]) -> None:
        """Take over a new observation."""
        is_further_down = url == self.url and "scroll [up])" in text
        self._screens = [*self._screens, text] if is_further_down else [text]
        self.text, self.url, self._elements = text, url, elements

    def begin(self, objective: str, found: Iterable[str]) -> None:
        """Begin a task; `found` is what the agent finds out, or acts on."""
        self.objective = objective
        self.secrets = frozenset(_clean(part) for text in found for part in text.split("; "))

    def begin_step(self) -> None:
        """Forget what was thought of the last action."""
        self.thought, self.leads_on = "", False

    def taken(self, action: str) -> Taken:
        """Return an action with what is thought of it."""
        thought, node = self.reason(action), self._node(action)
        called = _called(_ROLES.get(node.role, node.role), node.name) if node else ""
        parts, role = arguments(action), called.partition(" ")[0]
        told = parts[1] if len(parts) > 1 else node.name if node else ""
        return Taken(
            action,
            thought,
            called,
            leads_on=self.leads_on and thought == self._way,
            is_told=self._is_told(told),
            is_known=node is not None and self._is_known(role, node.name),
        )

    def find(self, role: str, name: str | None, near: str = "", nth: int = 0) -> int | None:
        """Return the number of an element that is on the screen; None where there is none.

        Args:
            role: "link", "button", "textbox", "combobox", "checkbox", ..., as the compact layout
                has it; "box" is a thing without role and name, "focused" is the field with the
                cursor, and "any" is any role.
            name: Its whole name, in any case; None is any name.
            near: What its line must say too, such as the number of an order in a table.
            nth: Which of several, from 0.
        """
        found = [number for number in self._matching(role, name) if self._is_near(number, near)]
        return found[nth] if nth < len(found) else None

    def value(self, role: str, name: str | None, near: str = "") -> str:
        """Return what a field on the screen holds; empty where there is no such field."""
        number = self.find(role, name, near)
        return self._elements[number].value if number is not None else ""

    def is_checked(self, role: str, name: str | None, near: str = "") -> bool:
        """Return whether a box or a choice on the screen is on."""
        number = self.find(role, name, near)
        on = (True, "true")
        return number is not None and self._elements[number].properties.get("checked") in on

    def listed(self, pattern: str) -> list[tuple[str, ...]]:
        """Return the groups of what a pattern finds on this page, as far as it was scrolled
        through, each once and in their order."""
        found = (match for text in self._screens for match in re.finditer(pattern, text, re.M))
        return list(dict.fromkeys(match.groups("") for match in found))

    def reach(self, role: str, name: str | None, near: str = "", nth: int = 0) -> Iterator[str]:
        """Scroll until an element is on the screen. Raises LostError where it never is."""
        for direction in ("down", "up"):
            for _ in range(_MAX_SCROLLS):
                if self.find(role, name, near, nth) is not None:
                    return
                if f"scroll [{direction}])" not in self.text:
                    break
                self.thought = f"{self._sought(role, name)} is not on the screen, so I scroll."
                yield f"scroll [{direction}]"
        raise LostError(f"no {role} {name!r} near {near!r} on {self.url}")

    def turn_to(self, role: str, name: str, near: str = "") -> Script:
        """Turn the pages of a list until an element is on the screen."""
        for _ in range(_MAX_PAGES):
            try:
                yield from self.reach(role, name, near)
            except LostError:
                yield from self.click("link", "Next")
            else:
                return
        raise LostError(f"no {role} {name!r} near {near!r} on {_MAX_PAGES} pages up to {self.url}")

    def click(self, role: str, name: str | None, near: str = "", nth: int = 0) -> Script:
        yield from self.reach(role, name, near, nth)
        self.thought = self._why(role, name, near)
        yield f"click [{self.find(role, name, near, nth)}]"

    def click_after(self, text: str, role: str, name: str | None) -> Script:
        """Click the first such element that comes after a text on the page."""
        number = yield from self.reach_after(text, role, name)
        self.thought = self._why(role, name, text)
        yield f"click [{number}]"

    def reach_after(self, text: str, role: str, name: str | None) -> Generator[str, None, int]:
        """Scroll to the first such element after a text, and return its number."""
        yield from self.read(text)
        for _ in range(_MAX_SCROLLS):
            rest = self.text.partition(text)[2] or self.text
            numbers = {int(number) for number in _NUMBER.findall(rest)}
            found = [number for number in self._matching(role, name) if number in numbers]
            if found:
                return found[0]
            if "scroll [down])" not in self.text:
                break
            self.thought = f"{self._sought(role, name)} is further down, so I scroll."
            yield "scroll [down]"
        raise LostError(f"no {role} {name!r} after {text!r} on {self.url}")

    def hover(self, role: str, name: str | None, near: str = "", nth: int = 0) -> Script:
        yield from self.reach(role, name, near, nth)
        self.thought = f"The {_called(role, name)} shows more when the pointer is on it."
        yield f"hover [{self.find(role, name, near, nth)}]"

    def type(
        self, role: str, name: str | None, text: str, near: str = "", *, enter: bool = True
    ) -> Script:
        """Replace what a field holds, and press Enter unless told otherwise."""
        yield from self.reach(role, name, near)
        end = "" if enter else " [0]"
        source = "The task says" if self._is_told(text) else "I write"
        self.thought = f"{source} {text}: it belongs into the {_called(role, name)}."
        yield f"type [{self.find(role, name, near)}] [{text}]{end}"

    def select(self, name: str | None, option: str, near: str = "", nth: int = 0) -> Script:
        """Choose an option of a list."""
        yield from self.reach("combobox", name, near, nth)
        source = "The task says" if self._is_told(option) else "I need"
        self.thought = f"{source} {option}: I choose it in the {_called('list', name)}."
        yield f"select_option [{self.find('combobox', name, near, nth)}] [{option}]"

    def check(self, name: str | None, near: str = "", *, on: bool = True) -> Script:
        """Click a box unless it is as wanted."""
        yield from self.reach("checkbox", name, near)
        if self.is_checked("checkbox", name, near) != on:
            self.thought = f"The {_called('checkbox', name)} has to be {'on' if on else 'off'}."
            yield f"click [{self.find('checkbox', name, near)}]"

    def goto(self, url: str) -> Script:
        self.thought = f"What I need next is at {url}."
        yield f"goto [{url}]"

    def read(self, text: str) -> Script:
        """Scroll until a text can be read. Raises LostError where it never can."""
        for direction in ("down", "up"):
            for _ in range(_MAX_SCROLLS):
                if text in self.text:
                    return
                if f"scroll [{direction}])" not in self.text:
                    break
                self.thought = "What I look for is not on the screen, so I scroll."
                yield f"scroll [{direction}]"
        raise LostError(f"{text!r} cannot be read on {self.url}")

    def read_to_end(self) -> Script:
        """Scroll down until the whole page has been on the screen."""
        while "scroll [down])" in self.text:
            self.thought = "I have to see the whole list, so I scroll."
            yield "scroll [down]"

    def answer(self, answer: str, shown: str = "") -> Script:
        """Read what the answer is taken from, itself unless told otherwise, and give it."""
        yield from self.read(shown or answer)
        line = self._line_with(answer, shown)
        says = f"The page says “{line}”" if line else "The page shows it"
        self.thought = f"{says}: the answer is {answer}."
        yield f"stop [{answer}]"

    def done(self) -> Script:
        """End a task that asks for no answer."""
        self.thought = "Everything is done."
        yield "stop [done]"

    def reason(self, action: str) -> str:
        """Return why an action is taken: the script's thought, or else what the action says."""
        if self.thought:
            return self.thought
        node, parts = self._node(action), arguments(action)
        if node is None:
            return ""
        called = _called(_ROLES.get(node.role, node.role), node.name)
        if len(parts) == 1:
            return self._why(_ROLES.get(node.role, node.role), node.name, "")
        source = "The task says" if self._is_told(parts[1]) else "I write"
        return f"{source} {parts[1]}: it belongs into the {called}."

    def _line_with(self, answer: str, shown: str) -> str:
        """Return the line that says an answer, and something else; empty where there is none.

        It must say what is shown, too. Of several it is the one with most words of the objective.
        """
        said = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)")
        told = {word for word in re.findall(r"\w+", self.objective.lower()) if len(word) > 3}
        lines = [_ELEMENT.sub("", line).strip() for line in self.text.splitlines()[1:]]
        found = [
            match
            for line in lines
            if line != answer and shown in line and (match := said.search(line))
        ]
        if not found:
            return ""
        match = max(
            found,
            key=lambda match: (
                len(told.intersection(re.findall(r"\w+", match.string.lower()))),
                -len(match.string),
            ),
        )
        start = max(0, match.start() - _MAX_QUOTED // 2)
        line, cut = match.string, match.string[start : start + _MAX_QUOTED]
        return ("..." if start else "") + cut + ("..." if start + len(cut) < len(line) else "")

    def _node(self, action: str) -> Node | None:
        """Return the element that an action is on."""
        parts = arguments(action)
        return self._elements.get(int(parts[0])) if parts and parts[0].isdigit() else None

    def _why(self, role: str, name: str | None, near: str) -> str:
        """Return why an element is clicked; `near` is what stands beside it."""
        called = _called(role, name)
        if near:
            subject = "The task is about" if self._is_told(near) else "I am at"
            return f"{subject} {near}, so I take the {called} beside it."
        if name and self._is_told(name):
            return f"The task is about {name.strip(' *:')}, so I take the {called}."
        title = self.text.partition("\n")[0].rpartition(" (")[0].partition(" | ")[0]
        place = f"On the page {title} the" if title else "The"
        self.leads_on, self._way = True, f"{place} {called} leads on."
        return self._way

    def _sought(self, role: str, name: str | None) -> str:
        """Return how to call what has not been seen."""
        is_known = self._is_known(role, name or "")
        return f"The {_called(role, name)}" if is_known else "What I look for"

    def _is_known(self, role: str, name: str) -> bool:
        """Return whether an element can be named before it was seen: by the task, or because it
        belongs to the site and not to what the task asks for."""
        is_of_site = role not in ("combobox", "any", "box") and _clean(name) not in self.secrets
        return is_of_site or self._is_told(name)

    def _is_told(self, words: str) -> bool:
        return bool(words.strip()) and _clean(words.strip(" *:")) in _clean(self.objective)

    def _matching(self, role: str, name: str | None) -> list[int]:
        wanted = _clean(name) if name is not None else None
        numbers = {int(number) for number in _NUMBER.findall(self.text)}
        return [
            number
            for number, node in self._elements.items()
            if number in numbers
            and self._has_role(number, node, role)
            and (wanted is None or _clean(node.name) == wanted)
        ]

    def _has_role(self, number: int, node: Node, role: str) -> bool:
        if role == "box":
            return re.search(rf"\[{number}\] box\b", self.text) is not None
        if role == "focused":
            return bool(node.properties.get("focused"))
        return role in ("any", _ROLES.get(node.role, node.role))

    def _is_near(self, number: int, near: str) -> bool:
        if not near:
            return True
        line = next((line for line in self.text.splitlines() if f"[{number}] " in line), "")
        return near.lower() in line.lower()


def _called(role: str, name: str | None) -> str:
    role = "field with the cursor" if role == "focused" else role
    return f"{role} {name.strip(' *:')}" if name else role


def _clean(name: str) -> str:
    return re.sub(r"[\s\ue000-\uf8ff]+", " ", name).strip().lower()
