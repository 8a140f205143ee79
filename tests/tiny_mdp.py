"""A decision process small enough to enumerate, with everything that multi-round episodes have.

A reply is "left" or "right" followed by "up" or "down", or "quit" alone: 2 tokens or 1. Between two
replies there are 1 or 2 observation tokens. An episode ends when the policy quits, when the
environment says so (right, up in the first round), or after two rounds. Two first replies lead to
the same observation, with different consequences. The policy is a table of logits.

Theory is computed here from probabilities and rewards alone, without any code of the package.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from agentgym_rl.types import Episode, Round, Sample, Segment, SegmentKind, StopReason, Task

TASK = Task("mdp", "train", 0)
PROMPT, LEFT, RIGHT, QUIT, UP, DOWN, SEEN_A, SEEN_B = range(8)
ENDS_A_REPLY = frozenset({QUIT, UP, DOWN})

State = tuple[int, ...]
"""All tokens before a decision."""

FIRST_REWARDS = {(QUIT,): 0.3, (LEFT, UP): 0.2, (LEFT, DOWN): -0.1, (RIGHT, DOWN): 0.5}
FIRST_REWARDS |= {(RIGHT, UP): 1.0}
OBSERVATIONS = {(LEFT, UP): (SEEN_A,), (LEFT, DOWN): (SEEN_B, SEEN_B), (RIGHT, DOWN): (SEEN_A,)}
LAST_REWARDS = {
    (LEFT, UP): {(QUIT,): 0.0, (LEFT, UP): 1.0, (RIGHT, UP): -0.5, (RIGHT, DOWN): 0.7},
    (LEFT, DOWN): {(QUIT,): 0.4, (LEFT, UP): -1.0, (LEFT, DOWN): 2.0, (RIGHT, DOWN): 0.1},
    (RIGHT, DOWN): {(QUIT,): 0.1, (LEFT, DOWN): 0.6, (RIGHT, UP): 1.5},
}
"""By the reply of the first round and that of the second; 0 where nothing is said."""


@dataclass(frozen=True)
class Decision:
    """One sampled token."""

    state: State
    token: int
    round_index: int


@dataclass(frozen=True)
class Trajectory:
    """One possible episode."""

    decisions: tuple[Decision, ...]
    rewards: tuple[float, ...]
    """Of each round."""
    observations: tuple[tuple[int, ...], ...]
    """After each round; empty after the last, unless the horizon cut there."""
    stop_reason: StopReason
    next_state: State
    """Where the episode stands after its last round."""

    def to_go(self, round_index: int, discount: float) -> float:
        """What this round and the later ones earn."""
        later = self.rewards[round_index:]
        return sum(reward * discount**place for place, reward in enumerate(later))


def actions_in(state: State) -> tuple[int, ...]:
    return (UP, DOWN) if state[-1] in (LEFT, RIGHT) else (LEFT, RIGHT, QUIT)


class TinyMDP:
    """The process with one policy; `horizon` is 2, or 1 to cut episodes after their first round."""

    def __init__(self, *, horizon: int = 2, seed: int = 0) -> None:
        self.trajectories = tuple(_play((PROMPT,), (), (), horizon))
        states = {d.state for trajectory in self.trajectories for d in trajectory.decisions}
        self.states = sorted(states)
        self._rows = {state: row for row, state in enumerate(self.states)}
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(len(states), 3, generator=generator, dtype=torch.float64)
        self.logits.requires_grad_()

    def log_table(self) -> Tensor:
        """Log-probabilities by state and token, (states, 8); carries the gradient."""
        table = torch.full((len(self.states), 8), -torch.inf, dtype=torch.float64)
        rows = []
        for row, state in enumerate(self.states):
            tokens = list(actions_in(state))
            logprobs = self.logits[row, : len(tokens)].log_softmax(dim=0)
            rows.append(table[row].index_put((torch.tensor(tokens),), logprobs))
        return torch.stack(rows)

    @cached_property
    def table(self) -> list[list[float]]:
        return self.log_table().detach().tolist()

    def row(self, state: State) -> int:
        return self._rows[state]

    def logprob(self, decision: Decision) -> float:
        return self.table[self.row(decision.state)][decision.token]

    @cached_property
    def _probabilities(self) -> dict[Trajectory, float]:
        return {t: math.exp(sum(map(self.logprob, t.decisions))) for t in self.trajectories}

    def probability(self, trajectory: Trajectory) -> float:
        return self._probabilities[trajectory]

    def batches(self, size: int) -> Iterator[tuple[float, tuple[Trajectory, ...]]]:
        """Yield every unordered batch of independent episodes with its probability."""
        for batch in itertools.combinations_with_replacement(self.trajectories, size):
            orders = math.factorial(size)
            for count in Counter(map(id, batch)).values():
                orders //= math.factorial(count)
            yield orders * math.prod(map(self.probability, batch)), batch

    # Theory

    def true_gradient(self, *, discount: float) -> Tensor:
        """Gradient of the expected discounted return, differentiated as it stands."""
        table = self.log_table()
        total = torch.zeros((), dtype=torch.float64)
        for trajectory in self.trajectories:
            picked = [table[self.row(d.state), d.token] for d in trajectory.decisions]
            total = total + torch.stack(picked).sum().exp() * trajectory.to_go(0, discount)
        return torch.autograd.grad(total, self.logits)[0]

    def value(self, state: State, discount: float) -> float:
        """Expected return to go, seen from the round that the state is in; 0 after the end."""
        if state not in self._rows:
            return 0.0
        return sum(
            math.exp(self.table[self.row(state)][token]) * self.action_value(state, token, discount)
            for token in actions_in(state)
        )

    def action_value(self, state: State, token: int, discount: float) -> float:
        through = [
            (trajectory, d.round_index)
            for trajectory in self.trajectories
            for d in trajectory.decisions
            if (d.state, d.token) == (state, token)
        ]
        weights = [self.probability(trajectory) for trajectory, _ in through]
        returns = [trajectory.to_go(index, discount) for trajectory, index in through]
        return sum(w * r for w, r in zip(weights, returns, strict=True)) / sum(weights)

    def policy_gradient(self, *, discount: float) -> Tensor:
        """Sum over states of how often they are met, times Q differentiated by the probabilities.

        The policy gradient theorem with returns to go; with discount 1 it is the true gradient.
        """
        table = self.log_table()
        total = torch.zeros((), dtype=torch.float64)
        for row, state in enumerate(self.states):
            met = sum(
                self.probability(trajectory)
                for trajectory in self.trajectories
                if any(d.state == state for d in trajectory.decisions)
            )
            for token in actions_in(state):
                q = self.action_value(state, token, discount)
                total = total + met * q * table[row, token].exp()
        return torch.autograd.grad(total, self.logits)[0]

    def score(self, decision: Decision) -> Tensor:
        """Gradient of the log-probability of a token: one-hot minus probabilities."""
        result = torch.zeros_like(self.logits)
        tokens = actions_in(decision.state)
        for place, token in enumerate(tokens):
            probability = math.exp(self.table[self.row(decision.state)][token])
            result[self.row(decision.state), place] = (token == decision.token) - probability
        return result.detach()

    def expected_gradient(
        self, size: int, weights: Callable[[Sequence[Trajectory]], Sequence[Sequence[float]]]
    ) -> Tensor:
        """Mean over batches of the sum over tokens of weight times score; `weights` is a formula
        that gives the weight of every token of every episode of a batch."""
        sums: defaultdict[Decision, float] = defaultdict(float)
        for probability, batch in self.batches(size):
            for trajectory, own in zip(batch, weights(batch), strict=True):
                for decision, weight in zip(trajectory.decisions, own, strict=True):
                    sums[decision] += probability * weight
        return torch.stack([total * self.score(d) for d, total in sums.items()]).sum(dim=0)

    # Episodes

    def episode(self, trajectory: Trajectory, *, ends_with_observation: bool = False) -> Episode:
        """The trajectory as rollout records it, perhaps with what came after the last reply."""
        token_ids, mask, logprobs, rewards = [PROMPT], [0], [0.0], [0.0]
        segments, rounds = [Segment(SegmentKind.PROMPT, 0, 1, 0)], []
        for index, reward in enumerate(trajectory.rewards):
            reply = [d for d in trajectory.decisions if d.round_index == index]
            token_ids += [d.token for d in reply]
            mask += [1] * len(reply)
            logprobs += [self.logprob(d) for d in reply]
            rewards += [*(0.0 for _ in reply[1:]), reward]
            end = len(token_ids)
            segments.append(Segment(SegmentKind.ACTION, end - len(reply), end, index))
            seen = trajectory.observations[index] if index < len(trajectory.observations) else ()
            is_last = index == len(trajectory.rewards) - 1
            shown = (seen or (SEEN_A,)) if not is_last or ends_with_observation else ()
            if shown:
                token_ids += shown
                mask += [0] * len(shown)
                logprobs += [0.0] * len(shown)
                rewards += [0.0] * len(shown)
                segments.append(Segment(SegmentKind.OBSERVATION, end, len(token_ids), index))
            rounds.append(Round("", "", " ".join(map(str, seen)), reward, valid_action=True))
        sample = Sample(
            tuple(token_ids), tuple(mask), tuple(logprobs), tuple(rewards), tuple(segments), 0
        )
        return Episode(
            task=TASK,
            sample_index=0,
            stop_reason=trajectory.stop_reason,
            reward=sum(trajectory.rewards),
            success=False,
            rounds=tuple(rounds),
            messages=(),
            samples=(sample,),
            seconds=0.0,
        )


def _play(
    state: State, decisions: tuple[Decision, ...], replies: tuple[State, ...], horizon: int
) -> Iterator[Trajectory]:
    """Yield every trajectory that goes on from a state."""
    for token in actions_in(state):
        made = (*decisions, Decision(state, token, len(replies)))
        after = (*state, token)
        if token not in ENDS_A_REPLY:
            yield from _play(after, made, replies, horizon)
            continue
        own = tuple(d.token for d in made if d.round_index == len(replies))
        played = (*replies, own)
        seen = OBSERVATIONS.get(own, ()) if len(played) == 1 else ()
        if seen and len(played) < horizon:
            yield from _play((*after, *seen), made, played, horizon)
            continue
        rewards = [FIRST_REWARDS[played[0]]]
        if len(played) == 2:
            rewards.append(LAST_REWARDS[played[0]].get(own, 0.0))
        yield Trajectory(
            decisions=made,
            rewards=tuple(rewards),
            observations=tuple(OBSERVATIONS.get(reply, ()) for reply in played[:1]),
            stop_reason=StopReason.MAX_ROUNDS if seen else StopReason.TERMINATED,
            next_state=(*after, *seen),
        )
