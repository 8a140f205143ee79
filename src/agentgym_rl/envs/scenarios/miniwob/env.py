"""MiniWoB++: small tasks on web pages, in a real browser (class `MiniWoB`).

The driver is browser/; pages and tasks are in pages.py, experts in experts.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agentgym_rl.browser.browsing import Browsing, Layout, Seen
from agentgym_rl.browser.executable import require_browser
from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.session import BrowserOptions
from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.miniwob.experts import advise
from agentgym_rl.envs.scenarios.miniwob.pages import (
    CATEGORIES,
    ENV_NAME,
    SEEDS_PER_PAGE,
    SPLIT_SEEDS,
    page_of,
    pages_folder,
    tasks_of,
)
from agentgym_rl.envs.scenarios.miniwob.scene import Scene
from agentgym_rl.envs.scenarios.miniwob.spares import Spares
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task

_WIDTH, _HEIGHT = 500, 320
"""Of the window; the task is in its corner, and dialogs come into its middle."""
_NOW = 1_700_000_000.0
"""Some pages show dates around the present one."""

_START = """
seed => {
    core.EPISODE_MAX_TIME = 1e9;
    Math.seedrandom(seed);
    if (globalThis.jQuery) jQuery.fx.off = true;
    core.startEpisodeReal();
    core.clearTimer();
    for (const id of ["reward-display", "query", "click-canvas"]) {
        const part = document.getElementById(id);
        if (part) part.style.visibility = "hidden";
    }
    const said = core.getUtterance();
    return said.utterance || said;
}
"""
_SPARES = Spares()
_VERBS = ("click", "hover", "type", "select_option", "press", "scroll", "stop")
"""Those of a page; with tabs and addresses an agent could only lose its task."""
_OUTCOME = """typeof WOB_DONE_GLOBAL === "undefined"
    ? [false, 0] : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL]"""
"""A page that is loading again, or that was left, has no outcome yet."""

_INSTRUCTIONS = """\
You see a small web page as text. What you can act on has a number in brackets. Your actions:
click [number]
type [number] [text]   (replaces what the field holds, then presses Enter)
type [number] [text] [0]   (the same without Enter)
select_option [number] [option]
press [key]   (e.g. press [ArrowDown], press [Control+a])
hover [number]
scroll [down] or scroll [up]
The task ends as soon as the page takes your answer, right or wrong.

An example of a whole task. You see:
Your goal: Enter "Ann" into the text field and press Submit.
[1] textbox
[2] button Submit
Your first action: type [1] [Ann] [0]
You see:
[1] textbox: Ann (focused)
[2] button Submit
Your next action: click [2]
You see: The task is completed."""


class MiniWoB(Environment):
    """Small tasks on web pages: buttons, lists, forms, tables, mails.

    The reward is the page's own, without its discount over time: 1 for a solved task, a share for
    some that are solved in part, 0 for a wrong answer.
    """

    spec = EnvSpec(
        name=ENV_NAME,
        summary="Small tasks on web pages in a real browser (MiniWoB++)",
        instructions=_INSTRUCTIONS,
        example_action="click [2]",
        splits=tuple(SPLIT_SEEDS),
        categories=tuple(CATEGORIES),
        max_rounds=12,
        success="the page gives its full reward",
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
        self._layout = Layout(layout, max_chars=max_chars, has_address=False)
        self._browsing: Browsing | None = None
        self._goal = ""
        self._page = ""
        self._seen = Seen("", "")
        self._done: list[str] = []

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        pages_folder()
        return tasks_of(split)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        page = page_of(task.index)
        if task.level not in ("", page):
            raise ValueError(f"miniwob task {task.index} is {page!r}, not {task.level!r}")
        if task.payload:
            raise ValueError("miniwob tasks have no payload")
        return self.start(page, task.index % SEEDS_PER_PAGE)

    def start(self, page: str, seed: int) -> str:
        """Begin a page with a seed and return the first observation."""
        self.close()
        root = pages_folder().as_uri() + "/"
        options = BrowserOptions(
            Origins((root,)), width=_WIDTH, height=_HEIGHT, now=_NOW, verbs=_VERBS
        )
        self._page = page
        self._done.clear()
        self._browsing = _SPARES.open(f"{root}miniwob/{page}.html", options, self._layout)
        utterance = self._browsing.evaluate(_START, str(seed))
        self._goal = " ".join(str(utterance).split())
        self._seen = self._browsing.look()
        return f"Your goal: {self._goal}\n{self._seen.text}"

    def step(self, action: str) -> StepResult:
        browsing = self._running()
        self._seen = browsing.do(action)
        self._done.append(action)
        if self._seen.answer is not None:
            return StepResult("You stopped before the task was done.", terminated=True)
        is_done, reward = cast(tuple[bool, float], browsing.evaluate(_OUTCOME))
        if not is_done:
            return StepResult(self._seen.text, valid_action=self._seen.valid)
        text = "The task is completed." if reward >= 1 else "The task has failed."
        return StepResult(text, min(1.0, max(0.0, reward)), terminated=True, success=reward >= 1)

    def expert_action(self) -> str | None:
        browsing = self._running()
        return advise(self._page, Scene(self._goal, self._seen.text, browsing.elements, self._done))

    def details(self) -> Mapping[str, JsonValue]:
        if self._browsing is None:
            return {}
        return {"page": self._page, "goal": self._goal, "acted_on": self._browsing.acted_on}

    def render(self) -> bytes | None:
        """Return the window."""
        return self._browsing.picture() if self._browsing else None

    def close(self) -> None:
        if self._browsing is not None:
            _SPARES.give_back(self._browsing)
        self._browsing = None

    def _running(self) -> Browsing:
        if self._browsing is None:
            raise EnvError("no episode is running: call reset(task) first")
        return self._browsing
