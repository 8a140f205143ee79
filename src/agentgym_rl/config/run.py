"""The configuration of one run, and the combinations that make no sense."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from agentgym_rl.config.agent import AgentConfig
from agentgym_rl.config.algorithms import (
    AgentEvolConfig,
    CreditConfig,
    DPOConfig,
    GiGPOConfig,
    GroupRelativeConfig,
    GRPOConfig,
    KLConfig,
    OnlineConfig,
    PolicyLossConfig,
    PPOConfig,
    ReinforcePPConfig,
    RLOOConfig,
    SFTConfig,
)
from agentgym_rl.config.base import BaseConfig
from agentgym_rl.config.idle import check_idle
from agentgym_rl.config.rounds import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    LinearRoundsConfig,
    StepRoundsConfig,
)
from agentgym_rl.config.sections import (
    CheckpointConfig,
    EnvConfig,
    EvalConfig,
    LoraConfig,
    ModelConfig,
    NativeEngineConfig,
    OpenAIEngineConfig,
    RewardConfig,
    RolloutConfig,
    TrainingConfig,
    VllmEngineConfig,
    WarmStartConfig,
)

AlgorithmConfig = Annotated[
    GRPOConfig
    | PPOConfig
    | RLOOConfig
    | ReinforcePPConfig
    | GiGPOConfig
    | SFTConfig
    | DPOConfig
    | AgentEvolConfig,
    Field(discriminator="type"),
]
RoundsConfig = Annotated[
    FixedRoundsConfig | StepRoundsConfig | LinearRoundsConfig | AdaptiveRoundsConfig,
    Field(discriminator="type"),
]

EngineConfig = Annotated[
    NativeEngineConfig | VllmEngineConfig | OpenAIEngineConfig, Field(discriminator="type")
]


class RunConfig(BaseConfig):
    """Everything that decides a run, together with the code and the machine's arithmetic."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides the order of tasks, the noise of sampling and the weights of a new model."""

    env: EnvConfig = EnvConfig()
    reward: RewardConfig = RewardConfig()
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = NativeEngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    rounds: RoundsConfig = FixedRoundsConfig()
    algorithm: AlgorithmConfig = GRPOConfig()
    credit: CreditConfig = CreditConfig()
    policy_loss: PolicyLossConfig = PolicyLossConfig()
    kl: KLConfig = KLConfig()
    training: TrainingConfig = TrainingConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval: EvalConfig = EvalConfig()

    @model_validator(mode="after")
    def _check_combinations(self) -> RunConfig:
        check_idle(self, self.algorithm.type)
        if isinstance(self.algorithm, OnlineConfig):
            self._check_online(self.algorithm)
        if self.rollout.max_tokens_per_round >= self.rollout.max_tokens:
            raise ValueError(
                f"rollout.max_tokens_per_round={self.rollout.max_tokens_per_round} leaves no room "
                f"for a prompt in rollout.max_tokens={self.rollout.max_tokens}; lower it or raise "
                "max_tokens"
            )
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        training = self.training
        if training.lr_schedule == "constant":
            if training.min_lr_ratio:
                raise ValueError(
                    f"training.min_lr_ratio={training.min_lr_ratio} is where a falling rate ends; "
                    "set training.lr_schedule to linear or cosine, or min_lr_ratio=0"
                )
        elif isinstance(self.algorithm, AgentEvolConfig):
            raise ValueError(
                f"training.lr_schedule={training.lr_schedule} needs to know how many updates the "
                "run has, which with algorithm.type=agentevol depends on what succeeds; set "
                "lr_schedule=constant"
            )
        elif training.warmup_steps >= self.num_updates:
            raise ValueError(
                f"training.warmup_steps={training.warmup_steps} leaves nothing of the run's "
                f"{self.num_updates} updates for training.lr_schedule={training.lr_schedule}; "
                "lower it, or set lr_schedule=constant"
            )

    def _check_online(self, algorithm: OnlineConfig) -> None:
        if self.rollout.temperature == 0:
            raise ValueError(
                "rollout.temperature=0 makes all episodes of a group the same, so nothing can be "
                "learned; set rollout.temperature=1"
            )
        if self.rollout.min_group_size > algorithm.group_size:
            raise ValueError(
                f"rollout.min_group_size={self.rollout.min_group_size} drops every group of "
                f"algorithm.group_size={algorithm.group_size}; lower min_group_size"
            )
        if self.training.updates_per_step > self.training.tasks_per_step:
            raise ValueError(
                f"training.updates_per_step={self.training.updates_per_step} needs at least as "
                f"many groups, but training.tasks_per_step={self.training.tasks_per_step}"
            )
        self._check_groups(algorithm)
        self._check_loss()
        if self.rollout.max_staleness:
            self._check_staleness(f"rollout.max_staleness={self.rollout.max_staleness}")
        if isinstance(algorithm, AgentEvolConfig):
            self._check_iterations(algorithm)

    def _check_staleness(self, setting: str) -> None:
        if self.rollout.max_refills:
            raise ValueError(
                f"{setting} and rollout.max_refills={self.rollout.max_refills} both decide when a "
                "step has enough groups; set one of them to 0"
            )
        if self.rollout.rest_solved:
            raise ValueError(
                f"{setting} begins groups ahead, before it is known which tasks are solved; set "
                f"it or rollout.rest_solved={self.rollout.rest_solved} to 0"
            )
        if not self.policy_loss.importance_cap:
            raise ValueError(
                f"{setting} learns from tokens that older weights sampled, which has to be "
                "corrected for; set policy_loss.importance_cap (2 is usual)"
            )

    def _check_iterations(self, algorithm: AgentEvolConfig) -> None:
        if algorithm.restart == "base" and not algorithm.accumulate:
            raise ValueError(
                "algorithm.restart=base forgets what earlier iterations learned, and without "
                "algorithm.accumulate it would not be learned again; set algorithm.accumulate=true "
                "or algorithm.restart=previous"
            )

    def _check_groups(self, algorithm: OnlineConfig) -> None:
        if isinstance(algorithm, GroupRelativeConfig) and self.rollout.min_group_size < 2:
            raise ValueError(
                f"algorithm.type={algorithm.type} compares episodes of a group, so a group "
                "needs two; set rollout.min_group_size=2"
            )
        if self.credit.truncated == "bootstrap" and not isinstance(algorithm, PPOConfig):
            raise ValueError(
                "credit.truncated=bootstrap needs a critic, which algorithm.type=ppo alone has; "
                "set credit.truncated to as_is or mask"
            )

    def _check_loss(self) -> None:
        if self.kl.place == "loss" and self.kl.estimator == "k1" and self.kl.coef:
            raise ValueError(
                "kl.estimator=k1 in the loss has a gradient of mean zero; set kl.estimator=k2 or "
                "k3, or kl.place=reward"
            )
        if self.kl.refresh_every and not self.kl.coef:
            raise ValueError(
                f"kl.refresh_every={self.kl.refresh_every} has no reference to refresh; set "
                "kl.coef above 0, or kl.refresh_every=0"
            )
        if self.training.offload_reference and not self.kl.coef:
            raise ValueError(
                "training.offload_reference=true has no reference to offload; set kl.coef above 0, "
                "or training.offload_reference=false"
            )
        if self.kl.refresh_every and self.lora.rank:
            raise ValueError(
                "kl.refresh_every does not go with lora.rank: the reference is the policy without "
                "its adapter; set one of them to 0"
            )
        if self.policy_loss.entropy_target and not self.policy_loss.entropy_coef:
            raise ValueError(
                f"policy_loss.entropy_target={self.policy_loss.entropy_target} has no bonus that "
                "could fade; set policy_loss.entropy_coef above 0, or policy_loss.entropy_target=0"
            )
        if 0 < self.policy_loss.dual_clip <= 1:
            raise ValueError(
                f"policy_loss.dual_clip={self.policy_loss.dual_clip} would clip what is not off "
                "policy; set it above 1 (3 is usual), or to 0 for no limit"
            )
        if self.policy_loss.dual_clip and self.policy_loss.objective != "clip":
            raise ValueError(
                "policy_loss.dual_clip belongs to policy_loss.objective=clip; set one of the two"
            )

    @property
    def num_updates(self) -> int:
        """Updates of the policy in the whole run, if every step learns something."""
        return self.num_updates_before(self.training.steps + 1)

    def num_updates_before(self, step: int) -> int:
        """Return the updates planned for the steps before `step`; some may have had no groups."""
        training, steps = self.training, step - 1
        if not isinstance(self.algorithm, OnlineConfig):
            return steps
        if isinstance(self.algorithm, PPOConfig):
            steps = max(0, steps - self.algorithm.critic_warmup_steps)
        return steps * training.updates_per_step * training.epochs_per_step

    @property
    def longest_horizon(self) -> int:
        """The largest limit on rounds that the schedule reaches."""
        rounds = self.rounds.rounds
        return rounds if isinstance(rounds, int) else rounds[-1]

    @property
    def eval_max_rounds(self) -> int:
        return self.eval.max_rounds or self.longest_horizon
