"""The commands of a study: demonstrations, runs and evaluations, and which needs which.

A job is one `agentgym` command; its files say whether it is done. `study_stretch.py` runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from study_files import Study, Variant

from agentgym_rl.config import RunConfig
from agentgym_rl.config.load import flatten
from agentgym_rl.config.overrides import override_texts
from agentgym_rl.config.sections import EpisodeLimitsConfig
from agentgym_rl.evaluation.report import EvalReport, load_report
from agentgym_rl.runs.folder import RunFolder

TINY = "tiny"
"""The model that every run makes for itself: there is no untrained one to measure."""
UNTRAINED = "untrained"


@dataclass(frozen=True, slots=True)
class Job(ABC):
    """One command of a study."""

    name: str
    """Of its log, and where it has one of its folder."""
    title: str
    """What an error calls it."""
    variant: str
    """After a failure nothing else of this variant begins."""
    needs: tuple[str, ...]
    """Names of the jobs whose results it reads."""

    @abstractmethod
    def is_done(self) -> bool:
        """Whether its result is there."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the words after `agentgym` that begin it. What it needs is done."""

    def resuming(self) -> list[str]:
        """Return the words that begin it, or resume what is there of it."""
        return self.arguments()

    def finish(self) -> None:  # noqa: B027 - most have nothing to do
        """Do what is left when the command has succeeded."""


@dataclass(frozen=True, slots=True)
class DemosJob(Job):
    """Expert demonstrations in a file, which is there only when it is whole."""

    number: int
    config: RunConfig
    file: Path

    def is_done(self) -> bool:
        return self.file.exists()

    def arguments(self) -> list[str]:
        return self._arguments(self.file)

    def resuming(self) -> list[str]:
        return self._arguments(self._written)  # from the beginning

    def _arguments(self, file: Path) -> list[str]:
        env = self.config.env
        words = ["demos", env.name, "-n", str(self.number), "--format", self.config.agent.format]
        words += ["--split", env.split, "-o", str(file)]
        words += ["--processes", str(env.workers)]  # as the runs play it
        words += [word for name in env.categories for word in ("--category", name)]
        words += [word for name in env.levels for word in ("--level", name)]
        return words + override_texts(env.options)

    def finish(self) -> None:
        self._written.replace(self.file)

    @property
    def _written(self) -> Path:
        return self.file.with_name(f"{self.file.name}.part")


@dataclass(frozen=True, slots=True)
class TrainJob(Job):
    """A run."""

    recipe: str
    overrides: tuple[str, ...]
    run: RunFolder

    def is_done(self) -> bool:
        return self.run.model.exists()

    def arguments(self) -> list[str]:
        return ["train", self.recipe, *self.overrides, "--run-dir", str(self.run.path)]

    def resuming(self) -> list[str]:
        return [*self.arguments(), *(["--resume"] if self.run.is_begun else [])]


@dataclass(frozen=True, slots=True)
class EvalJob(Job):
    """A model on the test tasks of a scenario, with the settings that its runs are evaluated with.

    Episodes that failed are counted in the report; it is done if any completed.
    """

    trained_on: str
    """A scenario, or UNTRAINED."""
    played: str
    """The scenario whose tasks it plays."""
    model: str
    config: RunConfig
    folder: Path

    def is_done(self) -> bool:
        report = self.report()
        return report is not None and report.overall.episodes > 0

    def report(self) -> EvalReport | None:
        file = self.folder / "report.json"
        return load_report(file) if file.exists() else None

    def arguments(self) -> list[str]:
        env, played = self.config.env, self.config.eval
        words = ["eval", self.model, "--env", env.name, "--split", env.eval_split]
        words += ["--limit", str(played.tasks), "--rounds", str(self.config.eval_max_rounds)]
        return [*words, "--out", str(self.folder), *self._overrides()]

    def _overrides(self) -> list[str]:
        """Return what the model's own settings, if it is of a run, do not say already."""
        from agentgym_rl.api.eval_plan import eval_config  # start-up time: torch

        plain = eval_config(self.model, self.config.env.name)
        has, wanted = (flatten(config.model_dump(mode="json")) for config in (plain, self.config))
        keys = [key for key in wanted if _is_played(key) and has.get(key) != wanted[key]]
        return override_texts({key: wanted[key] for key in keys})


def _is_played(key: str) -> bool:
    """Whether a setting decides how a model is evaluated, and no option of the command has it."""
    section, _, rest = key.partition(".")
    if section == "rollout":
        return rest in EpisodeLimitsConfig.model_fields
    unread = ("env.name", "env.split", "env.eval_split", "eval.tasks", "eval.every")
    if key in (*unread, "eval.max_rounds", "model.path") or key.startswith("model.tiny."):
        return False
    return section in ("seed", "env", "model", "agent", "engine", "eval")


def plan_jobs(study: Study, out: Path, seeds: Sequence[int], *, transfer: bool) -> list[Job]:
    """Return all jobs of a study: one seed of everything first, and transfer last."""
    demos = [_demos_job(study, v, out, seeds[0]) for v in study.in_order() if v.demos]
    runs = [_train_job(study, v, out, seed) for seed in seeds for v in study.in_order()]
    untrained = untrained_jobs(study, out, seeds[0]) if study.scoreboard else []
    crossed = [job for seed in seeds for job in transfer_jobs(study, out, seed)]
    return [*demos, *untrained, *runs, *(crossed if transfer else [])]


def _demos_job(study: Study, variant: Variant, out: Path, seed: int) -> DemosJob:
    file = variant.demos_file(out)
    config = study.config_of(variant, out, seed)
    title = f"demonstrations of variant {variant.name!r}"
    return DemosJob(file.stem, title, variant.name, (), variant.demos, config, file)


def _train_job(study: Study, variant: Variant, out: Path, seed: int) -> TrainJob:
    folder = variant.folder(out, seed)
    start = (study.variant(variant.start).folder(out, seed).name,) if variant.start else ()
    demos = (variant.demos_file(out).stem,) if variant.demos else ()
    return TrainJob(
        folder.name,
        f"variant {variant.name!r}, seed {seed}",
        variant.name,
        (*start, *demos),
        variant.recipe,
        tuple(study.overrides_of(variant, out, seed)),
        RunFolder(folder),
    )


def untrained_jobs(study: Study, out: Path, seed: int) -> list[EvalJob]:
    """Return the evaluation of the untrained model on every scenario, where there is one."""
    jobs = []
    for scenario in study.scenarios():
        model = study.config_of(study.phases(scenario)[0], out, seed).model.path
        if model != TINY:
            folder = out / f"{UNTRAINED}-{scenario.slug}"
            jobs.append(
                EvalJob(
                    name=folder.name,
                    title=f"untrained model on {scenario.name!r}",
                    variant=scenario.name,
                    needs=(),
                    trained_on=UNTRAINED,
                    played=scenario.name,
                    model=model,
                    config=study.config_of(scenario, out, seed),
                    folder=folder,
                )
            )
    return jobs


def transfer_jobs(study: Study, out: Path, seed: int) -> list[EvalJob]:
    """Return the evaluations of every scenario's run on the others' tasks."""
    jobs = []
    for scenario in study.scenarios():
        run = scenario.folder(out, seed)
        for other in study.scenarios():
            if other == scenario:
                continue
            folder = out / f"transfer-{run.name}-on-{other.slug}"
            jobs.append(
                EvalJob(
                    name=folder.name,
                    title=f"{scenario.name!r}, seed {seed} on {other.name!r}",
                    variant=folder.name,  # a failure here stops no other
                    needs=(run.name,),
                    trained_on=scenario.name,
                    played=other.name,
                    model=str(run),
                    config=study.config_of(other, out, seed),
                    folder=folder,
                )
            )
    return jobs
