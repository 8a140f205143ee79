"""What an episode's browser begins with, what it records, and pages of ours beside the agent's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_rl.browser import page_tree
from agentgym_rl.browser.browsing import Browsing, Layout
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.page_tree import MAX_NODES
from agentgym_rl.browser.recording import Entry
from agentgym_rl.browser.session import BrowserOptions, BrowserSession
from agentgym_rl.errors import EnvError
from arena_sites import Answer, Request, StandIn, page, to

pytestmark = pytest.mark.slow

_S = 30.0


def pages(request: Request) -> Answer:
    match request.path:
        case "/echo":
            return page("Echo", "".join(f"<p>{n}: {v}</p>" for n, v in request.headers.items()))
        case "/place":
            return page(
                "Place",
                "<p id=at>?</p><script>navigator.geolocation.getCurrentPosition(p => {"
                "at.textContent = `${p.coords.latitude} ${p.coords.longitude}`})</script>",
            )
        case "/stored":
            return page("Stored", "<p id=s></p><script>s.textContent=localStorage.cart</script>")
        case "/form":
            fields = "<input name=who aria-label=Who><button>Send</button>"
            return page("Form", f"<form method=post action=/send>{fields}</form>")
        case "/send":
            return to("/done", Set_Cookie="said=yes%20it%20is; Path=/")
        case "/done":
            return page("Done", "<script>fetch('/data.json')</script><img src=/i.png>")
        case "/data.json":
            return Answer('{"total": 3}', kind="application/json")
        case "/much":
            return page("Much", "<script>for (const i of [1, 2]) fetch('/much.json?' + i)</script>")
        case "/much.json":
            return Answer('{"text": "%s"}' % ("x" * 1_000_000), kind="application/json")
        case "/long":
            return page("Long", "".join(f"<p>line {i}</p>" for i in range(60)))
        case "/huge":
            number = int(next(iter(request.query)))
            return page("Huge", "<p>the first" + "<i>x</i> <b>y</b> " * number + "<p>the last")
        case _:
            return Answer("", 404)


@pytest.fixture(scope="module")
def site() -> Iterator[StandIn]:
    if find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    made = StandIn(pages)
    yield made
    made.close()


def browse(site: StandIn, layout: Layout | None = None, **settings: object) -> Browsing:
    names = Names((("127.0.0.1", "127.0.0.1"),))
    options = BrowserOptions(Origins((site.url,)), names, **settings)  # type: ignore[arg-type]
    return Browsing(options, layout or Layout(has_address=False))


def test_headers_and_cookies_are_sent_with_every_request(site: StandIn):
    cookie = {"name": "who", "value": "ann", "url": site.url}
    browsing = browse(site, headers=(("X-Who", "an agent"),), cookies=(cookie,))
    text = browsing.open(f"{site.url}/echo").text
    browsing.close()
    assert "x-who: an agent" in text
    assert "cookie: who=ann" in text


def test_a_page_is_told_the_place_and_what_was_stored(site: StandIn):
    stored = {"origin": site.url, "localStorage": [{"name": "cart", "value": "3 teas"}]}
    browsing = browse(site, geolocation=(40.44, -79.94), storage=(stored,))
    assert "40.44 -79.94" in browsing.open(f"{site.url}/place").text
    assert "3 teas" in browsing.open(f"{site.url}/stored").text
    browsing.close()
    plain = browse(site)
    assert "40.44" not in plain.open(f"{site.url}/place").text
    plain.close()


def test_a_whole_page_is_shown_where_it_is_wanted(site: StandIn):
    screen, whole = browse(site), browse(site, Layout(full_page=True, has_address=False))
    text = screen.open(f"{site.url}/long").text
    assert "line 59" not in text and "more lines below" in text
    text = whole.open(f"{site.url}/long").text
    assert "line 0" in text and "line 59" in text and "more lines" not in text
    screen.close()
    whole.close()


@pytest.mark.parametrize("limit", [300, pytest.param(MAX_NODES, marks=pytest.mark.long)])
def test_a_page_with_too_many_parts_says_that_its_end_is_missing(
    site: StandIn, monkeypatch: pytest.MonkeyPatch, limit: int
):
    monkeypatch.setattr(page_tree, "MAX_NODES", limit)
    browsing = browse(site, Layout(full_page=True, has_address=False, max_chars=10_000_000))
    text = browsing.open(f"{site.url}/huge?{limit // 3}").text
    browsing.close()
    assert "parts; its end is not shown" in text
    assert "the first" in text and "the last" not in text


async def _recorded(session: BrowserSession) -> list[Entry]:
    assert session.recorder is not None
    return list(await session.recorder.entries())


def test_requests_are_recorded_with_forms_cookies_and_answers(site: StandIn):
    browsing = browse(site, records=True)
    browsing.open(f"{site.url}/form")
    browsing.do("type [1] [Ann & Bob]")
    browsing.look()
    found = browsing.run(_recorded, _S)
    browsing.close()
    told = [
        (
            e["request"]["method"],
            e["request"]["url"].removeprefix(site.url),
            e["response"]["status"],
        )  # type: ignore[index, union-attr]
        for e in found
    ]
    assert told == [
        ("GET", "/form", 200),
        ("POST", "/send", 302),
        ("GET", "/done", 200),
        ("GET", "/data.json", 200),
    ]
    sent = found[1]
    assert sent["request"]["postData"]["text"] == "who=Ann+%26+Bob"  # type: ignore[index, call-overload]
    assert sent["response"]["redirectURL"] == "/done"  # type: ignore[index, call-overload]
    assert sent["response"]["cookies"] == [{"name": "said", "value": "yes%20it%20is"}]  # type: ignore[index, call-overload]
    assert found[3]["response"]["content"]["text"] == '{"total": 3}'  # type: ignore[index, call-overload]
    names = {header["name"].lower() for header in found[0]["request"]["headers"]}  # type: ignore[index, call-overload, union-attr]
    assert "accept" in names


def test_a_body_that_is_too_large_is_not_kept(site: StandIn):
    browsing = browse(site, records=True)
    browsing.open(f"{site.url}/much")
    found = browsing.run(_recorded, _S)
    browsing.close()
    texts = [entry["response"]["content"]["text"] for entry in found[1:]]  # type: ignore[index, call-overload]
    assert texts == ["", ""]


def test_a_page_aside_leaves_the_agents_tabs_as_they_were(site: StandIn):
    browsing = browse(site)
    browsing.open(f"{site.url}/form", f"{site.url}/long")

    async def look_aside(session: BrowserSession) -> str:
        async with session.aside(f"{site.url}/echo") as tab:
            return await tab.page.title()

    assert browsing.run(look_aside, _S) == "Echo"
    seen = browsing.look()
    assert browsing.titles == ("Form", "Long") and browsing.current == 0
    assert seen.url == f"{site.url}/form"

    async def look_at_nothing(session: BrowserSession) -> None:
        async with session.aside("http://127.0.0.1:1/"):
            pass

    with pytest.raises(EnvError, match="could not be opened"):
        browsing.run(look_at_nothing, _S)
    assert browsing.look().url == f"{site.url}/form"
    browsing.close()
