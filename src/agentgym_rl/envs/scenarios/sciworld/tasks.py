"""The 30 tasks of ScienceWorld, their variations, and the index of each.

Indices 0 to 4638 are AgentGym's (`data_idx`): the variations of 23 tasks, in the order of task ids.
The 7 tasks that AgentGym leaves out follow in the same order. The counts are those of the simulator
(scienceworld 1.2.3) and stand here so that tasks can be listed without Java; a test compares them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cache

from agentgym_rl.types import Task

ENV_NAME = "sciworld"
SPLITS = ("train", "dev", "test")
CATEGORIES = ("Measure", "Test-conductivity", "Find", "Chem-Mix", "Lifespan", "Other")


@dataclass(frozen=True, slots=True)
class Topic:
    """One of the 30 tasks: a family of problems that differ in objects and rooms.

    Example: Topic("1-2", "melt", num_variations=30, category="Other", start=30)
    """

    id: str
    """ScienceWorld's number of the task."""
    name: str
    num_variations: int
    category: str
    start: int
    """The index of variation 0."""

    def variations(self, split: str) -> range:
        """Return the variations of a split: the first half, the next quarter, the rest."""
        quarter = self.num_variations // 4
        return {
            "train": range(2 * quarter),
            "dev": range(2 * quarter, 3 * quarter),
            "test": range(3 * quarter, self.num_variations),
        }[split]


@dataclass(frozen=True, slots=True)
class Variation:
    """One problem, e.g. Variation(topic=<melt>, number=3)."""

    topic: Topic
    number: int


# id, name, number of variations, category. The paper reports five categories without saying which
# tasks are in them; here each is the ScienceWorld topic that its name points to.
_TABLE = (
    ("1-1", "boil", 30, "Other"),
    ("1-2", "melt", 30, "Other"),
    ("1-3", "freeze", 30, "Other"),
    ("1-4", "change-the-state-of-matter-of", 30, "Other"),
    ("2-1", "use-thermometer", 540, "Measure"),
    ("2-2", "measure-melting-point-known-substance", 436, "Measure"),
    ("2-3", "measure-melting-point-unknown-substance", 300, "Measure"),
    ("3-1", "power-component", 20, "Other"),
    ("3-2", "power-component-renewable-vs-nonrenewable-energy", 20, "Other"),
    ("3-3", "test-conductivity", 900, "Test-conductivity"),
    ("3-4", "test-conductivity-of-unknown-substances", 600, "Test-conductivity"),
    ("4-1", "find-living-thing", 300, "Find"),
    ("4-2", "find-non-living-thing", 300, "Find"),
    ("4-3", "find-plant", 300, "Find"),
    ("4-4", "find-animal", 300, "Find"),
    ("6-1", "chemistry-mix", 32, "Chem-Mix"),
    ("6-2", "chemistry-mix-paint-secondary-color", 36, "Chem-Mix"),
    ("6-3", "chemistry-mix-paint-tertiary-color", 36, "Chem-Mix"),
    ("7-1", "lifespan-longest-lived", 125, "Lifespan"),
    ("7-2", "lifespan-shortest-lived", 125, "Lifespan"),
    ("7-3", "lifespan-longest-lived-then-shortest-lived", 125, "Lifespan"),
    ("8-1", "identify-life-stages-1", 14, "Other"),
    ("8-2", "identify-life-stages-2", 10, "Other"),
    # What AgentGym leaves out.
    ("5-1", "grow-plant", 126, "Other"),
    ("5-2", "grow-fruit", 126, "Other"),
    ("9-1", "inclined-plane-determine-angle", 168, "Other"),
    ("9-2", "inclined-plane-friction-named-surfaces", 1386, "Other"),
    ("9-3", "inclined-plane-friction-unnamed-surfaces", 162, "Other"),
    ("10-1", "mendelian-genetics-known-plant", 120, "Other"),
    ("10-2", "mendelian-genetics-unknown-plant", 480, "Other"),
)


def _topics() -> tuple[Topic, ...]:
    topics: list[Topic] = []
    start = 0
    for id_, name, num_variations, category in _TABLE:
        topics.append(Topic(id_, name, num_variations, category, start))
        start += num_variations
    return tuple(topics)


TOPICS = _topics()
"""In the order of indices."""

NUM_TASKS = TOPICS[-1].start + TOPICS[-1].num_variations


def variation_of(index: int) -> Variation:
    """Return the problem with this index. Raises ValueError where there is none."""
    if not 0 <= index < NUM_TASKS:
        raise ValueError(f"sciworld has tasks 0 to {NUM_TASKS - 1}, not {index}")
    topic = TOPICS[bisect_right(TOPICS, index, key=lambda topic: topic.start) - 1]
    return Variation(topic, index - topic.start)


@cache
def tasks_of(split: str) -> tuple[Task, ...]:
    if split not in SPLITS:
        raise ValueError(f"sciworld has no split {split!r}; it has {', '.join(SPLITS)}")
    return tuple(
        Task(ENV_NAME, split, topic.start + number, category=topic.category, level=topic.name)
        for topic in TOPICS
        for number in topic.variations(split)
    )
