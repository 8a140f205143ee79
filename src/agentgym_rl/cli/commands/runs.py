"""`agentgym ui`, `runs`, `report`, `import` and `rescore`: what runs have left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentgym_rl.cli.app import RunPath, command, examples

RunsFolder = Annotated[Path, typer.Argument(help="Folder that holds run folders.", metavar="DIR")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Run folder to write.", metavar="DIR")]


@command(
    short_help="Look at runs in the browser.",
    epilog=examples("agentgym ui", "agentgym ui /data/runs --port 9000 --no-open"),
)
def ui(
    runs: RunsFolder = Path("runs"),
    port: Annotated[
        int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535, metavar="PORT")
    ] = 8420,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST")] = "127.0.0.1",
    opens_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Whether to open a browser.")
    ] = True,
    is_public: Annotated[
        bool, typer.Option("--public", help="Allow an address that other machines can reach.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            help='Another environment to allow, as "module:Class"; may be repeated.', metavar="ENV"
        ),
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


@command(
    name="runs",
    short_help="List runs: state, steps, success before and now.",
    epilog=examples(
        "agentgym runs",
        "agentgym runs /data/runs --json | jq '.[] | select(.state == \"crashed\") | .path'",
    ),
)
def runs_(
    folder: RunsFolder = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every field.")] = False,
) -> None:
    """List runs: their state, how far they got, and success before and now."""
    from agentgym_rl.cli.runs import show_runs  # start-up time

    show_runs(folder, as_json=as_json)


@command(
    short_help="Write a self-contained HTML report about a run.",
    epilog=examples(
        "agentgym report runs/mine                  # writes runs/mine/report.html",
        "agentgym report runs/mine -o mine.html",
    ),
)
def report(
    run: RunPath,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write; default report.html in the run's folder.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run, to mail or to keep."""
    from agentgym_rl.cli.runs import write_report  # start-up time

    write_report(run, output)


@command(
    name="import",
    short_help="Turn recorded episodes of AgentGym into a run folder.",
    epilog=examples(
        "agentgym import saves/test/executer_logs -o runs/theirs --env textcraft",
        "agentgym import trajectories.jsonl -o runs/expert",
        "agentgym ui                                # and look at them",
    ),
)
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="A file of conversations, or a folder of rollout logs.", metavar="SOURCE"
        ),
    ],
    output: Output,
    env: Annotated[
        str,
        typer.Option(help="Environment, where the files do not name it.", metavar="ENV"),
    ] = "",
) -> None:
    """Turn episodes recorded by AgentGym or AgentGym-RL into a run folder."""
    from agentgym_rl.cli.stores import run_import  # start-up time

    run_import(source, output, env=env)


@command(
    short_help="Give stored episodes another reward.",
    epilog=examples("agentgym rescore runs/mine --reward my_module:my_reward -o runs/rescored"),
)
def rescore(
    run: RunPath,
    reward: Annotated[
        str,
        typer.Option(help='The reward of an episode, "module:function".', metavar="FUNCTION"),
    ],
    output: Output,
) -> None:
    """Give stored episodes another reward, without running them again."""
    from agentgym_rl.cli.stores import run_rescoring  # start-up time

    run_rescoring(run, reward, output)
