"""The server does what its OpenAPI description says, for requests that fit it and for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import requests
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from starlette.routing import Route

from agentgym_rl.envs.access.serve import other_dialects
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.envs.service.protocol import Op
from agentgym_rl.envs.service.server.app import EnvApp
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.envs.service.server.openapi import describe
from case_shares import spread_over
from env_servers import server_thread

if TYPE_CHECKING:
    from schemathesis import Case

CASES_PER_ROUTE = (30, 120)
"""In `make test`, and in the long run."""
TASK = {"env": "textcraft", "split": "train", "index": 18}
DESCRIPTION = describe(TextCraft.spec)
OPERATIONS = [
    (path, method.upper()) for path, methods in DESCRIPTION["paths"].items() for method in methods
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    # The episodes that the cases open are many and never closed: none may hit the capacity.
    with server_thread("textcraft", limits=ServerLimits(capacity=100_000)) as url:
        yield url


class Peer:
    """Sends cases over one connection, a part of them to an episode that runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._episode = self._session.post(f"{url}/episodes").json()["episode"]
        self.num_answers: Counter[int] = Counter()

    def send(self, case: Case, *, is_live: bool) -> requests.Response:
        """Send the case; `is_live` lets it mean the first round of an episode that runs."""
        if is_live and "{episode}" in case.path:
            self._restart_episode()
            case.path_parameters["episode"] = self._episode
            case.body = _with_plain_integers(case.body)
            if isinstance(case.body, dict) and type(case.body.get("round")) is int:
                case.body["round"] = 0
        response = case.call(session=self._session, timeout=10)
        self.num_answers[response.status_code] += 1
        return response

    def _restart_episode(self) -> None:
        reset = f"{self._url}/episodes/{self._episode}/reset"
        if self._session.post(reset, json={"task": TASK}).status_code != 200:
            self._episode = self._session.post(f"{self._url}/episodes").json()["episode"]
            self._restart_episode()


def _with_plain_integers(value: object) -> object:
    """Return JSON in which 1.0, an integer to JSON Schema but not to the server, is 1."""
    if isinstance(value, dict):
        return {name: _with_plain_integers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_plain_integers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize("num_cases", spread_over(CASES_PER_ROUTE, 1))
@pytest.mark.parametrize(("path", "method"), spread_over(OPERATIONS, 4))
def test_answers_are_as_described(url: str, path: str, method: str, num_cases: int):
    # Not at the top: every process of the tests would import it, and it takes seconds.
    import schemathesis
    from schemathesis import GenerationMode, checks

    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")[path][method]
    peer = Peer(url)
    takes_input = "requestBody" in operation.definition.raw or "/tasks" in path
    for mode in GenerationMode if takes_input else [GenerationMode.POSITIVE]:

        @seed(0)
        @settings(
            max_examples=num_cases // (2 if takes_input else 1),
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), is_live=st.booleans())
        def run(case: Case, is_live: bool) -> None:
            case.validate_response(
                peer.send(case, is_live=is_live),
                checks=[
                    checks.not_a_server_error,
                    checks.status_code_conformance,
                    checks.content_type_conformance,
                    checks.response_schema_conformance,
                ],
            )

        run()
    assert any(status < 300 for status in peer.num_answers), peer.num_answers
    if "{episode}" in path and method != "DELETE":
        assert peer.num_answers[410], "ids that are made up should be gone"


def test_every_route_of_our_protocol_is_described():
    app = EnvApp("textcraft", dialects=[other_dialects])
    ours = {
        (route.path.replace("{id}", "{episode}"), method)
        for route in app._routes()
        if isinstance(route, Route) and _is_ours(route.path)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {
        (path, method.upper())
        for path, methods in DESCRIPTION["paths"].items()
        for method in methods
    }
    assert described == ours | {("/batch", "POST")}


def _is_ours(path: str) -> bool:
    """Whether the route is neither the description itself nor of another project's dialect."""
    return path.split("/")[1] in ("episodes", "health", "spec", "tasks", "metrics")


def test_every_op_of_a_batch_is_described():
    schemas = DESCRIPTION["components"]["schemas"]
    call = schemas["Batch"]["properties"]["calls"]["items"]
    assert call["properties"]["op"]["enum"] == [op.value for op in Op]
