"""Loading and saving a policy: a model directory, a hub name, a GGUF file, or the tiny model.

Loading runs no code that comes with a model (model_folder.py says how).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jinja2 import TemplateError
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agentgym_rl.config import ModelConfig
from agentgym_rl.envs.base import ToolSchema
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.device import choose_device
from agentgym_rl.models.float32_logits import keep_float32_logits
from agentgym_rl.models.gguf import SMOLLM2, find_gguf, load_gguf, load_gguf_tokenizer
from agentgym_rl.models.lora import has_lora, save_adapter, save_merged
from agentgym_rl.models.model_folder import check_model_folder
from agentgym_rl.models.tiny import (
    build_tiny_model,
    quiet_unseen_tokens,
    train_tokenizer,
)
from agentgym_rl.runs.durable import put_in_place

TINY = "tiny"
ADAPTER = "adapter"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_ALIGNMENT = 64
"""Bytes: what torch itself gives every tensor."""

_ACCEPTED = (
    "model.path takes a directory written by save_pretrained, a hub name, a .gguf file, "
    f'"{SMOLLM2}" or "{TINY}"'
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer and the renderer of its conversations.

    The engine and the learner hold the same object: an update is seen by both at once.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: ChatRenderer

    def __post_init__(self) -> None:
        keep_float32_logits(self.model)
        # The engine stops at the tokens that the renderer takes off a reply, and at no others.
        renderer = self.renderer.with_stops(_declared_stops(self.model))
        object.__setattr__(self, "renderer", renderer)

    @property
    def max_context(self) -> int:
        """The longest sequence the model accepts."""
        return int(self.model.config.max_position_embeddings)

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end a reply: the chat template's, and those that the model declares."""
        return frozenset(self.renderer.stop_token_ids)

    def with_tools(self, tools: Sequence[ToolSchema]) -> Policy:
        """Return the policy with prompts that show tools, if its chat template shows any."""
        return replace(self, renderer=self.renderer.with_tools(tools))

    def save(self, folder: Path) -> None:
        """Write a directory for transformers' `from_pretrained`; it appears only when whole.

        With LoRA the weights include the adapter, which is also in the folder `ADAPTER` by itself.
        """
        writing = folder.with_name(f".{folder.name}.writing")
        shutil.rmtree(writing, ignore_errors=True)
        if has_lora(self.model):
            save_merged(self.model, writing)
            save_adapter(self.model, writing / ADAPTER)
        else:
            self.model.save_pretrained(writing, state_dict=_weights_on_host(self.model))
        self.tokenizer.save_pretrained(writing)
        for weights in writing.rglob("*.safetensors"):
            # safetensors lets the owner alone read its files; the others follow the umask.
            shutil.copymode(writing / "config.json", weights)
        shutil.rmtree(folder, ignore_errors=True)
        put_in_place(writing, folder)

    def save_tokenizer(self, folder: Path) -> None:
        """Write the tokenizer alone, unless it is there; the folder appears only when whole."""
        if not folder.exists():
            writing = folder.with_name(f".{folder.name}.writing")
            shutil.rmtree(writing, ignore_errors=True)
            self.tokenizer.save_pretrained(writing)
            put_in_place(writing, folder)


def _declared_stops(model: PreTrainedModel) -> list[int]:
    """Return the stop tokens of the model's `generation_config`; Qwen and Llama have several."""
    declared = getattr(model.generation_config, "eos_token_id", None)  # may be missing
    ids = declared if isinstance(declared, list) else [declared]
    return [id_ for id_ in ids if id_ is not None]


def _weights_on_host(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights in the CPU's memory; those that are tied stay one tensor.

    Left to itself, transformers copies weights that share memory (joined layers) on the GPU.
    """
    copies = dict[tuple[int, torch.Size], Tensor]()
    weights = dict[str, Tensor]()
    for name, weight in model.state_dict().items():
        key = (weight.data_ptr(), weight.shape)
        if key not in copies:
            copies[key] = weight.cpu()
        weights[name] = copies[key]
    return weights


def load_policy(
    config: ModelConfig,
    *,
    seed: int,
    texts: Callable[[], Iterable[str]],
) -> Policy:
    """Return the policy that a recipe names; `texts` gives a new tokenizer what to learn from."""
    dtype, device = DTYPES[config.dtype], choose_device(config.device)
    if config.path == TINY:
        own_texts = list(texts())
        tokenizer = train_tokenizer(own_texts, vocab_size=config.tiny.vocab_size)
        model = build_tiny_model(config.tiny, tokenizer, seed=seed)
        quiet_unseen_tokens(model, tokenizer, own_texts)
        # Not `model.to`: it would round the rotary frequencies, which are buffers, as well.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return _policy(model, tokenizer, device)
    return load_pretrained(config.path, dtype=config.dtype, device=config.device)


def load_pretrained(path: str | Path, *, dtype: str = "float32", device: str = "auto") -> Policy:
    """Return the policy saved in a directory, in a GGUF file, or published under a hub name.

    Its weights are rounded to `dtype`, in which the engine and the learner both compute. Both
    arguments are as in `[model]`.
    """
    target, text = choose_device(device), str(path)
    gguf = _find_model(text)
    try:
        if gguf is not None:
            model, tokenizer = load_gguf(gguf, dtype=DTYPES[dtype])
        else:
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(
                path,
                dtype=DTYPES[dtype],
                attn_implementation=ATTENTION,
                trust_remote_code=False,
                use_safetensors=True,
            )
    except (OSError, ValueError, SafetensorError) as error:
        reason = _reason(error)
        raise ConfigError(
            f"cannot load a causal language model from {text!r}: {reason} - {_ACCEPTED}"
        ) from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "from_pretrained found one"
    return _policy(model, tokenizer, target)


def policy_of(model: object, tokenizer: object) -> Policy:
    """Return a loaded model of transformers as a policy, on the device that it is on.

    It is the same model, with our attention, and without dropout: the learner must see the
    probabilities of the engine. Raises ValueError for anything that cannot be one.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"model={model!r} is not a model: give a path, a hub name, or a loaded causal language "
            "model of transformers with its tokenizer"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"model={type(model).__name__}(...) is loaded, so its tokenizer is needed as well, not "
            f"{tokenizer!r}: pass tokenizer=AutoTokenizer.from_pretrained(...)"
        )
    if model.dtype not in DTYPES.values():
        raise ValueError(
            f"model={type(model).__name__}(...) has weights in {model.dtype}: convert them with "
            f"model.to, to one of {', '.join(f'torch.{name}' for name in DTYPES)}"
        )
    if has_lora(model):
        raise ValueError(
            f"model={type(model).__name__}(...) has a LoRA adapter: merge it first, with "
            "merge_and_unload() of peft; lora.rank gives the run one of its own"
        )
    model.set_attn_implementation(ATTENTION)
    return _policy(model, tokenizer, model.device)


def check_model(path: str) -> None:
    """Raise ConfigError where no model can be there, without reading its weights.

    What a hub name stands for is left to `load_pretrained`: to ask the hub may take long.
    """
    if _find_model(path) is None and Path(path).is_dir():
        try:
            AutoConfig.from_pretrained(path, trust_remote_code=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"cannot read the config.json of {path!r}: {reason}") from error


def _find_model(text: str) -> Path | None:
    """Return the GGUF file that `model.path` means, if any; a directory must hold a model."""
    gguf = find_gguf(text)
    is_local = text.startswith((".", "/", "~")) or text.count("/") > 1
    if gguf is None and (is_local or Path(text).exists()):
        _check_directory(text)
    return gguf


def _check_directory(text: str) -> None:
    """Raise ConfigError for what can hold no model."""
    path = Path(text)
    if path.is_file():
        raise ConfigError(f"{text!r} is a file, but not one of GGUF; {_ACCEPTED}")
    if not path.is_dir():
        raise ConfigError(f"there is no model directory {text!r}; {_ACCEPTED}")
    if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        hint = f"; take its model, {str(path / 'model')!r}" if (path / "model").is_dir() else ""
        raise ConfigError(f"{text!r} is no model directory: it has no config.json{hint}")
    check_model_folder(path)


def load_renderer(path: str) -> ChatRenderer:
    """Return the renderer of a model that `load_pretrained` takes, without its weights."""
    gguf = find_gguf(path)
    try:
        if gguf is not None:
            tokenizer = load_gguf_tokenizer(gguf)
        else:
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load a tokenizer from {path!r}: {_reason(error)}") from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "from_pretrained found one"
    return _renderer(tokenizer)


def _reason(error: Exception) -> str:
    """Return why a model was not loaded, in one line."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:  # the remedy that transformers names is not offered here
        return (
            "it needs code that comes with it, which is never run; use a model of a kind that "
            "transformers knows"
        )
    return text


def _policy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> Policy:
    nn.Module.to(model, device)  # transformers' own `to` has no types
    if device.type == "cpu":
        _align(model)
    # Dropout is off in training too: the learner must see the probabilities of the engine.
    return Policy(model=model.eval(), tokenizer=tokenizer, renderer=_renderer(tokenizer))


def _align(model: PreTrainedModel) -> None:
    """Move weights that lie in a mapped file, at any byte, to memory of their own.

    Some libraries round by alignment: a run that loads its weights anew must not differ by that.
    """
    for parameter in model.parameters():
        if parameter.data_ptr() % _ALIGNMENT:
            parameter.data = parameter.data.clone()


def _renderer(tokenizer: PreTrainedTokenizerBase) -> ChatRenderer:
    try:
        return ChatRenderer(tokenizer)
    except TemplateError as error:  # transformers renders in a sandbox, which forbids much
        raise ConfigError(
            f"the chat template of {tokenizer.name_or_path!r} cannot be rendered: {error}"
        ) from error
