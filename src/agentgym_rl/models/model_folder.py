"""Checks a model directory: loading a model never runs code that came with it.

Reading pickled weights can run anything, so only safetensors are read. Code beside the weights
(`auto_map`) is never imported: every call says `trust_remote_code=False`, or transformers would ask
on the terminal. What it would still read from elsewhere is refused here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular

_MAX_JSON_BYTES = 64 * MEGABYTE
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_ADAPTER_CONFIG, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_REMEDY = (
    "only safetensors are loaded, because pickled weights can run code; if you trust them, convert "
    "them with transformers' save_pretrained"
)


def check_model_folder(folder: Path) -> None:
    """Raise ConfigError for weights that could run code, or that lie outside the folder."""
    config = _read(folder / "config.json")
    named = config.get("transformers_weights")
    if named is not None:
        _check_weights_file(folder, named, suffixes=(".safetensors", ".safetensors.index.json"))
    for key, value in _items(config):
        if key.endswith("_implementation") and "/" in str(value):
            raise ConfigError(
                f"config.json in {str(folder)!r} wants code from elsewhere ({key}={value!r}): "
                "remove that line"
            )
    index = _read(folder / _INDEX).get("weight_map", {})
    for name in index.values() if isinstance(index, dict) else (index,):
        _check_weights_file(folder, name, suffixes=(".safetensors",))
    has_adapter = (folder / _ADAPTER_CONFIG).is_file()
    wanted = (_ADAPTER_WEIGHTS,) if has_adapter else (_WEIGHTS, _INDEX)
    if not named and not any((folder / name).is_file() for name in wanted):
        found = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES)
        if found:
            raise ConfigError(f"the weights in {str(folder)!r} are {', '.join(found)}: {_REMEDY}")
    if has_adapter:
        base = _read(folder / _ADAPTER_CONFIG).get("base_model_name_or_path")
        if isinstance(base, str) and Path(base).is_dir() and not Path(base).samefile(folder):
            check_model_folder(Path(base))


def _check_weights_file(folder: Path, name: object, *, suffixes: tuple[str, ...]) -> None:
    if not isinstance(name, str) or PurePosixPath(name).name != name or "\\" in name:
        raise ConfigError(
            f"{str(folder)!r} names {name!r} as its weights, which is not a file inside it"
        )
    if not name.endswith(suffixes):
        raise ConfigError(f"{str(folder)!r} names {name} as its weights: {_REMEDY}")


def _items(table: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Yield every key with its value, including those of nested tables."""
    waiting = [table]
    while waiting:
        for key, value in waiting.pop().items():
            yield key, value
            if isinstance(value, dict):
                waiting.append(value)


def _read(file: Path) -> dict[str, object]:
    """Return a JSON object; an empty one if there is no file."""
    if not file.exists():
        return {}
    try:
        # Resolved, because every file in the hub's cache is a link.
        found = json.loads(read_regular(file.resolve(), max_bytes=_MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return found
