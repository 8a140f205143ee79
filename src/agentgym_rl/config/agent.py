"""The sections of a recipe about the agent: formats, planning, reflection, memory, what is learned.

Planning, reflection and memory are off by default and work in any combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from agentgym_rl.config.base import BaseConfig
from agentgym_rl.errors import did_you_mean
from agentgym_rl.lookup import is_own

_MODULES = "agentgym_rl.agents.formats"
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "react": f"{_MODULES}.plain:ReActFormat",
        "direct": f"{_MODULES}.plain:DirectFormat",
        "tags": f"{_MODULES}.tags:TagsFormat",
        "function_call": f"{_MODULES}.function_call:FunctionCallFormat",
        "code": f"{_MODULES}.code:CodeFormat",
    }
)
"""Built-in format -> its class: the one table that a new one is added to."""


class PlanningConfig(BaseConfig):
    """A plan that the policy writes before its first action; it stays in the context."""

    enabled: bool = False
    """Ask for a plan before the first action."""

    every: int = Field(default=0, ge=0)
    """Ask for a new plan after this many rounds; 0 asks only at the start."""

    on_stall: int = Field(default=0, ge=0)
    """Ask for a new plan after this many rounds in a row that earned nothing and whose action was
    invalid or led to an observation seen before; 0 never does."""

    @model_validator(mode="after")
    def _check_enabled(self) -> PlanningConfig:
        if not self.enabled and (self.every or self.on_stall):
            raise ValueError(
                f"every={self.every} and on_stall={self.on_stall} say when to write plans, but "
                "planning is off: set agent.planning.enabled=true, or leave them out"
            )
        return self


class ReflectionConfig(BaseConfig):
    """After a failed try the policy writes a reflection, then tries again with it in the context
    (arXiv:2303.11366)."""

    tries: int = Field(default=1, ge=1)
    """Most tries at a task in one episode; 1 for no reflection. Each try has the whole horizon."""

    credit: Literal["improvement", "episode"] = "improvement"
    """What a reflection is credited with: what later tries earn beyond the try before it, or all
    that the last try earns."""


class MemoryConfig(BaseConfig):
    """What stays in the context."""

    type: Literal["full", "window", "summary"] = "full"
    """`full`: everything, and a full context ends the try; `window`: the task and the latest
    rounds; `summary`: the latest rounds, and a summary of the others that the policy writes."""

    rounds: int = Field(default=8, ge=1)
    """Most rounds in a context. When the limit is reached, or the tokens run out, the older half
    leaves."""


TokenKind = Literal["thought", "action", "plan", "reflection", "summary"]
"""A kind of token that a policy samples; a reply whose thought cannot be separated is all action.
"""


def _without_ones(weights: dict[TokenKind, float]) -> dict[TokenKind, float]:
    return {kind: weight for kind, weight in weights.items() if weight != 1.0}


def check_format(name: str) -> str:
    """Return the name of an action format. Raises ValueError for an unknown one."""
    if name not in FORMATS and not is_own(name):
        raise ValueError(
            f"{name!r} is not a format{did_you_mean(name, FORMATS)}; available: "
            f'{", ".join(FORMATS)}, and any class as "module:Class"'
        )
    return name


class EnvAgentConfig(BaseConfig):
    """The part of `[agent]` that may differ between the environments of a run."""

    type: str = "standard"
    """`standard`, or "module:Class" for an agent of your own (docs/agents.md)."""

    format: Annotated[str, AfterValidator(check_format)] = "react"
    """`react`: a thought, then a line with an action; `direct`: the reply is the action; `tags`:
    `<think>`, then the environment's tags or `<action>`; `function_call`: a tool call in JSON;
    `code`: a thought, then a fenced block; or "module:Class" for a format of your own."""

    include_instructions: bool = True
    """Put the environment's instructions before the first observation. A model made from scratch
    cannot read them, and is faster without them."""

    past_thoughts: Literal["keep", "strip"] = "keep"
    """Whether thoughts stay in the context after their round. Chat templates of thinking models
    strip them; each round is then a separate sample."""

    planning: PlanningConfig = PlanningConfig()
    reflection: ReflectionConfig = ReflectionConfig()
    memory: MemoryConfig = MemoryConfig()


class AgentConfig(EnvAgentConfig):
    """What the model is shown and asked for, and how its replies become actions."""

    train: Annotated[
        dict[TokenKind, Annotated[float, Field(ge=0, le=1000)]], AfterValidator(_without_ones)
    ] = Field(default_factory=dict)
    """Weights of kinds of tokens in the loss, such as { thought = 0.5, plan = 0 }. Kinds are
    thought, action, plan, reflection and summary; the default is 1, and 0 gives no gradient."""

    @model_validator(mode="after")
    def _check_that_something_is_learned(self) -> AgentConfig:
        has_kind: dict[TokenKind, bool] = {
            "thought": True,
            "action": True,
            "plan": self.planning.enabled,
            "reflection": self.reflection.tries > 1,
            "summary": self.memory.type == "summary",
        }
        is_own = self.type != "standard"  # which may sample any kind
        learned = [
            kind
            for kind, has in has_kind.items()
            if (has or is_own) and self.train.get(kind, 1.0) > 0
        ]
        if not learned:
            raise ValueError(
                "agent.train gives weight 0 to every kind of token that this agent samples: "
                "nothing would be learned; leave one above 0"
            )
        return self
