"""Small pages that stand in for WebArena's sites: a shop, a back office, a forum and code hosting.

They have the forms, addresses and elements that logins and evaluators look for. Each is a server of
its own on 127.0.0.1, told apart by its port, as the real ones often are.
"""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Request:
    path: str
    query: dict[str, str]
    form: dict[str, str]
    headers: dict[str, str]
    cookies: dict[str, str]
    body: bytes
    target: str
    """Path and query, as they were sent."""


@dataclass
class Answer:
    body: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "text/html; charset=utf-8"


def page(title: str, body: str) -> Answer:
    return Answer(f"<!doctype html><title>{title}</title><body><h1>{title}</h1>{body}")


def to(url: str, **headers: str) -> Answer:
    return Answer(status=302, headers={"Location": url, **headers})


class StandIn:
    """A site: pages by path, and what was asked of it."""

    def __init__(self, pages: Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                form = parse_qs(body.decode(errors="replace"), keep_blank_values=True)
                request = Request(
                    parts.path,
                    {
                        name: values[0]
                        for name, values in parse_qs(parts.query, keep_blank_values=True).items()
                    },
                    {name: values[0] for name, values in form.items()},
                    {name.lower(): value for name, value in self.headers.items()},
                    {n: m.value for n, m in SimpleCookie(self.headers.get("Cookie", "")).items()},
                    body,
                    self.path,
                )
                site.requests.append(request)
                answer = pages(request)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                for name, value in answer.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(answer.body.encode())

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def form(action: str, user: str, password: str, button: str) -> str:
    return (
        f"<form method=post action='{action}'><label>User <input {user}></label>"
        f"<label>Password <input type=password {password}></label>{button}</form>"
    )


PLAIN_PAGES = {
    "/sales/order/view/order_id/187/": (
        "Order # 000000187",
        "<div class='order-details-items'>Tea 1</div>",
    ),
    "/place": (
        "Near you",
        "<p id=at>?</p><script>navigator.geolocation.getCurrentPosition("
        "p => { at.innerText = p.coords.latitude })</script>",
    ),
}
"""Path -> title and body, of pages of the shop that are always the same."""


class Shop:
    """A storefront with an account, a wish list, a search and the interface for programs."""

    def __init__(self) -> None:
        self.wishes: list[str] = []

    def __call__(self, request: Request) -> Answer:
        is_known = request.cookies.get("shop") == "emma"
        match request.path:
            case "/customer/account/login/":
                if request.form.get("login") == "emma.lopez@gmail.com":
                    time.sleep(1.0)  # as the real one does
                    return to("/customer/account/", Set_Cookie="shop=emma; Path=/; HttpOnly")
                button = "<button name=send type=submit>Sign In</button>"
                return page("Login", form("", "id=email name=login", "id=pass name=pw", button))
            case "/customer/account/logout/":
                return to("/", Set_Cookie="shop=nobody; Path=/; HttpOnly")
            case "/customer/account/":
                return page("My Account", "Emma Lopez" if is_known else "nobody")
            case "/":
                hello = "Welcome, Emma Lopez!" if is_known else "<a href=/login>Sign In</a>"
                goods = "".join(f"<li><a href=/tea-{i}.html>Tea {i}</a>" for i in (1, 2))
                search = "<form action=/search><input name=q aria-label=Search></form>"
                return page("One Stop Market", f"<p>{hello}</p>{search}<ul>{goods}</ul>")
            case "/search":
                found = html.escape(request.query.get("q", ""))
                return page("Search", f"Results for {found}: <a href=/tea-1.html>Tea 1</a>")
            case "/tea-1.html" | "/tea-2.html" as path:
                button = f"<button name=p value={path[1:6]}>Add to Wish List</button>"
                button = f"<form method=post action=/wish>{button}</form>"
                return page(path[1:6].title(), f"<p>$4.50, 1 left</p>{button}")
            case "/wish":
                self.wishes.append(request.form["p"])
                return to("/wishlist/")
            case "/wishlist/":
                rows = "".join(f"<li>{html.escape(one)} &amp; more</li>" for one in self.wishes)
                return page("My Wish List", f"<div class='products-grid wishlist'>{rows}</div>")
            case path if path.startswith("/rest/"):
                return self._for_programs(request)
            case path:
                found = PLAIN_PAGES.get(path)
                return page(*found) if found else Answer("<h1>Not found</h1>", 404)

    def _for_programs(self, request: Request) -> Answer:
        match request.path:
            case "/rest/default/V1/integration/admin/token":
                is_admin = json.loads(request.body) == {
                    "username": "admin",
                    "password": "admin1234",
                }
                return _json("a-token") if is_admin else Answer(status=401)
            case "/rest/V1/orders" if request.headers.get("authorization") == "Bearer a-token":
                return _json({"items": [{"increment_id": "000000187"}]})
            case "/rest/V1/products/B1/reviews":
                reviews = [
                    {"nickname": "Ann", "ratings": [{"rating_name": "Rating", "percent": 80}]}
                ]
                return _json(reviews)
            case _:
                return Answer(status=403)


class Forum:
    """A forum with an account and submissions, as Postmill has them."""

    def __call__(self, request: Request) -> Answer:
        is_known = request.cookies.get("forum") == "marvel"
        match request.path:
            case "/login":
                if request.form.get("_username") == "MarvelsGrantMan136":
                    return to("/", Set_Cookie="forum=marvel; Path=/")
                button = "<button>Log in</button>"
                return page("Log in", form("", "name=_username", "name=_password", button))
            case "/":
                who = "MarvelsGrantMan136" if is_known else "Log in"
                return page("Postmill", f"<p>{who}</p><a href=/submit>Submit</a>")
            case "/submit" if request.form:
                return to("/f/books/7/a-title")
            case "/submit":
                fields = (
                    "<input name='submission[title]' aria-label=Title>"
                    "<select name='submission[forum]' aria-label=Forum>"
                    "<option value=1>books<option value=10039>consoles</select>"
                )
                return page("Create", f"<form method=post>{fields}<button>Create</button></form>")
            case "/f/books/7/a-title" | "/f/books/7/" | "/f/books/7/a-title/-/comment/9":
                return page("A title", "<div class=submission__inner>Words by Marvel</div>")
            case _:
                return Answer("<h1>Not found</h1>", 404)


class Code:
    """Code hosting with members and a list of things to do, as GitLab has them."""

    def __call__(self, request: Request) -> Answer:
        match request.path:
            case "/users/sign_in":
                if request.form.get("user") == "byteblaze":
                    return to("/", Set_Cookie="code=byte; Path=/")
                button = "<button data-testid=sign-in-button>Sign in</button>"
                user, password = (
                    "data-testid=username-field name=user",
                    "data-testid=password-field",
                )
                return page("Sign in", form("", user, f"{password} name=pw", button))
            case "/":
                who = request.cookies.get("code", "nobody")
                script = "<script>fetch('/api/projects?page=1')</script>"
                return page("Projects", f"<p>{who}</p><a href=/dashboard/todos>To-Do</a>{script}")
            case "/dashboard/todos":
                return page("To-Do List", "<p>Nothing to do</p>")
            case "/api/projects":
                return _json({"projects": ["primer/design"]})
            case "/primer/design/-/project_members":
                row = (
                    "<td data-label=Account><span class=gl-avatar-labeled-sublabel>@yjlou</span>"
                    "<td class=col-max-role><span>Developer</span>"
                )
                return page("Members", f"<table><tr>{row}</table>")
            case _:
                return Answer("<h1>Not found</h1>", 404)


def _json(value: object) -> Answer:
    return Answer(json.dumps(value), kind="application/json")


@dataclass
class Town:
    """The sites, and the options that name them."""

    shop: Shop
    shopping: StandIn
    reddit: StandIn
    gitlab: StandIn

    @property
    def addresses(self) -> dict[str, object]:
        return {
            "shopping": self.shopping.url,
            "reddit": self.reddit.url,
            "gitlab": self.gitlab.url,
        }


@contextmanager
def standing() -> Iterator[Town]:
    shop = Shop()
    town = Town(shop, StandIn(shop), StandIn(Forum()), StandIn(Code()))
    try:
        yield town
    finally:
        for site in (town.shopping, town.reddit, town.gitlab):
            site.close()
