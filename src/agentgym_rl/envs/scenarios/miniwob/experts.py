"""Scripted experts of MiniWoB's pages: `advise`.

An expert sees what the agent sees: the goal, the page's text and what can be acted on. Most need no
memory: they look at what is filled in and do what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from agentgym_rl.envs.scenarios.miniwob.scene import Scene

_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")


Expert = Callable[[Scene], str | None]


def advise(page: str, scene: Scene) -> str | None:
    """Return the next action; None where the page has no expert."""
    expert = EXPERTS.get(page)
    return expert(scene) if expert is not None else None


def _click(number: int | None) -> str | None:
    return f"click [{number}]" if number is not None else None


def _click_named(scene: Scene, *names: str) -> str | None:
    return next((f"click [{n}]" for name in names if (n := scene.named(name)) is not None), None)


def _submit(scene: Scene) -> str | None:
    return _click_named(scene, "submit", "search", "login", "ok", "go!", "button submit")


def _fill(scene: Scene, texts: Sequence[str], *roles: str) -> str | None:
    """Return what fills the fields of some roles with texts; None when they are."""
    for (number, node), text in zip(scene.all(*(roles or ("textbox",))), texts, strict=False):
        if node.value != text:
            return f"type [{number}] [{text}] [0]"
    return None


def click_quoted(scene: Scene) -> str | None:
    return _click_named(scene, scene.quoted[0])


def click_first_button(scene: Scene) -> str | None:
    return _click(scene.all("button")[0][0])


def click_last_word(scene: Scene) -> str | None:
    """ "Click button ONE.\""""
    return _click_named(scene, re.findall(r"[A-Z]{3}", scene.goal)[0])


def click_sequence(scene: Scene) -> str | None:
    names = re.findall(r"[A-Z]{3}", scene.goal)
    return _click_named(scene, names[min(len(scene.done), len(names) - 1)])


def close_dialog(scene: Scene) -> str | None:
    wanted = scene.quoted[0]
    return _click_named(scene, "Close" if wanted == "x" else wanted)


def click_widget(scene: Scene) -> str | None:
    kinds = {"button": ("button",), "radio": ("radio",), "checkbox": ("checkbox",)}
    roles = kinds.get(scene.quoted[0])
    if roles is None:
        fields = scene.all("textbox")
        is_area = scene.quoted[0] == "textarea"
        chosen = [n for n, node in fields if bool(node.properties.get("multiline")) == is_area]
        return _click(chosen[0]) if chosen else None
    found = scene.all(*roles)
    return _click(found[0][0]) if found else None


def click_tab(scene: Scene) -> str | None:
    return _click_named(scene, re.findall(r"Tab #\d+", scene.goal)[0])


def focus_text(scene: Scene) -> str | None:
    return _click(scene.all("textbox")[_ordinal(scene.goal)][0])


def _ordinal(text: str) -> int:
    found = _ORDINAL.search(text)
    return int(found[1]) - 1 if found else 0


def ascending_numbers(scene: Scene) -> str | None:
    # The numbers are hidden after the first click; the page lists them in their order.
    return _click(min(scene.elements))


def odd_or_even(scene: Scene) -> str | None:
    lines = scene.text.splitlines()
    number = len(scene.done)
    values = [int(line) for line in lines if line.lstrip("-").isdecimal()]
    if number >= len(values):
        return _submit(scene)
    buttons = [n for n, node in scene.all("button") if node.name in ("Odd", "Even")]
    return _click(buttons[2 * number + (values[number] % 2 == 0)])


def sign_agreement(scene: Scene) -> str | None:
    button = _click_named(scene, "agree" if "agree" in scene.goal.lower() else "cancel")
    if "scroll" not in scene.goal.lower():
        return button
    area, name = (number for number, _ in scene.all("textbox"))
    steps = (f"click [{area}]", "press [Control+End]", f"type [{name}] [{scene.quoted[0]}] [0]")
    return steps[len(scene.done)] if len(scene.done) < len(steps) else button


def choose_options(scene: Scene) -> str | None:
    """ "Select A, B and click Submit.\""""
    wanted = _wanted(scene.goal)
    for number, node in scene.all("checkbox", "radio"):
        is_checked = node.properties.get("checked") in (True, "true")
        if (node.name in wanted) != is_checked and (node.name in wanted or node.role == "checkbox"):
            return _click(number)
    return _submit(scene)


def _wanted(goal: str) -> list[str]:
    """Return the names between "Select" and "from" or "and click"."""
    found = re.search(r"Select (.*?)(?: from the .*)? and click Submit", goal)
    names = found[1].split(", ") if found else []
    return [name for name in names if name != "nothing"]


def choose_list(scene: Scene) -> str | None:
    number, node = scene.all("combobox")[0]
    (wanted,) = _wanted(scene.goal)
    return _submit(scene) if node.value == wanted else f"select_option [{number}] [{wanted}]"


def scroll_list(scene: Scene) -> str | None:
    number, node = scene.all("listbox")[0]
    options = [each for each in node.walk() if each.role == "option"]
    chosen = {each.name for each in options if each.properties.get("selected") in (True, "true")}
    for name in _wanted(scene.goal):
        if name not in chosen:
            return f"select_option [{number}] [{name}]"
    return _submit(scene)


def spinner(scene: Scene) -> str | None:
    wanted = int(re.findall(r"Select (-?\d+)", scene.goal)[0])
    number, node = scene.all("spinbutton")[0]
    if not scene.done:
        return f"click [{number}]"
    value = int(node.value or 0)
    if value == wanted:
        return _submit(scene)
    return "press [ArrowUp]" if value < wanted else "press [ArrowDown]"


def enter_quoted(scene: Scene) -> str | None:
    return _fill(scene, scene.quoted[:1]) or _submit(scene)


def enter_lowered(scene: Scene) -> str | None:
    text = scene.quoted[0]
    text = text.upper() if "upper case" in scene.goal else text.lower()
    return _fill(scene, [text]) or _submit(scene)


def enter_password(scene: Scene) -> str | None:
    return _fill_hidden(scene, scene.quoted[:1] * 2)


def login(scene: Scene) -> str | None:
    return _fill_hidden(scene, scene.quoted[:2])


def _fill_hidden(scene: Scene, texts: Sequence[str]) -> str | None:
    """Fill fields whose values may be shown as dots."""
    for (number, node), text in zip(scene.all("textbox"), texts, strict=False):
        if len(node.value) != len(text):
            return f"type [{number}] [{text}] [0]"
    return _submit(scene)


def enter_date(scene: Scene) -> str | None:
    month, day, year = re.findall(r"(\d+)/(\d+)/(\d+)", scene.goal)[0]
    return _once(scene, "Date", f"{year}-{month}-{day}")


def enter_time(scene: Scene) -> str | None:
    hour, minute, half = re.findall(r"(\d+):(\d+) ([AP]M)", scene.goal)[0]
    return _once(scene, "InputTime", f"{int(hour) % 12 + 12 * (half == 'PM'):02d}:{minute}")


def _once(scene: Scene, role: str, text: str) -> str | None:
    """Type a text into the field of a role, then submit."""
    action = f"type [{scene.all(role)[0][0]}] [{text}] [0]"
    return _submit(scene) if action in scene.done else action


def copy_shown(scene: Scene) -> str | None:
    """The text to be typed is the line before the field."""
    return _fill(scene, [scene.text.splitlines()[-3].replace(" ", "")]) or _submit(scene)


def copy_area(scene: Scene) -> str | None:
    fields = scene.all("textbox")
    source = fields[_ordinal(scene.goal)] if len(fields) > 2 else None
    filled = [pair for pair in fields if pair[1].properties.get("multiline")]
    text = (source or filled[0])[1].value
    number, node = next(pair for pair in fields if not pair[1].properties.get("multiline"))
    return _submit(scene) if node.value == text else f"type [{number}] [{text}] [0]"


def arithmetic(scene: Scene) -> str | None:
    left, sign, right = re.findall(r"(-?\d+) ([-+x*]) (-?\d+) =", scene.text)[0]
    values = {"+": int(left) + int(right), "-": int(left) - int(right)}
    answer = values.get(sign, int(left) * int(right))
    return _fill(scene, [str(answer)]) or _submit(scene)


def algebra(scene: Scene) -> str | None:
    left, sign, right, total = re.findall(r"(x|\d+) ([-+]) (x|\d+) = (-?\d+)", scene.text)[0]
    if left == "x":
        answer = int(total) - int(right) if sign == "+" else int(total) + int(right)
    else:
        answer = int(total) - int(left) if sign == "+" else int(left) - int(total)
    return _fill(scene, [str(answer)]) or _submit(scene)


def generate_number(scene: Scene) -> str | None:
    found = re.search(r"^(\d+)$", scene.text, re.MULTILINE)
    if found and _is_right_number(scene.goal, int(found[1])):
        return _submit(scene)
    return _click_named(scene, "generate")


def _is_right_number(goal: str, value: int) -> bool:
    if bound := re.search(r"(less|greater) than (\d+)", goal):
        return value < int(bound[2]) if bound[1] == "less" else value > int(bound[2])
    return value % 2 == (1 if "odd" in goal else 0)


def guess_number(scene: Scene) -> str | None:
    low, high = 0, 9
    tried = [int(n) for action in scene.done for n in re.findall(r"type \[\d+\] \[(\d+)\]", action)]
    number, node = scene.all("spinbutton")[0]
    for guess in tried[:-1]:
        low, high = _narrowed(scene, guess, low, high)
    if tried and node.value == str(tried[-1]) and scene.done[-1].startswith("type"):
        return _submit(scene)
    guess = next(n for n in range(low, high + 1) if n not in tried)
    return f"type [{number}] [{guess}] [0]"


def _narrowed(scene: Scene, guess: int, low: int, high: int) -> tuple[int, int]:
    if f"higher than {guess}" in scene.text:
        return max(low, guess + 1), high
    if f"lower than {guess}" in scene.text:
        return low, min(high, guess - 1)
    return low, high


def find_word(scene: Scene) -> str | None:
    lines = scene.text.splitlines()
    words = next(line for line in lines if " " in line and not line.startswith("[")).split()
    word = words[_ordinal(scene.goal)].strip(",.")
    return _fill(scene, [word]) or _submit(scene)


def find_greatest(scene: Scene) -> str | None:
    cards = [(int(scene.label(n)), n) for n in scene.elements if scene.label(n).isdecimal()]
    return _submit(scene) if scene.done else _click(max(cards)[1])


def read_table(scene: Scene) -> str | None:
    rows = dict(re.findall(r"^(.*?) \| (.*)$", scene.text, re.MULTILINE))
    if "each label" in scene.goal:
        wanted = re.findall(r"^(.*):$", scene.text, re.MULTILINE)
    else:
        wanted = re.findall(r"value of (.*?) into", scene.goal)
    return _fill(scene, [rows[label] for label in wanted]) or _submit(scene)


def last_word(scene: Scene) -> str | None:
    fields = scene.all("textbox")
    text = next(node.value for _, node in fields if node.properties.get("multiline"))
    word = text.split()[-1].strip(".,")
    number, node = next(pair for pair in fields if not pair[1].properties.get("multiline"))
    return _submit(scene) if node.value == word else f"type [{number}] [{word}] [0]"


def search_in_tabs(scene: Scene) -> str | None:
    """Click the link where it is shown, else open the next tab or section."""
    link = _named_exactly(scene, scene.quoted[0])
    if link is not None:
        return _click(link)
    tabs = scene.all("tab")
    opened = [i for i, (_, node) in enumerate(tabs) if node.properties.get("expanded") is True]
    return _click(tabs[(opened[0] + 1) % len(tabs) if opened else 0][0])


def _named_exactly(scene: Scene, name: str) -> int | None:
    wanted = name.strip(" ,.").lower()
    for number, node in scene.elements.items():
        if node.role != "tab" and scene.label(number).strip(" ,.").lower() == wanted:
            return number
    return None


def collapsible(scene: Scene) -> str | None:
    number, section = scene.all("tab")[0]
    return _submit(scene) if section.properties.get("expanded") is True else _click(number)


def menu(scene: Scene) -> str | None:
    path = scene.goal.removeprefix("Select ").split(">")
    deepest = [number for name in path if (number := scene.named(name)) is not None][-1]
    is_last = scene.named(path[-1]) == deepest
    return f"click [{deepest}]" if is_last else f"hover [{deepest}]"


def tree(scene: Scene) -> str | None:
    return _click(scene.named(scene.quoted[0]))  # no expert where it is inside of a folder


def autocomplete(scene: Scene) -> str | None:
    start = scene.quoted[0]
    end = scene.quoted[1] if len(scene.quoted) > 1 else ""
    number, node = scene.all("textbox", "combobox")[0]
    if not scene.done:
        return f"type [{number}] [{start}] [0]"
    if scene.done[-1] == "press [Enter]":
        return _submit(scene)
    is_whole = node.value.startswith(start) and node.value.endswith(end) and node.value != start
    return "press [Enter]" if is_whole else "press [ArrowDown]"


def search_engine(scene: Scene) -> str | None:
    number, node = scene.all("textbox")[0]
    if node.value != scene.quoted[0]:
        return f"type [{number}] [{scene.quoted[0]}] [0]"
    links = scene.all("link")
    if not links:
        return _click_named(scene, "search")
    results = [n for n, link in links if not re.fullmatch(r"[<>\d]+", link.name.strip())]
    wanted = _ordinal(scene.goal)
    page, place = divmod(wanted, 3)
    num_turned = len(scene.done) - 2  # after the words and the search
    return _click(results[place]) if num_turned == page else _click_named(scene, ">")


def phone_book(scene: Scene) -> str | None:
    name, kind = re.findall(r"Find (.+?) in .* click on their (.*)\.", scene.goal)[0]
    if f"# {name}" not in scene.text:
        return _click_named(scene, ">")
    places = {"phone number": 0, "email": 1, "address": 2}
    return _click(scene.all("link")[places[kind]][0])


def buy_ticket(scene: Scene) -> str | None:
    prices = [(int(p), n) for n, node in scene.all("button")
              for p in re.findall(r"\$(\d+)", node.name)]  # fmt: skip
    times = [60 * int(h) + int(m) for h, m in re.findall(r"(\d+)h (\d+)m", scene.text)]
    if "expensive" in scene.goal or "cheapest" in scene.goal:
        chosen = max(prices) if "most expensive" in scene.goal else min(prices)
        return _click(chosen[1])
    pairs = [(time, n) for time, (_, n) in zip(times, prices, strict=True)]
    return _click((max if "longest" in scene.goal else min)(pairs)[1])


def forms(scene: Scene) -> str | None:
    """ "Check the 3rd radio button and enter the number "41" into the 2nd textbox.\""""
    radio, box = (int(n) - 1 for n in _ORDINAL.findall(scene.goal))
    number, node = scene.all("radio")[radio]
    if node.properties.get("checked") not in (True, "true"):
        return _click(number)
    number, node = scene.all("textbox")[box]
    text = scene.quoted[0]
    return _submit(scene) if node.value == text else f"type [{number}] [{text}] [0]"


def dropdown_form(scene: Scene) -> str | None:
    wanted = re.findall(r"Choose (.*?) from", scene.goal)[0]
    number, node = scene.all("combobox")[0]
    if node.value != wanted:
        return f"select_option [{number}] [{wanted}]"
    return click_quoted(scene)


def movie_search(scene: Scene) -> str | None:
    genre, director, year = re.findall(
        r"Search for (.*?) movies directed by (.*?) from year (\d+)", scene.goal
    )[0]
    texts = {"director": director, "genre": genre, "year": year, "date": year}
    labels = re.findall(r"\b(director|genre|year|date)\b", scene.text.lower())
    filled = _fill(scene, [texts[label] for label in labels])
    return filled or _submit(scene) or _click(max(scene.elements))


EXPERTS: Mapping[str, Expert] = {
    "click-test": click_first_button,
    "click-test-2": click_last_word,
    "click-test-transfer": click_last_word,
    "click-button": click_quoted,
    "unicode-test": click_quoted,
    "click-button-sequence": click_sequence,
    "click-dialog": close_dialog,
    "click-dialog-2": close_dialog,
    "click-link": click_quoted,
    "click-widget": click_widget,
    "click-tab": click_tab,
    "focus-text": focus_text,
    "focus-text-2": focus_text,
    "ascending-numbers": ascending_numbers,
    "odd-or-even": odd_or_even,
    "sign-agreement": sign_agreement,
    "click-option": choose_options,
    "click-checkboxes": choose_options,
    "click-checkboxes-large": choose_options,
    "click-checkboxes-transfer": choose_options,
    "choose-list": choose_list,
    "click-scroll-list": scroll_list,
    "use-spinner": spinner,
    "enter-text": enter_quoted,
    "enter-text-dynamic": enter_quoted,
    "enter-text-2": enter_lowered,
    "enter-password": enter_password,
    "enter-date": enter_date,
    "enter-time": enter_time,
    "text-transform": copy_shown,
    "copy-paste": copy_area,
    "copy-paste-2": copy_area,
    "simple-arithmetic": arithmetic,
    "simple-algebra": algebra,
    "generate-number": generate_number,
    "guess-number": guess_number,
    "login-user": login,
    "login-user-popup": login,
    "form-sequence-2": forms,
    "form-sequence-3": dropdown_form,
    "multi-layouts": movie_search,
    "multi-orderings": movie_search,
    "search-engine": search_engine,
    "phone-book": phone_book,
    "buy-ticket": buy_ticket,
    "use-autocomplete-nodelay": autocomplete,
    "click-tab-2": search_in_tabs,
    "click-tab-2-easy": search_in_tabs,
    "click-tab-2-medium": search_in_tabs,
    "click-tab-2-hard": search_in_tabs,
    "click-collapsible-nodelay": collapsible,
    "click-collapsible-2-nodelay": search_in_tabs,
    "click-menu": menu,
    "navigate-tree": tree,
    "find-word": find_word,
    "find-greatest": find_greatest,
    "read-table": read_table,
    "read-table-2": read_table,
    "scroll-text": last_word,
}
"""Page -> its expert."""
