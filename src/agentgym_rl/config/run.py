"""The configuration of one run, and the combinations that make no sense."""

from __future__ import annotations

from pydantic import Field, model_validator

from agentgym_rl.config.agent import AgentConfig
from agentgym_rl.config.algorithms import (
    AlgorithmConfig,
    CreditConfig,
    GRPOConfig,
    KLConfig,
    OnlineConfig,
    PolicyLossConfig,
)
from agentgym_rl.config.base import BaseConfig
from agentgym_rl.config.ignored import check_ignored
from agentgym_rl.config.rounds import FixedRoundsConfig, RoundsConfig
from agentgym_rl.config.sections import (
    CheckpointConfig,
    EngineConfig,
    EnvConfig,
    EvalConfig,
    LoraConfig,
    ModelConfig,
    NativeEngineConfig,
    RewardConfig,
    RolloutConfig,
    TrainingConfig,
    WarmStartConfig,
)


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
        algorithm = self.algorithm
        check_ignored(self, algorithm.ignores, algorithm=algorithm.type)
        if isinstance(algorithm, OnlineConfig):
            self._check_online(algorithm)
        if self.rollout.max_tokens_per_round >= self.rollout.max_tokens:
            raise ValueError(
                f"rollout.max_tokens_per_round={self.rollout.max_tokens_per_round} leaves no room "
                f"for a prompt in rollout.max_tokens={self.rollout.max_tokens}; lower the first "
                "or raise the second"
            )
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        training = self.training
        if training.lr_schedule == "constant":
            return
        if not self.algorithm.plans_updates:
            raise ValueError(
                f"training.lr_schedule={training.lr_schedule} needs the number of updates of the "
                f"run, which with algorithm.type={self.algorithm.type} depends on which episodes "
                "succeed; set training.lr_schedule=constant"
            )
        if training.warmup_steps >= self.num_updates:
            raise ValueError(
                f"training.warmup_steps={training.warmup_steps} leaves none of the run's "
                f"{self.num_updates} updates for training.lr_schedule={training.lr_schedule}; "
                "lower it, or set training.lr_schedule=constant"
            )

    def _check_online(self, algorithm: OnlineConfig) -> None:
        if self.rollout.temperature == 0:
            raise ValueError(
                "rollout.temperature=0 makes all episodes of a group equal, so nothing can be "
                "learned; set rollout.temperature=1"
            )
        if self.training.updates_per_step > self.training.tasks_per_step:
            raise ValueError(
                f"training.updates_per_step={self.training.updates_per_step} needs at least as "
                f"many groups, but training.tasks_per_step={self.training.tasks_per_step}: raise "
                "it, or lower updates_per_step"
            )
        if self.credit.truncated == "bootstrap" and not algorithm.has_critic:
            raise ValueError(
                "credit.truncated=bootstrap needs a critic, which only algorithm.type=ppo has; "
                "set credit.truncated to as_is or mask"
            )
        self._check_loss()
        if self.rollout.max_staleness:
            self._check_staleness(f"rollout.max_staleness={self.rollout.max_staleness}")

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
                f"{setting} learns from tokens that older weights sampled, which needs a "
                "correction; set policy_loss.importance_cap (2 is usual)"
            )

    def _check_loss(self) -> None:
        if self.kl.place == "loss" and self.kl.estimator == "k1" and self.kl.coef:
            raise ValueError(
                "kl.estimator=k1 in the loss has a gradient of mean zero; set kl.estimator=k2 or "
                "k3, or kl.place=reward"
            )
        if self.policy_loss.entropy_target and not self.policy_loss.entropy_coef:
            raise ValueError(
                f"policy_loss.entropy_target={self.policy_loss.entropy_target} has no bonus to "
                "fade; set policy_loss.entropy_coef above 0, or policy_loss.entropy_target=0"
            )

    @property
    def num_updates(self) -> int:
        """Updates of the policy in the whole run, if every step learns something."""
        return self.num_updates_before(self.training.steps + 1)

    def num_updates_before(self, step: int) -> int:
        """Return the updates planned for the steps before `step`; some may have had no groups."""
        per_step = self.training.updates_per_step * self.training.epochs_per_step
        return self.algorithm.num_updates(step - 1, per_step=per_step)

    @property
    def eval_max_rounds(self) -> int:
        """The limit on rounds of evaluations."""
        return self.eval.max_rounds or self.rounds.longest
