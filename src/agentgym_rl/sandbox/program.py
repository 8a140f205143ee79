"""The Python tool behind the locks: runs a program as an interactive session would.

Its output is what the code prints, the value of a last expression, and one line for an exception.
"""

from __future__ import annotations

import ast
import importlib
import random
import sys
import types
from contextlib import suppress

from agentgym_rl.sandbox.host import Task

_FILE = "<code>"
_PRELOADED = (
    *("bisect", "calendar", "collections", "csv", "datetime", "decimal", "difflib", "fractions"),
    *("functools", "hashlib", "heapq", "itertools", "json", "math", "re", "statistics", "string"),
    *("textwrap", "typing", "zlib", "bz2", "lzma", "sqlite3"),
)
"""Common, or with libraries outside the folder of the standard library."""


def prepare(setup: bytes) -> Task:
    """Import what programs often need before the locks close; the setup is empty."""
    del setup
    for name in _PRELOADED:
        with suppress(ImportError):  # some builds of Python lack some
            importlib.import_module(name)
    return _run


def _run(request: bytes) -> None:
    """Run the code in a new module; an exception is printed in one line."""
    random.seed(0)  # the same code prints the same
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        body, last = _parse(request.decode("utf-8", "replace"))
        exec(body, module.__dict__)
        value = None if last is None else eval(last, module.__dict__)
        if value is not None:
            sys.stdout.write(f"{value!r}\n")
    except SystemExit:
        return
    except BaseException as error:  # noqa: BLE001 - of any kind, also KeyboardInterrupt
        sys.stdout.write(f"{_describe(error)}\n")
    finally:
        sys.stdout.flush()


def _parse(source: str) -> tuple[types.CodeType, types.CodeType | None]:
    """Compile the code, and separately a last expression, whose value is shown."""
    tree = ast.parse(source, _FILE)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return compile(tree, _FILE, "exec"), None
    tree.body.pop()
    value = compile(ast.Expression(last.value), _FILE, "eval")
    return compile(tree, _FILE, "exec"), value


def _describe(error: BaseException) -> str:
    """Return e.g. "ZeroDivisionError: division by zero (line 3)"."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    place = "" if line is None else f" (line {line})"
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"
