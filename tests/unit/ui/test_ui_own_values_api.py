"""Stored numbers and payloads of an environment's own, however odd the file is."""

from __future__ import annotations

from agentgym_rl.ui.episode_view import view


def record(**changes: object) -> dict[str, object]:
    item = {"reply": "a", "action": "a", "observation": "o", "reward": 0.0, "valid_action": True}
    return {"rounds": [item | changes.pop("round", {})], **changes}  # type: ignore[operator]


def rounds_of(found: dict[str, object]) -> list[dict[str, object]]:
    return found["rounds"]  # type: ignore[return-value]  # what `view` gives


def test_parts_from_before_there_were_such_numbers_have_none():
    found = view(record())
    assert (rounds_of(found)[0]["metrics"], rounds_of(found)[0]["reward_parts"]) == ({}, {})
    assert found["payload"] is None


def test_no_more_numbers_are_shown_than_a_round_may_have():
    pairs = [(f"n{number}", 1.0) for number in range(10_000)]
    assert len(rounds_of(view(record(round={"metrics": pairs})))[0]["metrics"]) == 64  # type: ignore[arg-type]


def test_payloads_are_text_of_a_bearable_length():
    assert view(record(payload='{"a":1}'))["payload"] == '{\n  "a": 1\n}'
    assert view(record(payload="not JSON"))["payload"] == "not JSON"
    assert view(record(payload="[" * 100_000))["payload"] == "[" * 100_000
    assert len(str(view(record(payload='"' + "x" * 10**6 + '"'))["payload"])) < 200_010
