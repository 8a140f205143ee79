"""Frozen configuration: TOML recipes and dotted overrides, parsed once."""

from agentgym_rl.config.load import (
    dump_config,
    find_recipe,
    load_config,
    parse_config,
    parse_value,
    read_table,
)
from agentgym_rl.config.run import RunConfig
from agentgym_rl.config.sections import (
    AgentConfig,
    EnvConfig,
    EvalConfig,
    FixedRoundsConfig,
    GRPOConfig,
    ModelConfig,
    NativeEngineConfig,
    RolloutConfig,
    SFTConfig,
    StepRoundsConfig,
    TinyModelConfig,
    TrainingConfig,
)

__all__ = [
    "AgentConfig",
    "EnvConfig",
    "EvalConfig",
    "FixedRoundsConfig",
    "GRPOConfig",
    "ModelConfig",
    "NativeEngineConfig",
    "RolloutConfig",
    "RunConfig",
    "SFTConfig",
    "StepRoundsConfig",
    "TinyModelConfig",
    "TrainingConfig",
    "dump_config",
    "find_recipe",
    "load_config",
    "parse_config",
    "parse_value",
    "read_table",
]
