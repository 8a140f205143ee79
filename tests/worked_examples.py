"""Play the worked example of an environment's instructions in the environment itself."""

from __future__ import annotations

import re

from agentgym_rl.envs.base import Environment

_ROUND = re.compile(r"^Your \w+ action: (.*)\nYou see:\s", re.MULTILINE)


def assert_example_holds(env: Environment, first: str) -> None:
    """Play the example to its end, given the first observation of its task.

    Every observation must be the one in the example, which may cut lines with " ...".
    """
    example = env.spec.instructions.partition("You see:\n")[2]
    shown, *rest = _ROUND.split(example)
    _assert_shown(shown, first)
    rounds = list(zip(rest[::2], rest[1::2], strict=True))
    assert len(rounds) >= 2
    for number, (action, seen) in enumerate(rounds, 1):
        result = env.step(action)
        assert result.valid_action, action
        _assert_shown(seen, result.observation)
        assert result.success == (number == len(rounds)), action


def _assert_shown(shown: str, observation: str) -> None:
    """The lines of the example are those of the observation, or the beginnings of some."""
    lines = [line.rstrip() for line in observation.splitlines()]
    expected = [line.rstrip() for line in shown.strip().splitlines()]
    if not any(line.endswith(" ...") for line in expected):
        assert lines == expected
        return
    for line in expected:
        head = line.removesuffix(" ...")
        assert any(one == line or (head != line and one.startswith(head)) for one in lines), line
