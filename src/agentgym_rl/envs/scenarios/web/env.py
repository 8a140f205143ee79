"""Web sites to work in, offline, in a real browser (class `WebEnvironment`).

An episode is one context of the shared browser and one episode on each of the task's sites
(site_process.py), with databases of its own. Tasks are in templates.py and tasks/.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence

from agentgym_rl.browser.browsing import Browsing, Layout, Seen
from agentgym_rl.browser.executable import require_browser
from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.session import BrowserOptions
from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.web.hindsight import Taken, retell
from agentgym_rl.envs.scenarios.web.page import LostError, Page, Script
from agentgym_rl.envs.scenarios.web.projects import NOW, PROJECTS, SITES, is_built
from agentgym_rl.envs.scenarios.web.site_process import (
    KEY_HEADER,
    Row,
    SiteEpisode,
    Value,
    shared_process,
)
from agentgym_rl.envs.scenarios.web.table import CATEGORIES, ENV_NAME, SPLITS, Entry, find, tasks_of
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task

_INSTRUCTIONS = """\
You work in a web browser, on real web sites. You see the page as text; what you can act on has a \
number in brackets. Only what is on the screen is shown. Your actions:
click [number]
type [number] [text]   (replaces what the field holds, then presses Enter)
type [number] [text] [0]   (the same without Enter)
select_option [number] [option]
press [key]   (e.g. press [Escape])
hover [number]
scroll [down] or scroll [up]
goto [url]
go_back, go_forward, new_tab, tab_focus [number], close_tab
stop [answer]   (ends the task: give the answer, or [done] where none is asked for)
An answer is only the value that is asked for, such as a name, a number or a price.

An example. You see:
Your task: What does the blue mug cost?
Mugs (http://shop.test/mugs/)
[1] link Home
[2] link Blue mug
Your first action: click [2]
You see:
Blue mug (http://shop.test/mugs/blue/)
# Blue mug
£7.50
[3] button Add to basket
Your next action: stop [£7.50]"""


class WebEnvironment(Environment):
    """Questions and errands on web sites: a shop and its back office, and others.

    The reward is 1 when the task is solved at `stop`, by the answer or by what is in the site's
    database then, and 0 otherwise.
    """

    spec = EnvSpec(
        name=ENV_NAME,
        summary="Questions and errands on web sites, in a real browser, offline",
        instructions=_INSTRUCTIONS,
        example_action="click [2]",
        splits=SPLITS,
        categories=CATEGORIES,
        max_rounds=30,
        success="the answer is right, or the site's data are as the task asked",
        keeps_pictures=True,
    )

    def __init__(self, *, layout: str = "compact", max_chars: int = 4000) -> None:
        """Create an environment without an episode.

        Args:
            layout: How pages are written: "compact", or "webarena" as in that benchmark.
            max_chars: Of one observation; scrolling shows the rest.
        """
        if layout not in ("compact", "webarena"):
            raise ValueError(f"layout must be compact or webarena, got {layout!r}")
        require_browser()
        self._layout = Layout(layout, max_chars=max_chars)
        self._entry: Entry | None = None
        self._browsing: Browsing | None = None
        self._episodes: dict[str, SiteEpisode] = {}
        self._seen = Seen("", "")
        self._page = Page()
        self._expert: Script | None = None
        self._taken: list[Taken] = []
        """What the expert has done in this episode."""
        self._advice: str | None = None

    @classmethod
    def is_prepared(cls) -> bool:
        return all(map(is_built, PROJECTS))

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        return tasks_of(split)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        entry = find(task.index)
        if task.split != entry.task.split or task.level not in ("", entry.task.level):
            raise ValueError(f"web task {task.index} is {entry.task}, not {task}")
        if task.payload:
            raise ValueError("web tasks have no payload")
        return self.start(entry)

    def start(self, entry: Entry) -> str:
        """Begin a task and return the first observation."""
        self.close()
        self._entry = entry
        sites = [SITES[name] for name in entry.template.sites]
        key = secrets.token_urlsafe(16)
        cookies = list[dict[str, object]]()
        for project in dict.fromkeys(site.project for site in sites):
            here = [site for site in sites if site.project == project]
            users = {entry.case.users[site.name] for site in here if site.name in entry.case.users}
            episode = shared_process(project).create(key, next(iter(users), None))
            self._episodes[project] = episode
            cookies += [
                dict[str, object](name=name, value=value, url=site.origin)
                for site in here
                for name, value in episode.cookies.items()
            ]
        options = BrowserOptions(
            Origins(tuple(site.origin for site in sites)),
            Names(
                tuple((site.host, shared_process(site.project).address) for site in SITES.values())
            ),
            headers=((KEY_HEADER, key),),
            now=NOW.timestamp(),
            cookies=tuple(cookies),
        )
        self._browsing = Browsing(options, self._layout)
        self._take(self._browsing.open(sites[0].origin + entry.case.path))
        case = entry.case
        self._page.begin(case.objective, [case.answer, *map(str, case.values.values())])
        self._expert, self._advice = entry.template.expert(entry.case, self._page), None
        self._taken.clear()
        return f"Your task: {entry.case.objective}\n{self._seen.text}"

    def step(self, action: str) -> StepResult:
        browsing, entry = self._running()
        if action != self._advice:
            self._expert = None  # the agent went its own way
        self._advice = None
        seen = browsing.do(action)
        for project, episode in self._episodes.items():
            shared_process(project).require(episode)
        if seen.answer is None:
            self._take(seen)
            return StepResult(seen.text, valid_action=seen.valid)
        is_solved = entry.template.check(entry.case, Outcome(seen.answer, seen.url, self._query))
        told = "The task is done." if is_solved else "The task is not done."
        return StepResult(told, float(is_solved), terminated=True, success=is_solved)

    def expert_action(self) -> str | None:
        """Return the next action of the expert; None after an action that was not its own."""
        if self._advice is None and self._expert is not None:
            with contextlib.suppress(LostError):
                self._page.begin_step()
                self._advice = next(self._expert, None)
                if self._advice is not None:
                    self._taken.append(self._page.taken(self._advice))
        return self._advice

    def expert_thought(self) -> str | None:
        """Return why the expert does so, from the objective and the page."""
        return (self._taken[-1].thought or None) if self._advice is not None else None

    def expert_hindsight(self) -> Sequence[str]:
        """Return why the expert did all this, each link taken for what lay behind it."""
        return retell(self._taken)

    def follow(self, case: Case) -> None:
        """Let the expert of another case of this template act from now on: for near misses."""
        _, entry = self._running()
        self._expert, self._advice = entry.template.expert(case, self._page), None

    def details(self) -> Mapping[str, JsonValue]:
        if self._entry is None:
            return {}
        entry = self._entry
        return {
            "template": entry.template.name,
            "objective": entry.case.objective,
            "url": self._seen.url,
            "acted_on": self._browsing.acted_on if self._browsing else None,
        }

    def render(self) -> bytes | None:
        """Return the screen."""
        return self._browsing.picture() if self._browsing else None

    def close(self) -> None:
        if self._browsing is not None:
            self._browsing.close()
        self._browsing = None
        while self._episodes:
            project, episode = self._episodes.popitem()
            with contextlib.suppress(EnvError):  # the process may be gone, and the episode with it
                shared_process(project).delete(episode)

    def _take(self, seen: Seen) -> None:
        assert self._browsing is not None
        self._seen = seen
        self._page.show(seen.text, seen.url, self._browsing.elements)

    def _query(self, site: str, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        project = SITES[site].project
        return shared_process(project).query(self._episodes[project], sql, parameters)

    def _running(self) -> tuple[Browsing, Entry]:
        if self._browsing is None or self._entry is None:
            raise EnvError("no episode is running: call reset(task) first")
        return self._browsing, self._entry
