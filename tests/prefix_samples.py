"""Samples that begin alike: random trees of them, and groups whose episodes share a prompt."""

from __future__ import annotations

import random
from dataclasses import replace

from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.types import Episode, Group, Sample, Segment
from episode_groups import make_groups

VOCAB_SIZE = 96


def sample_of(ids: list[int], mask: list[int]) -> Sample:
    zeros = (0.0,) * len(ids)
    engine = tuple(-3.0 * masked for masked in mask)
    return Sample(tuple(ids), tuple(mask), engine, zeros, segments=(), version=0)


def random_tree(seed: int, *, num: int = 8) -> list[Sample]:
    """Return samples that leave one another at any place, with action tokens anywhere.

    Some are equal, some the beginning of another, and some have nothing in common.
    """
    rng = random.Random(seed)
    sequences = [[rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 60))]]
    while len(sequences) < num:
        known = rng.choice(sequences)
        num_shared, num_own = rng.randint(0, len(known)), rng.randint(0, 30)
        if num_shared + num_own:
            own = [rng.randrange(VOCAB_SIZE) for _ in range(num_own)]
            sequences.append(known[:num_shared] + own)
    masks = [[0, *(int(rng.random() < 0.5) for _ in ids[1:])] for ids in sequences]
    return [sample_of(ids, mask) for ids, mask in zip(sequences, masks, strict=True)]


def random_items(seed: int) -> list[TrainingSample]:
    """Return a random tree with an advantage of its own for each action token."""
    rng = random.Random(seed)
    samples = [sample for sample in random_tree(seed) if sample.num_action_tokens]
    return [
        TrainingSample(sample, tuple(rng.uniform(-2, 2) for _ in range(sample.num_action_tokens)))
        for sample in samples
    ]


def prompted_groups(*, num_last: int = 2) -> list[Group]:
    """Return groups of random episodes after long prompts, which all begin alike.

    In the first group two episodes made the same moves, with other rewards, and one forked: its
    second sample repeats its first up to another last token. The last group has `num_last`.
    """
    groups = [_after(group, _prompt(number, 32)) for number, group in enumerate(make_groups())]
    first = list(groups[0].episodes)
    moves = first[3].samples[0]
    zeros, logprobs = tuple(0.0 for _ in moves.rewards), tuple(2 * lp for lp in moves.logprobs)
    twin = replace(moves, logprobs=logprobs, rewards=zeros)
    first[2] = replace(first[3], sample_index=2, reward=0.0, samples=(twin,))
    first[1] = _forked(first[1])
    last = replace(groups[2], episodes=groups[2].episodes[:num_last])
    return [replace(groups[0], episodes=tuple(first)), groups[1], last]


def _prompt(number: int, length: int) -> list[int]:
    """Two thirds are the same for every group: instructions."""
    rng = random.Random(0)
    instructions = [rng.randrange(400) for _ in range(length * 2 // 3)]
    rng = random.Random(1 + number)
    return instructions + [rng.randrange(400) for _ in range(length - len(instructions))]


def _after(group: Group, prompt: list[int]) -> Group:
    return replace(group, episodes=tuple(_with_prompt(one, prompt) for one in group.episodes))


def _with_prompt(episode: Episode, prompt: list[int]) -> Episode:
    (sample,) = episode.samples
    num = len(prompt)
    first, *others = sample.segments
    moved = [Segment(s.kind, s.start + num, s.end + num, s.round_index) for s in others]
    longer = replace(
        sample,
        token_ids=(*prompt, *sample.token_ids),
        loss_mask=(*(0 for _ in prompt), *sample.loss_mask),
        logprobs=(*(0.0 for _ in prompt), *sample.logprobs),
        rewards=(*(0.0 for _ in prompt), *sample.rewards),
        segments=(replace(first, end=first.end + num), *moved),
    )
    return replace(episode, samples=(longer,))


def _forked(episode: Episode) -> Episode:
    """Return the episode with a second sample that leaves the first one within its last reply."""
    (sample,) = episode.samples
    num_before = len(sample.token_ids) - 1
    zeros = (0.0,) * num_before
    fork = replace(
        sample,
        token_ids=(*sample.token_ids[:-1], (sample.token_ids[-1] + 1) % 400),
        loss_mask=(*(0 for _ in zeros), 1),
        logprobs=(*zeros, -1.5),
        rewards=(*zeros, 0.5),
    )
    return replace(episode, reward=sum(sample.rewards) + 0.5, samples=(sample, fork))
