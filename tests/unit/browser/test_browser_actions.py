"""What texts mean as actions in a browser."""

from __future__ import annotations

import pytest

from agentgym_rl.browser.actions import (
    USAGE,
    BrowserAction,
    Click,
    CloseTab,
    GoBack,
    GoForward,
    Goto,
    Hover,
    NewTab,
    Press,
    Scroll,
    SelectOption,
    Stop,
    TabFocus,
    Type,
    UnreadableActionError,
    parse_action,
)

READ: dict[str, BrowserAction] = {
    "click [12]": Click(12),
    "click 12": Click(12),
    "Click [12].": Click(12),
    "`click [12]`": Click(12),
    "**click [12]**": Click(12),
    "- click [12]": Click(12),
    "click [12] the link Home": Click(12),
    "hover [3]": Hover(3),
    "type [5] [hello world]": Type(5, "hello world", enter=True),
    "type [5] [hello world] [1]": Type(5, "hello world", enter=True),
    "type [5] [hello world] [0]": Type(5, "hello world", enter=False),
    "type [5] [a [b] c] [0]": Type(5, "a [b] c", enter=False),
    "type [5] [0]": Type(5, "0", enter=True),
    "type [5] []": Type(5, "", enter=True),
    "type [5] [naïve 漢字 🙂]": Type(5, "naïve 漢字 🙂", enter=True),
    "type [5] [two\nlines] [0]": Type(5, "two\nlines", enter=False),
    "type 5 hello": Type(5, "hello", enter=True),
    "select_option [7] [Price: low to high]": SelectOption(7, "Price: low to high"),
    "press [Enter]": Press("Enter"),
    "press [ctrl+a]": Press("Control+a"),
    "press [Meta+C]": Press("Control+c"),
    "press [arrowdown]": Press("ArrowDown"),
    "scroll [down]": Scroll(True),
    "scroll up": Scroll(False),
    "goto [http://shop.test/a?b=[1]]": Goto("http://shop.test/a?b=[1]"),
    "new_tab": NewTab(),
    "tab_focus [0]": TabFocus(0),
    "close_tab": CloseTab(),
    "go_back": GoBack(),
    "go_forward": GoForward(),
    "stop [42]": Stop("42"),
    "stop": Stop(""),
    "stop [a [b] c]": Stop("a [b] c"),
}


@pytest.mark.parametrize("text", READ)
def test_it_is_read(text: str):
    assert parse_action(text) == READ[text]


REFUSED = {
    "": "no such action",
    "fly [1]": "no such action",
    "I click [1]": "no such action",
    "click": USAGE["click"],
    "click [Home]": USAGE["click"],
    "click [1] or [2]": USAGE["click"],
    "type [5]": "type [id] [text]",
    "type [x] [a]": "type [id] [text]",
    "press [everything]": "press [keys]",
    "press [+]": "press [keys]",
    "press [a+b+c+d+e]": "press [keys]",
    "scroll [sideways]": "scroll [down]",
    "goto": USAGE["goto"],
    "select_option [7]": USAGE["select_option"],
    "tab_focus [last]": USAGE["tab_focus"],
    "new_tab [http://shop.test]": "new_tab",
    "type [5] [" + "x" * 5000 + "]": "at most 4000",
}


@pytest.mark.parametrize("text", REFUSED, ids=[text[:20] for text in REFUSED])
def test_what_is_no_action_says_how_it_is_written(text: str):
    with pytest.raises(UnreadableActionError) as refusal:
        parse_action(text)
    assert REFUSED[text] in str(refusal.value)
