"""Task files, addresses and pages that try to make WebArena's evaluators run or await something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from agentgym_rl.browser.browsing import Browsing
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.session import BrowserOptions
from agentgym_rl.envs.scenarios.webarena.evaluators.helpers import (
    ShopApi,
    address_of,
    parse_call,
    post_url,
)
from agentgym_rl.envs.scenarios.webarena.evaluators.score import Finished, score_episode
from agentgym_rl.errors import EnvError
from arena_sites import Answer, Request, StandIn, page

SHOP = ShopApi("http://127.0.0.1:1")


@pytest.mark.parametrize(
    "text",
    [
        "func:__import__('os').system('true')",
        "func:reddit_get_post_url('a') or exit()",
        "func:reddit_get_post_url(open('/etc/passwd').read())",
        "func:reddit_get_post_url('a' 'b')",
        'func:eval("1"',
        "func:",
        "func:(lambda: 0)()",
    ],
)
async def test_nothing_of_a_task_file_is_run(text: str):
    with pytest.raises(EnvError):
        await address_of(text, "http://x/", SHOP)


def test_only_quoted_texts_are_arguments():
    call = parse_call("func:gitlab_get_project_memeber_role(__page__, 'a\"); evil(\"')")
    assert call.arguments == ('a"); evil("',)


async def test_an_address_that_the_agent_chose_is_only_text():
    url = "http://forum.test/f/a'+__import__('os').getcwd()+'/7/x"
    found = await address_of("func:reddit_get_post_url('__last_url__')", url, SHOP)
    assert found == post_url(url) == "http://forum.test/f/a'+__import__('os').getcwd()+'/7/"


BLOCKS = "<p class=a>right</p><script>setTimeout(() => { for (;;); }, 300)</script>"
THROWS = "<p class=a>right</p><script>document.querySelector = () => { throw 1 }</script>"
LEAVES = "<script>location.href = 'http://127.0.0.1:1/'</script><p class=a>right</p>"


def pages(request: Request) -> Answer:
    bodies = {"/blocks": BLOCKS, "/throws": THROWS, "/leaves": LEAVES}
    return page("A page", bodies.get(request.path, "<p>home</p>"))


@pytest.fixture(scope="module")
def site() -> Iterator[StandIn]:
    if find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    made = StandIn(pages)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("path", "scores"),
    [
        pytest.param("/blocks", {1.0}, marks=pytest.mark.long),  # waits 5 s for the script
        ("/throws", {0.0}),
        ("/leaves", {0.0, 1.0}),
    ],
)
def test_a_hostile_page_is_scored_within_the_deadline(site: StandIn, path: str, scores: set[float]):
    target = {
        "url": f"{site.url}{path}",
        "locator": "document.querySelector('.a').outerText",
        "required_contents": {"exact_match": "right"},
    }
    evaluation = json.dumps({"eval_types": ["program_html"], "program_html": [target]})
    names = Names((("127.0.0.1", "127.0.0.1"),))
    browsing = Browsing(BrowserOptions(Origins((site.url,)), names))
    browsing.load(site.url)
    work = partial(score_episode, Finished("", "", evaluation), shop=SHOP, judge=None)
    try:
        assert browsing.run(work, 45.0) in scores
        assert "home" in browsing.look().text
    finally:
        browsing.close()
