"""The settings of AgentGym-RL's trainer: defaults, and what became of each key here.

Defaults are those of its `ppo_trainer.yaml`, as far as they decide anything. A key is in one of
these tables, or is turned into settings by `convert.py`; any other key is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
AGENTGYM, MODEL = "actor_rollout_ref.agentgym.", "actor_rollout_ref.model."

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "algorithm.adv_estimator": "gae",
        "algorithm.gamma": "1",
        "algorithm.lam": "1",
        "algorithm.kl_penalty": "kl",
        "algorithm.kl_ctrl.type": "fixed",
        "algorithm.kl_ctrl.kl_coef": "0.001",
        "algorithm.rounds_ctrl.type": "fixed",
        "algorithm.rounds_ctrl.rounds": "15",
        "algorithm.rounds_ctrl.steps_scaling_inter": "100",
        "critic.cliprange_value": "0.5",
        "critic.optim.lr": "1e-5",
        "data.max_prompt_length": "2048",
        "data.max_response_length": "2048",
        "data.train_batch_size": "1024",
        "trainer.critic_warmup": "0",
        "trainer.nnodes": "1",
        "trainer.n_gpus_per_node": "8",
        "trainer.save_freq": "-1",
        "trainer.total_epochs": "30",
        f"{ACTOR}clip_ratio": "0.2",
        f"{ACTOR}entropy_coeff": "0.001",
        f"{ACTOR}grad_clip": "1.0",
        f"{ACTOR}kl_loss_coef": "0.001",
        f"{ACTOR}kl_loss_type": "low_var_kl",
        f"{ACTOR}optim.lr": "1e-6",
        f"{ACTOR}optim.lr_warmup_steps_ratio": "0",
        f"{ACTOR}ppo_max_token_len_per_gpu": "16384",
        f"{ACTOR}ppo_mini_batch_size": "256",
        f"{ACTOR}ulysses_sequence_parallel_size": "1",
        f"{ACTOR}use_kl_loss": "False",
        f"{AGENTGYM}task_name": "textcraft",
        f"{MODEL}enable_gradient_checkpointing": "True",
        f"{ROLLOUT}max_tokens": "1024",
        f"{ROLLOUT}n": "1",
        f"{ROLLOUT}temperature": "1.0",
        f"{ROLLOUT}tensor_model_parallel_size": "2",
    }
)
"""Key -> its value where a script does not set it."""

NO_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "actor_rollout_ref.actor.optim.min_lr_ratio": "nothing reads it",
        "actor_rollout_ref.actor.optim.warmup_style": "nothing reads it; the rate is constant",
        "actor_rollout_ref.actor.ppo_epochs": "nothing reads it; episodes are learned from once",
        "actor_rollout_ref.actor.shuffle": "nothing reads it",
        "actor_rollout_ref.agentgym.max_rounds": "training takes algorithm.rounds_ctrl",
        "actor_rollout_ref.agentgym.timeout": "nothing reads it; here env.timeout_s limits a call",
        "actor_rollout_ref.rollout.do_sample": "nothing reads it",
        "actor_rollout_ref.rollout.max_num_seqs": "it never reaches vLLM",
        "critic.ppo_epochs": "nothing reads it",
        "critic.rollout_n": "nothing reads it",
        "critic.shuffle": "nothing reads it",
        "data.return_raw_input_ids": "nothing reads it",
        "data.tokenizer": "nothing reads it",
        "data.val_batch_size": "there is no validation",
        "data.val_files": "there is no validation; here env.eval_tasks_file names such a file",
        "trainer.test_freq": "there is no validation; here eval.every",
        "trainer.val_generations_to_log_to_wandb": "there is no validation",
    }
)
"""Key -> why it decided nothing there."""

NO_EFFECT_BLOCKS = ("custom_reward_function.", "reward_model.")

NO_COUNTERPART: Mapping[str, str] = MappingProxyType(
    {
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "batches are cut by "
        "training.tokens_per_batch, which does not change the loss",
        "actor_rollout_ref.actor.use_dynamic_bsz": "batches are always cut by tokens, see "
        "training.tokens_per_batch",
        "actor_rollout_ref.agentgym.max_retries": "clients wait for their server for two minutes, "
        "and rollout.max_restarts plays an episode again",
        "actor_rollout_ref.model.external_lib": "code is named by env.name, agent.type, "
        'algorithm.type ("module:Class")',
        "actor_rollout_ref.model.override_config": "a model is loaded as it was saved",
        "actor_rollout_ref.model.trust_remote_code": "code that comes with a model is never run",
        "actor_rollout_ref.model.use_liger": "the learner has its own fused loss",
        "actor_rollout_ref.model.use_remove_padding": "sequences are always packed",
        "actor_rollout_ref.rollout.dtype": "the engine computes in model.dtype",
        "actor_rollout_ref.rollout.enable_chunked_prefill": "the engine decides; see "
        "engine.max_batch_tokens",
        "actor_rollout_ref.rollout.enforce_eager": "see engine.compile",
        "actor_rollout_ref.rollout.free_cache_engine": "the engine makes room by itself",
        "actor_rollout_ref.rollout.ignore_eos": "a reply ends at the model's own stop tokens",
        "actor_rollout_ref.rollout.load_format": "engine and learner share their weights",
        "actor_rollout_ref.rollout.max_model_len": "data.max_prompt_length + "
        "data.max_response_length is the smaller limit, and is rollout.max_tokens here",
        "actor_rollout_ref.rollout.max_num_batched_tokens": "see engine.max_batch_tokens",
        "actor_rollout_ref.rollout.name": "the native engine is used; engine.type=vllm takes vLLM",
        "actor_rollout_ref.rollout.rollout_log_dir": "episodes are always stored in the run folder",
        "actor_rollout_ref.rollout.send_interval": "nothing waits between rounds",
        "actor_rollout_ref.rollout.top_k": "sampling is from the whole distribution, which the "
        "learner's probabilities are of",
        "actor_rollout_ref.rollout.top_p": "as top_k",
        "critic.model.path": "the critic begins with the policy's model",
        "data.prompt_key": "a task file has item_id",
        "data.return_raw_chat": "conversations are always kept",
        "data.shuffle": "tasks come in a new random order every epoch",
        "data.truncation": "a prompt that is too long is refused",
        "trainer.default_hdfs_dir": "checkpoints are in the run folder",
        "trainer.default_local_dir": "the run folder is given on the command line: --run-dir",
        "trainer.del_local_ckpt_after_load": "a checkpoint is kept until newer ones replace it",
        "trainer.experiment_name": "the name of the run folder (--run-dir)",
        "trainer.logger": "metrics.jsonl always; others by name: tracking=['wandb']",
        "trainer.project_name": "tracking_project, where tracking names a tracker",
        "trainer.remove_previous_ckpt_in_save": "see checkpoint.keep",
        "trainer.resume_from_path": "agentgym train --run-dir DIR --resume",
        "trainer.resume_mode": "agentgym train --run-dir DIR --resume",
        "trainer.storage_mode": "checkpoints are in the run folder",
    }
)
"""Key -> why there is no setting for it here, or what does the same."""

NO_COUNTERPART_BLOCKS: Mapping[str, str] = MappingProxyType(
    {
        "actor_rollout_ref.actor.fsdp_config.": "training.shards spreads the learner over GPUs",
        "actor_rollout_ref.ref.": "the reference is in the CPU's memory while it does not score",
        "actor_rollout_ref.rollout.log_prob_": "batches are cut by training.tokens_per_batch",
        "critic.": "of the critic only its learning rate and clip range are settings",
        "hydra.": "settings are one file and the overrides of the command line",
    }
)

ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {"grpo": "grpo", "gae": "ppo", "rloo": "rloo", "reinforce_plus_plus": "reinforce_pp"}
)
"""Advantage estimator -> algorithm.type."""
KL_ESTIMATORS: Mapping[str, str] = MappingProxyType({"kl": "k1", "mse": "k2", "low_var_kl": "k3"})
TRAIN_SIZES: Mapping[str, int] = MappingProxyType(
    {"babyai": 810, "sciworld": 2120, "searchqa": 169_615, "textcraft": 374, "webarena": 372}
)
"""Tasks of the published training files, for the length of an epoch where the file is not here."""
