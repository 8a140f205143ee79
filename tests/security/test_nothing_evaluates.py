"""No module of ours evaluates text or loads objects from bytes, but for those that are named here.

The environments of others that see an agent's text are looked through for the same.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

import agentgym_rl

SOURCE = Path(agentgym_rl.__file__).parent
DANGEROUS = {
    *("eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "shelve.open"),
    *("yaml.load", "yaml.unsafe_load", "os.system", "os.popen"),
    *("sympy.sympify", "sympy.parse_expr", "sympify", "parse_expr"),
}
ALLOWED = {
    # Behind the locks.
    "sandbox/program.py": {"eval", "exec"},
    # Behind the locks, and before them on texts of our own.
    "envs/adapters/reasoning_gym_scorer.py": {"eval", "pickle.loads", "sympy.parse_expr"},
    # What a process of the run sends, as a multiprocessing connection reads it, too.
    "rollout/workers/messages.py": {"pickle.loads"},
}


def dangerous_calls(source: str) -> set[str]:
    """Return the names of the calls that may run what they are given."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if name in DANGEROUS or keywords.get("shell") == "True":
            found.add(name)
        if name == "torch.load" and keywords.get("weights_only") != "True":
            found.add(name)
    return found


def test_no_module_of_ours_evaluates_text():
    found = {
        str(file.relative_to(SOURCE)): calls
        for file in SOURCE.rglob("*.py")
        if (calls := dangerous_calls(file.read_text(encoding="utf-8")))
    }
    assert found == ALLOWED


def test_the_search_finds_what_it_looks_for():
    source = (
        "eval(x)\ntorch.load(f)\nsubprocess.run(x, shell=True)\npickle.loads(x)\n"
        "torch.load(f, weights_only=True)\nsubprocess.run([x])\nmodel.eval()\n"
    )
    assert dangerous_calls(source) == {"eval", "torch.load", "subprocess.run", "pickle.loads"}


@pytest.mark.parametrize("package", ["textarena.envs"])
def test_adapted_packages_do_not_evaluate_text(package: str):
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    for folder in spec.submodule_search_locations:
        for file in Path(folder).rglob("*.py"):
            with suppress(SyntaxError):  # what this Python cannot parse, it cannot run
                assert dangerous_calls(file.read_text(encoding="utf-8")) == set(), file
