"""Our evaluators give what the original ones gave: cases of tools/webarena_parity/make_cases.py.

The file has WebArena's references (Apache-2.0) of the tasks it uses, and the scores of libwebarena
0.0.5. Its judge is a rule here as there: an answer that has the reference in it is right.
"""

from __future__ import annotations

import asyncio
import json
import lzma
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from agentgym_rl.browser.browsing import Browsing
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.session import BrowserOptions
from agentgym_rl.envs.scenarios.webarena.evaluators.addresses import ends_at
from agentgym_rl.envs.scenarios.webarena.evaluators.helpers import ShopApi
from agentgym_rl.envs.scenarios.webarena.evaluators.judge import Judge
from agentgym_rl.envs.scenarios.webarena.evaluators.score import Finished, answers, score_episode
from arena_sites import Answer, Request, StandIn
from tools.webarena_parity.make_cases import SITES, address, with_addresses

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "data/webarena_parity.json.xz"
_S = 60.0
Json = dict[str, Any]


class Rule(Judge):
    """Accepts what has the reference in it."""

    async def accepts(self, question: str, reference: str, answer: str) -> bool:
        return reference.lower() in answer.lower()

    async def agrees(self, question: str, reason: str, answer: str) -> bool:
        return reason.lower() in answer.lower()


RULE = Rule("", "")


@cache
def table() -> Json:
    found: Json = json.loads(lzma.decompress(FILE.read_bytes()))
    return found


def cases(*, with_pages: bool) -> list[Json]:
    return [one for one in table()["cases"] if _has_pages(one) == with_pages]


def _has_pages(case: Json) -> bool:
    return "program_html" in table()["tasks"][str(case["task"])]["eval"]["eval_types"]


def finished(case: Json) -> Finished:
    task = table()["tasks"][str(case["task"])]
    evaluation = with_addresses(json.dumps(task["eval"]))
    return Finished(task["intent"], with_addresses(case["answer"]), evaluation)


def score_without_pages(case: Json) -> float:
    episode = finished(case)
    evaluation = json.loads(episode.evaluation)
    kinds = evaluation["eval_types"]
    is_right = "string_match" not in kinds or asyncio.run(answers(episode, evaluation, RULE))
    if "url_match" in kinds:
        is_right &= ends_at(evaluation["reference_url"], with_addresses(case["last"]))
    return float(is_right)


def test_answers_and_addresses_are_scored_as_by_the_original():
    found = cases(with_pages=False)
    assert len(found) >= 800 and {case["score"] for case in found} == {0.0, 1.0}
    wrong = [case for case in found if score_without_pages(case) != case["score"]]
    assert wrong == []


class Pages:
    """Serves exactly the pages of the present case."""

    def __init__(self) -> None:
        self.present: dict[tuple[str, str], str] = {}

    def show(self, case: Json) -> None:
        self.present.clear()
        for url, body in case["pages"].items():
            host, _, path = with_addresses(url).removeprefix("http://").partition("/")
            made = f"<!doctype html><title>A page</title>{with_addresses(body)}"
            self.present[host, "/" + path.rstrip("/")] = made

    def __call__(self, request: Request) -> Answer:
        host = request.headers["host"].partition(":")[0]
        body = self.present.get((host, "/" + request.target.strip("/")))
        return Answer("<p>There is no such page.", 404) if body is None else Answer(body)


@pytest.fixture(scope="module")
def pages() -> Iterator[tuple[Pages, StandIn]]:
    if find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    shown = Pages()
    site = StandIn(shown)
    yield shown, site
    site.close()


@pytest.mark.long
@pytest.mark.parametrize("share", [40, pytest.param(1, marks=pytest.mark.long)])
def test_pages_are_scored_as_by_the_original(pages: tuple[Pages, StandIn], share: int):
    shown, site = pages
    found = cases(with_pages=True)[::share]
    assert {case["score"] for case in found} == {0.0, 1.0}
    at = site.url.removeprefix("http://")
    hosts = [address(name).removeprefix("http://") for name in SITES]
    names = Names(tuple((host, at) for host in hosts))
    browsing = Browsing(BrowserOptions(Origins(tuple(map(address, SITES))), names))
    wrong = list[Json]()
    for case in found:
        shown.show(case)
        browsing.load(with_addresses(case["last"]))
        work = partial(score_episode, finished(case), shop=ShopApi(""), judge=RULE)
        if browsing.run(work, _S) != case["score"]:
            wrong.append(case)
    browsing.close()
    assert wrong == []
