"""The shape of the model that `model.path` names, as far as this machine knows it.

Directories and the hub's cache are read without transformers: config.json, and the headers of
safetensors, which say exactly how many weights there are. Nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentgym_rl.config import ModelConfig
from agentgym_rl.errors import install_command
from agentgym_rl.runs.regular_files import MEGABYTE, open_regular, read_regular
from agentgym_rl.sizing.plan import TINY
from agentgym_rl.sizing.shape import QWEN25, SMOLLM2_135M, ModelShape, shape_of_config, tiny_shape

SMOLLM2 = "smollm2-135m"
TINY_CONTEXT = 2048
_KNOWN = re.compile(r"Qwen/Qwen2\.5(?:-Coder|-Math)?-([\d.]+B)(?:-Instruct)?")
_MAX_HEADER_BYTES = 100 * MEGABYTE


class UnknownModelError(ValueError):
    """The memory of a model cannot be estimated; the message says why, and what would help."""


def find_shape(config: ModelConfig) -> ModelShape:
    """Return the shape of the recipe's model. Raises UnknownModelError where it is not known."""
    try:
        shape = _shape_of(config)
        sizes = (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.head_dim)
        if min(*sizes, shape.vocab, shape.num_weights) < 1:
            raise ValueError("its files name a size below 1")
        return shape
    except UnknownModelError:
        raise
    except Exception as error:  # whatever a damaged file makes of those who read it
        raise UnknownModelError(f"the size of {config.path!r} is not known: {error}") from error


def _shape_of(config: ModelConfig) -> ModelShape:
    if config.path == TINY:
        tiny = config.tiny
        return tiny_shape(
            vocab=tiny.vocab_size,
            hidden=tiny.hidden_size,
            layers=tiny.num_layers,
            max_context=TINY_CONTEXT,
        )
    path = Path(config.path).expanduser()
    if path.suffix == ".gguf":
        return _gguf_shape(path)
    if path.is_dir():
        return _folder_shape(path)
    if config.path == SMOLLM2:
        return SMOLLM2_135M
    if (folder := _cached(config.path)) is not None:
        return _folder_shape(folder)
    known = _KNOWN.fullmatch(config.path)
    if known and known[1] in QWEN25:
        return QWEN25[known[1]]
    raise UnknownModelError(
        f"{config.path!r} is not on this machine, so its size is not known; one small file is "
        f"enough: hf download {config.path} config.json"
        if re.fullmatch(r"[\w.-]+/[\w.-]+", config.path)
        else f"there is no model {config.path!r} here yet, so its size is not known"
    )


def _folder_shape(folder: Path) -> ModelShape:
    """Return what config.json says, with the weights that the files have."""
    config = _json(read_regular((folder / "config.json").resolve(), max_bytes=MEGABYTE))
    shape = shape_of_config(config)
    num_weights = _num_weights(folder)
    if num_weights:
        return replace(shape, num_weights=num_weights)
    if not shape.num_weights:
        raise UnknownModelError(
            f"the size of {str(folder)!r} is not known: {config.get('model_type')!r} is not a "
            "family whose weights are counted from config.json, and the weights are not there"
        )
    return shape


def _num_weights(folder: Path) -> int:
    """Return how many weights the files have; 0 if not all are there, or of an adapter's file."""
    index, files = folder / "model.safetensors.index.json", [folder / "model.safetensors"]
    if index.is_file():
        names = _json(read_regular(index.resolve(), max_bytes=64 * MEGABYTE))["weight_map"]
        files = [folder / str(name) for name in set(names.values())]
    if not all(file.is_file() for file in files):
        return 0
    return sum(map(_weights_in, files))


def _weights_in(file: Path) -> int:
    """Return how many weights a file of safetensors says it has."""
    with open_regular(file.resolve()) as stream:  # each file in the hub's cache is a link
        size = int.from_bytes(stream.read(8), "little")
        if size > _MAX_HEADER_BYTES:
            raise ValueError(f"{file.name} is not a file of safetensors")
        header = _json(stream.read(size))
    tensors = (tensor for name, tensor in header.items() if name != "__metadata__")
    return sum(math.prod(tensor["shape"]) for tensor in tensors)


def _json(text: bytes) -> dict[str, Any]:  # Any: whatever a file says
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _cached(name: str) -> Path | None:
    """Return the folder of a model in the hub's cache, if its config.json is there."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache  # it comes with the training extra
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _gguf_shape(file: Path) -> ModelShape:
    """Return the shape of a GGUF file from its header."""
    if not file.is_file():
        raise UnknownModelError(f"there is no GGUF file {str(file)!r}")
    if importlib.util.find_spec("gguf") is None:
        raise UnknownModelError(
            f"{file.name} is read by the package gguf, which is missing: {install_command('gguf')}"
        )
    from gguf import GGUFReader  # an optional extra

    reader = GGUFReader(file)
    tensors = {
        tensor.name: [int(size) for size in tensor.shape] for tensor in reader.tensors
    }  # widths first
    family = str(reader.fields["general.architecture"].contents())

    def number(key: str, default: int = 0) -> int:
        field = reader.fields.get(f"{family}.{key}")
        return int(field.contents()) if field is not None else default

    hidden, heads = number("embedding_length"), number("attention.head_count")
    vocab = tensors["token_embd.weight"][1]
    # A separate output is taken for a copy of the embeddings, as most files of small models have
    # (models/gguf.py compares them); hidden layers alone tell large models, which are not tied.
    output = tensors.get("output.weight")
    is_tied = output is None or hidden <= 2048
    num_weights = sum(math.prod(shape) for shape in tensors.values())
    return ModelShape(
        hidden=hidden,
        feed_forward=number("feed_forward_length"),
        layers=number("block_count"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // heads),
        vocab=vocab,
        is_tied=is_tied,
        max_context=number("context_length"),
        has_head_norms="blk.0.attn_q_norm.weight" in tensors,
        num_weights=num_weights - (vocab * hidden if is_tied and output is not None else 0),
    )
