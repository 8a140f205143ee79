"""The model card: `model/README.md`, written when a run ends and shown by the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from agentgym_rl.config import RunConfig, dump_config
from agentgym_rl.evaluation.report import EvalReport, by_env
from agentgym_rl.models.hub import is_hub_name
from agentgym_rl.results import Run
from agentgym_rl.runs.folder import RunFolder, write_atomically

_PACKAGES = ("agentgym-rl", "torch", "transformers", "peft")


def write_card(run: Run) -> None:
    """Write the card of the run's final model."""
    write_atomically(RunFolder(run.folder).model / "README.md", model_card(run))


def model_card(run: Run) -> str:
    """Return the card: what the model learned, from what, and how to do it again."""
    config, name = run.config, run.folder.name
    envs = ", ".join(config.environments)
    steps = len(run.metrics)
    base = config.model.path
    lines = [
        *_front_matter(config),
        f"# {name}",
        "",
        f"A language-model agent for {envs}, trained from `{base}` by "
        f"`{config.algorithm.type}` for {steps} steps with AgentGym-RL.",
        "",
        "## Success before and after",
        "",
        *_results(run.evaluations),
        "",
        "## Use it",
        "",
        "    from transformers import AutoModelForCausalLM",
        "",
        '    model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")',
        "",
        f"`agentgym eval path/to/this/folder --env {next(iter(config.environments))}` plays it.",
        "",
        "## Train it again",
        "",
        "    agentgym train recipe.toml",
        "",
        f"with {_versions()}, and this `recipe.toml`:",
        "",
        "```toml",
        dump_config(config).strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _front_matter(config: RunConfig) -> list[str]:
    """Return what the Hub reads; a path of this machine is no base model there."""
    base = config.model.path
    return [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        *([f"base_model: {base}"] if is_hub_name(base) else []),
        "tags:",
        "- agentgym-rl",
        "- reinforcement-learning",
        "---",
        "",
    ]


def _results(reports: Sequence[EvalReport]) -> list[str]:
    """Return a table of the first and the last evaluation of each environment."""
    if not reports:
        return ["The run was not evaluated (`eval.tasks = 0`)."]
    lines = [
        "| environment | split | episodes | before | after |",
        "|---|---|---|---|---|",
    ]
    for env, of_env in by_env(reports).items():
        first, last = of_env[0], of_env[-1]
        before = _success(first) if len(of_env) > 1 else ""
        lines.append(
            f"| {env} | {last.split} | {last.overall.episodes} | {before} | {_success(last)} |"
        )
    last = reports[-1]
    return [
        *lines,
        "",
        f"Success with its 95% interval, at most {last.max_rounds} rounds, temperature "
        f"{last.temperature:g}, on tasks that were not trained on.",
    ]


def _success(report: EvalReport) -> str:
    score = report.overall
    if not score.episodes:
        return f"no episode completed (step {report.step})"
    return (
        f"{score.success_rate:.1%} [{score.success_low:.1%}, {score.success_high:.1%}] "
        f"(step {report.step})"
    )


def _versions() -> str:
    """Return the versions of what the numbers depend on."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
