"""How episodes become updates: a small section for each algorithm, and three that all share.

`[algorithm]` says how an advantage is estimated, `[credit]` what a reward counts for,
`[policy_loss]` what is made of advantages, `[kl]` how the policy is held near a reference.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentgym_rl.config.base import BaseConfig


class OnlineConfig(BaseConfig):
    """What every algorithm that learns from its own episodes has."""

    type: str

    group_size: int = Field(default=8, ge=1, le=2**16)
    """Episodes of each task."""


class GroupRelativeConfig(OnlineConfig):
    """What every algorithm has that compares the episodes of a group."""

    group_size: int = Field(default=8, ge=2, le=2**16)
    """Episodes of each task; a reward counts relative to the others of its group."""


class GRPOConfig(GroupRelativeConfig):
    """Group-relative policy optimisation (arXiv:2402.03300).

    Dr.GRPO (arXiv:2503.20783): `normalize_std = false`, `policy_loss.aggregation = "constant"`.
    """

    type: Literal["grpo"] = "grpo"

    normalize_std: bool = True
    """Divide advantages by the standard deviation of the group's returns."""

    level: Literal["episode", "round"] = "episode"
    """Compare whole episodes, or what each round and the later ones earned."""


class RLOOConfig(GroupRelativeConfig):
    """REINFORCE with the mean of the others in the group as baseline (arXiv:2402.14740)."""

    type: Literal["rloo"] = "rloo"

    level: Literal["episode", "round"] = "episode"
    """Compare whole episodes, or what each round and the later ones earned."""


class ReinforcePPConfig(OnlineConfig):
    """REINFORCE++ (arXiv:2501.03262): returns to go, normalised over the whole batch.

    The published algorithm has the divergence in the reward: `kl.place = "reward"`,
    `kl.estimator = "k1"` and a `kl.coef` above 0.
    """

    type: Literal["reinforce_pp"] = "reinforce_pp"

    whiten: bool = True
    """Give the advantages of a step mean 0 and deviation 1 over its action tokens."""


class GiGPOConfig(GroupRelativeConfig):
    """Group-in-group policy optimisation (arXiv:2505.10978): also compare actions in equal states.

    The paper sets `credit.discount = 0.95`.
    """

    type: Literal["gigpo"] = "gigpo"

    normalize_std: bool = True
    """Divide by the standard deviation of the group, and of each set of equal states."""

    step_weight: float = Field(default=1.0, ge=0)
    """Weight of the comparison in equal states beside that of whole episodes."""


class PPOConfig(OnlineConfig):
    """Proximal policy optimisation (arXiv:1707.06347) with a critic."""

    type: Literal["ppo"] = "ppo"

    whiten: bool = True
    """Give the advantages of a step mean 0 and deviation 1 over its action tokens."""

    gae_lambda: float = Field(default=1.0, ge=0, le=1)
    """1 trusts returns alone (no bias), 0 the critic alone (arXiv:1506.02438)."""

    lambda_per: Literal["token", "round"] = "token"
    """Whether lambda acts from token to token or only from round to round."""

    critic: Literal["own", "shared"] = "own"
    """A copy of the policy's layers with a value head, or a head on the policy's own layers."""

    critic_lr: float = Field(default=1e-5, gt=0)
    """Learning rate of the critic; with a shared trunk, of its head."""

    value_clip: float = Field(default=0.2, ge=0)
    """A value may move so far from the one before the step; 0 for no limit."""

    critic_warmup_steps: int = Field(default=0, ge=0)
    """Steps at the beginning in which the critic alone learns."""


class SFTConfig(BaseConfig):
    """Supervised learning on demonstrations."""

    type: Literal["sft"] = "sft"

    data: str = ""
    """Conversations in JSON lines (`agentgym demos` writes them), or AgentGym's JSON; empty asks
    the expert."""

    num_demos: int = Field(default=0, ge=0)
    """How many demonstrations to use; 0 for all of `data`, or 256 of the expert."""

    batch_size: int = Field(default=16, ge=1)
    """Demonstrations in one update."""


class DPOConfig(BaseConfig):
    """Direct preference optimisation (arXiv:2305.18290) on pairs of whole episodes.

    The defaults are not those of its paper. Of two episodes of an agent the failed one is mostly
    the longer, and much of it is in the good one too: sums over tokens, and preferences alone,
    make both less likely until the policy can do neither (docs/training.md has a measurement).
    """

    type: Literal["dpo"] = "dpo"

    data: str = Field(min_length=1)
    """A run folder, whose training episodes are paired, or a file of pairs in JSON lines."""

    objective: Literal["dpo", "ipo"] = "dpo"
    """The logistic loss of DPO, or the squared one of IPO (arXiv:2310.12036)."""

    beta: float = Field(default=2.0, gt=0)
    """How strongly the policy is held near the reference. It goes with `length_normalized`: 2 to 5
    for means over tokens, 0.1 for sums."""

    length_normalized: bool = True
    """Compare the means over the episodes' action tokens; false compares sums, in which a long
    episode weighs more than a short one."""

    sft_weight: float = Field(default=1.0, ge=0)
    """Weight of imitating the chosen episodes, the mean over the tokens of each
    (arXiv:2404.19733); it keeps them likely. 0 learns from preferences alone."""

    min_margin: float = Field(default=0.01, gt=0)
    """Episodes whose rewards differ by less make no pair."""

    pairs_per_task: int = Field(default=4, ge=1)
    """Most pairs of one task; no episode is in two of them."""

    batch_size: int = Field(default=16, ge=1)
    """Pairs in one update."""


class AgentEvolConfig(OnlineConfig):
    """AgentEvol (arXiv:2406.04151): explore, keep what succeeded, learn from it, repeat.

    A step is one such iteration: `training.tasks_per_step` tasks are explored, and
    `training.epochs_per_step` is how often what was kept is gone through.
    """

    type: Literal["agentevol"] = "agentevol"

    restart: Literal["previous", "base"] = "previous"
    """Where each iteration's learning begins: at the weights of the iteration before, or, as
    published, at those that the first one began with, with a fresh optimiser. `base` learns
    everything kept anew every time, and so needs `accumulate`."""

    accumulate: bool = True
    """Learn from the successes of earlier iterations as well."""

    max_per_task: int = Field(default=2, ge=0)
    """Most successes of one task to learn from, the newest, so that easy tasks do not drown hard
    ones; 0 for all."""

    data: str = ""
    """Conversations that every iteration learns from as well."""

    num_demos: int = Field(default=0, ge=0)
    """Demonstrations that every iteration learns from as well; 0 for all of `data`, or without
    one for none."""

    batch_size: int = Field(default=16, ge=1)
    """Conversations in one update."""


class CreditConfig(BaseConfig):
    """What rewards count for, in every online algorithm."""

    discount: float = Field(default=1.0, gt=0, le=1)
    """What a reward one round later is worth; the tokens of one reply are not discounted."""

    truncated: Literal["as_is", "mask", "bootstrap"] = "as_is"
    """Episodes cut by the horizon or `rollout.max_tokens`: `as_is` counts what they earned, because
    evaluation has the limits too; `mask` learns nothing from them, but compares others with them;
    `bootstrap` (PPO) adds the critic's value of where they were cut."""

    normalize_per_env: bool = False
    """Give the advantages of every environment mean 0 and deviation 1 over its action tokens, so
    that none drowns the others (arXiv:2510.04206)."""


class PolicyLossConfig(BaseConfig):
    """What is made of advantages, in every online algorithm."""

    objective: Literal["clip", "cispo"] = "clip"
    """PPO's clipped surrogate, or clipped weights on the log-probabilities, which leave every token
    its gradient (CISPO, arXiv:2506.13585)."""

    ratio: Literal["token", "sequence"] = "token"
    """The probability ratio of each token, or the geometric mean over a sequence (GSPO,
    arXiv:2507.18071; it needs far smaller clip ranges, such as 3e-4 and 4e-4)."""

    clip_low: float = Field(default=0.2, gt=0, le=1)
    """The probability ratio is clipped below 1 - clip_low."""

    clip_high: float = Field(default=0.2, gt=0)
    """The probability ratio is clipped above 1 + clip_high (DAPO, arXiv:2503.14476, takes 0.28)."""

    dual_clip: float = Field(default=0.0, ge=0)
    """A bad token's loss is at most so many times its advantage (arXiv:1912.09729); 0 for no
    limit, otherwise above 1."""

    importance_cap: float = Field(default=0.0, ge=0)
    """Above 0 the learner computes the log-probabilities before the update itself, and weighs each
    token by learner over engine, at most this; 0 compares with the engine's own."""

    aggregation: Literal["token_mean", "episode_mean", "constant"] = "token_mean"
    """Mean over the action tokens of an update; mean over episodes of the means over their tokens;
    or sum over tokens divided by episodes times `rollout.max_tokens` (Dr.GRPO)."""

    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""

    entropy_target: float = Field(default=0.0, ge=0)
    """Above 0 the bonus fades as the entropy (in nats, the mean over the action tokens of the step
    before) rises to this: its weight is `entropy_coef` times 1 - entropy / target, and 0 beyond."""


class KLConfig(BaseConfig):
    """How the policy is held near a reference: the weights that the online run began with."""

    coef: float = Field(default=0.0, ge=0)
    """Weight of the divergence; 0 keeps no reference."""

    place: Literal["loss", "reward"] = "loss"
    """Add it to the loss, or take it from the reward of each token."""

    estimator: Literal["k1", "k2", "k3"] = "k3"
    """Of one token: log-ratio; half its square; or the one that is unbiased and never negative
    (J. Schulman, "Approximating KL divergence", 2020)."""

    refresh_every: int = Field(default=0, ge=0)
    """Steps after which the present weights become the reference; 0 keeps the first."""
