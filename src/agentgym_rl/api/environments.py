"""`agentgym_rl.make`."""

from __future__ import annotations

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment


def make(env: str | type[Environment], **options: object) -> Environment:
    """Return a new environment: one object plays one episode at a time.

    `env` is a name ("textcraft", "gymnasium/Taxi-v4", "module:Class") or a class; options are the
    keyword arguments of its constructor, as `env.options` in a recipe. Raises ValueError for an
    unknown name or option, and EnvError where a package is missing, with the remedy.
    """
    cls = registry.env_class(env) if isinstance(env, str) else env
    return registry.construct(registry.configured(cls, options), options)
