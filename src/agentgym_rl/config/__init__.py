"""Frozen configuration: TOML recipes and dotted overrides, parsed once."""

from agentgym_rl.config.agent import AgentConfig, KindWeightsConfig
from agentgym_rl.config.algorithms import (
    AgentEvolConfig,
    CreditConfig,
    DPOConfig,
    GiGPOConfig,
    GRPOConfig,
    KLConfig,
    OnlineConfig,
    PolicyLossConfig,
    PPOConfig,
    ReinforcePPConfig,
    RLOOConfig,
    SFTConfig,
)
from agentgym_rl.config.idle import reset_idle
from agentgym_rl.config.load import (
    dump_config,
    load_config,
    parse_config,
    parse_value,
)
from agentgym_rl.config.recipes import find_recipe, packaged_recipes, read_table
from agentgym_rl.config.rounds import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    LinearRoundsConfig,
    StepRoundsConfig,
)
from agentgym_rl.config.run import EngineConfig, RoundsConfig, RunConfig
from agentgym_rl.config.sections import (
    EnvConfig,
    EvalConfig,
    LoraConfig,
    ModelConfig,
    NativeEngineConfig,
    OpenAIEngineConfig,
    RewardConfig,
    RolloutConfig,
    TinyModelConfig,
    TrainingConfig,
    VllmEngineConfig,
)

__all__ = [
    "AdaptiveRoundsConfig",
    "AgentConfig",
    "AgentEvolConfig",
    "CreditConfig",
    "DPOConfig",
    "EngineConfig",
    "EnvConfig",
    "EvalConfig",
    "FixedRoundsConfig",
    "GRPOConfig",
    "GiGPOConfig",
    "KLConfig",
    "KindWeightsConfig",
    "LinearRoundsConfig",
    "LoraConfig",
    "ModelConfig",
    "NativeEngineConfig",
    "OnlineConfig",
    "OpenAIEngineConfig",
    "PPOConfig",
    "PolicyLossConfig",
    "RLOOConfig",
    "ReinforcePPConfig",
    "RewardConfig",
    "RolloutConfig",
    "RoundsConfig",
    "RunConfig",
    "SFTConfig",
    "StepRoundsConfig",
    "TinyModelConfig",
    "TrainingConfig",
    "VllmEngineConfig",
    "dump_config",
    "find_recipe",
    "load_config",
    "packaged_recipes",
    "parse_config",
    "parse_value",
    "read_table",
    "reset_idle",
]
