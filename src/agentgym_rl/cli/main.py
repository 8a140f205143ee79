"""The command line. Thin: every command parses its arguments, then imports what it needs.

`agentgym --help` therefore starts without torch.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Annotated, Never

import typer

from agentgym_rl import __version__
from agentgym_rl.cli.terminal import FewRepeats, interruptible_imports
from agentgym_rl.errors import AgentError, AgentGymError, missing_training_package

app = typer.Typer(
    name="agentgym",
    help="Train language-model agents over many rounds with reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_INTERRUPTED = 130
"""Exit status after Ctrl-C."""

EnvName = Annotated[str, typer.Argument(help='A name from `agentgym envs`, or "module:Class".')]
EvaluatedModel = Annotated[
    str,
    typer.Argument(
        help="A model directory, a run folder, a checkpoint, a hub name, or with --engine openai "
        "the name of an endpoint's model."
    ),
]
EnvOptions = Annotated[
    list[str] | None, typer.Argument(help="key=value options of the environment")
]


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="TOML file or name of a recipe: quickstart, small/textcraft-grpo, "
            "paper/textcraft-scaling-inter ...; an unknown name lists all."
        ),
    ] = "",
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, e.g. training.lr=1e-5")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run; default runs/<recipe>-<time>.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --run-dir.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and stop.")
    ] = False,
) -> None:
    """Train a recipe (default: quickstart)."""
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


@app.command(name="eval")
def eval_(  # noqa: PLR0913 - an option is an argument
    context: typer.Context,
    model: EvaluatedModel = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment, or a label of the model's run; several times for several, `all` for "
            "the paper's five. Default: those of the model's run."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of its tasks.")] = "test",
    limit: Annotated[int, typer.Option(help="Number of tasks; 0 for all.", min=0)] = 0,
    per_category: Annotated[
        int, typer.Option(help="Number of tasks of each category, instead of --limit.", min=0)
    ] = 0,
    samples: Annotated[
        int, typer.Option("-k", "--samples", help="Samples of each task, for pass@k.", min=1)
    ] = 1,
    rounds: Annotated[
        str, typer.Option(help="Limit on rounds, or several: 10,20,30; 0: the environment's own.")
    ] = "0",
    engine: Annotated[
        str, typer.Option(help="native, vllm or openai; default: as in the settings.")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the report; one where the same evaluation was stopped is resumed. "
            "Default: eval/<env>-<time>."
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two folders of evaluations: is the second better?", metavar="A B"),
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Compare on the tasks that both have.")
    ] = False,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, e.g. eval.temperature=0")
    ] = None,
) -> None:
    """Evaluate a model on environments, or compare two evaluations."""
    if compare is not None:
        from agentgym_rl.cli.compare import run_comparison  # start-up time

        _refuse_what_no_comparison_reads(context)
        run_comparison(*compare, common=common)
        return
    if not model:
        raise typer.BadParameter("MODEL is needed, or --compare with two folders")
    with interruptible_imports():
        from agentgym_rl.api.eval_plan import trained_envs  # start-up time
        from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation  # start-up time

    envs = env or trained_envs(model)
    if not envs:
        raise typer.BadParameter(f"--env is needed: what should {model} play?")
    options = EvalOptions(envs, split, limit, per_category, samples, rounds, engine, out)
    run_evaluation(model, options, overrides or [])


@app.command()
def serve(  # noqa: PLR0913 - an option is an argument
    env: Annotated[
        str,
        typer.Argument(
            help='A name from `agentgym envs`, "module:Class", or searchqa-retriever: the search '
            "engine by itself."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[
        int, typer.Option(help="Processes that hold the episodes; 0 uses the server's own.", min=0)
    ] = 1,
    token: Annotated[str | None, typer.Option(help="Bearer token that clients must send.")] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Allow an address that others reach without a token.")
    ] = False,
    capacity: Annotated[int, typer.Option(help="Episodes that can be open at a time.")] = 1024,
    call_timeout: Annotated[float, typer.Option(help="Deadline of a call, in seconds.")] = 60.0,
    lease: Annotated[
        float, typer.Option(help="Seconds without a call after which an episode is closed.")
    ] = 600.0,
    options: Annotated[
        list[str] | None, typer.Argument(help="key=value options of what is served")
    ] = None,
) -> None:
    """Serve an environment, or the search engine of deep search, over HTTP."""
    # Start-up time: no other command needs these.
    from agentgym_rl.cli.environments import run_server
    from agentgym_rl.envs.service.server.backend import ServerLimits
    from agentgym_rl.serving.bound import Address

    run_server(
        env,
        Address(host, port, token, is_open),
        ServerLimits(capacity=capacity, call_timeout_s=call_timeout, lease_s=lease),
        num_workers=workers,
        options=options or [],
    )


@app.command()
def envs() -> None:
    """List every environment: whether it can run here, and its tasks."""
    from agentgym_rl.cli.environments import list_environments  # start-up time

    list_environments()


@app.command()
def play(
    env: EnvName,
    options: EnvOptions = None,
    task: Annotated[int, typer.Option(help="Index of the task.")] = -1,
    split: Annotated[
        str, typer.Option(help="Split to take the first task of, without --task.")
    ] = "test",
) -> None:
    """Play an environment by hand in the terminal."""
    from agentgym_rl.cli.environments import play_environment  # start-up time

    play_environment(env, options or [], index=task, split=split)


@app.command()
def demos(  # noqa: PLR0913 - an option is an argument
    env: EnvName,
    number: Annotated[int, typer.Option("-n", "--number", help="How many demonstrations.", min=1)],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write (JSON lines).")],
    options: EnvOptions = None,
    split: Annotated[
        str, typer.Option(help="Split; tasks are taken in the proportions of the test split.")
    ] = "train",
    category: Annotated[
        list[str] | None, typer.Option(help="Only tasks of this category; may be repeated.")
    ] = None,
    level: Annotated[
        list[str] | None, typer.Option(help="Only tasks of this level; may be repeated.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Action format of the replies.")
    ] = "react",
    model: Annotated[
        str, typer.Option(help="Write for this model, whose chat template may show tools itself.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Decides which tasks are taken.", min=0)] = 0,
) -> None:
    """Write expert demonstrations of a split's tasks as conversations."""
    # Start-up time: no other command needs these.
    from agentgym_rl.cli.environments import write_demonstrations
    from agentgym_rl.config import EnvConfig

    wanted = EnvConfig(
        name=env, split=split, categories=tuple(category or ()), levels=tuple(level or ())
    )
    write_demonstrations(
        wanted,
        options or [],
        number=number,
        output=output,
        format_name=format_,
        model=model,
        seed=seed,
    )


@app.command()
def check(
    env: EnvName,
    tasks: Annotated[int, typer.Option(help="Tasks of each split to try.", min=1)] = 20,
    call_timeout: Annotated[float, typer.Option(help="Deadline of a call, in seconds.")] = 60.0,
) -> None:
    """Test an environment, yours included, against the contract."""
    from agentgym_rl.cli.environments import check_environment  # start-up time

    check_environment(env, num_tasks=tasks, call_timeout_s=call_timeout)


@app.command()
def index(
    corpus: Annotated[
        Path,
        typer.Argument(
            help="Passages: .jsonl (also .gz or .xz) or .parquet (docs/deep-search.md)."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the index.")],
    dense: Annotated[
        str | None, typer.Option(help="Add vectors of this encoder: a hub name or a directory.")
    ] = None,
    faiss: Annotated[
        Path | None, typer.Option(help="Use the vectors of this FAISS file; --dense made them.")
    ] = None,
    factory: Annotated[
        str, typer.Option(help="Kind of FAISS index: Flat, SQfp16, IVF4096,PQ64 ...")
    ] = "Flat",
    query_prefix: Annotated[str, typer.Option(help="What the encoder wants before a query.")] = (
        "query: "
    ),
    passage_prefix: Annotated[
        str, typer.Option(help="What it wants before a passage.")
    ] = "passage: ",
) -> None:
    """Build the search index of a corpus, or resume one that was interrupted."""
    from agentgym_rl.cli.retrieval import VectorOptions, index_corpus  # start-up time

    vectors = VectorOptions(dense, faiss, factory, query_prefix, passage_prefix)
    index_corpus(corpus, output, vectors)


@app.command()
def convert(
    model: Annotated[
        str, typer.Argument(help="A .gguf file, smollm2-135m, a hub name or a model directory.")
    ],
    folder: Annotated[Path, typer.Argument(help="Directory to write.")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
) -> None:
    """Write a model as an ordinary model directory, which `model.path` and other programs take."""
    from agentgym_rl.cli.convert import convert_model  # start-up time

    convert_model(model, folder, dtype=dtype)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name from `agentgym bench --help`.")],
) -> None:
    """Measure the project against named baselines; `agentgym bench env --help` has the options."""
    from agentgym_rl.cli.bench import run_benchmark  # start-up time

    run_benchmark(name, context.args)


@app.command(name="import")
def import_(
    source: Annotated[
        Path, typer.Argument(help="A file of conversations, or a folder of rollout logs.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder to write.")],
    env: Annotated[str, typer.Option(help="Environment, where the files do not name it.")] = "",
) -> None:
    """Turn episodes recorded by AgentGym or AgentGym-RL into a run folder."""
    from agentgym_rl.cli.stores import run_import  # start-up time

    run_import(source, output, env=env)


@app.command()
def rescore(
    run: Annotated[Path, typer.Argument(help="Run folder with stored episodes.")],
    reward: Annotated[str, typer.Option(help='The reward of an episode, "module:function".')],
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder to write.")],
) -> None:
    """Give stored episodes another reward, without running them again."""
    from agentgym_rl.cli.stores import run_rescoring  # start-up time

    run_rescoring(run, reward, output)


@app.command()
def ui(
    runs: Annotated[Path, typer.Argument(help="Folder that holds run folders.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8420,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    opens_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Whether to open a browser.")
    ] = True,
    is_public: Annotated[
        bool, typer.Option("--public", help="Allow an address that other machines reach.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(help='Another environment to allow, as "module:Class"; may be repeated.'),
    ] = None,
) -> None:
    """Look at runs in the browser: curves, episodes, tokens; play an environment."""
    from agentgym_rl.cli.ui import run_ui  # start-up time

    run_ui(
        runs,
        host=host,
        port=port,
        opens_browser=opens_browser,
        is_public=is_public,
        envs=env or [],
    )


@app.command()
def doctor() -> None:
    """Report what this machine has, what is missing, and how to get it."""
    from agentgym_rl.cli.doctor import diagnose  # start-up time

    diagnose()


def main() -> None:
    """Run the command line; an error that the user can act on is one line, not a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("agentgym_rl.rollout.episode").addFilter(FewRepeats())
    # A user's "module:Class" is looked for where the user stands, as `python -m` does.
    sys.path.insert(0, "")
    if sys.argv[1:] == ["--version"]:
        print(f"agentgym-rl {__version__}")
        return
    try:
        app()
    except (AgentGymError, ValueError, OSError) as error:
        if isinstance(error, AgentError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # the user's own code, to be mended there
        _fail(str(error))
    except ModuleNotFoundError as error:
        if (remedy := missing_training_package(error)) is None:
            raise
        _fail(remedy)
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # typer says nothing
            print("stopped", file=sys.stderr)
        raise


def _fail(message: str) -> Never:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
