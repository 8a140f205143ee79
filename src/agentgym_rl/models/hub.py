"""Whether a model's name can be looked up on the hub, asked once before anything else is done.

The hub's own client asks again and again, for minutes, where there is no network. No torch here.
"""

from __future__ import annotations

import os
from pathlib import Path

from agentgym_rl.config import SMOLLM2, TINY, is_meant_as_path
from agentgym_rl.errors import ConfigError

_TIMEOUT_S = 5.0


def is_hub_name(name: str) -> bool:
    """Whether a model is meant to be on the hub: it is no path, no file and none of ours."""
    if not name or name in (TINY, SMOLLM2) or Path(name).suffix == ".gguf":
        return False
    return not is_meant_as_path(name) and not Path(name).exists()


def check_hub_name(name: str) -> None:
    """Raise ConfigError for a name that is neither on this machine nor can be asked for.

    A hub that answers, whatever it says, is left to the code that loads: it knows tokens, redirects
    and revisions, and has better words.
    """
    if not is_hub_name(name) or _is_cached(name):
        return
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ConfigError(f"{_told(name)}, and HF_HUB_OFFLINE forbids asking the hub; {_REMEDY}")
    if reason := _unreachable(name):
        raise ConfigError(f"{_told(name)}, and the hub cannot be reached ({reason}); {_REMEDY}")


_REMEDY = (
    "name a directory written by save_pretrained or a .gguf file, or load it once where there is "
    "a network"
)


def _told(name: str) -> str:
    return f"there is no model {name!r} here: it is not a directory, and not in the hub's cache"


def _is_cached(name: str) -> bool:
    try:
        from huggingface_hub import try_to_load_from_cache  # start-up time, and an extra
    except ImportError:
        return True  # what loads models says what is missing
    files = ("config.json", "adapter_config.json", "tokenizer_config.json")
    try:
        return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)
    except ValueError:
        return True  # not a legal name: the loader says so


def _unreachable(name: str) -> str:
    """Return why the hub does not answer at all; empty where it does."""
    from huggingface_hub import constants, get_session  # as above

    try:
        get_session().head(
            f"{constants.ENDPOINT}/{name}/resolve/main/config.json", timeout=_TIMEOUT_S
        )
    except Exception as error:  # noqa: BLE001 - its client has changed its HTTP library before
        return str(error).partition("\n")[0][:200] or type(error).__name__
    return ""
