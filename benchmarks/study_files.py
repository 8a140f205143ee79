"""Study files of `agentgym bench learning`: what they hold, and what a mistake in one is told.

A study names a title, overrides for all, and variants: a recipe with overrides each, and where it
needs another variant's run the name of that one. Everything is checked before anything is run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentgym_rl.api.plan import check_env
from agentgym_rl.config import load_config
from agentgym_rl.errors import ConfigError, did_you_mean

FOLDER = Path(__file__).parent / "studies"
START = "{start}"
"""In an override: the run, of the same seed, that the variant names with `start`."""
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
    variants: tuple[Variant, ...] = Field(min_length=1)

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)

    def in_order(self) -> list[Variant]:
        """Return the variants, each after the one that it starts from."""
        needs = {v.name: [v.start] if v.start else [] for v in self.variants}
        return [self.variant(name) for name in TopologicalSorter(needs).static_order()]

    def overrides_of(self, variant: Variant, out: Path, seed: int) -> list[str]:
        """Return all overrides of a run."""
        overrides = [f"seed={seed}", *self.overrides, *variant.overrides]
        if not variant.start:
            return overrides
        start = str(self.variant(variant.start).folder(out, seed).resolve())
        return [override.replace(START, start) for override in overrides]


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
            config = load_config(variant.recipe, study.overrides_of(variant, out, seeds[0]))
            check_env(config)
            if not config.eval.tasks:
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
