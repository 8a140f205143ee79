"""WebArena itself: 812 tasks on six web sites, whose addresses the user gives (class `WebArena`).

The driver is browser/. Tasks are in tasks.py, the original evaluators in evaluators/; the verified
version is scored by its own package (verified.py).
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar, Self

from agentgym_rl.browser.browsing import Browsing, Layout, Seen
from agentgym_rl.browser.executable import REMEDY as BROWSER_REMEDY
from agentgym_rl.browser.executable import find_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.recording import Entry
from agentgym_rl.browser.session import BrowserOptions, BrowserSession
from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.webarena import texts
from agentgym_rl.envs.scenarios.webarena.addresses import names_of, origins_of, with_addresses
from agentgym_rl.envs.scenarios.webarena.evaluators.helpers import ShopApi
from agentgym_rl.envs.scenarios.webarena.evaluators.judge import Judge
from agentgym_rl.envs.scenarios.webarena.evaluators.score import Finished, score_episode
from agentgym_rl.envs.scenarios.webarena.logins import LoginState, logins_of
from agentgym_rl.envs.scenarios.webarena.options import FORMS, SITES, ArenaOptions
from agentgym_rl.envs.scenarios.webarena.package import PACKAGE, data_folder
from agentgym_rl.envs.scenarios.webarena.package import REMEDY as PACKAGE_REMEDY
from agentgym_rl.envs.scenarios.webarena.tasks import (
    CATEGORIES,
    ENV_NAME,
    ArenaTask,
    TaskChoice,
    choose_tasks,
)
from agentgym_rl.envs.scenarios.webarena.verified import scorer_for
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_SCORE_S = 300.0
"""For all pages that the evaluators of a task open, and the judge."""
_COOKIES_S = 10.0


class WebArena(Environment):
    """Reach an objective on real web sites, and stop with an answer.

    The reward is 1 where all evaluators of the task accept the answer, the address and the pages
    (original), or the answer and the requests that were sent (verified), else 0. It is paid at
    `stop`; an episode that does not stop earns nothing.
    """

    spec: ClassVar[EnvSpec] = EnvSpec(
        name=ENV_NAME,
        summary="Objectives on six real web sites (WebArena); needs their addresses",
        instructions=texts.instructions("verified"),
        example_action="click [12]",
        splits=("train", "test"),
        categories=tuple(CATEGORIES.values()),
        max_rounds=30,
        success="the evaluators of the task accept the episode (verified version)",
        keeps_pictures=True,
    )
    options: ClassVar[ArenaOptions] = ArenaOptions()
    # The options are the fields of ArenaOptions, and the registry asks for the signature.
    __signature__: ClassVar[inspect.Signature] = inspect.signature(ArenaOptions)

    def __new__(cls, **options: object) -> Self:
        """Make an object of the class for these options (see `with_options`)."""
        return super().__new__(cls.with_options(options))

    def __init__(self, **options: object) -> None:
        """Take the fields of `ArenaOptions`. Raises EnvError with what is missing."""
        chosen = ArenaOptions(**options)  # type: ignore[arg-type]  # checked by itself
        require_all(chosen)
        self._layout = Layout(
            chosen.layout,
            full_page=chosen.full_page,
            max_chars=chosen.max_chars,
            has_address=chosen.layout != "webarena",
        )
        self._sites = tuple(chosen.addresses.items())
        self._browsing: Browsing | None = None
        self._task: ArenaTask | None = None
        self._login = LoginState()
        self._last_action = "None"

    @classmethod
    def with_options(cls, options: Mapping[str, object]) -> type[Self]:
        """Return the class for these options: they choose the tasks and what the agent is told."""
        return _variant(cls, ArenaOptions(**options))  # type: ignore[arg-type]  # checked by itself

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        return tuple(
            Task(ENV_NAME, split, one.index, one.category, one.level)
            for one in cls.choice().splits[split]
        )

    @classmethod
    def choice(cls) -> TaskChoice:
        """Return the tasks of every split, and what was left out and why."""
        return choose_tasks(cls.options)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        known = {one.index: one for one in self.choice().splits[task.split]}
        found = known.get(task.index)
        if found is None:
            raise ValueError(f"webarena has no task {task.index} in split {task.split!r}")
        if task.level not in ("", found.level) or task.payload:
            raise ValueError(f"webarena task {task.index} is {found.level!r} and has no payload")
        self.close()
        self._begin(found)
        self._task = found
        self._last_action = "None"
        browsing = self._running()
        starts = [with_addresses(url, self._sites) for url in found.start_urls]
        seen = browsing.open(*starts)
        if self._layout.name == "webarena":
            return self._shown(seen)
        return f"{texts.first_words(self._intent(), self._sites_of(found))}\n{self._shown(seen)}"

    def step(self, action: str) -> StepResult:
        browsing = self._running()
        seen = browsing.do(action)
        self._last_action = " ".join(action.split())[:200] or "None"
        if seen.answer is None:
            return StepResult(self._shown(seen), valid_action=seen.valid)
        score = self._score(browsing, seen.answer)
        return StepResult("The episode is over.", score, terminated=True, success=score >= 1.0)

    def details(self) -> Mapping[str, JsonValue]:
        """Return the task and the address; {} without an episode."""
        if self._task is None or self._browsing is None:
            return {}
        return {
            "goal": self._intent(),
            "sites": list(self._task.sites),
            "changes_site": self._task.level == "mutate",
            "url": self._browsing.url,
            "acted_on": self._browsing.acted_on,
        }

    def render(self) -> bytes | None:
        """Return the screen."""
        return self._browsing.picture() if self._browsing else None

    def close(self) -> None:
        if self._browsing is not None:
            self._check_login(self._browsing)
            self._browsing.close()
        self._browsing = self._task = None

    def _begin(self, task: ArenaTask) -> None:
        options = self.options
        sites = self._sites_of(task)
        shared = {"homepage": options.homepage} if options.homepage else {}
        plain = BrowserOptions(
            Origins(origins_of([*sites.values(), *shared.values(), *options.also.split()])),
            Names(names_of([*options.addresses.values(), *options.also.split()])),
            headers=options.header_pairs,
            geolocation=task.geolocation,
        )
        state = self._login = logins_of(options.login, self._sites).state(sites, plain)
        records = options.version == "verified"
        with_login = replace(plain, cookies=state.cookies, storage=state.storage, records=records)
        self._browsing = Browsing(with_login, self._layout)

    def _check_login(self, browsing: Browsing) -> None:
        if self.options.login != FORMS or not self._login.cookies:
            return
        with contextlib.suppress(EnvError):  # the browser is gone: the login is as it was
            held = browsing.run(_cookies, _COOKIES_S)
            logins_of(self.options.login, self._sites).forget_if_changed(self._login, held)

    def _score(self, browsing: Browsing, answer: str) -> float:
        task = self._require_task()
        options = self.options
        if options.version == "verified":
            entries = browsing.run(_entries, _SCORE_S)
            return scorer_for(options.python, self._sites).score(task.index, answer, entries)
        evaluation = with_addresses(task.evaluation, self._sites)
        judge = Judge(options.judge_url, options.judge_model) if options.judge_url else None
        work = partial(
            score_episode,
            Finished(self._intent(), answer, evaluation),
            shop=ShopApi(options.addresses.get("shopping", "")),
            judge=judge,
        )
        return browsing.run(work, _SCORE_S)

    def _shown(self, seen: Seen) -> str:
        if self._layout.name != "webarena":
            return seen.text
        return texts.original_layout(self._running(), seen.text, self._intent(), self._last_action)

    def _intent(self) -> str:
        return with_addresses(self._require_task().intent, self._sites)

    def _sites_of(self, task: ArenaTask) -> dict[str, str]:
        return {site: self.options.addresses[site] for site in task.sites}

    def _require_task(self) -> ArenaTask:
        assert self._task is not None, "reset before the first step"
        return self._task

    def _running(self) -> Browsing:
        if self._browsing is None:
            raise EnvError("no episode is running: call reset(task) first")
        return self._browsing


def require_all(options: ArenaOptions) -> None:
    """Raise EnvError with everything that is missing here and how to get it."""
    missing, remedies = list[str](), list[str]()
    try:
        data_folder(options.python)
    except EnvError:
        missing.append(f"the package {PACKAGE}")
        remedies.append(f"package: {PACKAGE_REMEDY}")
    if not any(site in options.addresses for site in SITES):
        missing.append("the addresses of its sites")
        remedies.append(
            "addresses: host WebArena's sites, then env.options.shopping=http://HOST:7770 and so "
            f"on for {', '.join(SITES[1:])}"
        )
    if find_browser() is None:
        missing.append("a browser")
        remedies.append(f"browser: {BROWSER_REMEDY}")
    if not missing:
        return
    if options.version == "verified" or not options.judge_url:
        remedies.append(
            "judge: only for 118 tasks of env.options.version=original, which are left out "
            "without env.options.judge_url and judge_model"
        )
    raise EnvError(f"webarena needs {' and '.join(missing)}; {'; '.join(remedies)}")


async def _cookies(session: BrowserSession) -> Sequence[Mapping[str, object]]:
    return [dict(one) for one in await session.tab.page.context.cookies()]


async def _entries(session: BrowserSession) -> Sequence[Entry]:
    assert session.recorder is not None, "the verified version records"
    return await session.recorder.entries()


@cache
def _variant(cls: type[WebArena], options: ArenaOptions) -> type[WebArena]:
    """Return the class of other options, the same for the same."""
    if options == cls.options:
        return cls
    told, splits = "", ("train", "test") if options.tasks == "paper" else ("test",)
    try:
        choice = choose_tasks(options)
    except EnvError:
        pass  # the package is missing, which making an object reports
    else:
        told = choice.told()
        splits = tuple(split for split in splits if choice.splits[split])
        if told:
            logger.warning("webarena: %s", told)
    success = f"the evaluators of the task accept the episode ({options.version} version"
    spec = replace(
        cls.spec,
        instructions=texts.instructions(options.version),
        splits=splits or ("test",),
        success=f"{success}; {told})" if told else f"{success})",
    )
    return type(cls.__name__, (cls,), {"spec": spec, "options": options})
