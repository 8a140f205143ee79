"""Model folders that want to run code or to read other files when they are loaded: none does."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import save_file

from agentgym_rl.config import TrainingConfig
from agentgym_rl.errors import AgentGymError, EnvError, RunError
from agentgym_rl.models.loading import load_pretrained, load_renderer
from agentgym_rl.models.lora import add_lora, load_adapter, save_adapter
from agentgym_rl.retrieval.encoder import Encoder, EncoderSettings, check_encoder
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.agentevol import _read_weights as read_base_weights
from agentgym_rl.training.checkpoint import restore_checkpoint
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.reference_scores import _read as read_reference_scores
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.models import Models
from agentgym_rl.ui.played_episodes import PlayedEpisode
from chat_families import small_policy
from engine_plays import endless_policy

CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import LlamaConfig as Config, LlamaForCausalLM as Model
from transformers import PreTrainedTokenizerFast as Tokenizer
"""


class Payload:
    """What a pickle runs when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    endless_policy().save(folder)
    return folder


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    """A model folder to spoil."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that a payload makes."""
    return tmp_path / "marked"


def change(file: Path, **changes: object) -> None:
    """Set fields of a JSON file; None removes one."""
    fields = json.loads(file.read_text()) | changes
    file.write_text(
        json.dumps({name: value for name, value in fields.items() if value is not None})
    )


def write_payload(file: Path, mark: Path) -> None:
    """Write a pickle that leaves a mark, as torch saves one and as plain pickle does."""
    torch.save({"weight": Payload(mark)}, file)
    plain = file.with_name(f"plain-{file.name}")
    plain.write_bytes(pickle.dumps(Payload(mark)))


def refuses(load: Callable[[], object], mark: Path, match: str = ".") -> None:
    with pytest.raises((AgentGymError, ValueError), match=match):
        load()
    assert not mark.exists()


def test_the_payload_works_where_pickles_are_trusted(tmp_path: Path, mark: Path):
    write_payload(tmp_path / "w.bin", mark)
    torch.load(tmp_path / "w.bin", weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("model_type", ["llama", "own_type", None])
def test_code_beside_the_weights_is_not_imported(
    model: Path, mark: Path, model_type: str | None, monkeypatch: pytest.MonkeyPatch
):
    # Whoever is asked whether to run it would say yes.
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    (model / "modeling_own.py").write_text(CODE.format(mark=str(mark)))
    auto = {
        "AutoConfig": "modeling_own.Config",
        "AutoModelForCausalLM": "modeling_own.Model",
        "AutoModel": "modeling_own.Model",
        "AutoTokenizer": ["modeling_own.Tokenizer", "modeling_own.Tokenizer"],
    }
    change(model / "config.json", auto_map=auto, model_type=model_type, architectures=["Model"])
    change(model / "tokenizer_config.json", auto_map=auto, tokenizer_class="OwnTokenizer")
    for load in (load_pretrained, load_renderer, check_encoder):
        with suppress(AgentGymError):  # refused, or loaded with the library's own class
            load(str(model))
        assert not mark.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "weights.pth"])
def test_pickled_weights_are_refused_with_the_remedy(model: Path, mark: Path, name: str):
    (model / "model.safetensors").unlink()
    write_payload(model / name, mark)
    refuses(lambda: load_pretrained(model, device="cpu"), mark, "save_pretrained")
    with pytest.raises(EnvError):
        Encoder(EncoderSettings(str(model)))
    assert not mark.exists()


def test_pickles_beside_good_weights_are_not_read(model: Path, mark: Path):
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt"):
        write_payload(model / name, mark)
    load_pretrained(model, device="cpu")
    assert not mark.exists()


@pytest.mark.parametrize(
    "shard",
    ["../stolen.safetensors", "/tmp/stolen.safetensors", "a/../../x.safetensors", "own.bin", 7, ""],
)
def test_an_index_names_only_safetensors_of_the_folder(
    model: Path, mark: Path, tmp_path: Path, shard: object
):
    weights = model / "model.safetensors"
    shutil.copy(weights, tmp_path / "stolen.safetensors")
    weights.unlink()
    write_payload(model / "own.bin", mark)
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": shard}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    refuses(lambda: load_pretrained(model, device="cpu"), mark, "as its weights")


@pytest.mark.parametrize("named", ["adapter_model.bin", "../stolen.safetensors", "own.bin"])
def test_a_config_names_only_safetensors_of_the_folder(model: Path, mark: Path, named: str):
    write_payload(model / Path(named).name, mark)
    change(model / "config.json", transformers_weights=named)
    refuses(lambda: load_pretrained(model, device="cpu"), mark, "as its weights")


@pytest.mark.parametrize("key", ["attn_implementation", "experts_implementation"])
def test_kernels_of_the_hub_are_refused(model: Path, mark: Path, key: str):
    change(model / "config.json", text_config={key: "somebody/kernel@main"})
    refuses(lambda: load_pretrained(model, device="cpu"), mark, "code from elsewhere")


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '{"a": ' * 5000, "\xff"])
def test_configs_that_are_none(model: Path, mark: Path, text: str):
    (model / "config.json").write_text(text)
    refuses(lambda: load_pretrained(model, device="cpu"), mark)


def test_an_adapter_with_pickled_weights_is_refused(saved: Path, tmp_path: Path, mark: Path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    write_payload(folder / "adapter_model.bin", mark)
    config = {"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}
    config["base_model_name_or_path"] = str(saved)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    refuses(lambda: load_pretrained(folder, device="cpu"), mark, "save_pretrained")
    policy = load_pretrained(saved, device="cpu")
    refuses(lambda: load_adapter(policy.model, folder), mark, "no LoRA adapter")


def test_an_adapter_of_a_base_with_pickled_weights_is_refused(
    model: Path, tmp_path: Path, mark: Path
):
    policy = load_pretrained(model, device="cpu")
    add_lora(policy.model, rank=2, alpha=2, seed=0)
    save_adapter(policy.model, tmp_path / "adapter")
    change(tmp_path / "adapter" / "adapter_config.json", base_model_name_or_path=str(model))
    (model / "model.safetensors").unlink()
    write_payload(model / "pytorch_model.bin", mark)
    refuses(lambda: load_pretrained(tmp_path / "adapter", device="cpu"), mark, "save_pretrained")


def test_an_adapter_imports_no_module_it_names(saved: Path, tmp_path: Path, mark: Path):
    policy = load_pretrained(saved, device="cpu")
    add_lora(policy.model, rank=2, alpha=2, seed=0)
    save_adapter(policy.model, tmp_path / "adapter")
    own = {"megatron_config": {"a": 1}, "megatron_core": "antigravity.own"}
    change(tmp_path / "adapter" / "adapter_config.json", **own)
    fresh = load_pretrained(saved, device="cpu")
    with pytest.raises((AgentGymError, ValueError)):
        load_adapter(fresh.model, tmp_path / "adapter")


@pytest.mark.parametrize(
    "template",
    [
        "{{{{ cycler.__init__.__globals__.os.system('touch {mark}') }}}}",
        "{{{{ ''.__class__.__mro__[1].__subclasses__() }}}}",
        "{{{{ raise_exception.__globals__['os'].system('touch {mark}') }}}}",
        "{{{{ messages.append.__self__.__class__.__init__.__globals__ }}}}",
        "{{{{ self._TemplateReference__context.environment.from_string('x') }}}}",
        "{{{{ lipsum.__globals__.os.popen('touch {mark}').read() }}}}",
        "{{% set _ = messages.clear() %}}",
    ],
)
def test_chat_templates_reach_nothing(model: Path, mark: Path, template: str):
    change(model / "tokenizer_config.json", chat_template=None)
    (model / "chat_template.jinja").write_text(template.format(mark=mark))
    refuses(lambda: load_pretrained(model, device="cpu"), mark)
    refuses(lambda: load_renderer(str(model)), mark)


def test_checkpoints_are_read_without_running_them(tmp_path: Path, mark: Path):
    run = RunFolder(tmp_path / "run")
    folder = run.checkpoint_path(3)
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 3}')
    learner = cast("Learner", object())  # it must not come so far as to be asked
    for file in (folder / "learner.pt", run.base_weights, run.reference_scores):
        file.parent.mkdir(parents=True, exist_ok=True)
    for write in (torch.save, lambda payload, file: file.write_bytes(pickle.dumps(payload))):
        for file in (folder / "learner.pt", run.base_weights, run.reference_scores):
            write({"weight": Payload(mark)}, file)
        for read in (
            lambda: restore_checkpoint(run, learner),
            lambda: read_base_weights(run.base_weights, {"weight": torch.zeros(1)}),
            lambda: read_reference_scores(run, []),
        ):
            with pytest.raises(RunError):
                read()
            assert not mark.exists()


def test_shards_of_a_checkpoint_are_read_without_running_them(tmp_path: Path, mark: Path):
    run = RunFolder(tmp_path / "run")
    folder = run.checkpoint_path(3)
    shards = folder / "learner"
    shards.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 3}')
    learner = Learner(small_policy("qwen3"), TrainingConfig(), temperature=1.0)
    for name in (".metadata", "__0_0.distcp", "shard-00001-model-00001-of-00001.safetensors"):
        payload, zipped = {"optimizer.weight.step": Payload(mark)}, BytesIO()
        torch.save(payload, zipped)
        for harm in (zipped.getvalue(), pickle.dumps(payload)):
            (shards / name).write_bytes(harm)
            with pytest.raises(RunError):
                restore_checkpoint(run, learner)
            assert not mark.exists()


def test_the_ui_loads_no_model_that_leads_out_of_the_runs(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "runs"
    RunFolder(root / "run").create('[env]\nname = "textcraft"\n')
    folder = Path(shutil.copytree(saved, root / "run" / "model"))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(saved / "model.safetensors")
    models = Models(RunCatalog(root))
    play = cast("PlayedEpisode", type("Played", (), {"rounds": ()})())  # it is not looked at
    with pytest.raises(ApiError, match="leads out"):
        models.reply("run/model", play)
    (folder / "model.safetensors").unlink()
    save_file({}, folder / "model.safetensors")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    with pytest.raises(ApiError, match="adapter of another model"):
        models.reply("run/model", play)
