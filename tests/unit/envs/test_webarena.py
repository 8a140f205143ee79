"""WebArena's original version from start to score, in a real browser on pages that stand in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from agentgym_clients import serving
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.compat.agentgym.source import AgentGymEnvSource
from agentgym_rl.envs.scenarios.webarena import logins
from agentgym_rl.envs.scenarios.webarena.evaluators import judge as judge_module
from agentgym_rl.envs.scenarios.webarena.logins import LoginState, _read_states
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task
from arena_sites import Answer, Request, StandIn, Town, standing

pytestmark = pytest.mark.slow


def row(index: int, site: str, start: str, **evaluation: object) -> dict[str, object]:
    """Return a task as test.raw.json has them."""
    return {
        "task_id": index,
        "sites": site.split("+"),
        "start_url": start,
        "geolocation": None,
        "intent": f"Objective {index}",
        "eval": {"reference_answers": None, "reference_url": "", "program_html": [], **evaluation},
    }


def on_page(url: str, locator: str, **required: object) -> dict[str, object]:
    target = {"url": url, "locator": locator, "required_contents": required}
    return {"eval_types": ["program_html"], "program_html": [target]}


def said(**references: object) -> dict[str, object]:
    return {"eval_types": ["string_match"], "reference_answers": references}


TEXT = "document.querySelector('{}').outerText"
ROWS = [
    row(0, "shopping", "__SHOPPING__", **said(exact_match="Tea 1")),
    row(1, "shopping", "__SHOPPING__/tea-1.html", **said(must_include=["1"])),
    row(
        2,
        "shopping",
        "__SHOPPING__",
        eval_types=["url_match"],
        reference_url="__SHOPPING__/tea-2.html |OR| __SHOPPING__/tea-3.html",
        url_note="GOLD in PRED",
    ),
    row(
        3,
        "shopping",
        "__SHOPPING__/tea-1.html |AND| __SHOPPING__/tea-2.html",
        **said(exact_match="Tea 2"),
    ),
    row(
        4,
        "shopping",
        "__SHOPPING__/tea-1.html",
        **on_page(
            "__SHOPPING__/wishlist/",
            TEXT.format(".products-grid.wishlist"),
            must_include=["coffee |OR| tea-1 & more"],
        ),
    ),
    row(
        5,
        "shopping",
        "__SHOPPING__",
        **on_page("func:shopping_get_latest_order_url()", "", must_include=["Tea 1"]),
    ),
    row(
        6,
        "shopping",
        "__SHOPPING__",
        **on_page("last", "func:shopping_get_sku_latest_review_author('B1')", exact_match="Ann"),
    ),
    row(
        7,
        "reddit",
        "__REDDIT__/f/books/7/a-title/-/comment/9",
        **on_page(
            "func:reddit_get_post_url('__last_url__')",
            TEXT.format(".submission__inner"),
            must_include=["by marvel"],
        ),
    ),
    row(
        8,
        "gitlab+reddit",
        "__GITLAB__/primer/design/-/project_members",
        **on_page(
            "last",
            "func:gitlab_get_project_memeber_role(__page__, 'yjlou')",
            exact_match="Developer",
        ),
    ),
    row(9, "shopping", "__SHOPPING__", **said(fuzzy_match=["two teas"])),
    row(10, "shopping", "__SHOPPING__", **said(fuzzy_match="N/A"), string_note="no coffee"),
    row(
        11,
        "shopping",
        "__SHOPPING__",
        eval_types=["string_match", "url_match"],
        reference_answers={"exact_match": "yes"},
        reference_url="__SHOPPING__/search?q=tea",
    ),
    {
        **row(12, "shopping", "__SHOPPING__/place", **said(exact_match="40.44")),
        "geolocation": {"latitude": 40.44, "longitude": -79.94},
    },
]
CHANGES = {4}


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    if find_browser() is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    with standing() as made:
        yield made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that answers where the package's files are, as its Python would."""
    folder = tmp_path_factory.mktemp("dataset")
    verified = [
        {
            **{name: task[name] for name in ("task_id", "sites", "intent")},
            "start_urls": str(task["start_url"]).split(" |AND| "),
            "eval": [
                {
                    "evaluator": "AgentResponseEvaluator",
                    "expected": {"task_type": "mutate" if number in CHANGES else "retrieve"},
                }
            ],
        }
        for number, task in enumerate(ROWS)
    ]
    (folder / "test.raw.json").write_text(json.dumps(ROWS))
    (folder / "webarena-verified.json").write_text(json.dumps(verified))
    (folder / "subsets").mkdir()
    (folder / "subsets/webarena-verified-hard.json").write_text('{"task_ids": [1, 4]}')
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho {folder}\n")
    program.chmod(0o755)
    return str(program)


def judge_of(request: Request) -> Answer:
    """Grade by words: an answer that has the reference in it is right."""
    asked = json.loads(request.body)["messages"][1]["content"]
    lines = dict(line.split(": ", 1) for line in asked.splitlines() if ": " in line)
    if "Reference answer" in lines:
        is_right = lines["Reference answer"] in lines["Answer to grade"]
        verdict = "It is\ncorrect" if is_right else "It is not correct, so\nincorrect"
    else:
        is_right = lines["Why it cannot be done"] in lines["Reason that was reported"]
        verdict = "same" if is_right else "different"
    answer = {"choices": [{"message": {"content": verdict}}]}
    return Answer(json.dumps(answer), kind="application/json")


@pytest.fixture(scope="module")
def judge() -> Iterator[StandIn]:
    made = StandIn(judge_of)
    yield made
    made.close()


@pytest.fixture
def make(town: Town, python: str) -> Iterator[Callable[..., Environment]]:
    made = list[Environment]()

    def make_one(**options: object) -> Environment:
        settings = {"version": "original", "tasks": "all", "python": python, **town.addresses}
        made.append(registry.make("webarena", {**settings, **options}))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


def play(env: Environment, index: int, *actions: str) -> tuple[list[str], StepResult]:
    """Play a task; return what was seen and the last result."""
    seen = [env.reset(Task("webarena", "test", index))]
    result = StepResult("")
    for action in actions:
        result = env.step(action)
        seen.append(result.observation)
    return seen, result


def number_of(text: str, words: str) -> str:
    """Return the number in brackets of the line that has some words."""
    line = next(line for line in text.splitlines() if words in line)
    return line[line.index("[") : line.index("]") + 1]


def test_an_episode_begins_logged_in_with_its_objective(make: Callable[..., Environment]):
    env = make()
    seen, _ = play(env, 0)
    assert seen[0].startswith("Objective: Objective 0\nOne Stop Market (http://127.0.0.1:")
    assert "Welcome, Emma Lopez!" in seen[0]
    assert env.details()["changes_site"] is False


def test_a_task_may_be_somewhere(make: Callable[..., Environment]):
    seen, result = play(make(), 12, "stop [40.44]")
    assert "40.44" in seen[0] and result.success


@pytest.mark.parametrize(
    ("index", "answer", "reward"),
    [
        (0, "'tea 1'", 1.0),
        (0, "Tea 1 and more", 0.0),
        (1, "there is 1 left", 1.0),
        (1, "there are 10 left", 0.0),
        (3, "Tea 2", 1.0),
        (5, "", 1.0),
        (6, "", 1.0),
        (7, "", 1.0),
        (8, "", 1.0),
    ],
)
def test_stopping_is_scored(
    make: Callable[..., Environment], index: int, answer: str, reward: float
):
    _, result = play(make(), index, f"stop [{answer}]")
    assert (result.reward, result.terminated, result.success) == (reward, True, reward == 1.0)


def test_the_address_counts(make: Callable[..., Environment]):
    env = make()
    seen, result = play(env, 2, "stop []")
    assert result.reward == 0.0
    env.reset(Task("webarena", "test", 2))
    env.step(f"click {number_of(seen[0], 'Tea 2')}")
    assert env.step("stop").reward == 1.0
    first = env.reset(Task("webarena", "test", 11))
    env.step(f"type {number_of(first, 'Search')} [tea]")
    assert env.step("stop [no]").reward == 0.0
    first = env.reset(Task("webarena", "test", 11))
    env.step(f"type {number_of(first, 'Search')} [tea]")
    assert env.step("stop [yes]").reward == 1.0


def test_several_tabs_are_open_from_the_start(make: Callable[..., Environment]):
    env = make()
    seen, _ = play(env, 3, "tab_focus [1]")
    assert "Tab 0 (current): Tea-1 | Tab 1: Tea-2" in seen[0]
    assert "Tab 0: Tea-1 | Tab 1 (current): Tea-2" in seen[1]


def test_a_change_of_the_site_is_found_on_its_pages(make: Callable[..., Environment], town: Town):
    env = make()
    _, result = play(env, 4, "stop []")
    assert result.reward == 0.0
    seen, _ = play(env, 4)
    assert env.details()["changes_site"] is True
    env.step(f"click {number_of(seen[0], 'Add to Wish List')}")
    assert env.step("stop []").reward == 1.0
    assert town.shop.wishes == ["tea-1"]


def test_a_judge_is_asked_where_there_is_one(make: Callable[..., Environment], judge: StandIn):
    env = make(judge_url=f"{judge.url}/v1", judge_model="a-judge")
    assert play(env, 9, "stop [there are two teas]")[1].reward == 1.0
    assert play(env, 9, "stop [three]")[1].reward == 0.0
    num_asked = len(judge.requests)
    assert play(env, 10, "stop [N/A]")[1].reward == 1.0
    assert len(judge.requests) == num_asked  # plain "N/A" is right as it is
    assert play(env, 10, "stop [there is no coffee here]")[1].reward == 1.0
    assert play(env, 10, "stop [Tea 1]")[1].reward == 0.0


def test_tasks_without_a_judge_or_an_address_are_left_out_and_counted(
    make: Callable[..., Environment], python: str, town: Town
):
    env = type(make())
    assert [task.index for task in env.tasks("test")] == [*range(9), 11, 12]
    assert "2 tasks are left out: 2 need a judge" in env.spec.success
    shop_only = {"shopping": town.shopping.url, "python": python, "tasks": "all"}
    cls = registry.configured(registry.env_class("webarena"), shop_only)
    assert {task.index for task in cls.tasks("test")} == {*range(7), 9, 10, 11, 12}
    assert "2 on sites without an address" in cls.spec.success


def test_a_failing_judge_fails_the_episode_and_scores_nothing(
    make: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(judge_module, "_NUM_TRIES", 1)
    env = make(judge_url="http://127.0.0.1:1/v1", judge_model="a-judge")
    with pytest.raises(EnvError, match=r"the judge 'a-judge' at .* failed"):
        play(env, 9, "stop [two teas]")


def test_the_layout_of_the_benchmark_has_its_parts(make: Callable[..., Environment]):
    seen, _ = play(make(layout="webarena"), 3, "scroll [down]")
    lines = seen[1].splitlines()
    assert lines[:3] == ["OBSERVATION:", "Tab 0 (current): Tea-1 | Tab 1: Tea-2", ""]
    assert lines[3].endswith("RootWebArea 'Tea-1'") or "RootWebArea 'Tea-1'" in lines[3]
    assert lines[-2:] == ["OBJECTIVE: Objective 3", "PREVIOUS ACTION: scroll [down]"]
    assert lines[-3].startswith("URL: http://127.0.0.1:")


def test_only_the_sites_of_the_task_can_be_reached(make: Callable[..., Environment], town: Town):
    env = make()
    seen, _ = play(env, 0, f"goto [{town.gitlab.url}/]")
    assert "outside the sites of this task" in seen[1]
    assert "Sites: gitlab http" in play(env, 8)[0][0]
    assert "Postmill" in env.step(f"goto [{town.reddit.url}/]").observation


def test_states_of_a_folder_are_used(make: Callable[..., Environment], tmp_path: Path, town: Town):
    cookie = {"name": "shop", "value": "emma", "domain": "127.0.0.1", "path": "/", "expires": -1}
    cookie |= {"httpOnly": True, "secure": False, "sameSite": "Lax"}
    stored = {"origin": town.shopping.url, "localStorage": [{"name": "a", "value": "b"}]}
    state = {"cookies": [cookie], "origins": [stored]}
    (tmp_path / "shopping_state.json").write_text(json.dumps(state))
    assert "Welcome, Emma" in play(make(login=str(tmp_path)), 0)[0][0]
    assert "Sign In" in play(make(login="none"), 0)[0][0]
    with pytest.raises(EnvError, match=r"reddit_state\.json cannot be read"):
        play(make(login=str(tmp_path)), 7)
    (tmp_path / "gitlab.reddit_state.json").write_text(json.dumps(state))
    expected = LoginState((cookie,), (stored,))
    assert _read_states(tmp_path, ["reddit", "gitlab"]) == expected


def test_a_login_that_fails_says_so(
    make: Callable[..., Environment], town: Town, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logins, "_FIELD_MS", 200)
    env = make(shopping=town.gitlab.url)
    with pytest.raises(EnvError, match=r"logging in to shopping at .* failed"):
        play(env, 0)


def test_episodes_at_once_share_a_login_and_nothing_else(
    make: Callable[..., Environment], town: Town
):
    envs = [make(login="forms", headers="X-Once: yes") for _ in range(6)]
    num_before = len(town.shopping.requests)

    def play_one(number: int) -> float:
        env = envs[number]
        seen = env.reset(Task("webarena", "test", 2))
        assert "Welcome, Emma Lopez!" in seen
        env.step(f"click {number_of(seen, f'Tea {number % 2 + 1}')}")
        return env.step("stop []").reward

    with ThreadPoolExecutor(len(envs)) as pool:
        assert list(pool.map(play_one, range(len(envs)))) == [0.0, 1.0] * 3
    asked = [one.path for one in town.shopping.requests[num_before:]]
    assert asked.count("/customer/account/login/") <= 2  # at most once by the form, and its answer


def test_an_agent_that_logs_out_costs_the_next_one_a_login(
    make: Callable[..., Environment], town: Town
):
    def num_logins() -> int:
        return sum(bool(one.form.get("login")) for one in town.shopping.requests)

    env = make()
    play(env, 0, "stop []")
    before = num_logins()
    seen, _ = play(env, 0, f"goto [{town.shopping.url}/customer/account/logout/]")
    assert num_logins() == before
    assert "Sign In" in seen[1]
    assert "Welcome, Emma Lopez!" in play(env, 0)[0][0]
    assert num_logins() == before + 1


def served(make: Callable[..., Environment]) -> type[Environment]:
    """Return a class whose objects need no options."""

    def made(cls: type[Environment]) -> Environment:
        return make()

    return type("Served", (type(make()),), {"__new__": made})


async def test_agentgyms_client_plays_on_our_server(make: Callable[..., Environment]):
    with serving(served(make)) as (url, _):
        async with AgentGymEnvSource(url, env="webarena") as source, await source.open() as client:
            seen = await client.reset(Task("webarena", "test", 2))
            assert seen.startswith("OBSERVATION:\nObjective: Objective 2\nOne Stop Market")
            assert seen.endswith("OBJECTIVE: Objective 2")
            bad = await client.step("```click [99]```")
            assert not bad.valid_action and bad.reward == 0
            action = f"I will look at it: ```click {number_of(seen, 'Tea 2')}```"
            good = await client.step(action)
            assert good.valid_action and "$4.50" in good.observation
            last = await client.step("```stop []```")
            assert last.success and last.reward == 1.0


def test_agentgyms_routes_have_its_fields(make: Callable[..., Environment]):
    with serving(served(make)) as (url, _):

        def post(path: str, **fields: object) -> dict[str, object]:
            found: dict[str, object] = requests.post(
                f"{url}/{path}", json=fields, timeout=30
            ).json()
            return found

        number = post("create")["env_idx"]
        started = post("reset", env_idx=number, idx=0, seed=0)
        assert started.keys() == {"observation", "sites", "object"}
        assert (started["sites"], started["object"]) == (["shopping"], "Objective 0")
        stepped = post("step", env_idx=number, action="```scroll [down]```")
        assert stepped.keys() == {"observation", "reward", "terminated", "truncated", "info"}
        found = requests.get(f"{url}/observation_metadata", {"env_idx": number}, timeout=30)
        assert found.json()["image"].startswith("data:image/jpeg;base64,")
        assert post("reset", env_idx=number, idx=9)["error"] == (
            "There is no task 9: they are numbered 0 to 12."
        )
        assert post("close", env_idx=number) == {"closed": "closed"}


def test_headers_are_sent(make: Callable[..., Environment], town: Town):
    play(make(headers="X-M2-Admin-Auto-Login: admin:admin1234"), 0)
    assert town.shopping.requests[-1].headers["x-m2-admin-auto-login"] == "admin:admin1234"


CHECKED = """
from agentgym_rl.envs import registry

class Checked(registry.configured(registry.env_class("webarena"), OPTIONS)):
    def __new__(cls):
        return object.__new__(cls)

    def __init__(self):
        super().__init__(**OPTIONS)

    @classmethod
    def with_options(cls, options):
        return cls
"""


@pytest.mark.long
def test_the_contract_holds(
    town: Town, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Forgetful(list[str]):
        def append(self, wish: str) -> None:
            pass  # the contract asks for episodes that repeat

    monkeypatch.setattr(town.shop, "wishes", Forgetful())
    options = {"version": "original", "tasks": "all", "python": python, **town.addresses}
    (tmp_path / "arena_under_check.py").write_text(f"OPTIONS = {options!r}\n{CHECKED}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    report = check("arena_under_check:Checked", tasks_per_split=4)
    assert report.problems == () and report.num_episodes >= 20


def test_what_is_missing_is_named_with_its_remedy():
    with pytest.raises(EnvError) as caught:
        registry.make("webarena", {"python": "/nowhere/python"})
    text = str(caught.value)
    assert "needs the package webarena-verified and the addresses of its sites" in text
    assert "pip install webarena-verified" in text and "env.options.shopping=" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "verfied"}, "version must be one of verified, original"),
        ({"shopping": "10.0.0.5:7770"}, "shopping must be an address like"),
        ({"judge_url": "http://j/v1"}, "judge_url and judge_model go together"),
        ({"login": "/nowhere"}, "login must be"),
        ({"headers": "no colon"}, "headers must be lines"),
        ({"tasks": "all", "with_changes": True}, "with_changes is for"),
        ({"max_chars": 3}, "max_chars must be at least"),
        ({"address": "x"}, "has no option 'address'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], words: str):
    with pytest.raises(ValueError, match=words):
        registry.make("webarena", options)
