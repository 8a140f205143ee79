"""The files of a project and how they change: `Sources`. Every edit is a commit's content."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

_SUFFIXES = {"Python": "py", "JavaScript": "js", "Go": "go", "Markdown": "md"}


@dataclass
class _Function:
    name: str
    noun: str
    is_documented: bool = False
    is_careful: bool = False


@dataclass
class _Module:
    name: str
    constants: dict[str, int]
    functions: list[_Function] = field(default_factory=list)


class Sources:
    """A working copy. `files` gives all contents; the other methods edit and say what they did."""

    def __init__(
        self,
        rng: random.Random,
        name: str,
        description: str,
        language: str,
        modules: Sequence[str],
        nouns: Sequence[str],
    ) -> None:
        self._rng = rng
        self.name, self.description, self.language = name, description, language
        self.nouns = nouns
        self.version = [0, 1, 0]
        self._changes: list[str] = []
        self._pages: dict[str, list[str]] = {}
        self._has_tests = False
        self._verbs = ["load", "parse", "merge", "find", "count", "update", "format", "check"]
        self.modules = [self._module(module) for module in modules]

    def copy(self) -> Sources:
        """Return another working copy, which draws from the same numbers."""
        other = copy.copy(self)
        other.version = list(self.version)
        other._changes = list(self._changes)
        other._pages = {page: list(texts) for page, texts in self._pages.items()}
        other.modules = copy.deepcopy(self.modules)
        return other

    def _module(self, name: str) -> _Module:
        rng, noun = self._rng, self._rng.choice(self.nouns)
        patterns = rng.sample(["MAX_{}S", "DEFAULT_{}", "{}_TIMEOUT_S", "{}_LIMIT"], 2)
        constants = {one.format(noun.upper()): rng.randrange(2, 60) for one in patterns}
        module = _Module(name, constants)
        self._add_to(module)
        self._add_to(module)
        return module

    def _add_to(self, module: _Module) -> _Function | None:
        taken = {function.name for each in [module] for function in each.functions}
        choices = [
            (verb, noun)
            for verb in self._verbs
            for noun in self.nouns
            if f"{verb}_{noun}" not in taken
        ]
        if not choices:
            return None
        verb, noun = self._rng.choice(choices)
        function = _Function(f"{verb}_{noun}", noun)
        module.functions.append(function)
        return function

    def edit(self) -> str:
        """Change something at random and return the commit's message."""
        edits = [self.add_function, self.change_constant, self.document, self.harden]
        weights = [4, 3, 3, 3]
        if self.language == "Markdown":
            edits, weights = [self.add_paragraph], [1]
        for _ in range(10):
            message = self._rng.choices(edits, weights)[0]()
            if message:
                return message
        return self.bump()

    def add_function(self) -> str:
        module = self._rng.choice(self.modules)
        function = self._add_to(module) if len(module.functions) < 7 else None
        return f"Add {function.name} to {module.name}" if function else ""

    def change_constant(self) -> str:
        module = self._rng.choice(self.modules)
        name = self._rng.choice(list(module.constants))
        old = module.constants[name]
        new = self._rng.choice([n for n in (old * 2, old + 5, max(1, old // 2)) if n != old])
        module.constants[name] = new
        return f"{'Raise' if new > old else 'Lower'} {name} from {old} to {new}"

    def document(self) -> str:
        module = self._rng.choice(self.modules)
        for function in module.functions:
            if not function.is_documented:
                function.is_documented = True
                return f"Document {function.name}"
        return ""

    def harden(self) -> str:
        module = self._rng.choice(self.modules)
        for function in module.functions:
            if not function.is_careful:
                function.is_careful = True
                return f"Fix {function.name} for an empty {function.noun}"
        return ""

    def add_paragraph(self) -> str:
        page, noun = self._rng.choice(self.modules).name, self._rng.choice(self.nouns)
        verb = self._rng.choice(self._verbs)
        text = f"To {verb} a {noun}, open the {page} page and follow the checklist."
        texts = self._pages.setdefault(page, [])
        if text in texts:
            return ""
        texts.append(text)
        return f"Explain how to {verb} a {noun}"

    def add_tests(self) -> str:
        self._has_tests = True
        return f"Test {self.modules[0].name}"

    def bump(self) -> str:
        """Release a version: the change log gets an entry."""
        place = 1 if self._rng.random() < 0.4 else 2
        self.version[place] += 1
        self.version[place + 1 :] = [0] * (2 - place)
        noun = self._rng.choice(self.nouns)
        what = self._rng.choice([f"Faster {noun} handling", f"Better {noun} messages"])
        self._changes.insert(0, f"## {self.version_text}\n\n- {what}\n")
        return f"Release {self.version_text}"

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))

    def files(self) -> dict[str, str]:
        """Return path -> content."""
        found = {
            "README.md": self._readme(),
            "LICENSE": "MIT License\n\nPermission is hereby granted, free of charge, to any person"
            "\nobtaining a copy of this software, to deal in it without restriction.\n",
        }
        if self._changes:
            found["CHANGELOG.md"] = "# Changes\n\n" + "\n".join(self._changes)
        suffix = _SUFFIXES[self.language]
        folder = "docs" if self.language == "Markdown" else "src"
        writers = {"Python": _python, "JavaScript": _javascript, "Go": _go}
        for module in self.modules:
            if self.language == "Markdown":
                text = _page(module.name, self._pages.get(module.name, []))
            else:
                text = writers[self.language](module)
            found[f"{folder}/{module.name}.{suffix}"] = text
        if self.language == "Python":
            found["pyproject.toml"] = (
                f'[project]\nname = "{self.name}"\nversion = "{self.version_text}"\n'
                f'description = "{self.description}"\nrequires-python = ">=3.10"\n'
            )
        if self.language == "JavaScript":
            found["package.json"] = (
                f'{{\n  "name": "{self.name}",\n  "version": "{self.version_text}",\n'
                f'  "description": "{self.description}",\n  "type": "module"\n}}\n'
            )
        if self._has_tests and self.language != "Markdown":
            found[f"tests/test_{self.modules[0].name}.{suffix}"] = self._tests()
        return found

    def _readme(self) -> str:
        install = {
            "Python": f"pip install {self.name}",
            "JavaScript": f"npm install {self.name}",
            "Go": f"go install code.test/{self.name}@latest",
            "Markdown": "make html",
        }[self.language]
        parts = "\n".join(f"- `{module.name}`" for module in self.modules)
        return (
            f"# {self.name}\n\n{self.description}.\n\n## Install\n\n```\n{install}\n```\n\n"
            f"## What is inside\n\n{parts}\n\n## Licence\n\nMIT\n"
        )

    def _tests(self) -> str:
        module = self.modules[0]
        function = module.functions[0]
        if self.language == "Python":
            return (
                f"from src.{module.name} import {function.name}\n\n\n"
                f"def test_{function.name}_of_nothing():\n    assert {function.name}([]) == []\n"
            )
        return f"// checks {function.name} with an empty {function.noun}\n"


def _python(module: _Module) -> str:
    lines = [f'"""{module.name.replace("_", " ").capitalize()}."""', ""]
    lines += [f"{name} = {value}" for name, value in module.constants.items()]
    limit = next(iter(module.constants))
    for function in module.functions:
        noun = function.noun
        lines += ["", "", f"def {function.name}({noun}s):"]
        if function.is_documented:
            lines.append(f'    """Return what is left of the {noun}s, at most {limit} of them."""')
        if function.is_careful:
            lines += [f"    if not {noun}s:", "        return []"]
        lines += [f"    found = [{noun} for {noun} in {noun}s if {noun}]"]
        lines += [f"    return found[:{limit}]"]
    return "\n".join(lines) + "\n"


def _javascript(module: _Module) -> str:
    lines = [f"// {module.name.replace('_', ' ').capitalize()}", ""]
    lines += [f"const {name} = {value};" for name, value in module.constants.items()]
    limit = next(iter(module.constants))
    for function in module.functions:
        head, _, tail = function.name.partition("_")
        noun = function.noun
        lines.append("")
        if function.is_documented:
            lines.append(f"/** Return what is left of the {noun}s, at most {limit}. */")
        lines.append(f"export function {head}{tail.capitalize()}({noun}s) {{")
        if function.is_careful:
            lines.append(f"  if (!{noun}s) return [];")
        lines += [f"  return {noun}s.filter(Boolean).slice(0, {limit});", "}"]
    return "\n".join(lines) + "\n"


def _go(module: _Module) -> str:
    lines = [f"package {module.name}", "", "const ("]
    names = ["".join(part.capitalize() for part in name.split("_")) for name in module.constants]
    values = list(module.constants.values())
    lines += [f"\t{name} = {value}" for name, value in zip(names, values, strict=True)]
    lines.append(")")
    for function in module.functions:
        name = "".join(part.capitalize() for part in function.name.split("_"))
        noun = function.noun
        lines.append("")
        if function.is_documented:
            lines.append(f"// {name} returns what is left of the {noun}s.")
        lines.append(f"func {name}({noun}s []string) []string {{")
        if function.is_careful:
            lines += [f"\tif len({noun}s) == 0 {{", "\t\treturn nil", "\t}"]
        lines += [f"\tif len({noun}s) > {names[0]} {{", f"\t\treturn {noun}s[:{names[0]}]"]
        lines += ["\t}", f"\treturn {noun}s", "}"]
    return "\n".join(lines) + "\n"


def _page(name: str, paragraphs: list[str]) -> str:
    text = f"# {name.capitalize()}\n\nThis page is about {name}.\n"
    return text + "".join(f"\n{paragraph}\n" for paragraph in paragraphs)
