"""Servers that speak AgentGym's protocol, for the tests of its routes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_clients import Lab, serving
from agentgym_rl.envs.babyai.env import BabyAI
from agentgym_rl.envs.textcraft.env import TextCraft


@pytest.fixture(scope="module")
def textcraft() -> Iterator[str]:
    with serving(TextCraft) as (url, _):
        yield url


@pytest.fixture(scope="module")
def babyai() -> Iterator[str]:
    with serving(BabyAI) as (url, _):
        yield url


@pytest.fixture(scope="module")
def sciworld() -> Iterator[str]:
    with serving(Lab) as (url, _):
        yield url
