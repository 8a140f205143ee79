"""What the parts of a run do at which time: the discrete-event model of `agentgym bench scale`.

Engines share their speed among the replies under way; environments answer after a time; one
controller handles a round after another; the learner updates; engines take weights. Which groups
are under way and which a step learns from is decided as in `training/collect`: synchronous, groups
that carry over, and groups that are collected during updates are the same rules with other numbers.

Nothing fails, and evaluations and checkpoints take no time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

WAYS = ("synchronous", "carried", "1", "2")
"""Wait for all groups; carry groups over with staleness 1; overlap with that staleness."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """What one episode asks of the parts; lists have an entry per round."""

    work: Sequence[float]
    """Of a reply: the tokens that an engine could sample in its time, prompt included."""
    again: Sequence[float]
    """The same where the engine has new weights since the round before, and reads all again."""
    sampled: Sequence[int]
    """Tokens of a reply."""
    waits_s: Sequence[float]
    """What the environment takes after a reply."""
    num_tokens: int
    """That the learner learns from."""
    start_s: float = 0.0
    """Before the first reply is asked for."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast the parts are."""

    token_s: float
    """Of one unit of work by an engine, and `token_s_each` more for each reply under way."""
    token_s_each: float = 0.0
    update_s: float = 0.0
    """Of an update, however many GPUs."""
    learner_token_s: float = 0.0
    """Of one GPU per token; no GPU has less than its longest sequence."""
    publish_s: float = 0.0
    """Until all engines have weights that take them together, or until one has."""
    takes_turns: bool = True
    """Whether engines that sample meanwhile take weights one after another."""
    waits_for_replies: bool = True
    """Whether they take them between replies, as ours do; otherwise at any token."""
    rest_s: float = 0.0
    """From a publication to the next step."""
    controller_s: float = 0.0
    """Of the event loop per round."""
    env_slowness: float = 1.0
    """What the environments' seconds are multiplied by."""


@dataclass(frozen=True, slots=True)
class Job:
    """The steps of a run."""

    way: str
    steps: int
    groups: int
    """Of a step."""
    engines: int = 1
    learners: int = 1
    """GPUs, or groups of them, that share an update."""
    updates: int = 1
    """Of a step; each has its share of the groups."""
    max_concurrency: int = 1_000_000

    @property
    def max_staleness(self) -> int:
        return int(self.way) if self.overlaps else int(self.way == "carried")

    @property
    def overlaps(self) -> bool:
        return self.way.isdigit()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the steps of a run; shares are of its seconds."""

    step_s: float
    waited_s: float
    """For episodes."""
    engines: float
    """The share of the time in which an engine has a reply under way."""
    in_flight: float
    """Replies under way on an engine, the mean."""
    most_in_flight: int
    learner: float
    controller: float
    env_calls: float
    """Calls of environments under way."""
    staleness_mean: float
    staleness_max: int
    num_rounds: int
    steps_s: tuple[float, ...] = field(repr=False, default=())


@dataclass(slots=True, eq=False)
class _Group:
    number: int
    step: int
    """In which it began."""
    episodes: Sequence[EpisodePlan]
    left: int
    """Episodes that are not over."""
    num_sampled: int = 0
    version_tokens: int = 0
    """The sum of the versions of all sampled tokens."""
    oldest: int = 1 << 60


@dataclass(slots=True, eq=False)
class _Episode:
    plan: EpisodePlan
    group: _Group
    engine: _Engine | None = None
    round: int = 0
    version: int = 0


@dataclass(slots=True, eq=False)
class _Engine:
    number: int
    version: int = 0
    num_sessions: int = 0
    done: float = 0.0
    """Work done so far on each reply that has been under way all the time."""
    seen_at: float = 0.0
    next_at: float = math.inf
    """When the first reply ends, unless more begin."""
    replies: list[tuple[float, int, _Episode]] = field(default_factory=list)
    """Under way, by the value of `done` at which each ends."""
    is_held: bool = False
    waiting: list[_Episode] = field(default_factory=list)
    """Until it is no longer held."""
    most: int = 0
    """Replies under way at any time."""
    busy_s: float = 0.0
    reply_s: float = 0.0


class Simulation:
    """One run; `groups` gives the episodes of the group of a number, from 0."""

    def __init__(
        self, job: Job, speeds: Speeds, groups: Callable[[int], Sequence[EpisodePlan]]
    ) -> None:
        self._job, self._speeds, self._draw = job, speeds, groups
        self._now, self._order = 0.0, itertools.count()
        self._events: list[tuple[float, int, Callable[..., None], object]] = []
        self._engines = [_Engine(number) for number in range(job.engines)]
        self._least = [(0, engine.number) for engine in self._engines]
        """A heap of engines by sessions; entries may be of the past."""
        self._is_open = True
        self._gated: list[_Episode] = []
        self._num_replies = 0
        self._when_quiet: Callable[[], None] | None = None
        """What waits until no reply is under way on the engines that are held."""
        self._held: _Engine | None = None
        """The engine whose turn it is; None with `_when_quiet`: all of them."""
        self._num_playing, self._queue = 0, deque[_Episode]()
        self._controller_at = self._env_s = 0.0
        self._num_rounds = 0
        self._ahead = -(-job.groups // 4) if job.max_staleness else 0
        self._begun: list[_Group] = []
        """Not taken yet, the oldest first."""
        self._num_begun = self._num_under_way = 0
        self._step, self._is_collecting = 0, False
        self._step_at = self._collected_at = self._waited_s = self._update_s = 0.0
        self._steps_s: list[float] = []
        self._stale_tokens = self._num_learned = self._stalest = 0

    def run(self) -> Outcome:
        """Return what the run takes; it can run once."""
        self._begin_step()
        events, pop = self._events, heapq.heappop
        while events:
            self._now, _, handle, argument = pop(events)
            handle(argument)
        assert len(self._steps_s) == self._job.steps, "a step waits for nothing"
        seconds, speeds = self._now or 1.0, self._speeds
        return Outcome(
            step_s=fmean(self._steps_s),
            waited_s=self._waited_s / self._job.steps,
            engines=sum(e.busy_s for e in self._engines) / seconds / len(self._engines),
            in_flight=sum(e.reply_s for e in self._engines) / seconds / len(self._engines),
            most_in_flight=max(engine.most for engine in self._engines),
            learner=self._update_s / seconds,
            controller=self._num_rounds * speeds.controller_s / seconds,
            env_calls=self._env_s / seconds,
            staleness_mean=self._stale_tokens / max(1, self._num_learned),
            staleness_max=self._stalest,
            num_rounds=self._num_rounds,
            steps_s=tuple(self._steps_s),
        )

    def _at(self, when: float, handle: Callable[..., None], argument: object = None) -> None:
        heapq.heappush(self._events, (when, next(self._order), handle, argument))

    # Steps

    def _begin_step(self, _: object = None) -> None:
        job = self._job
        self._step, self._step_at, self._is_collecting = self._step + 1, self._now, True
        self._is_open, gated = True, self._gated
        self._gated = []
        for episode in gated:
            self._ask(episode)
        if job.overlaps:
            self._begin_more()
        else:
            self._begin_until(self._step * job.groups + self._ahead)
        self._take()

    def _begin_more(self) -> None:
        job = self._job
        most = (self._step + job.max_staleness) * job.groups
        room = job.groups + job.max_staleness * self._ahead - self._num_under_way
        self._begin_until(min(most, self._num_begun + room))

    def _begin_until(self, num_begun: int) -> None:
        """Begin groups until this many of the run's have begun."""
        for number in range(self._num_begun, min(num_begun, self._job.steps * self._job.groups)):
            plans = self._draw(number)
            group = _Group(number, self._step, plans, len(plans))
            self._num_begun, self._num_under_way = number + 1, self._num_under_way + 1
            self._begun.append(group)
            self._queue += [_Episode(plan, group) for plan in plans]
        self._fill_places()

    def _take(self) -> None:
        """End the collection of the step if there are enough groups; the oldest are taken."""
        num_groups = self._job.groups
        if not self._is_collecting or len(self._begun) - self._num_under_way < num_groups:
            return
        groups = [group for group in self._begun if not group.left][:num_groups]
        taken = set(groups)
        left = [group for group in self._begun if group not in taken]
        if not self._is_in_time(left):
            return
        self._begun, self._is_collecting = left, False
        self._is_open = self._job.overlaps
        if self._job.overlaps or not self._num_replies:
            self._update(groups)
        else:
            self._when_quiet = lambda: self._update(groups)

    def _is_in_time(self, left: Sequence[_Group]) -> bool:
        """Return whether the steps after this one can take all groups before they are too old."""
        latest, num_groups = self._step - self._job.max_staleness, self._job.groups
        return all(
            sum(group.step <= latest + later for group in left) <= later * num_groups
            for later in range(self._job.max_staleness)
        )

    def _update(self, groups: Sequence[_Group]) -> None:
        self._waited_s += self._now - self._step_at
        for group in groups:
            self._num_learned += group.num_sampled
            self._stale_tokens += (self._step - 1) * group.num_sampled - group.version_tokens
            self._stalest = max(self._stalest, self._step - 1 - group.oldest)
        seconds = update_seconds(groups, self._job, self._speeds)
        self._update_s += seconds
        self._at(self._now + seconds, self._publish)

    def _publish(self, _: object) -> None:
        if not (self._job.overlaps and self._speeds.waits_for_replies):
            self._at(self._now + self._speeds.publish_s, self._published)
        elif self._speeds.takes_turns:
            self._turn(self._engines[0])
        else:
            for engine in self._engines:
                engine.is_held = True
            self._wait_for_quiet(None, self._num_replies, self._published)

    def _turn(self, engine: _Engine) -> None:
        engine.is_held = True
        self._wait_for_quiet(engine, len(engine.replies), self._taken)

    def _wait_for_quiet(
        self, engine: _Engine | None, num_replies: int, then: Callable[..., None]
    ) -> None:
        """Give weights when these replies have ended."""

        def give() -> None:
            self._at(self._now + self._speeds.publish_s, then, engine)

        if num_replies:
            self._held, self._when_quiet = engine, give
        else:
            give()

    def _taken(self, engine: _Engine) -> None:
        self._release(engine)
        if engine.number + 1 < len(self._engines):
            self._turn(self._engines[engine.number + 1])
        else:
            self._at(self._now + self._speeds.rest_s, self._end_step)

    def _published(self, _: object) -> None:
        for engine in self._engines:
            self._release(engine)
        self._at(self._now + self._speeds.rest_s, self._end_step)

    def _release(self, engine: _Engine) -> None:
        engine.version, engine.is_held = self._step, False
        waiting, engine.waiting = engine.waiting, []
        for episode in waiting:
            self._begin_reply(engine, episode)

    def _end_step(self, _: object) -> None:
        self._steps_s.append(self._now - self._step_at)
        if self._step < self._job.steps:
            self._begin_step()

    # Episodes

    def _fill_places(self) -> None:
        while self._queue and self._num_playing < self._job.max_concurrency:
            episode = self._queue.popleft()
            self._num_playing += 1
            self._at(self._now + episode.plan.start_s, self._ask, episode)

    def _ask(self, episode: _Episode) -> None:
        if not self._is_open:
            self._gated.append(episode)
            return
        engine = episode.engine
        if engine is None:
            engine = episode.engine = self._least_loaded()
        if engine.is_held:
            engine.waiting.append(episode)
        else:
            self._begin_reply(engine, episode)

    def _least_loaded(self) -> _Engine:
        """Return the engine with the fewest sessions, with one more."""
        while True:
            num_sessions, number = self._least[0]
            engine = self._engines[number]
            if engine.num_sessions == num_sessions:
                break
            heapq.heapreplace(self._least, (engine.num_sessions, number))
        engine.num_sessions += 1
        heapq.heapreplace(self._least, (engine.num_sessions, number))
        return engine

    def _begin_reply(self, engine: _Engine, episode: _Episode) -> None:
        plan, number = episode.plan, episode.round
        work = plan.work[number]
        if episode.version != engine.version:
            work = plan.again[number] if number else work
            episode.version = engine.version
        self._advance(engine)
        self._num_replies += 1
        heapq.heappush(engine.replies, (engine.done + work, next(self._order), episode))
        engine.most = max(engine.most, len(engine.replies))
        self._schedule(engine)

    def _advance(self, engine: _Engine) -> None:
        """Bring what an engine has done up to the present."""
        number, passed_s = len(engine.replies), self._now - engine.seen_at
        if number and passed_s:
            speeds = self._speeds
            engine.done += passed_s / (speeds.token_s + speeds.token_s_each * number)
            engine.busy_s += passed_s
            engine.reply_s += passed_s * number
        engine.seen_at = self._now

    def _schedule(self, engine: _Engine) -> None:
        replies, speeds = engine.replies, self._speeds
        if not replies:
            return
        token_s = speeds.token_s + speeds.token_s_each * len(replies)
        when = self._now + max(0.0, replies[0][0] - engine.done) * token_s
        if when < engine.next_at:
            engine.next_at = when
            self._at(when, self._end_replies, engine)

    def _end_replies(self, engine: _Engine) -> None:
        if self._now != engine.next_at:
            return  # another event has come before this one
        engine.next_at = math.inf
        self._advance(engine)
        replies, limit = engine.replies, engine.done + _ROUNDING * max(1.0, engine.done)
        while replies and replies[0][0] <= limit:
            self._end_reply(engine, heapq.heappop(replies)[2])
        self._schedule(engine)

    def _end_reply(self, engine: _Engine, episode: _Episode) -> None:
        plan, number, group, speeds = episode.plan, episode.round, episode.group, self._speeds
        sampled = plan.sampled[number]
        group.num_sampled += sampled
        group.version_tokens += sampled * engine.version
        group.oldest = min(group.oldest, engine.version)
        self._controller_at = max(self._now, self._controller_at) + speeds.controller_s
        wait_s = plan.waits_s[number] * speeds.env_slowness
        self._env_s += wait_s
        self._num_rounds += 1
        self._at(self._controller_at + wait_s, self._end_round, episode)
        self._num_replies -= 1
        if self._when_quiet is not None and not (
            self._num_replies if self._held is None else len(self._held.replies)
        ):
            then, self._when_quiet, self._held = self._when_quiet, None, None
            then()

    def _end_round(self, episode: _Episode) -> None:
        episode.round += 1
        if episode.round < len(episode.plan.work):
            self._ask(episode)
            return
        if episode.engine is not None:
            engine = episode.engine
            engine.num_sessions -= 1
            heapq.heappush(self._least, (engine.num_sessions, engine.number))
        self._num_playing -= 1
        self._fill_places()
        episode.group.left -= 1
        if not episode.group.left:
            self._num_under_way -= 1
            if self._job.overlaps:
                self._begin_more()
            self._take()


def update_seconds(groups: Sequence[_Group], job: Job, speeds: Speeds) -> float:
    """Return what the updates of a step take: a sequence is learned by one GPU."""
    seconds, num_parts = 0.0, max(1, min(job.updates, len(groups)))
    for part in range(num_parts):
        start, end = len(groups) * part // num_parts, len(groups) * (part + 1) // num_parts
        lengths = [plan.num_tokens for group in groups[start:end] for plan in group.episodes]
        share = max(sum(lengths) / job.learners, max(lengths, default=0))
        seconds += speeds.update_s / num_parts + share * speeds.learner_token_s
    return seconds
