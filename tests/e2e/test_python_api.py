"""The Python API on real, small runs: objects, callbacks, resuming, notebooks, models."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import agentgym_rl as ag
from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.errors import ConfigError
from training_runs import RECIPE, is_the_same_run, metrics_of, refused, succeeded, train

SHORT = {"training.steps": 3, "warm_start.steps": 4, "eval.every": 0, "checkpoint.every": 100}


class Noting(ag.Callback):
    """Keeps the names of what it hears of."""

    def __init__(self, stop_at: int = 0) -> None:
        self.heard, self._stop_at = list[str](), stop_at

    def on_run_start(self, run: ag.Run) -> None:
        self.heard.append(f"start {len(run.metrics)}")

    def on_episode(self, episode: ag.Episode) -> None:
        self.heard.append("episode")

    def on_step(self, metrics: dict[str, float]) -> None:
        self.heard.append(f"step {metrics['step']:.0f}")
        if metrics["step"] == self._stop_at:
            self.stop_run()

    def on_evaluation(self, report: ag.EvalReport) -> None:
        self.heard.append(f"evaluation {report.step}")

    def on_checkpoint(self, path: Path, step: int) -> None:
        assert (path / "model" / "config.json").exists()
        self.heard.append(f"checkpoint {step}")

    def on_run_end(self, run: ag.Run) -> None:
        self.heard.append(f"end {len(run.metrics)}")

    @property
    def but_episodes(self) -> list[str]:
        return [name for name in self.heard if name != "episode"]


def small_recipe(folder: Path) -> Path:
    file = folder / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ag.Run:
    folder = tmp_path_factory.mktemp("api")
    return ag.train(small_recipe(folder), SHORT, run_dir=folder / "run")


@pytest.mark.long
def test_a_run_is_that_of_the_command_line(run: ag.Run, tmp_path: Path):
    overrides = [f"{key}={value}" for key, value in SHORT.items()]
    other = tmp_path / "run"
    assert succeeded(train(small_recipe(tmp_path), *overrides, "--run-dir", other))
    (other / "learning_curve.png").unlink()  # which the command draws
    assert is_the_same_run(run.folder, other)


def test_what_a_run_gives(run: ag.Run, tmp_path: Path):
    assert run.metrics["step"] == [1, 2, 3] and len(run.metrics["train/loss"]) == 3
    assert run.config.training.steps == 3 and len(run.evaluations) == 2
    episodes = ag.rollout(run.model, env="babyai", tasks=2, k=2, max_rounds=2)
    assert [episode.sample_index for episode in episodes] == [0, 1, 0, 1]
    first = episodes[0]
    assert len(first.rounds) <= 2 and first.messages[1].content == first.rounds[0].reply
    assert len(first.samples[0].token_ids) == len(first.samples[0].loss_mask)
    again = ag.rollout(run.model, tasks=[first.task], max_rounds=2)
    assert again[0].task == first.task
    report = ag.evaluate(run.model, env=BabyAI, tasks=2, k=2, out=tmp_path / "eval")
    assert report.overall.episodes == 4 and (tmp_path / "eval" / "report.json").exists()


def test_a_loaded_model_plays_and_is_trained_in_place(run: ag.Run, tmp_path: Path):
    model = AutoModelForCausalLM.from_pretrained(run.model)
    tokenizer = AutoTokenizer.from_pretrained(run.model)
    by_path = ag.rollout(run.model, "babyai", tasks=1, max_rounds=2)
    # Which run it comes from is not known of a loaded model, so its settings are given.
    settings = {"agent": {"format": "direct", "include_instructions": False}}
    settings |= {"env.levels": ["GoToRedBallNoDists"]}
    settings |= {"rollout": {"max_tokens_per_round": 12, "max_tokens": 512}}
    by_object = ag.rollout(
        model, "babyai", tokenizer=tokenizer, tasks=1, max_rounds=2, overrides=settings
    )
    assert by_object[0].messages == by_path[0].messages
    before = model.get_input_embeddings().weight.clone()
    steps = {**SHORT, "training.steps": 1, "warm_start.steps": 0}
    trained = ag.train(
        small_recipe(tmp_path), steps, model=model, tokenizer=tokenizer, run_dir=tmp_path / "run"
    )
    assert trained.config.model.path.startswith("<object>:transformers.")
    assert not before.equal(model.get_input_embeddings().weight)
    with pytest.raises(ValueError, match="needs its tokenizer"):
        ag.rollout(model, "babyai")


def test_callbacks_hear_and_stop_a_run_that_resumes(tmp_path: Path):
    class Hidden(BabyAI):
        pass

    def halved(episode: ag.Episode) -> float:
        return (episode.reward or 0.0) / 2

    recipe, folder = small_recipe(tmp_path), tmp_path / "run"
    overrides = {**SHORT, "env.levels": ["GoToRedBallNoDists"]}
    first = Noting(stop_at=2)
    run = ag.train(recipe, overrides, env=Hidden, reward=halved, callbacks=[first], run_dir=folder)
    heard = ["start 0", "evaluation 0", "step 1", "step 2", "checkpoint 2", "end 2"]
    assert first.but_episodes == heard
    assert first.heard.count("episode") == 2 * 2 * 4
    assert run.model.path.name == "model" and (folder / "checkpoints" / "step-2").exists()
    with pytest.raises(ConfigError, match=r"env=\.\.\., reward=\.\.\."):
        ag.train(run_dir=folder, resume=True)
    assert refused(train("--run-dir", folder, "--resume"), "pass them again", "env=...")
    second = Noting()
    ag.train(run_dir=folder, resume=True, env=Hidden, reward=halved, callbacks=[second])
    assert second.but_episodes == ["start 2", "evaluation 3", "step 3", "checkpoint 3", "end 3"]
    whole = tmp_path / "whole"
    ag.train(recipe, overrides, env=Hidden, reward=halved, run_dir=whole)
    assert metrics_of(folder) == metrics_of(whole)


async def test_it_works_in_a_running_loop_and_says_which_callback_failed(tmp_path: Path):
    class Failing(ag.Callback):
        def on_step(self, metrics: dict[str, float]) -> None:
            raise ZeroDivisionError("of my own")

    with pytest.raises(ZeroDivisionError, match="of my own") as caught:
        ag.train(
            small_recipe(tmp_path),
            {**SHORT, "eval.tasks": 0},
            callbacks=[Failing()],
            run_dir=tmp_path / "run",
        )
    assert "Failing.on_step" in caught.value.__notes__[0]
