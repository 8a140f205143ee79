"""The configuration of one run, and the combinations that make no sense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from agentgym_rl.config.agent import AgentConfig
from agentgym_rl.config.algorithms import (
    AlgorithmConfig,
    CreditConfig,
    GRPOConfig,
    KLConfig,
    OnlineConfig,
    PolicyLossConfig,
)
from agentgym_rl.config.base import BaseConfig, laid_over
from agentgym_rl.config.callbacks import CallbacksConfig, check_callbacks
from agentgym_rl.config.cluster import ClusterConfig, check_env_servers, check_rollout_workers
from agentgym_rl.config.envs import EnvTableConfig, labelled
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
    VllmEngineConfig,
    WarmStartConfig,
)
from agentgym_rl.config.tracking import check_tracking


class RunConfig(BaseConfig):
    """Everything that decides a run, together with the code and the machine's arithmetic."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides the order of tasks, the noise of sampling and the weights of a new model."""

    env: EnvConfig = EnvConfig()
    """The environment of a run that has one. Code reads `environments`, which holds for all runs.
    """

    envs: Annotated[dict[str, EnvTableConfig], BeforeValidator(labelled)] = Field(
        default_factory=dict
    )
    """Several environments, by label, in place of `[env]`."""

    reward: RewardConfig = RewardConfig()
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    agent: AgentConfig = AgentConfig()
    engine: EngineConfig = NativeEngineConfig()
    cluster: ClusterConfig = ClusterConfig()
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
    callbacks: CallbacksConfig = CallbacksConfig()

    tracking: tuple[str, ...] = ()
    """Where metrics go beside the run folder: wandb, tensorboard, mlflow, trackio, or your own
    "module:Class"; each needs the extra of its name (docs/tracking.md)."""

    tracking_project: str = Field(default="agentgym-rl", min_length=1)
    """The project (in MLflow the experiment) that trackers file the run under."""

    @model_validator(mode="after")
    def _check_combinations(self) -> RunConfig:
        self._check_sections()
        self._check_envs()
        envs = {label: env.env for label, env in self.environments.items()}
        check_env_servers(self.cluster, envs)
        check_rollout_workers(self.cluster, envs)
        check_tracking(self.tracking)
        check_callbacks(
            self.callbacks,
            self.environments,
            eval_tasks=self.eval.tasks,
            eval_every=self.eval.every,
        )
        return self

    def _check_sections(self) -> None:
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
        self._check_cluster()

    def _check_cluster(self) -> None:
        engine = self.engine
        if self.cluster.type == "none" or isinstance(engine, NativeEngineConfig):
            return
        if not isinstance(engine, VllmEngineConfig):
            raise ValueError(
                f"cluster.type={self.cluster.type} starts only native and vllm engines, "
                f"not engine.type={engine.type}: set cluster.type=none"
            )
        if engine.url:
            raise ValueError(
                f"cluster.type={self.cluster.type} starts the servers itself, but engine.url="
                f"{engine.url} is a server that already runs: leave one of them out"
            )
        if self.cluster.type == "ray" and self.cluster.shared and engine.tensor_parallel_size > 1:
            raise ValueError(
                f"engine.tensor_parallel_size={engine.tensor_parallel_size} cannot share GPUs with "
                "the learner on a Ray cluster, which gives a process whole GPUs or a part of one: "
                "set cluster.shared=false, or engine.tensor_parallel_size=1"
            )

    def _check_envs(self) -> None:
        if self.rollout.follow_learnable and len(self.envs) < 2:
            raise ValueError(
                f"rollout.follow_learnable={self.rollout.follow_learnable:g} chooses between the "
                "environments of [envs], but the run has one: set rollout.follow_learnable=0"
            )
        if not self.envs:
            return
        if "env" in self.model_fields_set:
            raise ValueError(
                f"[env] (name {self.env.name!r}) and [envs] ({', '.join(self.envs)}) are both set: "
                "[env] is for one environment, [envs.LABEL] for several; leave one of them out"
            )
        if not any(table.weight for table in self.envs.values()):
            raise ValueError(
                f"the weight of {', '.join(self.envs)} is 0, so there is nothing to train on: set "
                f"envs.{next(iter(self.envs))}.weight=1, or leave the weights out"
            )
        for label in self.envs:
            try:
                self._of_env(label)._check_sections()
            except ValueError as error:
                raise ValueError(f"envs.{label}: {_first(error)}") from error

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
        if self.rollout.follow_learnable and algorithm.group_size < 2:
            raise ValueError(
                f"rollout.follow_learnable={self.rollout.follow_learnable:g} compares the "
                f"episodes of a group, but algorithm.group_size={algorithm.group_size}: raise it, "
                "or set rollout.follow_learnable=0"
            )
        if self.credit.truncated == "bootstrap" and not algorithm.has_critic:
            raise ValueError(
                "credit.truncated=bootstrap needs a critic, which only algorithm.type=ppo has; "
                "set credit.truncated to as_is or mask"
            )
        self._check_loss()
        if self.rollout.max_staleness:
            self._check_staleness(f"rollout.max_staleness={self.rollout.max_staleness}")
        if self.rollout.overlap:
            self._check_overlap()

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

    def _check_overlap(self) -> None:
        if not self.rollout.max_staleness:
            raise ValueError(
                "rollout.overlap=true samples with the weights of the step before, and "
                "rollout.max_staleness=0 forbids that: set rollout.max_staleness=1, or "
                "rollout.overlap=false"
            )
        if self.cluster.type == "none" and not isinstance(self.engine, VllmEngineConfig):
            raise ValueError(
                f"rollout.overlap=true needs an engine with weights of its own, and engine.type="
                f"{self.engine.type} in the run's own process samples with those that the learner "
                "changes: set cluster.type=local, or rollout.overlap=false"
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

    @model_serializer(mode="wrap")
    def _env_or_envs(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        table = handler(self)
        table.pop("env" if self.envs else "envs", None)
        return table

    @property
    def environments(self) -> Mapping[str, RunConfig]:
        """The settings for each environment of the run, by label; of `[env]` by its name.

        Each has an `env`, and in `agent`, `rollout` and `rounds` what holds for it.
        """
        return {label: self._of_env(label) for label in self.envs} or {self.env.name: self}

    def weight(self, label: str) -> float:
        """Return an environment's share of tasks, relative to the others."""
        return self.envs[label].weight if self.envs else 1.0

    @property
    def max_tokens(self) -> int:
        """The largest limit on a context in any environment."""
        return max(config.rollout.max_tokens for config in self.environments.values())

    def _of_env(self, label: str) -> RunConfig:
        table = self.envs[label]
        sections = {
            "env": table.env,
            "envs": dict[str, EnvTableConfig](),
            "agent": laid_over(self.agent, table.agent),
            "rollout": laid_over(self.rollout, table.rollout),
            "rounds": table.rounds or self.rounds,
        }
        return self.model_copy(update=sections)

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


def _first(error: ValueError) -> str:
    """Return what is wrong, in one line; of pydantic's errors the first."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    return f"{key}: {first['msg']}".removeprefix(": ").replace("Value error, ", "")
