"""`agentgym train` and `agentgym eval`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentgym_rl.cli.app import (
    Overrides,
    command,
    complete_env,
    complete_recipe,
    complete_run,
    examples,
)
from agentgym_rl.cli.terminal import interruptible_imports

_TRAIN_EXAMPLES = examples(
    "agentgym train                                  # the quickstart",
    "agentgym train quickstart seed=1 training.lr=3e-4",
    "agentgym train paper/textcraft-scaling-inter --dry-run",
    "agentgym train my_recipe.toml env.name=my_module:MyEnv",
    "agentgym train --run-dir runs/mine --resume     # continue after an interruption",
)
_EVAL_EXAMPLES = examples(
    "agentgym eval runs/mine                         # on what it was trained for",
    "agentgym eval runs/mine --env babyai --limit 50 -k 4 --rounds 4,8",
    "agentgym eval Qwen/Qwen2.5-1.5B-Instruct --env textcraft",
    "agentgym eval gpt-x --engine openai --env sciworld engine.url=http://host/v1",
    "agentgym eval runs/mine --tasks AgentEval/babyai_test.json",
    "agentgym eval --compare eval/before eval/after",
)

EvaluatedModel = Annotated[
    str,
    typer.Argument(
        help="A run folder, a checkpoint, a model directory, a hub name, or with --engine "
        "openai the name of an endpoint's model.",
        metavar="MODEL",
        autocompletion=complete_run,
    ),
]
EvaluatedEnvs = Annotated[
    list[str] | None,
    typer.Option(
        help="Environment, or a label of the model's run; repeat it for several, `all` for "
        "the paper's five. Default: those of the model's run.",
        metavar="ENV",
        autocompletion=complete_env,
    ),
]
TasksFile = Annotated[
    Path | None,
    typer.Option(
        help="Play the tasks of this file instead: a JSON list of ids, like AgentGym-RL's. "
        "For a number of tasks, use --limit.",
        metavar="FILE",
    ),
]
PerCategory = Annotated[
    int,
    typer.Option(help="Number of tasks of each category, instead of --limit.", min=0, metavar="N"),
]
Samples = Annotated[
    int,
    typer.Option("-k", "--samples", help="Samples of each task, for pass@k.", min=1, metavar="K"),
]
Horizons = Annotated[
    str,
    typer.Option(
        help="Limit on rounds, or several: 10,20,30; 0: the environment's own.", metavar="N,..."
    ),
]
EngineName = Annotated[
    str,
    typer.Option(help="native, vllm or openai; default: the setting engine.type.", metavar="NAME"),
]
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the report; one where the same evaluation was stopped is resumed. "
        "Default: eval/<env>-<time>.",
        metavar="DIR",
    ),
]
Compared = Annotated[
    tuple[Path, Path] | None,
    typer.Option(help="Two folders of evaluations: is the second better?", metavar="A B"),
]


@command(epilog=_TRAIN_EXAMPLES)
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Name of a recipe, or a TOML file; `agentgym train small/` lists a folder of "
            "recipes. Default: quickstart.",
            metavar="RECIPE",
            autocompletion=complete_recipe,
        ),
    ] = "",
    overrides: Overrides = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the run; default runs/<recipe>-<time>.", metavar="DIR"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --run-dir.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")
    ] = False,
) -> None:
    """Train a recipe."""
    from agentgym_rl.cli.train import run_training  # start-up time

    words = [recipe, *(overrides or [])] if recipe else list(overrides or [])
    named = [word for word in words if "=" not in word]
    if len(named) > 1:
        raise typer.BadParameter(
            f"one recipe at a time, got {', '.join(named)}; a setting is written key=value"
        )
    run_training(
        named[0] if named else None,
        [word for word in words if "=" in word],
        run_dir=run_dir,
        resume=resume,
        dry_run=dry_run,
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_what_no_comparison_reads(context: typer.Context) -> None:
    read = ("compare", "common")
    unread = [name for name in context.params if name not in read and _is_given(context, name)]
    if unread:
        raise typer.BadParameter(f"--compare takes only --common, not {', '.join(unread)}")


def _setting(words: Sequence[str], key: str) -> str:
    """Return the value that words give a setting last; empty where they do not."""
    found = [word.partition("=")[2].strip("'\"") for word in words if word.startswith(f"{key}=")]
    return found[-1] if found else ""


def _refuse_unknown_model(model: str) -> None:
    """Raise ConfigError for a model that is not here and cannot be asked for: before torch, which
    takes seconds to import."""
    from agentgym_rl.api.model_names import RUNS, refuse_missing, run_of  # start-up time
    from agentgym_rl.models.hub import check_hub_name  # start-up time

    if run_of(str(RUNS / model)) is not None:
        return  # what is said later names that run
    refuse_missing(model)
    check_hub_name(model)


@command(
    name="eval", short_help="Evaluate a model, or compare two evaluations.", epilog=_EVAL_EXAMPLES
)
def eval_(  # noqa: PLR0913 - an option is an argument
    context: typer.Context,
    model: EvaluatedModel = "",
    overrides: Overrides = None,
    env: EvaluatedEnvs = None,
    split: Annotated[str, typer.Option(help="Split of its tasks.", metavar="NAME")] = "test",
    tasks: TasksFile = None,
    limit: Annotated[int, typer.Option(help="Number of tasks; 0 for all.", min=0, metavar="N")] = 0,
    per_category: PerCategory = 0,
    samples: Samples = 1,
    rounds: Horizons = "0",
    engine: EngineName = "",
    out: ReportFolder = None,
    compare: Compared = None,
    common: Annotated[
        bool, typer.Option("--common", help="Compare on the tasks that both have.")
    ] = False,
) -> None:
    """Evaluate a model on environments, or compare two evaluations."""
    if compare is not None:
        from agentgym_rl.cli.compare import run_comparison  # start-up time

        _refuse_what_no_comparison_reads(context)
        run_comparison(*compare, common=common)
        return
    if not model:
        raise typer.BadParameter("MODEL is needed, or --compare with two folders")
    if "=" in model and not Path(model).exists():
        raise typer.BadParameter(f"MODEL comes first, and {model!r} is a setting")
    settings = overrides or []
    if env and "openai" not in (engine, _setting(settings, "engine.type")):
        _refuse_unknown_model(model)
    with interruptible_imports():
        from agentgym_rl.api.eval_plan import trained_envs  # start-up time
        from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation  # start-up time

    envs = env or trained_envs(model) or [""]  # refused with what is known of the model
    options = EvalOptions(envs, split, limit, per_category, samples, rounds, engine, out, tasks)
    run_evaluation(model, options, settings)
