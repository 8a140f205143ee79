"""How an episode of an original task is scored: `score_episode`, the product of its evaluators."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.session import BrowserSession
from agentgym_rl.browser.tab import Tab
from agentgym_rl.envs.scenarios.webarena.evaluators.addresses import RULE, ends_at
from agentgym_rl.envs.scenarios.webarena.evaluators.helpers import ShopApi, address_of, element_of
from agentgym_rl.envs.scenarios.webarena.evaluators.judge import Judge
from agentgym_rl.envs.scenarios.webarena.evaluators.texts import clean, includes, is_same
from agentgym_rl.errors import EnvError

_OR = " |OR| "
_CANNOT_BE_DONE = "N/A"
_LAST_PAGE = "last"
_SCRIPTS = ("document.", "[...document.")
"""How a locator begins that is a script for the page."""

Json = Mapping[str, Any]  # the files have no schema that could be relied on


@dataclass(frozen=True, slots=True)
class Finished:
    """An episode that the agent stopped."""

    intent: str
    answer: str
    evaluation: str
    """JSON of the task's `eval`, with addresses in place of names."""


async def score_episode(
    finished: Finished, session: BrowserSession, *, shop: ShopApi, judge: Judge | None
) -> float:
    """Return 1 for an episode that all evaluators of its task accept, else 0.

    Raises EnvError when a site or the judge fails, which says nothing about the agent.
    """
    evaluation = cast(Json, json.loads(finished.evaluation))
    for kind in evaluation["eval_types"]:
        if kind == "string_match":
            is_right = await answers(finished, evaluation, judge)
        elif kind == "url_match":
            _require_rule(evaluation)
            is_right = ends_at(evaluation["reference_url"], session.tab.page.url)
        elif kind == "program_html":
            is_right = await pages_have(evaluation["program_html"], session, shop)
        else:
            raise EnvError(f"the task has an evaluator that is not known: {kind!r}")
        if not is_right:
            return 0.0
    return 1.0


async def answers(finished: Finished, evaluation: Json, judge: Judge | None) -> bool:
    """Return whether an answer is right by every reference of the task, in their order."""
    said = clean(finished.answer)
    is_right = True
    for way, wanted in evaluation["reference_answers"].items():
        if way == "exact_match":
            is_right &= is_same(wanted, said)
        elif way == "must_include":
            as_word = len(wanted) == 1
            is_right &= all(includes(one, said, as_word=as_word) for one in wanted)
        elif way == "fuzzy_match" and wanted == _CANNOT_BE_DONE:
            is_right = (is_right and is_same(wanted, said)) or await _require(judge).agrees(
                finished.intent, evaluation.get("string_note", ""), said
            )
        elif way == "fuzzy_match":
            for one in wanted:
                is_right = is_right and await _require(judge).accepts(finished.intent, one, said)
        else:
            raise EnvError(f"the task has a reference that is not known: {way!r}")
    return is_right


async def pages_have(targets: Sequence[Json], session: BrowserSession, shop: ShopApi) -> bool:
    """Return whether every page that a task names has what it asks for there."""
    last_url = session.tab.page.url
    for target in targets:
        url = str(target["url"])
        if url.startswith("func"):
            url = await address_of(url, last_url, shop)
        if url == _LAST_PAGE:
            found = await _found(target, session.tab, shop)
        else:
            async with session.aside(url) as tab:
                found = await _found(target, tab, shop)
        if not _has(target["required_contents"], html.unescape(found)):
            return False
    return True


async def _found(target: Json, tab: Tab, shop: ShopApi) -> str:
    """Return the text that a target names: a page, what a script says in it, or a helper."""
    locator = str(target["locator"])
    if not locator.strip():
        return await tab.within(tab.page.content())
    if locator.startswith("func:"):
        return await element_of(locator, tab, shop)
    if not locator.startswith(_SCRIPTS):
        raise EnvError(f"the task names an element in a way that is not known: {locator!r}")
    for action in target.get("prep_actions", ()):
        try:
            await tab.within(tab.page.evaluate(f"() => {action}"))
        except PlaywrightError:
            break  # the page is another one: what the script finds decides
    try:
        return str(await tab.within(tab.page.evaluate(f"() => {locator}")))
    except PlaywrightError:
        return ""  # there is no such element


def _has(required: Json, found: str) -> bool:
    if "exact_match" in required:
        return is_same(required["exact_match"], found)
    if "must_include" in required:
        return all(
            any(includes(one, found) for one in wanted.split(_OR))
            for wanted in required["must_include"]
        )
    raise EnvError(f"the task asks for contents in a way that is not known: {list(required)}")


def _require(judge: Judge | None) -> Judge:
    if judge is None:
        raise EnvError("this task needs a judge: set env.options.judge_url and judge_model")
    return judge


def _require_rule(evaluation: Json) -> None:
    rule = evaluation.get("url_note", RULE)
    if rule != RULE:
        raise EnvError(f"the task compares addresses by a rule that is not known: {rule!r}")
