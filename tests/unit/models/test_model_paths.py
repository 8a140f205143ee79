"""What is no model, or only a part of one, is told in a sentence that says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy, load_pretrained
from engine_plays import endless_policy


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


def test_weights_that_are_cut_short_are_told(policy: Policy, tmp_path: Path):
    policy.save(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"cannot load a causal language model from .*model'"):
        load_pretrained(tmp_path / "model", device="cpu")


def test_a_run_in_the_place_of_its_model_is_told(policy: Policy, tmp_path: Path):
    policy.save(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"no config\.json; use its model, '.*/model'"):
        load_pretrained(tmp_path, device="cpu")
    assert load_pretrained(tmp_path / "model", device="cpu").max_context == policy.max_context


def test_an_empty_folder_a_file_and_nothing_are_told(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no model")
    for name, complaint in (
        ("empty", r"not a model directory: it has no config\.json$"),
        ("notes.txt", "is a file, but not a GGUF file; model.path takes"),
        ("missing", "there is no model directory .*; model.path takes"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            load_pretrained(tmp_path / name, device="cpu")


def test_weights_of_a_file_are_aligned_as_those_made_here(policy: Policy, tmp_path: Path):
    policy.save(tmp_path / "model")
    model = load_pretrained(tmp_path / "model", device="cpu").model
    assert {weight.data_ptr() % 64 for weight in model.parameters()} == {0}
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight, "tied"
