"""`agentgym eval` before anything is evaluated: --rounds and -k."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_rl.cli.evaluate import EvalOptions, parse_horizons, run_evaluation
from agentgym_rl.cli.main import app
from agentgym_rl.errors import AgentGymError, ConfigError
from agentgym_rl.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("text", "horizons"), [("0", (0,)), ("7", (7,)), ("10,20,30", (10, 20, 30)), ("8, 4", (8, 4))]
)
def test_horizons_are_a_list_of_numbers(text: str, horizons: tuple[int, ...]):
    assert parse_horizons(text) == horizons


@pytest.mark.parametrize("text", ["", "4,", "4,4", "0,4", "-1", "four", "4.5", "²", "4 8"])
def test_other_horizons_are_refused_with_the_remedy(text: str):
    with pytest.raises(ConfigError, match="such as 10,20,30"):
        parse_horizons(text)


def test_several_samples_need_a_temperature(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"set eval\.temperature above 0"):
        run_evaluation(
            str(tmp_path),
            EvalOptions(
                ["babyai"], limit=1, samples_per_task=4, rounds="4,8", out=tmp_path / "out"
            ),
            ["eval.temperature=0"],
        )


def test_the_temperature_of_training_is_refused(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"write eval\.temperature=0\.3"):
        run_evaluation(str(tmp_path), EvalOptions(["babyai"]), ["rollout.temperature=0.3"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "MODEL is needed"),
        (["m", "--compare", "a", "b"], "takes only --common, not model"),
        (["--compare", "a", "b", "--limit", "3", "--common"], "takes only --common, not limit"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], told: str):
    result = CliRunner().invoke(app, ["eval", *words])
    assert result.exit_code == 2 and told in result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["m", "--env", "babiai"], "did you mean 'babyai'"),
        (["--compare", "a", "b"], "there is no folder a; name two"),
        (["m", "--env", "babyai", "--engine", "nobody"], "engine"),
        (["m", "--env", "babyai", "--engine", "openai", "--out", "out"], "OPENAI_BASE_URL"),
        (["m", "--env", "babyai", "--limit", "1", "--per-category", "1"], "give one of them"),
        (
            ["nowhere/m/x", "--env", "babyai", "--out", "out"],
            "no folder 'nowhere/m/x', nor 'nowhere/m'",
        ),
        (["runs/other"], "no model 'runs/other'; runs has a; `agentgym runs` lists"),
        (["runs/aa", "--env", "babyai"], "no model 'runs/aa' .did you mean 'a'.*; runs has a;"),
        (["./b"], "no model './b'; . has m, runs; `agentgym runs .` lists"),
        (
            ["Qwen/Qwen2.5-0.5B"],
            "0.5B is not a folder here; .* does not say .* --env babyai; .* lists them$",
        ),
        (["a"], "does not say which .*; for the run of that name write runs/a"),
        (["a/b/c", "--engine", "openai"], "a/b/c does not say which environment"),
        (["a/b/c", "engine.type='openai'"], "a/b/c does not say which environment"),
        (["m", "--env", "babyai", "--env", "all", "env.url=http://x"], "by itself"),
        (["runs", "--env", "babyai"], "no model in runs; name one of its runs: a"),
        (["m", "--env", "babyai", "--out", "runs/a"], "runs/a is the folder of a run"),
        (["tiny", "--env", "babyai"], "'tiny' to evaluate: training makes one .* name the folder"),
        (["m", "--env", "babyai", "env.options.bogus=1"], "no option 'bogus'; its options are"),
        (["m", "--env", "searchqa", "env.options.topk=0"], "topk must be a whole number"),
        (["m", "--env", "babyai", "env.levels=['GoToRedBal']"], "did you mean 'GoToRedBall'"),
        (["m", "--env", "babyai", "--split", "dev"], "no split 'dev'; it has train, test"),
        (["m", "--env", "babyai", "agent.type=fakes:CountingEnv"], "not a subclass of Agent"),
        (["m", "--env", "babyai", "--env", "textcraft", "env.options.bogus=1"], "'bogus'"),
        (["m", "--env", "fakes:BrokenStartEnv"], "environment 'fakes:BrokenStartEnv' raised"),
    ],
)
def test_mistakes_are_told(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    RunFolder(tmp_path / "runs" / "a").create("")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    with pytest.raises(AgentGymError, match=told):
        CliRunner().invoke(app, ["eval", *words], catch_exceptions=False)
    assert not (tmp_path / "eval").exists()


def test_a_run_of_an_own_class_names_the_class_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    RunFolder(tmp_path / "runs" / "a").create('[env]\nname = "mine:World"\n')
    with pytest.raises(ConfigError, match="trained on mine:World, which is not imported"):
        CliRunner().invoke(app, ["eval", "runs/a"], catch_exceptions=False)
