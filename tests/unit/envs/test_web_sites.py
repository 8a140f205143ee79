"""What lets many episodes share one process of a site: isolation, secrets, restarts, the end."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_rl.envs.scenarios.web.projects import template_of
from agentgym_rl.envs.scenarios.web.site_process import SiteEpisode, SiteProcess
from agentgym_rl.errors import EnvError, EnvGoneError
from waiting import wait_for

pytestmark = pytest.mark.slow
NEW_CATEGORY = "/dashboard/catalogue/categories/create/"
STAFF = "manager@harbourhill.example"


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    made = SiteProcess("shop")
    yield made
    made.close()


def ask(
    site: SiteProcess, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes, list[str]]:
    """Send one request; return status, content and cookies of the answer."""
    connection = http.client.HTTPConnection(*site.address.split(":"), timeout=30)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Host": "shop.test", **sent})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get_all("Set-Cookie") or []
    finally:
        connection.close()


class FormReader(HTMLParser):
    """Collects the fields of a page with what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select = self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        is_off = given.get("type") in ("checkbox", "radio") and "checked" not in given
        if tag == "input" and name and given.get("type") not in ("submit", "file") and not is_off:
            self.fields[name] = value
        elif tag == "select":
            self._select = name
        elif tag == "option" and ("selected" in given or self._select not in self.fields):
            self.fields[self._select] = value
        elif tag == "textarea":
            self._text, self.fields[name] = name, ""

    def handle_data(self, data: str) -> None:
        if self._text:
            self.fields[self._text] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._text = ""


class Visitor:
    """A browser without a browser: one episode, its cookies, and forms."""

    def __init__(self, site: SiteProcess, key: str, user: str | None = STAFF) -> None:
        self.site = site
        self.episode: SiteEpisode = site.create(key, user)
        self.cookies = dict(self.episode.cookies)

    def get(self, path: str) -> str:
        return self._ask("GET", path)[1].decode()

    def submit(self, path: str, picture: bytes = b"", **changes: str) -> None:
        """Send the form of a page with some changes; it must be accepted."""
        reader = FormReader()
        reader.feed(self.get(path))
        edge = "----edge"
        body = b""
        for name, value in (reader.fields | changes).items():
            head = f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
            body += head.encode() + value.encode() + b"\r\n"
        if picture:
            head = f'--{edge}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"'
            body += head.encode() + b"\r\nContent-Type: image/jpeg\r\n\r\n" + picture + b"\r\n"
        kind = f"multipart/form-data; boundary={edge}"
        status, content = self._ask("POST", path, body + f"--{edge}--\r\n".encode(), kind)
        assert status == 302, content.decode()[-3000:]

    def query(self, sql: str) -> list[tuple[object, ...]]:
        return list(self.site.query(self.episode, sql))

    def _ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "text/plain"
    ) -> tuple[int, bytes]:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        status, content, headers = ask(
            self.site, method, path, body, X_Episode=self.episode.key, Cookie=cookies,
            Content_Type=kind, Referer="http://shop.test/",
        )  # fmt: skip
        for value in headers:
            key, _, rest = value.partition("=")
            self.cookies[key] = rest.partition(";")[0]
        return status, content


def test_nothing_is_served_without_the_key_of_an_episode(site: SiteProcess):
    site.create("some-secret-key")
    for headers in ({}, {"X_Episode": ""}, {"X_Episode": "some-secret-kez"}):
        assert ask(site, "GET", "/catalogue/", **headers)[0] == 403
        assert ask(site, "GET", "/media/images/products/mug-sage.jpg", **headers)[0] == 403
    assert ask(site, "GET", "/catalogue/", X_Episode="some-secret-key")[0] == 200


@pytest.mark.parametrize("action", ["create", "delete", "query", "ping", ""])
def test_the_control_routes_need_their_token(site: SiteProcess, action: str):
    site.create("control-test")
    for token in ({}, {"X_Control_Token": "guess"}):
        answer = ask(site, "POST", f"/-/control/{action}", b'{"key": "control-test"}', **token)
        assert answer[0] == 404


def test_a_query_cannot_write(site: SiteProcess):
    episode = site.create("query-test")
    with pytest.raises(EnvError, match="readonly"):
        site.query(episode, "DELETE FROM auth_user")
    assert site.query(episode, "SELECT count(*) > 500 FROM auth_user") == [(1,)]


@pytest.mark.parametrize(
    "path",
    ["/static/../settings.py", "/media/../template.sqlite3", "/media//etc/passwd", "/static/"],
)
def test_only_files_of_the_site_are_served(site: SiteProcess, path: str):
    site.create("path-test")
    assert ask(site, "GET", path, X_Episode="path-test")[0] in (400, 404)


def test_an_episode_that_ended_is_gone(site: SiteProcess):
    episode = site.create("short-life")
    site.delete(episode)
    site.delete(episode)
    assert ask(site, "GET", "/catalogue/", X_Episode="short-life")[0] == 403
    with pytest.raises(EnvGoneError):
        site.query(episode, "SELECT 1")


def test_the_clock_stands_still_but_for_writes(site: SiteProcess):
    visitor = Visitor(site, "clock")
    page = visitor.get("/dashboard/")
    assert "14 Jun 2024" in page or "2024" in page
    visitor.submit("/dashboard/pages/create/", title="One", url="/one/", content="x")
    first = visitor.query("SELECT max(expire_date) FROM django_session")
    assert str(first[0][0]).startswith("2024-06-28 10:30:0")


def test_uploads_stay_in_their_episode(site: SiteProcess):
    one, other = Visitor(site, "uploads-1"), Visitor(site, "uploads-2")
    picture = (template_of("shop") / "media" / "image_not_found.jpg").read_bytes()
    one.submit(NEW_CATEGORY, picture, name="Extra", treebeard_position="first-child")
    ((name,),) = one.query("SELECT image FROM catalogue_category WHERE name = 'Extra'")
    assert name
    for visitor, status in ((one, 200), (other, 404)):
        assert ask(site, "GET", f"/media/{name}", X_Episode=visitor.episode.key)[0] == status
    site.delete(one.episode)
    assert ask(site, "GET", f"/media/{name}", X_Episode=one.episode.key)[0] == 403


words = st.sampled_from(["Aster", "Birch", "Clover", "Dahlia", "Elder"])
steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["rename", "page", "look", "category"]), words),
    min_size=3,
    max_size=9,
)


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_episodes_that_write_in_turns_never_see_each_other(
    site: SiteProcess, steps: list[tuple[int, str, str]]
):
    check_isolation(site, steps)


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=steps)
def test_many_interleavings_never_mix(site: SiteProcess, steps: list[tuple[int, str, str]]):
    check_isolation(site, steps)


def check_isolation(site: SiteProcess, steps: list[tuple[int, str, str]]) -> None:
    """Let three episodes write in some order; each must have its own words only, everywhere."""
    visitors = [Visitor(site, f"{os.urandom(8).hex()}") for _ in range(3)]
    written: list[dict[str, str]] = [{}, {}, {}]
    for place, (number, step, word) in enumerate(steps):
        visitor, mine = visitors[number], f"{word}{place}zz{number}zz"
        if step == "rename":
            visitor.submit("/dashboard/catalogue/products/5/", title=mine)
            written[number]["product"] = mine
        elif step == "page":
            url = f"/{mine.lower()}/"
            visitor.submit("/dashboard/pages/create/", title=mine, url=url, content=mine)
            written[number]["page"] = mine
        elif step == "category":
            visitor.submit(NEW_CATEGORY, name=mine, treebeard_position="first-child")
            written[number]["category"] = mine
    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(everything_seen, visitors))
    for number, (visitor, texts) in enumerate(zip(visitors, seen, strict=True)):
        for other in {0, 1, 2} - {number}:
            assert f"zz{other}zz" not in texts.lower(), (number, other, steps)
        for word in written[number].values():
            assert word.lower() in texts.lower(), (number, word, steps)
        site.delete(visitor.episode)


def everything_seen(visitor: Visitor) -> str:
    """Return pages of the catalogue, search results and the back office of one episode."""
    ((title,),) = visitor.query("SELECT title FROM catalogue_product WHERE id = 5")
    pages = [f"/search/?{urlencode({'q': str(title)})}", "/dashboard/pages/",
             "/dashboard/catalogue/categories/", "/catalogue/"]  # fmt: skip
    return "\n".join(map(visitor.get, pages))


def test_a_killed_process_loses_only_its_episodes():
    site = SiteProcess("shop")
    try:
        lost = site.create("before")
        address, process = site.address, site.process_id
        assert process is not None
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: not site.is_alive(lost))
        with pytest.raises(EnvGoneError, match="has ended"):
            site.query(lost, "SELECT 1")
        again = site.create("after")
        assert site.address == address
        assert site.query(again, "SELECT 1") == [(1,)]
        with pytest.raises(EnvGoneError):
            site.require(lost)
        site.delete(lost)
    finally:
        site.close()


PARENT = """
import sys
from agentgym_rl.envs.scenarios.web.site_process import SiteProcess
site = SiteProcess("shop")
site.create("key")
print(site.process_id, flush=True)
sys.stdin.read()
"""


@pytest.mark.long
def test_a_site_ends_with_its_parent():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()

    def is_gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return False

    wait_for(is_gone)
