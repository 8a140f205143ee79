"""What a spec says of actions: over the wire, and as a law."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from agentgym_rl.envs.checking.laws import Law, spec_problems
from agentgym_rl.envs.service import protocol
from agentgym_rl.serving import bodies
from fakes import fake_spec


def test_tags_answers_and_safe_replay_travel():
    spec = fake_spec(
        "search", action_tags=("search", "answer"), has_answer=True, replay_is_safe=True
    )
    assert protocol.decode_spec(bodies.load(bodies.encode(spec))) == spec


def test_a_server_that_does_not_know_of_them_has_none():
    spec = fake_spec("counting")
    fields = json.loads(json.dumps(asdict(spec)))
    del fields["action_tags"], fields["has_answer"], fields["replay_is_safe"]
    del fields["keeps_pictures"]
    assert protocol.decode_spec(fields) == spec


@pytest.mark.parametrize("tag", ["think", "action", "act", "Search", "a b", "", "a>"])
def test_tags_are_names_that_no_format_uses_itself(tag: str):
    problems = list(spec_problems(fake_spec("search", action_tags=("answer", tag))))
    assert [law for law, _ in problems] == [Law.SPEC_TAGS]
    assert list(spec_problems(fake_spec("search", action_tags=("answer",)))) == []
