"""The text of a tool call: what is written is read back, and what is not a call is explained."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.envs.tools.docstrings import read_docstring
from agentgym_rl.envs.tools.text import MalformedCallError, ToolCall, read_call

TOOLS = {"refund": ("order", "reason"), "list-orders": (), "say": ("text",)}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False,
                                                                       allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab \"'=,)é\u2028"), inner,
                                                                max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=150)
@given(arguments=st.dictionaries(st.text("abc_-. \"'=,)(é", min_size=1), values, max_size=4))
def test_what_is_written_is_read_back_from_one_line(arguments: dict[str, object]):
    call = ToolCall("say", arguments)
    assert len(call.text.splitlines()) == 1
    again = read_call(call.text, TOOLS)
    assert (again.name, again.arguments) == ("say", arguments)


@pytest.mark.parametrize(
    "text",
    [
        'refund(order=7, reason="late")',
        'refund(7, "late")',
        "refund(7, reason='late')",
        ' refund( order = 7 ,reason="late", ) ',
        '{"name": "refund", "arguments": {"order": 7, "reason": "late"}}',
        '{"function": {"name": "refund", "parameters": {"order": 7, "reason": "late"}}}',
        '{"name": "refund", "arguments": "{\\"order\\": 7, \\"reason\\": \\"late\\"}"}',
    ],
)
def test_every_form_of_a_call_means_the_same(text: str):
    assert read_call(text, TOOLS) == ToolCall("refund", {"order": 7, "reason": "late"})


def test_pythons_words_quotes_and_bare_names():
    assert read_call("list-orders", TOOLS) == ToolCall("list-orders", {})
    read = read_call("say('it\\'s \"so\"')", TOOLS)
    assert read.arguments == {"text": 'it\'s "so"'}
    assert read_call("refund(True, None)", TOOLS).arguments == {"order": True, "reason": None}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not a call"),
        ("please refund it", "no tool 'please'; there are: `refund`, `list-orders`, `say`"),
        ("pay(1)", "no tool 'pay'"),
        ("refund 7", "in parentheses"),
        ("refund(7", "cannot be read"),
        ("refund(7) and more", "exactly one call"),
        ("refund(1, 2, 3)", "too many arguments"),
        ("refund(order=1, order=2)", "`order` twice"),
        ("refund(order=__import__('os'))", "not JSON"),
        ("refund(order=NaN)", "not JSON"),
        ("refund(order=1e999)", "too deep or too large"),
        ("refund(order=" + "[" * 40 + "]" * 40 + ")", "too deep or too large"),
        ('{"name": "refund", "arguments": [1]}', "must be a JSON object"),
        ('{"name": "refund"} x', "text after the JSON"),
        ("{broken", "not JSON"),
    ],
)
def test_what_is_not_a_call_is_explained(text: str, complaint: str):
    with pytest.raises(MalformedCallError, match=complaint.replace("(", "\\(")):
        read_call(text, TOOLS)


@pytest.mark.parametrize(
    "piece", ["(", "[", "{", '"', "'", "\\", "'\\", "a=", "=,", " ", "1", ",", "\ud800", "é", ")"]
)
def test_garbage_takes_linear_time(piece: str):
    for start in ("say(", "say('", 'say("', "{", '{"name": "', ""):
        began = time.process_time()
        try:
            read_call(start + piece * (200_000 // len(piece)), TOOLS)
        except MalformedCallError as error:
            assert len(str(error)) < 500
        assert time.process_time() - began < 1.0


def test_docstrings_in_both_styles():
    google = read_docstring(
        "Pay back.\n\nOnce only.\n\nArgs:\n    order (int): its number,\n        as printed\n"
        "    why: the reason\n\nReturns:\n    a text"
    )
    assert google.text == "Pay back.\n\nOnce only."
    assert google.arguments == {"order": "its number, as printed", "why": "the reason"}
    sphinx = read_docstring("Pay back.\n\n:param int order: its number\n:returns: a text")
    assert (sphinx.text, sphinx.arguments) == ("Pay back.", {"order": "its number"})
