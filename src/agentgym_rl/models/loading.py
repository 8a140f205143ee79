"""Loads and saves a policy: a model directory, a hub name, a GGUF file, or the tiny model.

Loading never runs code that comes with a model (see model_folder.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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

from agentgym_rl.config import SMOLLM2, TINY, ModelConfig, is_meant_as_path
from agentgym_rl.envs.base import ToolSchema
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.device import choose_device
from agentgym_rl.models.float32_logits import keep_float32_logits
from agentgym_rl.models.gguf import find_gguf, load_gguf, load_gguf_tokenizer
from agentgym_rl.models.hub import check_hub_name
from agentgym_rl.models.lora import (
    has_lora,
    merged_weights,
    reload_adapter,
    save_adapter,
    save_base,
    save_merged,
)
from agentgym_rl.models.model_folder import check_model_folder
from agentgym_rl.models.tiny import build_tiny_model, quiet_unseen_tokens, train_tokenizer
from agentgym_rl.runs.durable import put_in_place, replace_folder

ADAPTER = "adapter"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_ALIGNMENT = 64
"""Bytes; torch itself gives it to every tensor."""

_ACCEPTED = (
    "model.path takes a directory written by save_pretrained, a hub name, a .gguf file, "
    f'"{SMOLLM2}" or "{TINY}"'
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A model with its tokenizer and the renderer of its conversations.

    The engine and the learner share the object, so both see an update at once.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    renderer: ChatRenderer

    def __post_init__(self) -> None:
        keep_float32_logits(self.model)
        # The engine must stop at exactly the tokens that the renderer takes off a reply.
        renderer = self.renderer.with_stops(_declared_stops(self.model))
        object.__setattr__(self, "renderer", renderer)

    @property
    def max_context(self) -> int:
        return int(self.model.config.max_position_embeddings)

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end a reply: those of the chat template, and those the model declares."""
        return frozenset(self.renderer.stop_token_ids)

    def with_tools(self, tools: Sequence[ToolSchema]) -> Policy:
        """Return the policy with prompts that show tools, if its chat template can."""
        return replace(self, renderer=self.renderer.with_tools(tools))

    def save(self, folder: Path) -> None:
        """Write a directory for transformers' `from_pretrained`; it appears only when complete.

        With LoRA the weights include the adapter, which is also in the folder `ADAPTER` by itself.
        """
        self.begin_save(folder, is_copied=False)()

    def save_apart(self, folder: Path) -> None:
        """Write it for another process of the run: an adapter stays apart from what is below it."""
        if not has_lora(self.model):
            self.save(folder)
            return
        save_base(self.model, folder)
        save_adapter(self.model, folder / ADAPTER)
        self.tokenizer.save_pretrained(folder)

    def save_weights(self, folder: Path) -> None:
        """Write what `reload_weights` needs: with LoRA only the adapter."""
        if has_lora(self.model):
            save_adapter(self.model, folder / ADAPTER)
        else:
            self.save(folder)

    @torch.no_grad()
    def reload_weights(self, folder: Path) -> None:
        """Go back to the weights in a folder that `save` or `save_weights` wrote, in place."""
        if has_lora(self.model):
            reload_adapter(self.model, folder / ADAPTER)
            return
        dtype = next(name for name, kind in DTYPES.items() if kind == self.model.dtype)
        saved = load_pretrained(folder, dtype=dtype, device="cpu").model
        pairs = zip(self.model.named_parameters(), saved.named_parameters(), strict=True)
        for (name, weight), (saved_name, saved_weight) in pairs:
            assert name == saved_name, "the same architecture"
            weight.copy_(saved_weight)

    def begin_save(self, folder: Path, *, is_copied: bool = True) -> Callable[[], None]:
        """Copy the weights; the returned call writes the folder, on any thread.

        Without `is_copied` the weights must not change before it has.
        """
        writing = folder.with_name(f".{folder.name}.writing")
        shutil.rmtree(writing, ignore_errors=True)
        self.tokenizer.save_pretrained(writing)  # now: a tokenizer is not for two threads
        if has_lora(self.model):
            save_adapter(self.model, writing / ADAPTER)  # now: it is small
            weights = merged_weights(self.model)
        else:
            weights = _weights_on_host(self.model, is_copied=is_copied)
        return partial(self._finish_save, writing, folder, weights)

    def _finish_save(self, writing: Path, folder: Path, weights: Mapping[str, Tensor]) -> None:
        if has_lora(self.model):
            save_merged(self.model, writing, weights)
        else:
            self.model.save_pretrained(writing, state_dict=dict(weights))
        for file in writing.rglob("*.safetensors"):
            # safetensors lets only the owner read its files; the others follow the umask.
            shutil.copymode(writing / "config.json", file)
        replace_folder(writing, folder)

    def save_tokenizer(self, folder: Path) -> None:
        """Write only the tokenizer, unless it is there; the folder appears only when complete."""
        if folder.exists():
            return
        writing = folder.with_name(f".{folder.name}.writing")
        shutil.rmtree(writing, ignore_errors=True)
        self.tokenizer.save_pretrained(writing)
        put_in_place(writing, folder)


def _declared_stops(model: PreTrainedModel) -> list[int]:
    """Return the stop tokens of the model's `generation_config`; Qwen and Llama have several."""
    declared = getattr(model.generation_config, "eos_token_id", None)  # may be missing
    ids = declared if isinstance(declared, list) else [declared]
    return [id_ for id_ in ids if id_ is not None]


def _weights_on_host(model: PreTrainedModel, *, is_copied: bool) -> dict[str, Tensor]:
    """Return the weights in the CPU's memory; tied weights stay one tensor.

    Without `is_copied` they are those of the model itself, where it is there.

    transformers would copy weights that share memory (joined layers) on the GPU.
    """
    copies = dict[tuple[int, torch.Size], Tensor]()
    weights = dict[str, Tensor]()
    for name, weight in model.state_dict().items():
        key = (weight.data_ptr(), weight.shape)
        if key not in copies:
            copies[key] = weight.to("cpu", copy=is_copied)
        weights[name] = copies[key]
    return weights


def load_policy(config: ModelConfig, *, seed: int, texts: Callable[[], Iterable[str]]) -> Policy:
    """Return the policy that a recipe names; a new tokenizer learns from `texts`."""
    dtype, device = DTYPES[config.dtype], choose_device(config.device)
    if config.path == TINY:
        own_texts = list(texts())
        tokenizer = train_tokenizer(own_texts, vocab_size=config.tiny.vocab_size)
        model = build_tiny_model(config.tiny, tokenizer, seed=seed)
        quiet_unseen_tokens(model, tokenizer, own_texts)
        # `model.to` would round the rotary frequencies, which are buffers, as well.
        for parameter in model.parameters():
            parameter.data = parameter.data.to(dtype)
        return _policy(model, tokenizer, device)
    return load_pretrained(config.path, dtype=config.dtype, device=config.device)


def load_pretrained(path: str | Path, *, dtype: str = "float32", device: str = "auto") -> Policy:
    """Return the policy in a directory or GGUF file, or under a hub name.

    Its weights are rounded to `dtype`, in which the engine and the learner compute. Both options
    are as in `[model]`.
    """
    target, text = choose_device(device), str(path)
    check_hub_name(text)
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
        raise ConfigError(
            f"cannot load a causal language model from {text!r}: {_reason(error)} - {_ACCEPTED}"
        ) from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "from_pretrained found one"
    return _policy(model, tokenizer, target)


def policy_of(model: object, tokenizer: object) -> Policy:
    """Return a loaded model of transformers as a policy; it stays on its device.

    It is the same object, with our attention and without dropout: the learner must see the
    probabilities of the engine. Raises ValueError for anything else.
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"model={model!r} is not a model: give a path, a hub name, or a causal language model "
            "of transformers with its tokenizer"
        )
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(
            f"model={type(model).__name__}(...) needs its tokenizer as well, not {tokenizer!r}: "
            "pass tokenizer=AutoTokenizer.from_pretrained(...)"
        )
    if model.dtype not in DTYPES.values():
        raise ValueError(
            f"model={type(model).__name__}(...) has weights in {model.dtype}: convert them with "
            f"model.to, to one of {', '.join(f'torch.{name}' for name in DTYPES)}"
        )
    if has_lora(model):
        raise ValueError(
            f"model={type(model).__name__}(...) has a LoRA adapter: merge it first with peft's "
            "merge_and_unload(); lora.rank adds a new one"
        )
    model.set_attn_implementation(ATTENTION)
    return _policy(model, tokenizer, model.device)


def check_model(path: str) -> None:
    """Raise ConfigError if there can be no model, without reading its weights."""
    check_hub_name(path)
    if _find_model(path) is None and Path(path).is_dir():
        try:
            AutoConfig.from_pretrained(path, trust_remote_code=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"cannot read the config.json of {path!r}: {reason}") from error


def _find_model(text: str) -> Path | None:
    """Return the GGUF file that `model.path` means, if any; a directory must hold a model."""
    gguf, path = find_gguf(text), Path(text)
    if gguf is not None or not (is_meant_as_path(text) or path.exists()):
        return gguf
    if path.is_file():
        raise ConfigError(f"{text!r} is a file, but not a GGUF file; {_ACCEPTED}")
    if not path.is_dir():
        raise ConfigError(f"there is no model directory {text!r}; {_ACCEPTED}")
    if not any((path / name).is_file() for name in ("config.json", "adapter_config.json")):
        hint = f"; use its model, {str(path / 'model')!r}" if (path / "model").is_dir() else ""
        raise ConfigError(f"{text!r} is not a model directory: it has no config.json{hint}")
    check_model_folder(path)
    return None


def load_renderer(path: str) -> ChatRenderer:
    """Return the renderer of a model, without reading its weights."""
    check_hub_name(path)
    gguf = find_gguf(path)
    try:
        tokenizer = (
            AutoTokenizer.from_pretrained(path, trust_remote_code=False)
            if gguf is None
            else load_gguf_tokenizer(gguf)
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot load a tokenizer from {path!r}: {_reason(error)}") from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "from_pretrained found one"
    return _renderer(tokenizer)


def _reason(error: Exception) -> str:
    """Return why a model was not loaded, in one line."""
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:  # transformers suggests it, and we do not offer it
        return (
            "it needs code that comes with it, which is never run; use an architecture that "
            "transformers has"
        )
    return text


def _policy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, device: torch.device
) -> Policy:
    nn.Module.to(model, device)  # transformers' own `to` has no types
    if device.type == "cpu":
        _align(model)
    # Dropout stays off in training: the learner must see the probabilities of the engine.
    return Policy(model=model.eval(), tokenizer=tokenizer, renderer=_renderer(tokenizer))


def _align(model: PreTrainedModel) -> None:
    """Move unaligned weights, such as those of a mapped file, to new memory.

    Some libraries round by alignment, and a run that reloads its weights must not differ.
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
