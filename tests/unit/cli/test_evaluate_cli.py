"""`agentgym eval` before anything is evaluated: --rounds and -k."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.cli.evaluate import EvalOptions, parse_horizons, run_evaluation
from agentgym_rl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "horizons"), [("0", (0,)), ("7", (7,)), ("10,20,30", (10, 20, 30)), ("8, 4", (8, 4))]
)
def test_horizons_are_a_list_of_numbers(text: str, horizons: tuple[int, ...]):
    assert parse_horizons(text) == horizons


@pytest.mark.parametrize("text", ["", "4,", "4,4", "0,4", "-1", "four", "4.5", "²", "4 8"])
def test_other_horizons_are_refused_with_the_remedy(text: str):
    with pytest.raises(ConfigError, match="such as 10,20,30"):
        parse_horizons(text)


def test_several_attempts_need_a_temperature(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"set eval\.temperature above 0"):
        run_evaluation(
            str(tmp_path),
            EvalOptions(["babyai"], limit=1, attempts=4, rounds="4,8", out=tmp_path / "out"),
            ["eval.temperature=0"],
        )
