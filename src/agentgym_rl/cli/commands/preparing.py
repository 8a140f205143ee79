"""`agentgym init`, `convert-config`, `convert`, `index`, `bench` and `doctor`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agentgym_rl.cli.app import Overrides, command, complete_recipe, examples


class Kind(StrEnum):
    """What `agentgym init` can begin."""

    ENV = "env"
    AGENT = "agent"
    ALGORITHM = "algorithm"


@command(
    epilog=examples(
        "agentgym init env my_world                 # the package my_world/, tested",
        "agentgym init agent careful --dir packages",
        "agentgym init algorithm my_grpo",
    )
)
def init(
    kind: Annotated[Kind, typer.Argument(help="env, agent or algorithm.", metavar="KIND")],
    name: Annotated[
        str, typer.Argument(help="Name of the package, such as my_world.", metavar="NAME")
    ],
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder to make the package in.", metavar="DIR")
    ] = Path(),
) -> None:
    """Write a working, tested package to start from."""
    from agentgym_rl.cli.preparing import write_package  # start-up time

    write_package(kind.value, name, folder)


@command(
    name="convert-config",
    short_help="Turn a training script of AgentGym-RL into a recipe.",
    epilog=examples(
        "agentgym convert-config examples/train/ScalingInter-RL/textcraft_train.sh",
        "agentgym convert-config textcraft_train.sh -o textcraft.toml",
        "agentgym train textcraft.toml --dry-run",
    ),
)
def convert_config(
    script: Annotated[
        Path,
        typer.Argument(
            help="A training script of AgentGym-RL; it is read, never run.", metavar="SCRIPT"
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Recipe to write; default: print it.", metavar="FILE"),
    ] = None,
) -> None:
    """Turn a training script of AgentGym-RL into a recipe; list what has no counterpart."""
    from agentgym_rl.cli.preparing import convert_script  # start-up time

    convert_script(script, output)


@command(
    short_help="Write a model as an ordinary model directory.",
    epilog=examples(
        "agentgym convert model.gguf models/from-gguf",
        "agentgym convert runs/mine/model models/mine --dtype float32",
    ),
)
def convert(
    model: Annotated[
        str,
        typer.Argument(
            help="A .gguf file, smollm2-135m, a hub name or a model directory.", metavar="MODEL"
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Directory to write.", metavar="DIR")],
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.", metavar="NAME")] = "bfloat16",
) -> None:
    """Write a model as an ordinary model directory, which `model.path` takes."""
    from agentgym_rl.cli.convert import convert_model  # start-up time

    convert_model(model, folder, dtype=dtype)


@command(
    short_help="Build the search index of a corpus.",
    epilog=examples(
        "agentgym index wiki-18.jsonl -o wiki18",
        "agentgym index wiki-18.jsonl -o wiki18 --dense intfloat/e5-base-v2 --faiss e5.index",
    ),
)
def index(
    corpus: Annotated[
        Path,
        typer.Argument(
            help="Passages: .jsonl (also .gz or .xz) or .parquet (docs/deep-search.md).",
            metavar="CORPUS",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the index.", metavar="DIR")
    ],
    dense: Annotated[
        str | None,
        typer.Option(
            help="Add vectors of this encoder: a hub name or a directory.", metavar="MODEL"
        ),
    ] = None,
    faiss: Annotated[
        Path | None,
        typer.Option(help="Use the vectors in this FAISS file, made by --dense.", metavar="FILE"),
    ] = None,
    factory: Annotated[
        str,
        typer.Option(help="Kind of FAISS index: Flat, SQfp16, IVF4096,PQ64 ...", metavar="NAME"),
    ] = "Flat",
    query_prefix: Annotated[
        str, typer.Option(help="What the encoder expects before a query.", metavar="TEXT")
    ] = "query: ",
    passage_prefix: Annotated[
        str, typer.Option(help="What the encoder expects before a passage.", metavar="TEXT")
    ] = "passage: ",
) -> None:
    """Build the search index of a corpus, or resume one that was interrupted."""
    from agentgym_rl.cli.retrieval import VectorOptions, index_corpus  # start-up time

    vectors = VectorOptions(dense, faiss, factory, query_prefix, passage_prefix)
    index_corpus(corpus, output, vectors)


@command(
    short_help="Measure the project against named baselines.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,  # a benchmark has its own
)
def bench(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A name from `agentgym bench --help`.", metavar="NAME")
    ] = "--help",
) -> None:
    """Measure the project against named baselines; `agentgym bench --help` lists them."""
    from agentgym_rl.cli.bench import run_benchmark  # start-up time

    run_benchmark(name, context.args)


@command(
    short_help="Say what this machine has, or what memory a recipe takes.",
    epilog=examples(
        "agentgym doctor",
        "agentgym doctor qwen_textcraft                  # its memory on this machine",
        "agentgym doctor qwen_textcraft training.shards=4 --gpus 4 --gpu-memory 80",
        "agentgym doctor --cluster --address 10.0.0.1:6379 --shared-folder /data",
    ),
)
def doctor(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe: estimate the memory of its run instead.",
            metavar="RECIPE",
            autocompletion=complete_recipe,
        ),
    ] = "",
    overrides: Overrides = None,
    gpus: Annotated[
        int,
        typer.Option(help="With RECIPE: this many GPUs, not this machine's.", min=0, metavar="N"),
    ] = 0,
    gpu_memory: Annotated[
        float,
        typer.Option(
            help="With RECIPE: GiB of each GPU, not this machine's.", min=0, metavar="GIB"
        ),
    ] = 0.0,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Look at the nodes of a Ray cluster instead.")
    ] = False,
    address: Annotated[
        str,
        typer.Option(help="With --cluster: as cluster.address; default: RAY_ADDRESS.", metavar="A"),
    ] = "",
    shared_folder: Annotated[
        str, typer.Option(help="With --cluster: as cluster.shared_folder.", metavar="DIR")
    ] = "",
) -> None:
    """Report what a machine or a Ray cluster has, or how much memory a recipe takes."""
    if cluster:
        from agentgym_rl.cli.cluster import diagnose_cluster  # start-up time

        diagnose_cluster(address, shared_folder)
        return
    if address or shared_folder:
        raise typer.BadParameter("--address and --shared-folder need --cluster")
    if recipe:
        from agentgym_rl.cli.memory import size_recipe  # start-up time

        size_recipe(recipe, overrides or [], gpus=gpus, gpu_memory=gpu_memory)
        return
    if gpus or gpu_memory:
        raise typer.BadParameter("--gpus and --gpu-memory need a RECIPE")
    from agentgym_rl.cli.doctor import diagnose  # start-up time

    diagnose()
