"""How episodes become updates: a small section for each algorithm, and three that all share.

`[algorithm]` says how advantages are estimated, `[credit]` how rewards count, `[policy_loss]` how
advantages become a loss, `[kl]` how the policy is held near a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, SerializeAsAny, WrapValidator

from agentgym_rl.config.base import BaseConfig, or_own
from agentgym_rl.config.ignored import Ignored

_ADVANTAGES = Ignored(
    ("credit", "policy_loss", "kl"), "acts on advantages, which only reinforcement learning has"
)
_SPREAD = Ignored(
    ("rollout.drop_without_spread", "rollout.max_refills"),
    "drops groups whose rewards are equal, but this algorithm does not compare within a group",
)
_EPISODES = Ignored(
    (
        *_SPREAD.settings,
        "rollout.rest_solved",
        "rollout.follow_learnable",
        "rollout.max_staleness",
        "rollout.overlap",
        "training.updates_per_step",
        "training.epochs_per_step",
    ),
    "is about the episodes of a step, but a step is one update on algorithm.batch_size items",
)
_KINDS = Ignored(
    ("agent.train",), "weighs kinds of tokens, which cannot be told apart in given texts"
)


class AlgorithmBaseConfig(BaseConfig):
    """What every method of training has."""

    ignores: ClassVar[tuple[Ignored, ...]] = ()
    """Settings outside this section that the algorithm does not use."""
    plans_updates: ClassVar[bool] = True
    """Whether the recipe decides how many updates the run has; a falling learning rate needs it."""
    has_critic: ClassVar[bool] = False

    type: str

    def num_updates(self, steps: int, *, per_step: int) -> int:
        """Return the updates of the policy in the first `steps` steps.

        `per_step` is the number of updates in a step that learns from its own episodes.
        """
        return steps


class OnlineConfig(AlgorithmBaseConfig):
    """What every algorithm that learns from its own episodes has."""

    implementation: ClassVar[str] = ""
    """ "module:Class" of the algorithm; empty for a user's class, which `type` names."""

    group_size: int = Field(default=8, ge=1, le=2**16)
    """Episodes of each task."""

    @property
    def min_group_size(self) -> int:
        """A group with fewer completed episodes is dropped: one episode has no comparison."""
        return min(2, self.group_size)

    def num_updates(self, steps: int, *, per_step: int) -> int:
        return steps * per_step


class GroupRelativeConfig(OnlineConfig):
    """What every algorithm has that compares the episodes of a group."""

    group_size: int = Field(default=8, ge=2, le=2**16)
    """Episodes of each task; a reward counts relative to the rest of its group."""


class GRPOConfig(GroupRelativeConfig):
    """Group-relative policy optimisation (arXiv:2402.03300).

    Dr.GRPO (arXiv:2503.20783): `normalize_std = false`, `policy_loss.aggregation = "constant"`.
    """

    implementation: ClassVar[str] = "agentgym_rl.training.algorithms.grpo:GRPO"

    type: Literal["grpo"] = "grpo"

    normalize_std: bool = True
    """Divide advantages by the standard deviation of the group's returns."""

    level: Literal["episode", "round"] = "episode"
    """Compare whole episodes, or what each round and the later ones earned."""


class RLOOConfig(GroupRelativeConfig):
    """REINFORCE with the mean of the others in the group as baseline (arXiv:2402.14740)."""

    implementation: ClassVar[str] = "agentgym_rl.training.algorithms.rloo:RLOO"

    type: Literal["rloo"] = "rloo"

    level: Literal["episode", "round"] = "episode"
    """Compare whole episodes, or what each round and the later ones earned."""


class ReinforcePPConfig(OnlineConfig):
    """REINFORCE++ (arXiv:2501.03262): returns to go, normalised over the whole batch.

    The published algorithm has the divergence in the reward: `kl.place = "reward"`,
    `kl.estimator = "k1"` and a `kl.coef` above 0.
    """

    implementation: ClassVar[str] = "agentgym_rl.training.algorithms.reinforce_pp:ReinforcePP"
    ignores: ClassVar[tuple[Ignored, ...]] = (_SPREAD,)

    type: Literal["reinforce_pp"] = "reinforce_pp"


class GiGPOConfig(GroupRelativeConfig):
    """Group-in-group policy optimisation (arXiv:2505.10978): also compare actions in equal states.

    The paper sets `credit.discount = 0.95`.
    """

    implementation: ClassVar[str] = "agentgym_rl.training.algorithms.gigpo:GiGPO"

    type: Literal["gigpo"] = "gigpo"

    normalize_std: bool = True
    """Divide by the standard deviation of the group, and of each set of equal states."""


class PPOConfig(OnlineConfig):
    """Proximal policy optimisation (arXiv:1707.06347) with a critic."""

    implementation: ClassVar[str] = "agentgym_rl.training.algorithms.ppo:PPO"
    ignores: ClassVar[tuple[Ignored, ...]] = (_SPREAD,)
    has_critic: ClassVar[bool] = True

    type: Literal["ppo"] = "ppo"

    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """1 trusts only returns (no bias), 0 only the critic (arXiv:1506.02438)."""

    critic: Literal["own", "shared"] = "own"
    """A copy of the policy's layers with a value head, or a head on the policy's own layers."""

    critic_lr: float = Field(default=1e-5, gt=0)
    """Learning rate of the critic, or with shared layers of its head."""

    value_clip: float = Field(default=0.2, ge=0)
    """How far a value may move from its value before the step; 0 for no limit."""

    critic_warmup_steps: int = Field(default=0, ge=0)
    """Steps at the beginning in which only the critic learns."""

    def num_updates(self, steps: int, *, per_step: int) -> int:
        return max(0, steps - self.critic_warmup_steps) * per_step


class SFTConfig(AlgorithmBaseConfig):
    """Supervised learning on demonstrations."""

    ignores: ClassVar[tuple[Ignored, ...]] = (
        _ADVANTAGES,
        _EPISODES,
        _KINDS,
        Ignored(
            ("warm_start",), "is supervised learning before another method, which this already is"
        ),
    )

    type: Literal["sft"] = "sft"

    data: str = ""
    """Conversations in JSON lines (`agentgym demos` writes them), or AgentGym's JSON; empty asks
    the environment's expert."""

    num_demos: int = Field(default=0, ge=0)
    """How many demonstrations to use; 0 for all of `data`, or 256 from the expert."""

    batch_size: int = Field(default=16, ge=1)
    """Demonstrations in one update."""


class DPOConfig(AlgorithmBaseConfig):
    """Direct preference optimisation (arXiv:2305.18290) on pairs of whole episodes.

    The defaults differ from the paper's. Of two episodes of an agent the failed one is usually
    longer, and the two share much: sums over tokens, and preferences without imitation, make both
    less likely until the policy can do neither (docs/howto/demonstrations.md has a measurement).
    """

    ignores: ClassVar[tuple[Ignored, ...]] = (_ADVANTAGES, _EPISODES, _KINDS)

    type: Literal["dpo"] = "dpo"

    data: str = Field(min_length=1)
    """A run folder, whose training episodes are paired, or a file of pairs in JSON lines."""

    beta: float = Field(default=2.0, gt=0)
    """How strongly the policy is held near the reference. It depends on `length_normalized`: 2 to 5
    for means over tokens, 0.1 for sums."""

    length_normalized: bool = True
    """Compare the means over the episodes' action tokens; false compares sums, in which a long
    episode weighs more than a short one."""

    sft_weight: float = Field(default=1.0, ge=0)
    """Weight of imitating the chosen episodes, the mean over the tokens of each
    (arXiv:2404.19733); it keeps them likely. 0 learns only from preferences."""

    min_margin: float = Field(default=0.01, gt=0)
    """Two episodes whose rewards differ by less are not a pair."""

    pairs_per_task: int = Field(default=4, ge=1)
    """Most pairs per task; no episode is in two of them."""

    batch_size: int = Field(default=16, ge=1)
    """Pairs in one update."""


class AgentEvolConfig(OnlineConfig):
    """AgentEvol (arXiv:2406.04151): explore, keep what succeeded, learn from it, repeat.

    A step is one iteration: it explores `training.tasks_per_step` tasks and goes through the kept
    episodes `training.epochs_per_step` times.
    """

    ignores: ClassVar[tuple[Ignored, ...]] = (
        _ADVANTAGES,
        _SPREAD,
        Ignored(
            ("rollout.max_staleness", "rollout.overlap"),
            "lets episodes continue with newer weights, but an iteration explores with one policy",
        ),
        Ignored(
            ("training.updates_per_step",),
            "has no effect: algorithm.batch_size and training.epochs_per_step decide how many "
            "updates a step has",
        ),
    )
    plans_updates: ClassVar[bool] = False

    type: Literal["agentevol"] = "agentevol"

    restart: Literal["previous", "base"] = "previous"
    """Where each iteration's learning begins: at the weights of the iteration before, or, as
    published, at the weights that the run began with, with a fresh optimiser. Either way it learns
    from the successes of all iterations so far."""

    max_per_task: int = Field(default=2, ge=0)
    """Most successes per task to learn from, the newest ones, so that easy tasks do not drown out
    hard ones; 0 for all."""

    data: str = ""
    """Conversations that every iteration also learns from."""

    num_demos: int = Field(default=0, ge=0)
    """Demonstrations that every iteration also learns from; 0 for all of `data`, or for none
    without `data`."""

    batch_size: int = Field(default=16, ge=1)
    """Conversations in one update."""


_Builtin = (
    GRPOConfig
    | PPOConfig
    | RLOOConfig
    | ReinforcePPConfig
    | GiGPOConfig
    | SFTConfig
    | DPOConfig
    | AgentEvolConfig
)
"""Every built-in method of training: add a new one here."""
AlgorithmConfig = Annotated[
    _Builtin,
    Field(discriminator="type"),
    WrapValidator(or_own(OnlineConfig)),
    SerializeAsAny(),
]
BUILTIN_ALGORITHMS: Mapping[str, type[AlgorithmBaseConfig]] = MappingProxyType(
    {member.model_fields["type"].default: member for member in get_args(_Builtin)}
)


class CreditConfig(BaseConfig):
    """How rewards count, in every online algorithm."""

    discount: float = Field(default=1.0, gt=0, le=1)
    """What a reward is worth one round earlier; the tokens of one reply are not discounted."""

    truncated: Literal["as_is", "mask", "bootstrap"] = "as_is"
    """Episodes that the horizon or `rollout.max_tokens` ended: `as_is` counts what they earned,
    because evaluation has limits too; `mask` learns nothing from them, but compares others with
    them; `bootstrap` (PPO) adds the critic's value of their last state."""

    normalize_per_env: bool = False
    """Give the advantages of each environment's tokens mean 0 and deviation 1 over the step (task
    normalisation, arXiv:2510.04206), so that none of several outweighs the others."""


class PolicyLossConfig(BaseConfig):
    """How advantages become a loss, in every online algorithm."""

    objective: Literal["clip", "cispo", "gspo"] = "clip"
    """PPO's clipped surrogate; clipped weights on the log-probabilities, which leave every token
    its gradient (CISPO, arXiv:2506.13585); or the surrogate with one ratio per sequence, the
    geometric mean over its tokens (GSPO, arXiv:2507.18071; it needs far smaller clip ranges, such
    as 3e-4 and 4e-4)."""

    clip_low: float = Field(default=0.2, gt=0, le=1)
    """The probability ratio is clipped below 1 - clip_low."""

    clip_high: float = Field(default=0.2, gt=0)
    """The probability ratio is clipped above 1 + clip_high (DAPO, arXiv:2503.14476, takes 0.28)."""

    importance_cap: float = Field(default=0.0, ge=0)
    """Above 0 the learner itself computes the log-probabilities before the update, and weighs each
    token by the ratio of learner to engine, at most this; 0 uses the engine's."""

    aggregation: Literal["token_mean", "episode_mean", "constant"] = "token_mean"
    """Mean over the action tokens of an update; mean over episodes of the means over their tokens;
    or sum over tokens divided by episodes times `rollout.max_tokens` (Dr.GRPO)."""

    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""

    entropy_target: float = Field(default=0.0, ge=0)
    """Above 0 the bonus fades as the entropy (in nats, a mean over the action tokens of the step
    before) rises to this: its weight is `entropy_coef` times 1 - entropy / target, and 0 beyond."""


class KLConfig(BaseConfig):
    """How the policy is held near a reference: the weights that the online run began with."""

    coef: float = Field(default=0.0, ge=0)
    """Weight of the divergence; 0 keeps no reference."""

    place: Literal["loss", "reward"] = "loss"
    """Add the divergence to the loss, or subtract it from the reward of each token."""

    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per token: the log-ratio; half its square; or the estimate that is unbiased and never
    negative (J. Schulman, "Approximating KL divergence", 2020)."""
