"""Frozen configuration: TOML recipes and dotted overrides, parsed once.

Other parts import from here; the modules of this package are private.
"""

from agentgym_rl.config.agent import AgentConfig, TokenKind
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
from agentgym_rl.config.callbacks import CallbacksConfig, judged_metric
from agentgym_rl.config.cluster import ClusterConfig
from agentgym_rl.config.envs import EnvTableConfig, naming_env
from agentgym_rl.config.ignored import Ignored, reset_ignored
from agentgym_rl.config.load import dump_config, load_config, parse_config, parse_value
from agentgym_rl.config.model_names import SMOLLM2, TINY, is_meant_as_path
from agentgym_rl.config.recipes import find_recipe, packaged_recipes, read_table
from agentgym_rl.config.rounds import (
    AdaptiveRoundsConfig,
    FixedRoundsConfig,
    RoundsBaseConfig,
    RoundsConfig,
    StepRoundsConfig,
)
from agentgym_rl.config.run import RunConfig
from agentgym_rl.config.sections import (
    EngineBaseConfig,
    EngineConfig,
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
from agentgym_rl.config.tracking import TRACKERS
