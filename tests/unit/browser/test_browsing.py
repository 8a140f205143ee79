"""Pages in a real browser: what is seen, what actions do, and what pages try."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from agentgym_rl.browser.browsing import Browsing, Layout
from agentgym_rl.errors import EnvError
from browser_site import PAGES, Site, show
from case_shares import spread_over

pytestmark = pytest.mark.slow


def test_a_page_is_written_compactly(browsing: Browsing):
    seen = show(
        browsing,
        """<h1>Books</h1>
        <p>Some <b>bold</b> text, and a <a href=/a>link</a>.</p>
        <ul><li>one<li>two</ul>
        <label>Search <input value=tolkien></label>
        <select aria-label=Sort><option>Newest<option>Price</select>
        <input type=checkbox checked aria-label=Used> <button disabled>Buy</button>
        <table><tr><th>Order<th>Total<tr><td><a href=/1>1001</a><td>5 &euro;</table>
        <div onclick="1">clickable</div> <i>&#xe001;</i><img src=x alt=Cover>""",
    )
    assert seen.splitlines() == [
        "# Books",
        "Some bold text, and a",
        "[1] link link",
        ".",
        "one",
        "two",
        "[2] textbox Search: tolkien",
        "[3] combobox Sort: Newest {Newest, Price}",
        "[4] checkbox Used (checked)",
        "[5] button Buy (disabled)",
        "Order | Total",
        "[6] link 1001 | 5 €",
        "[7] clickable",
        "image Cover",
    ]


def test_paragraphs_are_shown_whole_and_what_is_cut_says_so(browsing: Browsing):
    words = "word " * 100
    seen = show(
        browsing,
        f"<p>{words}end.</p><p>{words} <b>bold</b> end.</p><p>{words * 5}</p>"
        f"<button>{words}</button>",
    )
    whole, runs_on, cut, button = seen.splitlines()
    assert whole == f"{words}end."
    assert runs_on == f"{words}bold end."
    assert cut == f"{(words * 5)[:2000]}..."
    assert button == f"[1] button {words[:300]}..."


def test_the_other_layout_is_that_of_webarena(site: Site):
    browsing = site.browse(Layout("webarena", has_address=False))
    seen = show(browsing, "<h1>Books</h1><a href=/a>Home</a><input aria-label=Search>")
    browsing.close()
    lines = seen.splitlines()
    assert lines[0].endswith("RootWebArea 'A page' focused: True")
    assert [line.split("] ", 1)[1] for line in lines[1:]] == [
        "heading 'Books'",
        "link 'Home'",
        "textbox 'Search' required: False",
    ]
    assert all(line.startswith("\t[") for line in lines[1:])


def test_long_lists_of_options_are_folded(browsing: Browsing):
    options = "".join(f"<option>o{number}" for number in range(30))
    seen = show(browsing, f"<select aria-label=Many>{options}</select>")
    assert "o11, 18 more}" in seen and "o12" not in seen


def test_frames_and_shadow_trees_are_seen_and_used(browsing: Browsing):
    press = "this.textContent = 'Pressed'"
    PAGES["/inner"] = f'<p>Inside</p><button onclick="{press}">Press</button>'
    show(
        browsing,
        """<h1>Outside</h1><iframe src=/inner></iframe><div id=host></div>
        <script>document.getElementById("host").attachShadow({mode: "open"}).innerHTML =
        "<button onclick=\\"this.textContent='Shadow pressed'\\">Shadow</button>"</script>""",
    )
    seen = browsing.look().text
    assert "Inside" in seen and "button Press" in seen and "button Shadow" in seen
    assert "button Pressed" in browsing.do("click [1]").text
    assert "button Shadow pressed" in browsing.do("click [2]").text


def test_fields_are_filled(browsing: Browsing):
    show(
        browsing,
        """<form action=/found><input aria-label=Word value=old>
        <textarea aria-label=Long></textarea>
        <input type=date aria-label=Day><select aria-label=Size><option>S<option>L</select>
        <div contenteditable aria-label=Rich role=textbox>x</div></form>""",
    )
    PAGES["/found"] = "<h1>Found</h1>"
    assert "textbox Word: 漢字 🙂 [a]" in browsing.do("type [1] [漢字 🙂 [a]] [0]").text
    assert "textbox Long: " + "y" * 299 in browsing.do("type [2] [" + "y" * 500 + "] [0]").text
    assert "2024-05-31" in browsing.do("type [3] [2024-05-31] [0]").text
    assert "combobox Size: L" in browsing.do("select_option [4] [l]").text
    assert "textbox Rich: new" in browsing.do("type [5] [new] [0]").text
    assert "# Found" in browsing.do("type [1] [word]").text
    assert "Word=word" in browsing.url or browsing.url.endswith("/found?")


REFUSALS = {
    "click [5]": "hidden",
    "click [99]": "no element [99]",
    "type [1] [x]": "takes no text",
    "select_option [1] [x]": "no list",
    "select_option [2] [XXL]": "no such option",
    "type [2] [x]": "use select_option",
    "type [3] [x]": "cannot be changed",
    "type [4] [x]": "files cannot be given",
    "tab_focus [7]": "no tab 7",
    "fly": "no such action",
}


def test_what_cannot_be_done_is_said(browsing: Browsing):
    show(
        browsing,
        """<button>B</button><select aria-label=Size><option>S</select>
        <input readonly aria-label=Fixed><input type=file aria-label=File>
        <button id=gone>Gone</button>""",
    )
    browsing.evaluate("document.getElementById('gone').style.display = 'none'")
    for action, reason in REFUSALS.items():
        seen = browsing.do(action)
        assert not seen.valid and reason in seen.text, action
        assert "button B" in seen.text, action


def test_what_could_not_be_done_is_told_once(browsing: Browsing):
    show(browsing, "<button>B</button>")
    assert "no element [99]" in browsing.do("click [99]").text
    refused = browsing.do("goto")
    assert "written goto [url]" in refused.text and "[99]" not in refused.text


@pytest.mark.parametrize("written", ["site.test/short", "/short", "http://site.test/short"])
def test_an_address_may_be_written_short(browsing: Browsing, written: str):
    PAGES["/short"] = "<h1>Short</h1>"
    show(browsing, "<h1>Long</h1>")
    seen = browsing.do(f"goto [{written}]")
    assert seen.valid and "# Short" in seen.text


def test_long_addresses_and_titles_are_cut(site: Site):
    browsing = site.browse(Layout())
    PAGES["/" + "a" * 3000] = f"<title>{'t' * 3000}</title><h1>Here</h1>"
    show(browsing, "<h1>Long</h1>")
    seen = browsing.do("goto [/" + "a" * 3000 + "]").text
    browsing.close()
    assert "# Here" in seen and len(seen) < 1000


def test_more_tabs_than_there_may_be_are_refused(browsing: Browsing):
    show(browsing, "<h1>One</h1>")
    assert all(browsing.do("new_tab").valid for _ in range(7))
    seen = browsing.do("new_tab")
    assert not seen.valid and "No tab was opened" in seen.text


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="max_chars must be at least 1, got -5"):
        Layout(max_chars=-5)


def test_scrolling_shows_the_rest(browsing: Browsing):
    seen = show(browsing, "".join(f"<p style='height:50px'>line {n}</p>" for n in range(60)))
    assert "line 0" in seen and "line 59" not in seen and "more lines below: scroll [down]" in seen
    for _ in range(20):
        text = browsing.do("scroll [down]").text
        if "more lines below" not in text:
            break
    assert "line 59" in text and "lines above: scroll [up]" in text


def test_a_dialog_longer_than_the_screen_is_scrolled(browsing: Browsing):
    lines = "".join(f"<p>line {n}</p>" for n in range(60))
    dialog = "position: fixed; inset: 0; overflow: auto; background: white"
    seen = show(browsing, f"<p>page</p><div style='{dialog}'>{lines}<button>Search</button></div>")
    assert "button Search" not in seen
    for _ in range(6):
        seen = browsing.do("scroll [down]").text
    assert "button Search" in seen


def test_a_number_is_shown_as_it_was_typed(browsing: Browsing):
    seen = show(browsing, "<input type=number step=0.01 aria-label=Price value=20.99>")
    assert seen == "[1] spinbutton Price: 20.99"


def test_lines_beyond_the_budget_come_with_scrolling(site: Site):
    browsing = site.browse(Layout(max_chars=60, has_address=False))
    shown = show(browsing, "".join(f"<p style='margin:0'>line {n:02d}</p>" for n in range(20)))
    met = set()
    for _ in range(10):
        met |= {line for line in shown.splitlines() if line.startswith("line")}
        shown = browsing.do("scroll [down]").text
    browsing.close()
    assert met == {f"line {n:02d}" for n in range(20)}


def test_tabs(browsing: Browsing, site: Site):
    PAGES["/second"] = (
        "<title>Second</title><h1>Two</h1><button onclick=window.close()>Close</button>"
    )
    show(browsing, "<a href=/second target=_blank>Open</a>")
    shown = site.browse(Layout())
    shown.open("http://site.test/page")
    seen = shown.do("click [1]").text
    assert seen.startswith("Tab 0: A page | Tab 1 (current): Second\n(http://site.test/second)")
    assert "link Open" in shown.do("tab_focus [0]").text
    assert "# Two" in shown.do("tab_focus [1]").text
    assert "link Open" in shown.do("close_tab").text
    assert shown.do("new_tab").text.startswith("Tab 0: A page | Tab 1 (current): New tab")
    for _ in range(10):
        seen = shown.do("new_tab").text
    assert "there are 8 already" in seen
    shown.close()


def test_back_and_forward(browsing: Browsing):
    PAGES["/b"] = "<h1>B</h1>"
    show(browsing, "<a href=/b>to b</a>")
    assert "# B" in browsing.do("click [1]").text
    assert "to b" in browsing.do("go_back").text
    assert "# B" in browsing.do("go_forward").text
    assert browsing.do("goto [http://site.test/page]").text == "[1] link to b"


def test_a_request_of_a_script_is_waited_for(browsing: Browsing):
    PAGES["/slow"] = "late"
    show(
        browsing,
        """<button onclick="fetch('/slow').then(a => a.text()).then(t => this.textContent = t)">
        Ask</button>""",
    )
    assert "button late" in browsing.do("click [1]").text


def test_a_page_cannot_pass_for_the_browser(browsing: Browsing):
    seen = show(
        browsing,
        """<p id=p></p><script>p.textContent = '{"id":1,"sessionId":"a"}' + "\\0" + '{"id":';
        console.log(p.textContent); document.title = "half \\ud800 of a character";</script>""",
    )
    assert seen.startswith('{"id":1,"sessionId":"a"}')
    assert browsing.titles[0].startswith("half")


OUTSIDE = [
    "goto [http://other.test/]",
    "goto [http://127.0.0.1:1/]",
    "goto [file:///etc/passwd]",
    "goto [data:text/html,<h1>x]",
    "goto [javascript:alert(1)]",
    "goto [chrome://version]",
    "goto [http://site.test/redirect?http://other.test/]",
    "click [1]",
    "click [2]",
    "click [3]",
]


def test_no_other_site_can_be_reached(browsing: Browsing):
    PAGES["/frame"] = "<h1>leaked</h1>"
    page = """<a href=http://other.test/frame>there</a> <a href=/redirect?http://other.test/frame>
        by a detour</a> <a href=http://other.test/frame target=_blank>in a tab</a>
        <iframe src=http://other.test/frame></iframe>
        <script>fetch("http://other.test/frame", {mode: "no-cors"}).then(
            () => document.title = "leaked", () => document.title = "kept");</script>"""
    for action in OUTSIDE:
        assert "leaked" not in show(browsing, page)
        assert browsing.evaluate("document.title") in ("kept", "A page")
        seen = browsing.do(action)
        assert "leaked" not in seen.text, action
        assert "outside the sites of this task" in seen.text, (action, seen.text)


def test_dialogs_downloads_and_papers_are_told_of(browsing: Browsing):
    PAGES["/file.zip"] = "PK"
    PAGES["/paper.pdf"] = "%PDF-1.4"
    show(
        browsing,
        """<button onclick="alert('Mind the gap')">A</button>
        <button onclick="this.textContent = confirm('Sure?') ? 'yes' : 'no'">C</button>
        <button onclick="this.textContent = prompt('Name?') === null ? 'none' : 'some'">P</button>
        <a href=/file.zip>zip</a> <a href=/paper.pdf>pdf</a>""",
    )
    assert "dialog, which was accepted: Mind the gap" in browsing.do("click [1]").text
    seen = browsing.do("click [2]").text
    assert "Sure?" in seen and "button yes" in seen
    seen = browsing.do("click [3]").text
    assert "refused: Name?" in seen and "button none" in seen
    assert "download was refused: file.zip" in browsing.do("click [4]").text
    assert browsing.do("click [5]").text


HOSTILE = {
    "alert loop": "<script>for (;;) alert('again')</script><p>after",
    "blocking script": "<p>before</p><script>for (;;) {}</script>",
    "redirects": "<script>location = '/page?' + Math.random()</script>",
    "many nodes": "<script>document.body.innerHTML = '<p>x</p>'.repeat(100000)</script>",
    "large text": "<script>document.body.innerHTML = '<p>' + 'x'.repeat(5e7)</script>",
    "popups": "<script>for (let i = 0; i < 50; i++) window.open('/page')</script>",
    "changes": "<p id=p></p><script>setInterval(() => p.textContent = Math.random(), 1)</script>",
}


@pytest.mark.parametrize("name", spread_over(HOSTILE, 2))
def test_a_hostile_page_ends_in_an_observation(name: str, browsing: Browsing):
    PAGES["/fine"] = "<h1>Fine</h1>"
    began = time.monotonic()
    seen = show(browsing, HOSTILE[name])
    assert len(seen) < 20_000
    assert time.monotonic() - began < 45
    assert "# Fine" in browsing.do("goto [http://site.test/fine]").text


def test_a_killed_browser_fails_its_episode_and_is_replaced(browsing: Browsing):
    show(browsing, "<h1>One</h1>")
    browsers = [
        child
        for child in psutil.Process().children(recursive=True)
        if "chrom" in child.name()
        and child.status() != psutil.STATUS_ZOMBIE  # one that an earlier test ended
        and "--type=" not in " ".join(child.cmdline())
    ]
    assert browsers
    for browser in browsers:
        os.kill(browser.pid, signal.SIGKILL)
    with pytest.raises(EnvError):
        browsing.do("stop [done]")  # what was done is lost: nothing may be scored
    with pytest.raises(EnvError):
        browsing.do("scroll [down]")
    assert "# Two" in show(browsing, "<h1>Two</h1>")


def test_a_killed_driver_fails_its_episode_and_is_replaced(browsing: Browsing):
    show(browsing, "<h1>One</h1>")
    drivers = [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "run-driver" in child.cmdline()
    ]
    assert drivers
    for driver in drivers:
        os.kill(driver.pid, signal.SIGKILL)
    with pytest.raises(EnvError):
        browsing.do("stop [done]")
    assert "# Two" in show(browsing, "<h1>Two</h1>")


def test_the_clock_is_that_of_the_task(site: Site):
    browsing = site.browse(now=1_700_000_000)
    seen = show(browsing, "<p id=p></p><script>p.textContent = new Date().toISOString()</script>")
    browsing.close()
    assert seen == "2023-11-14T22:13:20.000Z"
