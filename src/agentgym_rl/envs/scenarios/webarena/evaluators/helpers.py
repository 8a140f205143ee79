"""The functions that tasks name instead of an address or an element: `func:NAME(ARGUMENTS)`.

Each is found by its name in a table and called with the texts between its quotes. Nothing of a task
file is ever evaluated as Python.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.tab import Tab
from agentgym_rl.errors import EnvError

_CALL = re.compile(r"func:\s*(\w+)\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|(__page__))\s*(?:,|$)""")
_DEADLINE_S = 30.0
LAST_URL = "__last_url__"
_ROLE = """
name => {
    const accounts = [...document.querySelectorAll(
        "td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
    const row = accounts.findIndex(one => one.outerText === "@" + name);
    return document.querySelectorAll("td.col-max-role span")[row].outerText;
}
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A function and the texts it is called with; `__page__` is left out."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShopApi:
    """The shop's interface for programs, which some tasks are checked by."""

    url: str
    user: str = "admin"
    password: str = "admin1234"  # public, the same in every WebArena

    async def latest_order_url(self) -> str:
        """Return the address of the latest order."""
        query = {
            "searchCriteria[sortOrders][0][field]": "created_at",
            "searchCriteria[sortOrders][0][direction]": "DESC",
            "searchCriteria[pageSize]": "1",
        }
        orders = await self._get("orders", query)
        return f"{self.url}/sales/order/view/order_id/{int(orders['items'][0]['increment_id'])}/"

    async def latest_review_author(self, sku: str) -> str:
        reviews = await self._get(f"products/{sku}/reviews", {})
        return str(reviews[-1]["nickname"]) if reviews else ""

    async def latest_review_rating(self, sku: str) -> str:
        """Return the rating of the latest review in percent."""
        reviews = await self._get(f"products/{sku}/reviews", {})
        return str(reviews[-1]["ratings"][0]["percent"]) if reviews else ""

    async def _get(self, path: str, query: dict[str, str]) -> Any:  # whatever the shop answers
        login = {"username": self.user, "password": self.password}
        timeout = aiohttp.ClientTimeout(total=_DEADLINE_S)
        try:
            async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as client:
                url = f"{self.url}/rest/default/V1/integration/admin/token"
                token = await (await client.post(url, json=login)).json(content_type=None)
                headers = {"Authorization": f"Bearer {token}"}
                url = f"{self.url}/rest/V1/{path}"
                answer = await client.get(url, params=query, headers=headers)
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise EnvError(f"the shop at {self.url} cannot be asked ({error})") from error


def parse_call(text: str) -> Call:
    """Return the call that a text says. Raises EnvError for anything else."""
    match = _CALL.fullmatch(text)
    rest = match[2] if match else ""
    arguments = list[str]()
    while match and rest.strip():
        found = _ARGUMENT.match(rest)
        if found is None:
            match = None
            break
        arguments += [text for text in found.groups()[:2] if text is not None]
        rest = rest[found.end() :]
    if match is None:
        raise EnvError(f"the task names something that is no call of a helper: {text!r}")
    return Call(match[1], tuple(arguments))


async def address_of(text: str, last_url: str, shop: ShopApi) -> str:
    """Return the address that a helper finds."""
    call = parse_call(text)
    match call.name, call.arguments:
        case "reddit_get_post_url", (url,):
            return post_url(last_url if url == LAST_URL else url)
        case "shopping_get_latest_order_url", ():
            return await shop.latest_order_url()
        case _:
            raise EnvError(f"there is no helper for the address {text!r}")


async def element_of(text: str, tab: Tab, shop: ShopApi) -> str:
    """Return the text that a helper finds on a page or in the shop."""
    call = parse_call(text)
    match call.name, call.arguments:
        case "gitlab_get_project_memeber_role", (name,):
            return await _member_role(tab, name)
        case "shopping_get_sku_latest_review_author", (sku,):
            return await shop.latest_review_author(sku)
        case "shopping_get_sku_latest_review_rating", (sku,):
            return await shop.latest_review_rating(sku)
        case _:
            raise EnvError(f"there is no helper for the element {text!r}")


def post_url(url: str) -> str:
    """Return the address of a forum's post from that of anything below it, else the same."""
    parts = urlsplit(url)
    steps: Sequence[str] = parts.path.split("/")
    if len(steps) < 4 or steps[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{steps[2]}/{steps[3]}/"


async def _member_role(tab: Tab, name: str) -> str:
    try:
        return str(await tab.within(tab.page.evaluate(_ROLE, name)))
    except PlaywrightError:
        return ""  # the page has no such member
