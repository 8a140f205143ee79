"""Scores answers behind the locks of the sandbox, with reasoning-gym's own scorers.

Scorers read answers with `eval`, sympy's parser, `Fraction` and slow patterns. The locks keep
whatever an answer does inside its process. Inside, `guarded_eval` takes the place of `eval`: an
answer that could run code could also write its own score.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import reasoning_gym
import sympy
from reasoning_gym.dataset import ProceduralDataset
from sympy.parsing import sympy_parser

from agentgym_rl.sandbox.host import Task

_VALUES = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Load),
    *(ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.unaryop, ast.operator, ast.boolop, ast.cmpop),
)
_FUNCTIONS = (abs, sympy.sqrt, sympy.cbrt, sympy.root)
"""What formulas may call beside sympy's classes."""


def prepare(setup: bytes) -> Task:
    """Return the scorer of a generator; the setup is its name and its settings, pickled."""
    generator, settings = pickle.loads(setup)
    dataset = reasoning_gym.create_dataset(generator, **settings)
    _guard_evaluation()
    _warm_up()

    def score(request: bytes) -> None:
        os.write(1, json.dumps(_score(dataset, request)).encode())

    return score


def _score(dataset: ProceduralDataset, request: bytes) -> float | None:
    """Return the score, None where the scorer cannot read the answer.

    The request is the generator's entry and the answer, pickled by the parent: of the agent's, it
    holds one text.
    """
    entry, answer = pickle.loads(request)
    try:
        return float(dataset.score_answer(answer, entry))
    except Exception:  # noqa: BLE001 - scorers parse what the agent wrote
        return None


def _guard_evaluation() -> None:
    """Put `guarded_eval` before the built-in one, wherever a scorer or sympy's parser calls it."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "reasoning_gym" or module is sympy_parser:
            module.__dict__["eval"] = guarded_eval


@cache
def _warm_up() -> None:
    """Have sympy fill its caches once, and not in the process of every answer."""
    x = sympy.Symbol("x")
    formula = sympy.parse_expr("x*sin(2*x)/2 + exp(x) + log(x)", local_dict={"x": x})
    sympy.simplify(sympy.diff(formula, x))


# The signature of the built-in function: what it takes and returns can be anything.
def guarded_eval(
    source: object,
    global_names: Mapping[str, Any] | None = None,
    local_names: Mapping[str, Any] | None = None,
    /,
) -> Any:
    """Evaluate literals, arithmetic, and formulas as sympy's parser writes them.

    Raises ValueError for everything else: attributes, indices, and any name that is not sympy's.
    """
    if not isinstance(source, str):
        raise ValueError(f"an answer must be a text, not {type(source).__name__}")
    names = {**(global_names or {}), **(local_names or {})}
    tree = ast.parse(source.strip(), mode="eval")
    for node in ast.walk(tree):
        if not (isinstance(node, _VALUES) or _is_of_a_formula(node, names)):
            raise ValueError(f"an answer must not hold {ast.unparse(node)[:80]!r}")
    return eval(compile(tree, "<answer>", "eval"), {**names, "__builtins__": {}})


def _is_of_a_formula(node: ast.AST, names: Mapping[str, object]) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name | ast.Call) and not node.keywords
    if not isinstance(node, ast.Name):
        return False
    value = names.get(node.id)
    is_class = isinstance(value, type) and issubclass(value, sympy.Basic)
    return is_class or isinstance(value, sympy.Basic) or value in _FUNCTIONS
