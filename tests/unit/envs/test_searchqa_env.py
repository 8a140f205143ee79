"""The environment of deep search, over a small library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentgym_rl.agents.formats import make_format
from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.scenarios.searchqa.actions import Action, SearchMistake, parse
from agentgym_rl.envs.scenarios.searchqa.env import SearchQA
from agentgym_rl.envs.scenarios.searchqa.reading import count_words, cut, information, show_all
from agentgym_rl.errors import ConfigError, EnvError
from agentgym_rl.retrieval.base import Hit
from agentgym_rl.retrieval.passages import Passage
from agentgym_rl.sandbox import interpreter
from agentgym_rl.types import StepResult, Task
from case_shares import spread_over
from small_search import SmallEngine, SmallSearchQA

BRIDGE, COMPARISON, LONG = 0, 1, 2
"""Indices of the questions: test, then dev, then train."""
TAGS = ("search", "open", "answer")


def start(index: int = BRIDGE, **options: object) -> Environment:
    env = registry.construct(registry.configured(SmallSearchQA, options), options)
    env.reset(Task("searchqa", "test", index))
    return env


def play(env: Environment, *actions: str) -> list[StepResult]:
    return [env.step(action) for action in actions]


def play_expert(env: Environment) -> list[str]:
    """Return the actions of the expert to the end."""
    actions: list[str] = []
    while (action := env.expert_action()) is not None:
        actions.append(action)
        env.step(action)
    return actions


# Actions


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<search>a b</search>", Action("search", "a b")),
        ("<search> a\nb </search>", Action("search", "a\nb")),
        ("<SEARCH>a</Search >", Action("search", "a")),
        ("I look. <search>a</search> <answer>b</answer>", Action("search", "a")),
        ("<think>or <answer>x</answer>?</think><search>a</search>", Action("search", "a")),
        ("<answer>1 < 2</answer>", Action("answer", "1 < 2")),
        ("search[a [b]]", Action("search", "a [b]")),
        ("Answer[ Volga ]", Action("answer", "Volga")),
        ("<open>2</open>", Action("open", "2")),
        ("search: capital of Peru", Action("search", "capital of Peru")),
        ("**Search:** capital of Peru", Action("search", "capital of Peru")),
        ('`search: "capital of Peru"`', Action("search", "capital of Peru")),
        ('search("capital of Peru")', Action("search", "capital of Peru")),
        ("search capital of Peru", Action("search", "capital of Peru")),
        ("open 2", Action("open", "2")),
        ("Answer: Lima", Action("answer", "Lima")),
    ],
)
def test_an_action_is_found_in_its_text(text: str, action: Action):
    assert parse(text, TAGS) == action


@pytest.mark.parametrize(
    "text",
    ["", "Volga", "searching", "search", "search:", "search\nfor it",
     "<search></search>", "<answer> </answer>", "<search>a", "a</search>", "search[]",
     "<python>1</python>", "<think><search>a</search>", "<search>" + "x" * 2000 + "</search>",
     "<search>a</search>" + " " * 20_000],
)  # fmt: skip
def test_what_is_no_action_is_told(text: str):
    found = parse(text, TAGS)
    assert isinstance(found, SearchMistake) and found.reply
    result = start().step(text)
    assert not result.valid_action and result.reward == 0.0 and not result.is_last


@pytest.mark.parametrize("format_name", ["tags", "function_call", "react", "direct", "code"])
def test_every_format_carries_the_actions(format_name: str):
    env = start()
    format_ = make_format(format_name, env.spec)
    for action in ("<search>director of Stalker</search>", "<open>1</open>"):
        assert format_.can_carry(action)
        assert env.step(str(format_.parse(format_.write(action)).action)).valid_action
    for tag in env.spec.action_tags:  # the environment's own instructions say no tags
        assert tag in format_.instructions()
        assert f"<{tag}>" not in env.spec.instructions


# What is read


def test_a_search_shows_its_passages_in_order():
    (result,) = play(start(topk=2), "<search>director of Stalker the film</search>")
    assert result.observation == (
        "<information>\n"
        "Doc 1 (Title: Stalker) Stalker is a film of 1979. It was directed by Andrei Tarkovsky.\n"
        "Doc 2 (Title: Solaris) Solaris is a film of 1972. It was directed by Andrei Tarkovsky.\n"
        "</information>"
    )
    assert (result.reward, result.valid_action, result.is_last) == (0.0, True, False)


@pytest.mark.parametrize("topk", [1, 2, 5])
def test_topk_is_honoured(topk: int):
    (result,) = play(start(topk=topk), "<search>river village film church the is</search>")
    assert result.observation.count("Doc ") == topk


def test_nothing_found_is_said():
    (result,) = play(start(), "<search>qwxyz</search>")
    assert result.observation == "<information>\nNo passage found.\n</information>"
    assert result.valid_action


def test_a_text_is_cut_at_a_word():
    assert cut("one two  three\nfour", 3) == ("one two three ...", True)
    assert cut("one two three", 3) == ("one two three", False)
    assert cut("x" * 50, 2) == ("x" * 40 + " ...", True)  # a run of 50 is three words
    assert cut("", 3) == ("", False)
    assert count_words("a bb " + "c" * 41) == 5


def test_passages_share_the_budget():
    # 12 words: the first may have 4 and takes 1 + 2, the second (12 - 3) // 2 = 4, the last 5
    texts = ("one two", "a b c d e f", "a b c d e f")
    shown = show_all([Passage(str(n), "T", text) for n, text in enumerate(texts)], 12)
    assert [(one.text, one.is_cut) for one in shown] == [
        ("one two", False),
        ("a b c ...", True),
        ("a b c d ...", True),
    ]
    assert information(shown).splitlines()[2] == "Doc 2 (Title: T) a b c ..."


@pytest.mark.parametrize("max_words", [1, 7, 20, 60])
def test_an_observation_keeps_its_budget(max_words: int):
    (result,) = play(start(LONG, max_words=max_words), "<search>river Volga flows</search>")
    lines = result.observation.splitlines()[1:-1]
    # of the line itself: "Doc", "n", "(Title:" and a mark of the cut
    assert sum(count_words(line) - 3 for line in lines) <= max_words + 2 * len(lines)


def test_a_cut_passage_can_be_opened_by_number_id_and_title():
    env = start(LONG, max_words=30)
    assert "Caspian" not in env.step("<search>Volga flows</search>").observation
    for name in ("1", "long-1", "Volga", "volga"):
        (result,) = play(env, f"<open>{name}</open>")
        assert "Caspian Sea." in result.observation and result.valid_action
    assert env.available_actions()[0] == "<open>1</open>"


def test_opening_what_is_not_there_is_a_mistake():
    env = start()
    for name in ("1", "0", "-1", "film-99", "²", "99999999999"):
        assert not env.step(f"<open>{name}</open>").valid_action


# Answers and rewards


def test_a_right_answer_succeeds_in_any_of_its_forms():
    for answer in ("Volga", "The volga!", "river  Volga"):
        (result,) = play(start(), f"<answer>{answer}</answer>")
        assert (result.reward, result.success, result.terminated) == (1.0, True, True)


def test_a_wrong_answer_ends_the_episode():
    (result,) = play(start(), "<answer>Seine</answer>")
    assert (result.reward, result.success, result.terminated) == (0.0, False, True)
    assert "Volga" not in result.observation


def test_with_retry_a_wrong_answer_goes_on():
    results = play(
        start(on_wrong_answer="retry"), "<answer>Seine</answer>", "<answer>Volga</answer>"
    )
    assert [(r.reward, r.is_last) for r in results] == [(0.0, False), (1.0, True)]


def test_f1_pays_a_part_but_is_no_success():
    # "the Volga river delta" -> volga river delta, best: river Volga, P = 2/3, R = 1, F1 = 0.8
    (result,) = play(start(reward="f1"), "<answer>the Volga river delta</answer>")
    assert result.reward == pytest.approx(0.8)
    assert result.reward_parts == {}
    assert (result.metrics["f1"], result.metrics["searches"]) == (pytest.approx(0.8), 0)
    assert result.terminated and not result.success


def test_shares_for_form_and_gold_by_hand():
    options = {"format_reward": 0.1, "gold_reward": 0.3, "topk": 1}
    env = start(**options)
    results = play(
        env,
        "<search>Stalker film</search>",  # one of three gold passages: 0.1
        "<search>Stalker film</search>",  # seen before
        "<open>person-1</open>",  # 0.1
        "<answer>Volga</answer>",  # 0.6 for the answer, 0.1 for the form
    )
    assert [r.reward for r in results] == pytest.approx([0.1, 0.0, 0.1, 0.7])
    assert [dict(r.reward_parts) for r in results] == [
        {"gold": pytest.approx(0.1)},
        {},
        {"gold": pytest.approx(0.1)},
        {"answer": pytest.approx(0.6), "format": pytest.approx(0.1)},
    ]
    assert [r.metrics["gold_seen"] for r in results] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    sloppy = play(start(**options), "Stalker?", "<answer>Seine</answer>")
    assert [r.reward for r in sloppy] == [0.0, 0.0]
    assert play(start(**options), "<answer>Seine</answer>")[0].reward == pytest.approx(0.1)


def test_code_may_be_indented_as_a_whole():
    action = parse("<python>\n  for i in (1, 2):\n    print(i)\n</python>", ("python",))
    assert action == Action("python", "for i in (1, 2):\n  print(i)")


def test_an_object_is_of_the_class_for_its_options():
    env = SmallSearchQA(max_per_level=1)
    assert type(env) is registry.configured(SmallSearchQA, {"max_per_level": 1})
    assert env.max_per_level == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topk": 0}, "topk must be a whole number of at least 1"),
        ({"topk": 1001}, "topk must be at most 1000"),
        ({"python": "yes"}, "must be true or false"),
        ({"max_per_level": -1}, "max_per_level must be a whole number of at least 0"),
        ({"topk": "3"}, "must be a whole number"),
        ({"reward": "bleu"}, "reward must be one of em, f1"),
        ({"on_wrong_answer": "retyr"}, "did you mean 'retry'"),
        ({"format_reward": 0.6, "gold_reward": 0.4}, "must be below 1"),
        ({"gold_reward": -0.1}, r"must be in \[0, 1\)"),
        ({"reward": "f1", "on_wrong_answer": "retry"}, "must end its episode"),
        ({"data": "folder"}, "give index=FOLDER"),
        ({"data": "folder", "index": "x", "gold_reward": 0.1}, "only the embedded"),
        ({"retriever": "bm26"}, "did you mean 'bm25'"),
        ({"retriever": "remote"}, "the url of its server go together"),
        ({"url": "http://x"}, "the url of its server go together"),
        ({"top_k": 3}, "did you mean 'topk'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], words: str):
    with pytest.raises(ValueError, match=words):
        registry.configured(SmallSearchQA, options)


# The expert, views


def test_the_expert_reads_its_way_to_the_answer():
    assert play_expert(start(topk=1)) == [
        "<search>director of Stalker</search>",
        "<search>where was Andrei Tarkovsky born</search>",
        "<search>Zavrazhye river</search>",
        "<answer>the Volga</answer>",
    ]


def test_the_expert_opens_what_was_cut():
    assert play_expert(start(LONG, max_words=40, topk=1)) == [
        "<search>Volga flow long</search>",
        "<open>1</open>",
        "<answer>Caspian Sea</answer>",
    ]


def test_the_expert_says_what_it_found_and_what_it_looks_for():
    env, thoughts = start(topk=1), list[str | None]()
    while (action := env.expert_action()) is not None:
        thoughts.append(env.expert_thought())
        env.step(action)
    assert thoughts == [
        "Plan: 1) director of Stalker; 2) where was [1] born; 3) [2] river. I begin with 1.",
        "[1] is Andrei Tarkovsky. Next is 2.",
        "[1] is Andrei Tarkovsky; [2] is Zavrazhye. Next is 3.",
        "[1] is Andrei Tarkovsky; [2] is Zavrazhye; [3] is Volga. So the answer is the Volga.",
    ]
    assert env.expert_thought() is None


class DeafEngine(SmallEngine):
    """Finds nothing for short queries, and knows no ids."""

    min_words = 6

    def get(self, passage_id: str) -> Passage | None:
        return None

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        found = super().search(queries, topk)
        return [
            hits if len(query.split()) >= self.min_words else []
            for query, hits in zip(queries, found, strict=True)
        ]


def test_the_expert_asks_again_in_other_words():
    env = start(LONG, topk=1)
    env._engine = DeafEngine()  # type: ignore[attr-defined]  # a poor search engine
    first, second, answer = play_expert(env)
    assert second.startswith(first.removesuffix("</search>")) and "Caspian" in answer


class NumbEngine(SmallEngine):
    """Finds nothing but what is called exactly so."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        found = super().search(queries, topk)
        return [
            [hit for hit in hits if hit.passage.title == query]
            for query, hits in zip(queries, found, strict=True)
        ]


def test_the_expert_opens_by_name_what_it_cannot_find():
    env = start(topk=1)
    env._engine = NumbEngine()  # type: ignore[attr-defined]  # a poor search engine
    actions = play_expert(env)
    assert [action for action in actions if "search" not in action] == [
        "<open>Stalker</open>",
        "<open>Andrei Tarkovsky</open>",
        "<open>Zavrazhye</open>",
        "<answer>the Volga</answer>",
    ]
    assert len(actions) == 9  # a query fails before each, and its weighty words before two


def test_without_a_way_there_is_no_advice():
    env = start(LONG, topk=1)
    engine = DeafEngine()
    engine.min_words = 99
    env._engine = engine  # type: ignore[attr-defined]  # a deaf search engine
    assert env.expert_action() is None


def test_the_expert_goes_on_from_any_state():
    env = start()
    play(env, "nonsense", "<search>Zavrazhye river</search>", "<open>1</open>")
    actions = play_expert(env)
    assert actions[-1] == "<answer>the Volga</answer>"
    assert "<search>Zavrazhye river</search>" not in actions


def test_details_hold_the_trace_as_plain_data():
    env = start(topk=1)
    assert start().details()["trace"] == []
    play(env, "<search>Stalker film</search>", "what?", "<answer>Seine</answer>")
    details = json.loads(json.dumps(env.details()))
    assert details["goal"].startswith("On which river") and details["answers"][0] == "the Volga"
    assert details["gold_seen"] == ["film-1"]
    assert details["trace"] == [
        {
            "round": 0,
            "kind": "search",
            "text": "Stalker film",
            "passages": [{"id": "film-1", "title": "Stalker", "is_gold": True, "is_cut": False}],
            "findings": ["Andrei Tarkovsky"],
        },
        {"round": 1, "kind": "mistake", "text": "what?", "passages": [], "findings": []},
        {
            "round": 2,
            "kind": "answer",
            "text": "Seine",
            "passages": [],
            "findings": [],
            "is_right": False,
        },
    ]


# Data, Python, specs and contract


def test_a_folder_of_data_sets_replaces_the_questions(tmp_path: Path):
    for name in ("bamboogle/test.jsonl", "hotpotqa/dev.jsonl"):
        file = tmp_path / name
        file.parent.mkdir()
        rows = [
            {"id": f"x_{n}", "question": f"who is {n}", "golden_answers": [f"Mr {n}", str(n)]}
            for n in range(2)
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
    options = {"data": str(tmp_path), "retriever": "remote", "url": "http://127.0.0.1:1"}
    cls = registry.configured(SearchQA, options)
    assert (cls.spec.splits, cls.spec.categories[-1]) == (("test",), "bamboogle")
    # AgentGym's ids: HotpotQA's test questions from 29190 on, Bamboogle's from 51588 on
    indices = [(task.index, task.category) for task in cls.tasks("test")]
    assert indices == [
        (29190, "hotpotqa"), (29191, "hotpotqa"), (51588, "bamboogle"), (51589, "bamboogle")
    ]  # fmt: skip
    few = registry.configured(SearchQA, {**options, "max_per_level": 1})
    assert [task.index for task in few.tasks("test")] == [29190, 51588]
    env = registry.construct(cls, options)
    assert env.reset(Task("searchqa", "test", 51589)) == "Question: who is 1?"
    assert env.expert_action() is None
    assert env.step("<answer>mr. 1</answer>").success
    with pytest.raises(ConfigError, match="FlashRAG"):
        registry.configured(SearchQA, {**options, "data": str(tmp_path / "nothing")})


def test_python_is_there_only_where_it_is_asked_for():
    assert registry.configured(SmallSearchQA, {}) is SmallSearchQA
    assert not start().step("<python>6 * 7</python>").valid_action
    cls = registry.configured(SmallSearchQA, {"python": True})
    assert cls.spec.action_tags == ("search", "open", "python", "answer")
    assert "python: code" in cls.spec.instructions
    assert "python: code" not in SmallSearchQA.spec.instructions
    assert cls is registry.configured(SmallSearchQA, {"python": True, "topk": 1})


@pytest.mark.skipif(bool(interpreter.why_unavailable()), reason="no sandbox here")
def test_python_computes():
    env = start(python=True)
    results = play(
        env,
        "<python>1979 - 1972</python>",
        "<python>x = 1</python>",
        "<python>1 / 0</python>",
        "<answer>Volga</answer>",
    )
    assert [r.observation for r in results[:3]] == [
        "<output>\n7\n</output>",
        "<output>\n(no output)\n</output>",
        "<output>\nZeroDivisionError: division by zero (line 1)\n</output>",
    ]
    assert results[3].success


def test_without_a_sandbox_python_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interpreter, "why_unavailable", lambda: "there is no Landlock")
    with pytest.raises(EnvError, match=r"there is no Landlock; leave out python=true"):
        start(python=True)


@pytest.mark.parametrize(
    "options",
    spread_over(
        [
            {"format_reward": 0.2, "gold_reward": 0.3},
            {"topk": 1, "max_words": 10},
            {},
            {"reward": "f1"},
            {"on_wrong_answer": "retry"},
        ],
        2,
    ),
)
def test_the_contract_holds(options: dict[str, object]):
    report = check(SmallSearchQA, options=options)
    assert report.problems == ()
    assert report.expert_success_rate == 1.0
