"""What is known of a model without its weights, and that transformers counts the same."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import huggingface_hub.constants
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from agentgym_rl.config import ModelConfig, TinyModelConfig
from agentgym_rl.models.lora import add_lora
from agentgym_rl.models.tiny import build_tiny_model, train_tokenizer
from agentgym_rl.sizing.find_shape import UnknownModelError, find_shape
from agentgym_rl.sizing.shape import QWEN25, SMOLLM2_135M, ModelShape, shape_of_config

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 50,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def written(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return folder


def found(path: Path | str) -> ModelShape:
    return find_shape(ModelConfig(path=str(path)))


def _qwen25(shape: ModelShape) -> PretrainedConfig:
    return Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=shape.is_tied,
    )


_SMOLLM2 = LlamaConfig(
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
)


@pytest.mark.parametrize(
    ("config", "known"),
    [(_qwen25(QWEN25["1.5B"]), QWEN25["1.5B"]), (_qwen25(QWEN25["7B"]), QWEN25["7B"]),
     (_SMOLLM2, SMOLLM2_135M)],
    ids=["1.5B", "7B", "smollm2"],
)  # fmt: skip
def test_transformers_counts_the_same_weights(config: PretrainedConfig, known: ModelShape):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert shape_of_config(config.to_dict()) == known
    assert sum(weight.numel() for weight in model.parameters()) == known.num_weights


def test_the_tiny_model_and_its_adapter_have_these_weights():
    tiny = TinyModelConfig(vocab_size=300, hidden_size=64, num_layers=2)
    model = build_tiny_model(tiny, train_tokenizer(["go"], vocab_size=300), seed=0)
    shape = find_shape(ModelConfig(tiny=tiny.model_copy(update={"vocab_size": len(
        model.get_input_embeddings().weight)})))  # fmt: skip
    assert shape.num_weights == sum(weight.numel() for weight in model.parameters())
    add_lora(model, rank=4, alpha=8, seed=0)
    trained = (weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert shape.adapter_weights(4) == sum(trained)


def test_a_folder_is_counted_by_its_files_where_they_are_whole(tmp_path: Path):
    counted = found(written(tmp_path))
    save_file({"a": np.zeros((3, 5), np.float16), "b": np.zeros(7, np.float16)},
              tmp_path / "model.safetensors")  # fmt: skip
    assert found(tmp_path).num_weights == 22
    # Written as an unknown family, only the files say how many there are.
    assert found(written(tmp_path, model_type="unheard_of")).num_weights == 22
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "c": "gone"}}))
    assert found(written(tmp_path)) == counted, "a file is missing"
    with pytest.raises(UnknownModelError, match="not a family whose weights are counted"):
        found(written(tmp_path, model_type="unheard_of"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not known"),
        ("[]", "not a JSON object"),
        ('{"model_type": "gpt2", "n_embd": 768}', "has no hidden_size"),
        ("[" * 100_000, "is not known"),
    ],
)
def test_a_bad_config_is_an_unknown_model(tmp_path: Path, text: str, told: str):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UnknownModelError, match=told):
        found(tmp_path)


def test_bad_weights_are_an_unknown_model(tmp_path: Path):
    written(tmp_path)
    for content in (b"\xff" * 16, b"\x02\x00\x00\x00\x00\x00\x00\x00{]", b""):
        (tmp_path / "model.safetensors").write_bytes(content)
        with pytest.raises(UnknownModelError):
            found(tmp_path)


@pytest.mark.parametrize("weight_map", [["a", "b"], "model.safetensors", 3, None])
def test_an_index_that_is_none_is_an_unknown_model(tmp_path: Path, weight_map: object):
    written(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UnknownModelError):
        found(tmp_path)


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_size_of_nothing_is_an_unknown_model(tmp_path: Path, key: str):
    with pytest.raises(UnknownModelError):
        found(written(tmp_path, **{key: 0}))


def test_experts_are_counted_by_files_only_and_a_seeing_model_by_its_text(tmp_path: Path):
    with pytest.raises(UnknownModelError):
        found(written(tmp_path, num_experts=8))
    inner = {"model_type": "sees", "text_config": CONFIG, "tie_word_embeddings": False}
    assert shape_of_config(inner) == shape_of_config(CONFIG)


def test_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert found("Qwen/Qwen2.5-Coder-1.5B-Instruct") == QWEN25["1.5B"]
    assert found("smollm2-135m") == SMOLLM2_135M
    with pytest.raises(UnknownModelError, match=r"hf download some/model config\.json"):
        found("some/model")
    with pytest.raises(UnknownModelError, match="here yet"):
        found("./runs/earlier/model")
    (tmp_path / "models--some--model" / "refs").mkdir(parents=True)
    (tmp_path / "models--some--model" / "refs" / "main").write_text("abc")
    written(tmp_path / "models--some--model" / "snapshots" / "abc")
    assert found("some/model") == shape_of_config(CONFIG)


def test_a_damaged_gguf_file_is_an_unknown_model(tmp_path: Path):
    file = tmp_path / "damaged.gguf"
    for content in (b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64):
        file.write_bytes(content)
        with pytest.raises(UnknownModelError):
            found(file)
    for heads, tensor in ((0, "token_embd.weight"), (4, "something.else")):
        writer = gguf.GGUFWriter(file, "llama")
        writer.add_embedding_length(16)
        writer.add_head_count(heads)
        writer.add_tensor(tensor, np.zeros((50, 16), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(UnknownModelError):
            found(file)


def test_a_gguf_file_says_its_sizes(tmp_path: Path):
    file = tmp_path / "small.gguf"
    with pytest.raises(UnknownModelError, match="no GGUF file"):
        found(file)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_embedding_length(16)
    writer.add_block_count(2)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(128)
    writer.add_tensor("token_embd.weight", np.zeros((50, 16), np.float32))
    writer.add_tensor("output.weight", np.zeros((50, 16), np.float32))
    writer.add_tensor("blk.0.ffn_up.weight", np.zeros((32, 16), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    shape = found(file)
    assert (shape.hidden, shape.layers, shape.kv_heads, shape.head_dim) == (16, 2, 2, 4)
    assert (shape.vocab, shape.max_context, shape.is_tied) == (50, 128, True)
    assert shape.num_weights == 50 * 16 + 32 * 16, "a copy of the embeddings counts once"
