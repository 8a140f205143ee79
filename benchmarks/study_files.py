"""Study files of `agentgym bench learning`: what they hold, and what a mistake in one is told.

A study names a title, overrides for all, and variants: a recipe with overrides each, and where it
needs another variant's run the name of that one. In a study with a scoreboard a variant is a
scenario, and one that another starts from is a phase of it. Everything is checked before anything
is run.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym_rl.api.plan import check_env
from agentgym_rl.config import RunConfig, load_config
from agentgym_rl.errors import ConfigError, did_you_mean

FOLDER = Path(__file__).parent / "studies"
START = "{start}"
"""In an override: the run, of the same seed, that the variant names with `start`."""
DEMOS = "{demos}"
"""In an override: the file of the variant's demonstrations."""
_NO_NAME = "/\\|"
"""What neither the name of a folder nor a cell of a table can hold."""


class Variant(BaseModel):
    """One way to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    recipe: str = Field(min_length=1)
    overrides: tuple[str, ...] = ()
    start: str = ""
    """The variant whose run is needed first."""
    demos: int = Field(default=0, ge=0)
    """Expert demonstrations of its environment that are written first, once for all seeds."""

    def demos_file(self, out: Path) -> Path:
        return out / f"{self.slug}-demos.jsonl"

    def folder(self, out: Path, seed: int) -> Path:
        return out / f"{self.slug}-seed{seed}"

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


class Study(BaseModel):
    """Variants that are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    overrides: tuple[str, ...] = ()
    """For every variant, before its own."""
    jobs: int = Field(default=0, ge=0)
    """Commands at a time, where the command line does not say; 0 for one per processor."""
    scoreboard: bool = False
    """Whether every variant is a scenario, whose untrained model is measured as well."""
    variants: tuple[Variant, ...] = Field(min_length=1)

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)

    def in_order(self) -> list[Variant]:
        """Return the variants, each after the one that it starts from."""
        needs = {v.name: [v.start] if v.start else [] for v in self.variants}
        return [self.variant(name) for name in TopologicalSorter(needs).static_order()]

    def phases(self, variant: Variant) -> list[Variant]:
        """Return the variants that a variant is made of: those before it, and itself."""
        before = self.phases(self.variant(variant.start)) if variant.start else []
        return [*before, variant]

    def scenarios(self) -> list[Variant]:
        """Return the variants that no other starts from."""
        return [variant for variant in self.variants if not self._is_phase(variant)]

    def only(self, names: Sequence[str]) -> Study:
        """Return the study of these variants, and of those that they start from."""
        known = [variant.name for variant in self.variants]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise ConfigError(f"no variant {name!r}{hint}; there are: {', '.join(known)}")
        kept = {phase.name for name in names for phase in self.phases(self.variant(name))}
        return self.model_copy(
            update={"variants": tuple(v for v in self.variants if v.name in kept)}
        )

    def overrides_of(self, variant: Variant, out: Path, seed: int) -> list[str]:
        """Return all overrides of a run; what ties it to another command's result comes last."""
        own = [f"seed={seed}", *self.overrides, *variant.overrides]
        tied = [override for override in own if START in override or DEMOS in override]
        overrides = [*(override for override in own if override not in tied), *tied]
        if self.scoreboard and self._is_phase(variant):
            overrides.append("eval.tasks=0")  # the next phase begins with the same evaluation
        start = self.variant(variant.start).folder(out, seed) if variant.start else out
        demos = variant.demos_file(out)
        # Of each setting the last, so that a page shows commands without what has no effect.
        last = {override.partition("=")[0].strip(): override for override in overrides}
        return [o.replace(START, str(start)).replace(DEMOS, str(demos)) for o in last.values()]

    def config_of(self, variant: Variant, out: Path, seed: int) -> RunConfig:
        """Return the settings of a run. What they leave out of the recipe is in the run's log."""
        logger = logging.getLogger("agentgym_rl.config.load")
        before = logger.level
        logger.setLevel(logging.ERROR)
        try:
            return load_config(variant.recipe, self.overrides_of(variant, out, seed))
        finally:
            logger.setLevel(before)

    def _is_phase(self, variant: Variant) -> bool:
        return any(other.start == variant.name for other in self.variants)


def read_study(name: str, extra: Sequence[str] = ()) -> Study:
    """Return the study in a file, or the one of that name among ours.

    `extra` overrides come last, for every variant.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        ours = sorted(file.stem for file in FOLDER.glob("*.toml"))
        hint = did_you_mean(name, ours)
        raise ConfigError(
            f"no study {name!r}{hint}; give a TOML file, or one of: {', '.join(ours)}"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        study = Study.model_validate(table)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: " + "\n".join(_explain(error))) from None
    variants = (v.model_copy(update={"overrides": (*v.overrides, *extra)}) for v in study.variants)
    study = study.model_copy(update={"variants": tuple(variants)})
    complaint = _complaint(study)
    if complaint:
        raise ConfigError(f"{path}: {complaint}")
    return study


def check_runs(study: Study, out: Path, seeds: Sequence[int]) -> None:
    """Resolve the settings of every run, so that a mistake in the last is found before the first.

    Raises ConfigError that names the variant.
    """
    for variant in study.variants:
        try:
            config = study.config_of(variant, out, seeds[0])
            check_env(config)
            if study.scoreboard and config.envs:
                raise ConfigError("a scoreboard has one environment a row; name one with [env]")
            is_compared = not study.scoreboard or variant in study.scenarios()
            if is_compared and not config.eval.tasks:
                raise ConfigError("eval.tasks=0 leaves nothing to compare; set it above 0")
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"variant {variant.name!r}: {error}") from error


def _complaint(study: Study) -> str:
    """Return what is wrong with the variants, or nothing."""
    slugs: dict[str, str] = {}
    names = [variant.name for variant in study.variants]
    for variant in study.variants:
        told = f"variant {variant.name!r}"
        bad = [c for c in variant.name if c in _NO_NAME or not c.isprintable()]
        if bad or not variant.name.strip():
            return f"{told}: a name is words for a folder and a table, without / \\ | and tabs"
        if variant.slug in slugs:
            folder, other = f"{variant.slug}-seed0", slugs[variant.slug]
            return f"{told} and {other!r} have the same folder ({folder}); rename one"
        slugs[variant.slug] = variant.name
        if variant.start and variant.start not in names:
            hint = did_you_mean(variant.start, names)
            return f"{told}: start={variant.start!r} is no variant{hint}; there are: {names}"
        overrides = [*study.overrides, *variant.overrides]
        if any(DEMOS in override for override in overrides) != bool(variant.demos):
            return f"{told}: demos=NUMBER and an override with {DEMOS} go together"
        if not variant.start and any(START in override for override in overrides):
            return f"{told}: {START} needs `start`, the name of the variant whose run is meant"
        if any(override.partition("=")[0].strip() == "seed" for override in overrides):
            return f"{told}: every seed would be the same; give seeds with --seeds, not seed="
    try:
        study.in_order()
    except CycleError as error:
        return f"variants start from one another: {' from '.join(map(repr, error.args[1][::-1]))}"
    return ""


def _explain(error: ValidationError) -> list[str]:
    """Return one sentence a mistake: the key, what is wrong, the remedy."""
    sentences = []
    for item in error.errors():
        *outer, last = (str(part) for part in item["loc"])
        fields = list((Variant if outer[:1] == ["variants"] else Study).model_fields)
        message = f"{item['msg']}, got {item['input']!r}"
        if item["type"] == "extra_forbidden":
            message = f"unknown key{did_you_mean(last, fields)}; legal here: {', '.join(fields)}"
        elif item["type"] == "missing":
            message = "missing"
        elif item["type"] == "tuple_type" and last == "overrides":
            message = f'a list such as ["training.steps=60"] is needed, got {item["input"]!r}'
        elif last == "variants":
            message = "there must be a [[variants]] with name and recipe for each way to learn"
        sentences.append(f"{'.'.join([*outer, last])}: {message}")
    return sentences
