"""Which kind of source the environments of a recipe come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.access.places import AddressPlace, HasOthers, StartedPlace
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.envs.access.server_process import ServerOrder, StartServer, start_here
from agentgym_rl.envs.access.workers import WorkersEnvSource
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.compat.agentgym.source import AgentGymEnvSource
from agentgym_rl.envs.compat.openenv.mapping import OpenEnvOptions
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import ConfigError, did_you_mean


def make_source(
    config: EnvConfig, *, num_servers: int = 0, start: StartServer = start_here
) -> EnvSource:
    """Return where the recipe's environments come from.

    `num_servers` servers are started by `start` for an environment without `url`; 0 needs none.
    """
    if not config.urls:
        if config.dialect != "agentgym_rl":
            raise ConfigError(f"env.dialect={config.dialect} needs a server: set env.url as well")
        return _source_here(config, num_servers, start)
    if config.workers:
        raise ConfigError(
            f"env.workers={config.workers} starts workers on this machine, but the server at "
            f"env.url={config.urls[0]} has its own: remove one of the two"
        )
    connect = _connector(config)
    if len(config.urls) == 1:
        return connect(config.urls[0], lambda: False)
    is_checked = config.dialect == "agentgym_rl"
    places = [AddressPlace(url, connect, is_checked=is_checked) for url in config.urls]
    return EnvPool(places, timeout_s=config.timeout_s)


def _source_here(config: EnvConfig, num_servers: int, start: StartServer) -> EnvSource:
    """Return a source of environments that the run itself holds or has started."""
    if num_servers:
        order = ServerOrder(config.name, config.options, call_timeout_s=config.timeout_s)
        places = [StartedPlace(number, order, start) for number in range(num_servers)]
        return EnvPool(places, timeout_s=config.timeout_s)
    if config.workers:
        return WorkersEnvSource(
            config.name,
            num_workers=config.workers,
            options=config.options,
            timeout_s=config.timeout_s,
        )
    return LocalEnvSource(config.name, options=config.options, timeout_s=config.timeout_s)


def _connector(config: EnvConfig) -> Callable[[str, HasOthers], EnvSource]:
    """Return what makes a source of a server that speaks the recipe's dialect."""
    token = _read_token(config.token_file) if config.token_file else None
    timeout_s = config.timeout_s
    if config.dialect == "openenv":
        options = _openenv_options(config.options)
        return lambda url, has_others: OpenEnvSource(
            url,
            env=config.name,
            token=token,
            timeout_s=timeout_s,
            has_others=has_others,
            options=options,
        )
    if config.options:
        raise ConfigError(
            "env.options are set on the server when env.url is given; leave them out with "
            "'env.options={}'"
        )
    if config.dialect == "agentgym":
        return lambda url, has_others: AgentGymEnvSource(
            url, env=config.name, token=token, timeout_s=timeout_s, has_others=has_others
        )
    return lambda url, has_others: HttpEnvSource(
        url, token=token, timeout_s=timeout_s, has_others=has_others
    )


def _read_token(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"env.token_file: {error}") from error


def _openenv_options(options: Mapping[str, object]) -> OpenEnvOptions:
    known = [field.name for field in fields(OpenEnvOptions)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"env.options has no {name!r}{hint} for an OpenEnv server; it has "
                f"{', '.join(known)}"
            )
    try:
        return TypeAdapter(OpenEnvOptions).validate_python(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"env.options.{first['loc'][0]}: {first['msg']}") from None
