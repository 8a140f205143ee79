"""Groups of episodes of random tokens, for tests of the learner."""

from __future__ import annotations

import random

from agentgym_rl.training.collect.carry_over import CarryOverCollector
from agentgym_rl.types import Episode, Group, Round, Sample, Segment, SegmentKind, StopReason, Task


def make_episode(index: int, *, num_rounds: int, stop_reason: StopReason) -> Episode:
    """An episode of random tokens; equal observations occur in several."""
    rng = random.Random(index)
    ids, mask, logprobs, rewards = [7] * 5, [0] * 5, [0.0] * 5, [0.0] * 5
    segments, rounds = [Segment(SegmentKind.PROMPT, 0, 5, 0)], list[Round]()
    for number in range(num_rounds):
        length, reward = rng.randint(1, 5), rng.choice([0.0, 0.5, 1.0])
        start = len(ids)
        ids += [rng.randrange(400) for _ in range(length)]
        mask += [1] * length
        logprobs += [-6.0 * rng.random() for _ in range(length)]
        rewards += [*(0.0 for _ in range(length - 1)), reward]
        segments.append(Segment(SegmentKind.ACTION, start, len(ids), number))
        rounds.append(Round("", "", rng.choice(["wall", "door"]), reward, valid_action=True))
        if number + 1 < num_rounds:
            size, start = rng.randint(1, 4), len(ids)
            ids += [rng.randrange(400) for _ in range(size)]
            mask += [0] * size
            logprobs += [0.0] * size
            rewards += [0.0] * size
            segments.append(Segment(SegmentKind.OBSERVATION, start, len(ids), number))
    sample = Sample(*map(tuple, (ids, mask, logprobs, rewards, segments)), version=0)
    return Episode(
        Task("counting", "train", index // 4),
        index % 4,
        stop_reason,
        sum(rewards),
        False,
        tuple(rounds),
        (),
        (sample,),
        0.0,
    )


def make_groups() -> list[Group]:
    """Three groups of four episodes with 1 to 4 rounds, a third of them cut by the horizon."""
    reasons = (StopReason.SUCCESS, StopReason.TERMINATED, StopReason.MAX_ROUNDS)
    episodes = [
        make_episode(index, num_rounds=1 + index % 4, stop_reason=reasons[index % 3])
        for index in range(12)
    ]
    return [Group(episodes[first].task, tuple(episodes[first : first + 4])) for first in (0, 4, 8)]


def carried_places(collector: CarryOverCollector) -> list[tuple[int, int]]:
    """Return the groups that have begun and belong to no step yet: their steps and places."""
    carried = collector.state().get("carried", [])
    assert isinstance(carried, list)
    return [(step, place) for step, place, _ in carried]
