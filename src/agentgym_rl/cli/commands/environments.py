"""`agentgym envs`, `check`, `play`, `demos` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym_rl.cli.app import CallTimeout, EnvName, EnvOptions, command, complete_env, examples


@command(
    short_help="List every environment, and whether it runs here.",
    epilog=examples("agentgym envs", "agentgym play babyai   # one of them, by hand"),
)
def envs() -> None:
    """List every environment: whether it can run here, and its tasks."""
    from agentgym_rl.cli.environments import list_environments  # start-up time

    list_environments()


@command(
    short_help="Test an environment against the contract.",
    epilog=examples(
        "agentgym check textcraft",
        "agentgym check my_module:MyEnv --tasks 5",
        "agentgym check gymnasium/FrozenLake-v1",
    ),
)
def check(
    env: EnvName,
    tasks: Annotated[
        int, typer.Option(help="Tasks of each split to try.", min=1, metavar="N")
    ] = 20,
    call_timeout: CallTimeout = 60.0,
) -> None:
    """Test an environment, yours included, against the contract."""
    from agentgym_rl.cli.environments import check_environment  # start-up time

    check_environment(env, num_tasks=tasks, call_timeout_s=call_timeout)


@command(
    epilog=examples(
        "agentgym play textcraft",
        "agentgym play babyai --task 44",
        "agentgym play lights_out show_distance=true    # with an option of the environment",
    )
)
def play(
    env: EnvName,
    options: EnvOptions = None,
    task: Annotated[int | None, typer.Option(help="Index of the task.", metavar="N", min=0)] = None,
    split: Annotated[
        str,
        typer.Option(
            help="Split whose first task is played without --task; default: test, if there is one.",
            metavar="NAME",
        ),
    ] = "",
) -> None:
    """Play an environment by hand in the terminal."""
    from agentgym_rl.cli.environments import play_environment  # start-up time

    play_environment(env, options or [], index=task, split=split)


@command(
    short_help="Write expert demonstrations as conversations.",
    epilog=examples(
        "agentgym demos babyai -n 300 -o demos.jsonl --format direct",
        "agentgym demos textcraft -n 50 -o demos.jsonl --format direct --category 'depth 2'",
        "agentgym train small/textcraft-sft algorithm.data=demos.jsonl",
    ),
)
def demos(  # noqa: PLR0913 - an option is an argument
    env: EnvName,
    number: Annotated[
        int, typer.Option("-n", "--number", help="How many demonstrations.", min=1, metavar="N")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File to write (JSON lines).", metavar="FILE")
    ],
    options: EnvOptions = None,
    split: Annotated[
        str,
        typer.Option(
            help="Split; tasks are taken in the proportions of the test split.", metavar="NAME"
        ),
    ] = "train",
    category: Annotated[
        list[str] | None,
        typer.Option(help="Only tasks of this category; may be repeated.", metavar="NAME"),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Only tasks of this level; may be repeated.", metavar="NAME"),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Action format of the replies.", metavar="NAME")
    ] = "react",
    model: Annotated[
        str,
        typer.Option(
            help="Use the chat template of this model, which may show tools itself.", metavar="NAME"
        ),
    ] = "",
    seed: Annotated[
        int, typer.Option(help="Decides which tasks are taken.", min=0, metavar="N")
    ] = 0,
    processes: Annotated[
        int, typer.Option(help="Play in N processes; the file is the same.", min=0, metavar="N")
    ] = 0,
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
        num_processes=processes,
    )


@command(
    short_help="Serve an environment over HTTP.",
    epilog=examples(
        "agentgym serve textcraft --port 8000",
        "agentgym serve babyai --workers 4 --host 0.0.0.0 --token SECRET",
        "agentgym serve searchqa-retriever index=wiki18 backend=dense",
        "agentgym train quickstart env.url=http://127.0.0.1:8000",
    ),
)
def serve(  # noqa: PLR0913 - an option is an argument
    env: Annotated[
        str,
        typer.Argument(
            help='A name from `agentgym envs`, "module:Class", or searchqa-retriever: the search '
            "engine by itself.",
            metavar="ENV",
            autocompletion=complete_env,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535, metavar="PORT")
    ] = 8000,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that hold the episodes; 0 uses the server's own.", min=0, metavar="N"
        ),
    ] = 1,
    token: Annotated[
        str | None, typer.Option(help="Bearer token that clients must send.", metavar="SECRET")
    ] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Allow other machines to connect without a token.")
    ] = False,
    capacity: Annotated[
        int, typer.Option(help="Episodes that can be open at a time.", metavar="N")
    ] = 1024,
    call_timeout: CallTimeout = 60.0,
    lease: Annotated[
        float,
        typer.Option(
            help="Seconds without a call after which an episode is closed.", metavar="SECONDS"
        ),
    ] = 600.0,
    options: EnvOptions = None,
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
