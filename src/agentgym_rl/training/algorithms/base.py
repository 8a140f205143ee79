"""What passes between the learner and an algorithm, and what an algorithm is.

    groups  --learner.score-->  scored episodes  --algorithm.advantages-->  training samples
            --learner.update, with algorithm.loss-->  new weights

Everything with one entry per action token is aligned to the tokens whose loss mask is 1, in the
order of the sample. The trainer knows no more than this file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from agentgym_rl.config import CreditConfig, KLConfig, OnlineConfig, PolicyLossConfig
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.types import Episode, Sample


@dataclass(frozen=True, slots=True)
class CriticNeeds:
    """The critic that an algorithm wants."""

    trunk: Literal["own", "shared"]
    lr: float
    bootstraps: bool
    """Whether to score the state after the last round if a limit on length ended an episode."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an algorithm needs to know about samples before the step's first update."""

    policy: bool = False
    """Log-probabilities of the learner; otherwise the engine's are used."""
    reference: bool = False
    critic: CriticNeeds | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What the learner computed of a sample, one entry per action token; None: not asked for."""

    logprobs: tuple[float, ...] | None = None
    ref_logprobs: tuple[float, ...] | None = None
    values: tuple[float, ...] | None = None
    """Of the state before each action token."""


@dataclass(frozen=True, slots=True)
class ScoredSample:
    """A sample with its scores."""

    sample: Sample
    scores: Scores = Scores()


@dataclass(frozen=True, slots=True)
class ScoredEpisode:
    """An episode with the scores of its samples."""

    episode: Episode
    samples: tuple[ScoredSample, ...]
    final_value: float = 0.0
    """The critic's value of the state after the last round, if a limit on length ended it."""


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A sample with what an algorithm made of it."""

    sample: Sample
    advantages: tuple[float, ...]
    """One for each action token of the sample, in order."""
    scores: Scores = Scores()
    returns: tuple[float, ...] | None = None
    """What the critic should say, one entry per action token."""
    num_tokens_elsewhere: int = 0
    """Action tokens of the other samples of its episode."""

    @property
    def length(self) -> int:
        return len(self.sample.token_ids)

    @property
    def num_tokens(self) -> int:
        """Action tokens of the sample."""
        return self.sample.num_action_tokens

    @property
    def num_episode_tokens(self) -> int:
        """Action tokens of all samples of its episode."""
        return self.num_tokens + self.num_tokens_elsewhere


@dataclass(frozen=True, slots=True)
class Batch:
    """The training samples of each group, in order, and what to report of them."""

    groups: list[list[TrainingSample]]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """What a loss sees: one entry for each action token, samples one after another."""

    logprobs_A: Tensor
    """Under the present weights; carries the gradient."""
    old_logprobs_A: Tensor
    """What the ratio compares with: the learner before the step's first update if the algorithm
    needs it, otherwise the engine when it sampled the token."""
    advantages_A: Tensor
    entropies_A: Tensor
    engine_logprobs_A: Tensor | None = None
    ref_logprobs_A: Tensor | None = None
    values_A: Tensor | None = None
    """Under the present weights; carries the gradient."""
    old_values_A: Tensor | None = None
    returns_A: Tensor | None = None
    samples_A: Tensor | None = None
    """Which sample of the batch a token belongs to, from 0."""


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of each token, and what to report as means over tokens."""

    loss_A: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)
    critic_A: Tensor | None = None
    """The critic's loss of each token. `agent.train` does not weigh it: the estimates of other
    tokens depend on the values of all."""


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """The sections of a recipe that all online algorithms share."""

    credit: CreditConfig = field(default_factory=CreditConfig)
    policy_loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    max_tokens: int = 4096
    """Limit on one context: the constant of `policy_loss.aggregation = "constant"`."""


class Algorithm(ABC):
    """An online algorithm; `algorithm.type = "module:Class"` names a user's."""

    config_class: ClassVar[type[OnlineConfig]] = OnlineConfig
    """The settings of the class, which validate `[algorithm]` of a recipe."""

    aggregation: Aggregation = Aggregation()
    """How the losses of tokens become the loss of an update; by default their mean."""
    needs: Needs = Needs()
    """What the learner has to compute before `advantages`; by default nothing."""

    def __init__(self, config: OnlineConfig, shared: SharedSettings) -> None:  # noqa: B027
        """`config` is an instance of `config_class`; a subclass keeps what it needs."""

    def prepare(self, history: Sequence[Mapping[str, float]]) -> None:  # noqa: B027 - most need none
        """Adapt to the metrics of the steps so far, in order."""

    @abstractmethod
    def advantages(self, groups: Sequence[Sequence[ScoredEpisode]]) -> Batch:
        """Return the training samples of each group, in order."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> TokenLoss:
        """Return the loss of every token."""

    def updates_policy(self, step: int) -> bool:
        """Return whether the policy learns at training `step`; otherwise only the critic does."""
        return True
