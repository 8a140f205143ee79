"""Conversations as JSON lines and as exact samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.demos import Demonstration, demonstrate
from agentgym_rl.errors import ConfigError
from agentgym_rl.training.conversations import (
    Conversation,
    from_demonstration,
    read_conversations,
    texts_of,
    to_json_line,
    to_sample,
)
from agentgym_rl.types import Message, SegmentKind, Task
from chat_families import FAMILIES, family
from fakes import CountingEnv

GOOD = (
    '{"task": "counting/4", "messages": [{"role": "user", "content": "Go."}, '
    '{"role": "assistant", "content": "add 1"}]}'
)

# What ends a line for str.splitlines, but not in JSON lines.
LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


def make_conversation(*texts: str, learned: tuple[bool, ...] | None = None) -> Conversation:
    """User and assistant in turn; `learned` has one flag for each assistant message."""
    flags = learned or (True,) * (len(texts) // 2)
    roles = ("user", "assistant") * (len(texts) // 2)
    return Conversation(
        "counting/4",
        tuple(Message(role, text) for role, text in zip(roles, texts, strict=True)),
        tuple(flag for learns in flags for flag in (False, learns)),
    )


def conversations() -> st.SearchStrategy[Conversation]:
    texts = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(LINE_ENDS)), max_size=4)
    turn = st.tuples(texts.map("".join), texts.map("".join), st.booleans())

    def build(turns: list[tuple[str, str, bool]], last: str) -> Conversation:
        # The last reply is learned from, because one has to be.
        pairs = [text for prompt, reply, _ in turns for text in (prompt, reply)]
        flags = (*(learns for _, _, learns in turns), True)
        return make_conversation(*pairs, "and now?", last, learned=flags)

    return st.builds(build, st.lists(turn, max_size=3), texts.map("".join))


def read(tmp_path: Path, *lines: str) -> list[Conversation]:
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list(read_conversations(path))


def test_a_file_reads_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("conversations")

    @settings(derandomize=True, deadline=None, max_examples=60)
    @given(st.lists(conversations(), max_size=3))
    def check(written: list[Conversation]) -> None:
        assert read(folder, *map(to_json_line, written)) == written

    check()


def test_messages_may_hold_any_line_end(tmp_path: Path):
    conversation = make_conversation("|".join(LINE_ENDS), "|".join(LINE_ENDS))
    assert read(tmp_path, to_json_line(conversation), GOOD)[0] == conversation


def test_a_reply_is_learned_from_unless_its_line_says_otherwise(tmp_path: Path):
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "add 1"},
        {"role": "user", "content": "Count: 1."},
        {"role": "assistant", "content": "add 2", "loss": False},
        {"role": "user", "content": "Count: 3."},
        {"role": "assistant", "content": "add 3", "loss": True},
    ]
    (conversation,) = read(tmp_path, json.dumps({"messages": messages}))
    assert conversation.is_learned == (False, True, False, False, False, True)
    assert conversation.task == ""


def test_empty_lines_are_skipped(tmp_path: Path):
    assert len(read(tmp_path, "", GOOD, "   ", GOOD, "")) == 2


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{oops", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('"text"', "TypeError"),
        ("{}", "KeyError: 'messages'"),
        ('{"messages": []}', "at least one user and one assistant message"),
        ('{"messages": "text"}', "at least one user and one assistant message"),
        ('{"messages": ["text"]}', "TypeError"),
        ('{"messages": [{"role": "user"}]}', "KeyError: 'content'"),
        ('{"messages": [{"role": "system", "content": "a"}]}', "role 'user', got role 'system'"),
        ('{"messages": [{"role": "user", "content": 3}]}', "message 0 must be text"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "ends with an assistant message"),
        (GOOD.replace('"add 1"', '"add 1", "loss": false'), "one at least is learned from"),
        (GOOD.replace('"add 1"', '"add 1", "loss": "false"'), "message 1: `loss` is true or false"),
        (GOOD.replace('"Go."', '"Go.", "loss": true'), "message 0: `loss` is true or false"),
        ('{"conversations": []}', "at least one human and one gpt entry"),
        ('{"conversations": [{"from": "human"}]}', "KeyError: 'value'"),
        ('{"conversations": [{"from": "human", "value": "a"}]}', "ends with an assistant message"),
        (
            '{"conversations": [{"from": "system", "value": "a"}, {"from": "gpt", "value": "b"}]}',
            "role 'user', got role 'system'",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str, complaint: str):
    with pytest.raises(ConfigError, match=r"demos\.jsonl, line 3: ") as caught:
        read(tmp_path, GOOD, "", line, GOOD)
    assert complaint in str(caught.value)


def agentgym_item(item_id: str, *values: str) -> dict[str, object]:
    """An item as AgentGym writes it: the first reply, an acknowledgement, is not learned from."""
    turns = [
        {"from": "gpt" if place % 2 else "human", "loss": None, "value": value}
        for place, value in enumerate(values)
    ]
    for place, turn in enumerate(turns):
        if turn["from"] == "gpt":
            turn["loss"] = place > 1
    return {"item_id": item_id, "conversations": turns}


@pytest.mark.parametrize("indent", [None, 2])
def test_agentgym_conversations_are_read_with_their_flags(tmp_path: Path, indent: int | None):
    path = tmp_path / "train.json"
    items = [
        agentgym_item("babyai_3", "Rules.", "OK.", "Goal", "go, [left]"),
        agentgym_item("babyai_4", "Rules.", "OK.", "Goal", "stop", "Well done."),
    ]
    path.write_text(json.dumps(items, indent=indent), encoding="utf-8")
    first, second = read_conversations(path)
    assert first.task == "babyai_3" and first.is_learned == (False, False, False, True)
    assert [m.role for m in first.messages] == ["user", "assistant"] * 2
    assert second.messages[-1] == Message("assistant", "stop"), "nothing follows the last reply"
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    assert list(read_conversations(path)) == [first, second]


def test_a_bad_item_of_a_list_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "train.json"
    good = json.dumps(agentgym_item("a_1", "x", "y", "z", "w"))
    path.write_text(f"[\n{good},\n{good},\n{{}}\n]")
    with pytest.raises(ConfigError, match=r"train\.json, line 4: KeyError: 'messages'"):
        list(read_conversations(path))
    path.write_text(f"[\n{good},\n{good},\n{{\n]")
    with pytest.raises(ConfigError, match=r"train\.json, line 4: JSONDecodeError"):
        list(read_conversations(path))
    path.write_text(f"[\n{good},\n{good}\n")
    with pytest.raises(ConfigError, match=r"train\.json, line 4: JSONDecodeError"):
        list(read_conversations(path))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read demonstrations"):
        list(read_conversations(tmp_path / "missing.jsonl"))
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot read demonstrations"):
        list(read_conversations(tmp_path / "latin.jsonl"))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sample_learns_from_flagged_replies_alone(name: str):
    renderer = family(name).renderer
    texts = ("Go.", "add 1", "Count: 1.", "add 2", "Count: 3.", "add 3")
    conversation = make_conversation(*texts, learned=(True, False, True))
    sample = to_sample(conversation, renderer)
    pieces = [renderer.prompt("Go."), renderer.reply("add 1")]
    pieces += [renderer.turn("Count: 1.", reply_ids=pieces[-1]), renderer.reply("add 2")]
    pieces += [renderer.turn("Count: 3.", reply_ids=pieces[-1]), renderer.reply("add 3")]
    flags = [0, 1, 0, 0, 0, 1]
    assert list(sample.token_ids) == [token for piece in pieces for token in piece]
    assert list(sample.loss_mask) == [
        flag for piece, flag in zip(pieces, flags, strict=True) for _ in piece
    ]
    assert sample.num_action_tokens == len(pieces[1]) + len(pieces[5])
    assert set(sample.logprobs) == set(sample.rewards) == {0.0}
    between = [SegmentKind.ACTION, SegmentKind.OBSERVATION]
    assert [segment.kind for segment in sample.segments] == [
        SegmentKind.PROMPT,
        *between,
        *between,
        SegmentKind.ACTION,
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sample_has_the_ids_of_the_whole_template(name: str):
    chat = family(name)
    conversation = make_conversation("Go.", "add 1", "Count: 1.", "add 2")
    messages = [{"role": m.role, "content": m.content} for m in conversation.messages]
    text = chat.tokenizer.apply_chat_template(messages, tokenize=False)
    ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    sample = to_sample(conversation, chat.renderer)
    assert list(sample.token_ids) == ids[: len(sample.token_ids)]
    assert sample.token_ids[-1] == chat.end_of_turn


def test_a_demonstration_becomes_what_the_agent_would_have_said():
    agent = Agent(AgentConfig(format="react", include_instructions=False), CountingEnv.spec)
    demo = demonstrate(CountingEnv(), Task("counting", "train", 4), max_rounds=10)
    assert demo == Demonstration(
        Task("counting", "train", 4), ("Goal: 5. Count: 0.", "Count: 3."), ("add 3", "add 2")
    )
    conversation = from_demonstration(demo, agent)
    assert conversation.task == "counting/4"
    assert conversation.is_learned == (False, True, False, True)
    assert [message.content for message in conversation.messages] == [
        "Goal: 5. Count: 0.",
        agent.write("add 3"),
        "Count: 3.",
        agent.write("add 2"),
    ]
    assert [agent.parse(m.content).action for m in conversation.messages[1::2]] == [
        "add 3",
        "add 2",
    ]


def test_texts_of_conversations_are_those_of_all_messages():
    first, second = make_conversation("a", "b", "c", "d"), make_conversation("e", "f")
    assert list(texts_of([first, second])) == ["a", "b", "c", "d", "e", "f"]
