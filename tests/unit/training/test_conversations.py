"""Conversations as JSON lines and as exact samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.demos.demonstration import Demonstration, demonstrate
from agentgym_rl.errors import ConfigError
from agentgym_rl.training.data.conversation_files import read_conversations, to_json_line
from agentgym_rl.training.data.conversations import (
    Conversation,
    from_demonstration,
    texts_of,
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
    text = texts.map("".join)
    turn = st.tuples(text, text, st.booleans()).map(lambda t: (*t[:2], t[2] and bool(t[1].strip())))

    def build(turns: list[tuple[str, str, bool]], last: str) -> Conversation:
        # The last reply is learned from, because one has to be.
        pairs = [text for prompt, reply, _ in turns for text in (prompt, reply)]
        flags = (*(learns for _, _, learns in turns), True)
        return make_conversation(*pairs, "and now?", last, learned=flags)

    return st.builds(build, st.lists(turn, max_size=3), text.filter(str.strip))


def read(tmp_path: Path, *lines: str) -> list[Conversation]:
    path = tmp_path / "demos.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return list(read_conversations(path))


def test_a_file_reads_back_as_it_was_written(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("conversations")

    @settings(max_examples=60)
    @given(st.lists(conversations(), max_size=3))
    def check(written: list[Conversation]) -> None:
        assert read(folder, *map(to_json_line, written)) == written

    check()


def test_messages_may_hold_any_line_end(tmp_path: Path):
    conversation = make_conversation("|".join(LINE_ENDS), "|".join(LINE_ENDS))
    assert read(tmp_path, to_json_line(conversation), GOOD)[0] == conversation


def test_an_empty_reply_is_kept_but_not_learned_from(tmp_path: Path):
    (read_back,) = read(tmp_path, to_json_line(make_conversation("Go.", "", "Well?", "add 1")))
    assert read_back == make_conversation("Go.", "", "Well?", "add 1", learned=(False, True))


def test_agentgym_may_number_its_items(tmp_path: Path):
    (item,) = read(tmp_path, json.dumps({**agentgym_item("", "a", "b", "c", "d"), "item_id": 4}))
    assert item.task == "4"


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
        ("{oops", "not JSON: Expecting property name"),
        (GOOD[:-9], "not JSON: "),
        (GOOD + " x", "not JSON: Extra data"),
        ("[" * 100_000, "not JSON: maximum recursion depth"),
        ("[]", "a conversation is an object, got list"),
        ('"text"', "a conversation is an object, got str"),
        ("null", "a conversation is an object, got nothing"),
        ("{}", "`messages` must be a list with at least one user and one assistant message"),
        ('{"messages": null}', "`messages` must be a list"),
        ('{"messages": []}', "at least one user and one assistant message"),
        ('{"messages": "text"}', "at least one user and one assistant message"),
        ('{"messages": ["text"]}', "message 0 is an object, got str"),
        ('{"messages": [{"role": "user"}]}', "message 0: `content` is text, but it is missing"),
        ('{"messages": [{"content": "a"}]}', "message 0: `role` is text, but it is missing"),
        ('{"messages": [{"role": ["user"], "content": "a"}]}', "`role` is text, got list"),
        ('{"messages": [{"role": "system", "content": "a"}]}', "ends with an assistant message"),
        ('{"messages": [{"role": "tool", "content": "a"}]}', "of role 'user', got 'tool'"),
        ('{"messages": [{"role": "user", "content": 3}]}', "message 0: `content` is text, got int"),
        ('{"messages": [{"role": "user", "content": null}]}', "`content` is text, got nothing"),
        (GOOD.replace('"Go."', '"\\ud800"'), "message 0 has half a character"),
        (GOOD.replace('"counting/4"', "[4]"), "`task` is text, got list"),
        (GOOD.replace('"counting/4"', "4"), "`task` is text, got int"),
        (GOOD.replace('"add 1"', '" \\n"'), "message 1 is an empty reply, which would teach"),
        (GOOD.replace('"add 1"', '"add 1", "loss": 0'), "message 1: `loss` is true or false"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "ends with an assistant message"),
        (GOOD.replace('"add 1"', '"add 1", "loss": false'), "at least one is learned from"),
        (GOOD.replace('"add 1"', '"add 1", "loss": "false"'), "message 1: `loss` is true or false"),
        (GOOD.replace('"Go."', '"Go.", "loss": true'), "message 0: `loss` is true or false"),
        ('{"conversations": []}', "`conversations` must be a list with at least one user"),
        ('{"conversations": [{"from": "human"}]}', "message 0: `value` is text, but it is missing"),
        ('{"conversations": [{"from": "human", "value": "a"}]}', "ends with an assistant message"),
        (
            '{"conversations": [{"from": "system", "value": "a"}, {"from": "gpt", "value": "b"}]}',
            "message 1 must be of role 'user', got 'assistant'",
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


def test_a_bad_item_of_a_list_is_named_with_its_place(tmp_path: Path):
    path = tmp_path / "train.json"
    good = json.dumps(agentgym_item("a_1", "x", "y", "z", "w"))
    path.write_text(f"[\n{good},\n{good},\n{{}}\n]")
    with pytest.raises(ConfigError, match=r"train\.json, item 3: `messages` must be a list"):
        list(read_conversations(path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[\nGOOD,\nGOOD,\n{\n]", "line 5"),
        ("[\nGOOD,\nGOOD\n", "line 4"),
        ("[\nGOOD\nGOOD]", "line 3"),
        ("[\nGOOD,\n]", "line 3"),
        ("[\nGOOD,,\nGOOD]", "line 2"),
        ("[\nGOOD]\n\nGOOD", "line 4"),
    ],
)
def test_a_list_that_is_no_list_is_an_error(tmp_path: Path, text: str, told: str):
    path = tmp_path / "train.json"
    good = json.dumps(agentgym_item("a_1", "x", "y", "z", "w"))
    path.write_text(text.replace("GOOD", good))
    with pytest.raises(ConfigError) as caught:
        list(read_conversations(path))
    assert "train.json: not JSON: " in str(caught.value) and told in str(caught.value)


@pytest.mark.parametrize("before", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_files_of_other_systems_are_read(tmp_path: Path, before: str, line_end: str):
    lines, whole = tmp_path / "demos.jsonl", tmp_path / "demos.json"
    lines.write_bytes((before + line_end.join([GOOD, "", GOOD, ""])).encode())
    whole.write_bytes((before + line_end.join(["[", f"{GOOD},", GOOD, "]", ""])).encode())
    for path, places in ((lines, ["line 1", "line 3"]), (whole, ["item 1", "item 2"])):
        found = list(read_conversations(path))
        assert [item.origin for item in found] == [f"{path}, {place}" for place in places]
        assert found[0] == make_conversation("Go.", "add 1")


def with_system(*texts: str, system: str = "Be brief.") -> Conversation:
    plain = make_conversation(*texts)
    messages = (Message("system", system), *plain.messages)
    return replace(plain, messages=messages, is_learned=(False, *plain.is_learned))


def test_a_system_message_may_come_first_in_both_kinds_of_files(tmp_path: Path):
    item = agentgym_item("counting_4", "Go.", "add 1", "Count: 1.", "add 2")
    turns = [{"from": "system", "loss": None, "value": "Be brief."}, *item["conversations"]]
    turns[-1]["loss"] = False
    ours = with_system("Go.", "add 1", "Count: 1.", "add 2")
    theirs = json.dumps({**item, "conversations": turns}).replace('"loss": false', '"loss": null')
    first, second = read(tmp_path, to_json_line(ours), theirs)
    assert first == ours and first.opening == first.messages[:2]
    assert second == replace(ours, task="counting_4")
    for bad in (
        theirs.replace('"system", "loss": null', '"system", "loss": true'),
        theirs.replace('"human"', '"system"'),
    ):
        with pytest.raises(ConfigError, match=r"demos\.jsonl, line 1: message [01]"):
            read(tmp_path, bad)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("system", ["Be brief.", "", " <|im_end|> "])
def test_a_system_message_is_rendered_as_the_template_has_it(name: str, system: str):
    chat = family(name)
    texts = ("Go.", "add 1", "Count: 1.", "add 2")
    sample = to_sample(with_system(*texts, system=system), chat.renderer)
    assert sum(sample.loss_mask) == sum(len(chat.renderer.reply(t)) for t in ("add 1", "add 2"))
    plain = to_sample(make_conversation(*texts), chat.renderer)
    if name == "gemma":
        # Its template has no system messages: the text begins with it.
        merged = to_sample(make_conversation(f"{system.strip()}\n\nGo.", *texts[1:]), chat.renderer)
        assert sample == merged
    if name != "gemma" and system == "Be brief.":
        rows = [{"role": "system", "content": system}, {"role": "user", "content": "Go."}]
        text = chat.tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True)
        ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert list(sample.token_ids[: len(ids)]) == ids
        assert sample.loss_mask[len(ids)] == 1, "the reply follows"
    marks = [sample.token_ids.count(chat.end_of_turn), plain.token_ids.count(chat.end_of_turn)]
    # The other ChatML templates put a system message of their own where there is none.
    assert marks[0] - marks[1] == (1 if name == "llama3" else 0), "text forges no marks"


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
    (conversation,) = from_demonstration(demo, agent)
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


@pytest.mark.parametrize("count", [2, 3])
def test_a_demonstration_shows_what_the_expert_knows_afterwards(count: int):
    class Wiser(CountingEnv):
        def expert_thought(self) -> str:
            return "It leads on."

        def expert_hindsight(self) -> list[str]:
            return ["Then two are left.", "It was enough.", "Nobody asked."][:count]

    task = Task("counting", "train", 4)
    if count == 3:
        with pytest.raises(ValueError, match="3 thoughts of 2 actions"):
            demonstrate(Wiser(), task, max_rounds=10)
        return
    demo = demonstrate(Wiser(), task, max_rounds=10)
    assert demo is not None and demo.thoughts == ("Then two are left.", "It was enough.")
