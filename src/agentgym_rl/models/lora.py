"""LoRA (arXiv:2106.09685) with peft: small trained matrices beside frozen weights.

The adapter is added to the policy's own model, so engine and learner both see it and nothing else
changes: all other parameters need no gradient. The policy without its adapter is the reference, at
no cost in memory.

peft is an optional extra, so it is imported where it is used.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.errors import ConfigError, install_command

if TYPE_CHECKING:
    from peft import PeftConfig
    from peft.tuners.lora import LoraLayer

ALL_LINEAR = "all-linear"
"""Every linear layer but the head."""

_ADAPTER = "default"
_PREFIX = "base_model.model."
"""What peft puts before the names of weights in its files."""
_WEIGHTS = "adapter_model.safetensors"


def add_lora(
    model: PreTrainedModel,
    *,
    rank: int,
    alpha: int,
    targets: str | Sequence[str] = ALL_LINEAR,
    seed: int,
) -> None:
    """Add an adapter that changes nothing yet, and freeze all other weights.

    `targets` names layers, such as "q_proj" or "lm_head". Updates are scaled by alpha / rank.
    There is no dropout: the learner must see the probabilities of the engine.
    """
    require_peft()
    from peft import LoraConfig  # an optional extra

    names = targets if isinstance(targets, str) else list(targets)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=names, lora_dropout=0.0)
    config.base_model_name_or_path = model.name_or_path
    with torch.random.fork_rng(devices=[model.device] if model.device.type != "cpu" else ()):
        torch.manual_seed(seed)
        _inject(model, config)


def has_lora(model: PreTrainedModel) -> bool:
    return any(".lora_" in name for name, _ in model.named_parameters())


def lora_rank(model: PreTrainedModel) -> int:
    """Return the rank of the adapter; 0 without one."""
    return max((layer.r[_ADAPTER] for layer in _lora_layers(model).values()), default=0)


@contextlib.contextmanager
def reference_policy(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Give the policy as it was before training: without its adapter and without gradients.

    Nothing may be generated meanwhile, because the engine has the same model.
    """
    layers = _lora_layers(model)
    if not layers:
        raise ValueError("a model without LoRA is not its own reference: keep a copy of it")
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for layer in layers.values():
        layer.enable_adapters(enabled=False)
    for weight in trained:
        # peft freezes the adapter, too. A sharded model's first pass must see what is trained: it
        # chooses the type of gradients.
        weight.requires_grad_(True)
    try:
        with torch.no_grad():
            yield model
    finally:
        for layer in layers.values():
            layer.enable_adapters(enabled=True)


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write only the adapter, for `load_adapter` and for peft's `from_pretrained`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(
        {_PREFIX + name: weight.contiguous() for name, weight in _adapter_weights(model).items()},
        folder / _WEIGHTS,
        metadata={"format": "pt"},
    )
    model.peft_config[_ADAPTER].save_pretrained(str(folder))


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Add a saved adapter to the model it was trained on, to train it further."""
    require_peft()
    from peft import LoraConfig  # an optional extra

    if not (folder / _WEIGHTS).is_file():
        raise ConfigError(f"there is no LoRA adapter in {str(folder)!r}")
    config = LoraConfig.from_pretrained(str(folder))
    config.inference_mode = False  # peft writes True, under which the adapter would be frozen
    _inject(model, config)
    reload_adapter(model, folder)


def reload_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Fill the model's adapter with a saved one."""
    from peft import set_peft_model_state_dict  # an optional extra

    saved = load_file(folder / _WEIGHTS, device=str(model.device))
    weights = {name.removeprefix(_PREFIX): weight for name, weight in saved.items()}
    wanted = _adapter_weights(model)
    shapes, wanted_shapes = (
        {name: weight.shape for name, weight in w.items()} for w in (weights, wanted)
    )
    if shapes != wanted_shapes:
        raise ConfigError(
            f"the adapter in {str(folder)!r} belongs to another model: of its {len(shapes)} "
            f"weights {len(shapes.items() & wanted_shapes.items())} fit, and {len(wanted)} are "
            "needed"
        )
    set_peft_model_state_dict(model, weights, adapter_name=_ADAPTER)


def merged_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights with the adapter added; training does not change them afterwards.

    The model itself is not touched: merging and unmerging in place would change its last bits.
    """
    return _plain_weights(model, is_merged=True)


def save_merged(model: PreTrainedModel, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write an ordinary model directory with `merged_weights`."""
    model.save_pretrained(folder, state_dict=dict(weights))
    heads = (model.get_input_embeddings(), model.get_output_embeddings())
    if model.config.tie_word_embeddings and any(
        head in _lora_layers(model).values() for head in heads
    ):
        # Only one of the two has the adapter, so they are no longer the same matrix.
        file = folder / "config.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(config | {"tie_word_embeddings": False}, indent=2), "utf-8")


def save_base(model: PreTrainedModel, folder: Path) -> None:
    """Write an ordinary model directory without the adapter."""
    model.save_pretrained(folder, state_dict=_plain_weights(model, is_merged=False))


def _adapter_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    from peft import get_peft_model_state_dict  # an optional extra

    # By default peft may ask the hub whether to save embeddings.
    return get_peft_model_state_dict(model, adapter_name=_ADAPTER, save_embedding_layers=False)


@torch.no_grad()
def _plain_weights(model: PreTrainedModel, *, is_merged: bool) -> dict[str, Tensor]:
    """Return the weights under their names without an adapter."""
    from peft.tuners.lora import Embedding, Linear  # an optional extra

    layers, plain = _lora_layers(model), dict[str, Tensor]()
    for name, weight in model.state_dict().items():
        if ".lora_" in name:
            continue
        owner, found, rest = name.partition(".base_layer.")
        if is_merged and found and owner in layers and rest == "weight":
            layer = layers[owner]
            assert isinstance(layer, Linear | Embedding), "peft adapts only those in a decoder"
            delta = layer.get_delta_weight(_ADAPTER)
            weight = (weight.float() + delta.float()).to(weight.dtype).cpu()
        plain[name.replace(".base_layer.", ".")] = weight
    return plain


def _inject(model: PreTrainedModel, config: PeftConfig) -> None:
    from peft import inject_adapter_in_model  # an optional extra

    if has_lora(model):
        raise ValueError("the model has an adapter already")
    try:
        inject_adapter_in_model(config, model, adapter_name=_ADAPTER)
    except ValueError as error:
        raise ConfigError(f"LoRA does not fit {type(model).__name__}: {error}") from error
    model.eval()


def _lora_layers(model: PreTrainedModel) -> dict[str, LoraLayer]:
    if not has_lora(model):
        return {}
    from peft.tuners.lora import LoraLayer  # an optional extra

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}


def require_peft() -> None:
    """Raise ConfigError if the package is missing."""
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(f"LoRA needs peft: {install_command('lora')}")
