"""Recipes: where they are, and how one extends another.

A recipe is a TOML file, found by name among the packaged recipes ("quickstart",
"paper/textcraft-grpo") or given as a path. It may begin from another, and then holds only what
differs:

    extends = "paper/textcraft-grpo"

    [training]
    lr = 5e-7

Its values replace those of the other recipe key by key; a section that names another `type`
replaces the whole section, because settings of one type mean nothing to another. For the same
reason a recipe does not inherit settings that its algorithm ignores, and `[envs]` replaces `[env]`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from agentgym_rl.config.algorithms import BUILTIN_ALGORITHMS
from agentgym_rl.config.ignored import Ignored
from agentgym_rl.config.renamed import use_present_names
from agentgym_rl.errors import ConfigError, did_you_mean

TomlTable: TypeAlias = dict[str, object]


def find_recipe(recipe: str) -> Path:
    """Return the file of a recipe given by name ("quickstart") or by path ("my/recipe.toml")."""
    recipes = packaged_recipes()
    if recipe in recipes:
        return recipes[recipe]
    path = Path(recipe)
    if path.is_file():
        return path
    if path.suffix == ".toml" or path.is_absolute():
        name = recipe.removesuffix(".toml")
        hint = f"; the recipe of the package is {name!r}" if name in recipes else ""
        raise ConfigError(f"no recipe file {recipe!r}{hint}")
    folder = recipe.rstrip("/") + "/"
    if inside := [name for name in recipes if name.startswith(folder)]:
        listed = "\n  ".join(inside)
        raise ConfigError(f"{folder} is a folder of recipes; name one of them:\n  {listed}")
    alike = [name for name in recipes if recipe in name]
    if alike:
        raise ConfigError(f"no recipe {recipe!r}; available: {', '.join(alike)}")
    hint, told = did_you_mean(recipe, recipes), _listed(recipes, near=recipe)
    raise ConfigError(f"no recipe {recipe!r}{hint}; available: {told}")


def packaged_recipes() -> Mapping[str, Path]:
    """Return the recipes that come with the package, by name; recipes in folders come last."""
    folder = _recipes_folder()
    files = sorted(folder.rglob("*.toml"), key=lambda file: (file.parent != folder, file))
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}


def without_ignored(table: TomlTable, ignores: Sequence[Ignored]) -> tuple[TomlTable, list[str]]:
    """Return the table without what an algorithm ignores, and the keys that were left out."""
    kept, dropped = dict(table), list[str]()
    for section, key in (place for ignored in ignores for place in ignored.places()):
        inner = kept.get(section)
        if not key and kept.pop(section, None):
            dropped.append(section)
        elif isinstance(inner, dict) and key in inner:
            kept[section] = {name: value for name, value in inner.items() if name != key}
            dropped.append(f"{section}.{key}")
    return kept, dropped


def read_table(path: Path, *, extending: Sequence[Path] = ()) -> TomlTable:
    """Return the TOML file as nested dicts, over what it extends; `extending` are the recipes that
    extend it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows puts a mark first
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    use_present_names(table)
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends must name one recipe, got {base!r}")
    chain = (*extending, path.resolve())
    base_path = _find_base(base, path)
    if base_path.resolve() in chain:
        raise ConfigError(f"{path}: extends {base!r}, which extends this recipe in turn")
    extended, algorithm = read_table(base_path, extending=chain), table.get("algorithm")
    if isinstance(algorithm, dict) and "type" in algorithm:
        model = BUILTIN_ALGORITHMS.get(str(algorithm["type"]))  # an own class is not imported here
        extended, _ = without_ignored(extended, model.ignores if model else ())
    for own, other in (("env", "envs"), ("envs", "env")):
        if own in table and other not in table:
            extended.pop(other, None)
    return merged(extended, table)


def merged(base: TomlTable, changes: TomlTable) -> TomlTable:
    """Return a table with changes laid over it, key by key; another `type` replaces its section."""
    table = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        table[key] = value
        if isinstance(old, dict) and isinstance(value, dict):
            old_type = old.get("type")
            if value.get("type", old_type) == old_type:
                table[key] = merged(old, value)
    return table


def _find_base(base: str, path: Path) -> Path:
    """Return the file that the recipe at `path` extends; a relative path is relative to it."""
    beside = path.parent / base
    try:
        return beside if base.endswith(".toml") and beside.is_file() else find_recipe(base)
    except ConfigError as error:
        raise ConfigError(f"{path}: extends: {error}") from None


def _listed(names: Iterable[str], *, near: str) -> str:
    """Return the recipes in the folder of `near`; without one, the top recipes and all folders."""
    by_folder: dict[str, list[str]] = {}
    for name in names:
        by_folder.setdefault(name.rpartition("/")[0], []).append(name)
    own = by_folder.get(near.rpartition("/")[0])
    if own is not None and "/" in near:
        return ", ".join(own)
    folders = [f"{folder}/" for folder in by_folder if folder]
    return (
        f"{', '.join(by_folder[''])}; more are in {' and '.join(folders)}, and "
        f"`agentgym train {folders[0]}` lists them"
    )


def _recipes_folder() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"
