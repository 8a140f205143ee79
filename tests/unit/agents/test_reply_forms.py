"""Replies as models write them, and what each format makes of them.

The table is docs/reference/reply-forms.md, which
`python tests/unit/agents/test_reply_forms.py` writes.
"""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from agentgym_rl.agents.formats import make_format
from fakes import fake_spec

NAMES = ("react", "direct", "tags", "function_call", "code")
WHOLE = "(all of it)"
"""All of the reply is the action, as it stands; the environment says whether it is one."""
Form = tuple[str, str | None, str | None, str | None, str | None, str | None]
"""A reply, and for each of NAMES the action that it means; None where it is refused."""

CALL = '{"name": "act", "arguments": {"action": "look"}}'
WHO = "<search>who?</search>"

PLAIN_FORMS: list[Form] = [
    ("look", None, "look", None, None, None),
    ("Thought: hm.\nAction: look", "look", WHOLE, None, None, None),
    ("Action: look", "look", "look", None, None, None),
    ("action: look", "look", "look", None, None, None),
    ("ACTION : look", "look", "look", None, None, None),
    ("**Action:** look", "look", "look", None, None, None),
    ("**Action**: look", "look", "look", None, None, None),
    ("**Action: look**", "look", "look", None, None, None),
    ("Action: **look**", "look", "look", None, None, None),
    ("Action: `look`", "look", "look", None, None, None),
    ('Action: "look"', "look", "look", None, None, None),
    ("Action: 'look'", "look", "look", None, None, None),
    ("Action: \u201clook\u201d", "look", "look", None, None, None),
    ("Action: *look*", "look", "look", None, None, None),
    ("- Action: look", "look", "look", None, None, None),
    ("### Action: look", "look", "look", None, None, None),
    ("1. Action: look", "look", "look", None, None, None),
    ("> Action: look", "look", "look", None, None, None),
    ("Action: - look", "look", "look", None, None, None),
    ("Action:\nlook", "look", WHOLE, None, None, None),
    ("Action:\n```\nlook\n```", "look", WHOLE, None, None, "look"),
    ("Action: ```look```", "look", "look", None, None, None),
    ("Thought: I should look. Action: look", "look", WHOLE, None, None, None),
    ("The best action: look", None, WHOLE, None, None, None),
    ("Action\uff1a look", "look", "look", None, None, None),
    ("\u200bAction: look\u200b", "look", "look", None, None, None),
    ("Action 1: look", "look", "look", None, None, None),
    ("Action: look\r\nand wait", "look", WHOLE, None, None, None),
    ("Action: look\nObservation: a wall\nAction: go", "look", WHOLE, None, None, None),
    ("Action: look\nAction: go", None, WHOLE, None, None, None),
    ("Action: `look`.", "look", "look", None, None, None),
    ("Action: look.", "look.", "look.", None, None, None),
    ("Action:", None, None, None, None, None),
    ("<think>Action: go</think>\nAction: look", "look", "look", None, None, None),
    ("Action: go?\n</think>\n\nAction: look", "look", "look", None, None, None),
    ("<think>Action: look", None, None, None, None, None),
    ("**look**", None, "look", None, None, None),
    ("`look`", None, "look", None, None, None),
    ('"look"', None, "look", None, None, None),
    ("- look", None, "look", None, None, None),
    ("1. look", None, "look", None, None, None),
    ("\u200blook", None, "look", None, None, None),
    ("```\nlook\n```", None, "look", None, None, "look"),
    ("```text\nlook\n```", None, "look", None, None, "look"),
    ("<think>hm</think>\nlook", None, "look", None, None, None),
    ("I look.", None, WHOLE, None, None, None),
    ("look\ngo", None, WHOLE, None, None, None),
    ("", None, None, None, None, None),
    ("Action: click [12]", "click [12]", "click [12]", None, None, None),
    ('Action: say "a" and "b"', 'say "a" and "b"', 'say "a" and "b"', None, None, None),
    ('Action: type [3] ["a b"]', 'type [3] ["a b"]', 'type [3] ["a b"]', None, None, None),
    ("Action: `a` or `b`", "`a` or `b`", "`a` or `b`", None, None, None),
    ("<action>look</action>", None, WHOLE, "look", None, None),
    ("<think>hm</think><action>look</action>", None, "<action>look</action>", "look", None, None),
    ("**<action>look</action>**", None, "<action>look</action>", "look", None, None),
    ("<action>**look**</action>", None, WHOLE, "look", None, None),
    (
        "```\n<action>look</action>\n```",
        None,
        "<action>look</action>",
        "look",
        None,
        "<action>look</action>",
    ),
    ("<action>look", None, WHOLE, None, None, None),
    ("<action>look</action><action>go</action>", None, WHOLE, None, None, None),
    ("<tool_call>" + CALL + "</tool_call>", None, WHOLE, None, "look", None),
    (CALL, None, WHOLE, None, "look", None),
    ("I look.\n" + CALL, None, WHOLE, None, "look", None),
    ("```json\n" + CALL + "\n```", None, CALL, None, "look", CALL),
    ("<tools>\n" + CALL + "\n</tools>", None, WHOLE, None, "look", None),
    ("[TOOL_CALLS][" + CALL + "]", None, WHOLE, None, "look", None),
    ('{"name": "act", "arguments": "{\\"action\\": \\"look\\"}"}', None, WHOLE, None, "look", None),
    ('{"name": "act", "parameters": {"command": "look"}}', None, WHOLE, None, "look", None),
    (CALL + "\n" + CALL, None, WHOLE, None, None, None),
    ("{'name': 'act', 'arguments': {'action': 'look'}}", None, WHOLE, None, None, None),
    ('{"name": "look", "arguments": {}}', None, WHOLE, None, None, None),
    ('{"action": "look"}', None, WHOLE, None, None, None),
]

SEARCH_FORMS: list[Form] = [
    (WHO, WHO, WHOLE, WHO, WHO, None),
    ("Action: " + WHO, WHO, WHO, WHO, WHO, None),
    ("Action: search: who?", "search: who?", "search: who?", None, None, None),
    (
        "Thought: hm.\nAction: <search>\nwho?\n</search>\nI wait.",
        WHO,
        WHOLE,
        "<search>\nwho?\n</search>",
        WHO,
        None,
    ),
    ("Thought: hm.\n" + WHO, WHO, WHOLE, WHO, WHO, None),
    ("<think><search>no</search></think>" + WHO, WHO, WHO, WHO, WHO, None),
    ("<search>a</search><answer>b</answer>", None, WHOLE, None, None, None),
    ('{"name": "search", "arguments": {"text": "who?"}}', None, WHOLE, None, WHO, None),
    ('{"name": "search", "arguments": {"query": "who?"}}', None, WHOLE, None, WHO, None),
    ("```\n" + WHO + "\n```", WHO, WHO, WHO, WHO, WHO),
]

FENCED_FORMS: list[Form] = [
    ("Action: ```click [12]```", "```click [12]```", WHOLE, None, None, None),
    ("```click [12]```", None, WHOLE, None, None, "click [12]"),
    ("<action>```click [12]```</action>", None, WHOLE, "```click [12]```", None, None),
    ("Action: click [12]", "click [12]", WHOLE, None, None, None),
]

TABLES = {
    "an environment with plain actions": (fake_spec("plain"), PLAIN_FORMS),
    "an environment with tags of its own, `search` and `answer`": (
        fake_spec("search", action_tags=("search", "answer"), example_action="<search>a</search>"),
        SEARCH_FORMS,
    ),
    "an environment whose own actions are in backticks (WebArena)": (
        fake_spec("fenced", example_action="```click [12]```"),
        FENCED_FORMS,
    ),
}
CASES = [
    pytest.param(spec, name, form[0], form[1 + place], id=f"{spec.name}-{number}-{name}")
    for spec, forms in TABLES.values()
    for number, form in enumerate(forms)
    for place, name in enumerate(NAMES)
]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "reply-forms.md"
START, END = "<!-- reply forms -->\n", "<!-- end of reply forms -->\n"


@pytest.mark.parametrize(("spec", "name", "reply", "action"), CASES)
def test_what_a_reply_means(spec, name: str, reply: str, action: str | None):
    parsed = make_format(name, spec).parse(reply)
    assert parsed.action == (reply.strip() if action == WHOLE else action)


def test_the_page_shows_this_table():
    assert table() == PAGE.read_text("utf-8").partition(START)[2].partition(END)[0]


def table() -> str:
    """Return all forms in Markdown."""
    lines = []
    for title, (_, forms) in TABLES.items():
        lines += [f"| {title}: a reply | " + " | ".join(f"`{name}`" for name in NAMES) + " |"]
        lines += ["|" + "---|" * (1 + len(NAMES))]
        lines += [
            "| " + " | ".join([_code(form[0]), *map(_cell, form[1:])]) + " |" for form in forms
        ]
        lines += [""]
    return "\n".join(lines)


def _cell(action: str | None) -> str:
    return "-" if action is None else WHOLE if action == WHOLE else _code(action)


def _code(text: str) -> str:
    shown = html.escape(text, quote=False).replace("|", "&#124;").replace("\u200b", "(U+200B)")
    for mark in "*_`[]":  # a page shows them as they are
        shown = shown.replace(mark, f"&#{ord(mark)};")
    shown = shown.replace("\r", "").replace("\n", " \u23ce ")
    return f"<code>{shown or ' '}</code>"


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(START)
    PAGE.write_text(before + START + table() + END + rest.partition(END)[2], "utf-8")
