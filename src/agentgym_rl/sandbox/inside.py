"""The child: locks itself in, reads code from its standard input, and runs it.

    python -s -S -B -u -c "...; main()" LIMITS SCRATCH STATUS_FD

Before the code starts, the file descriptor STATUS_FD gets "locked", or why it could not be done.
Then the code's output goes to the standard output, as in an interactive session: what it prints,
the value of a last expression, and for an exception one line that names it.
"""

from __future__ import annotations

import ast
import json
import os
import random
import sys
import types
from pathlib import Path

from agentgym_rl.sandbox.locks import LockError, ProcessLimits, lock_in

LOCKED = b"locked"
_FILE = "<code>"
# Imported before the locks close: their libraries may lie outside the standard library's folder.
_LINKED_MODULES = ("decimal", "hashlib", "zlib")


def main() -> None:
    limits = ProcessLimits(**json.loads(sys.argv[1]))
    scratch, status = Path(sys.argv[2]), int(sys.argv[3])
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    for name in _LINKED_MODULES:
        __import__(name)
    library = Path(os.__file__).parent
    sys.path[:] = [folder for folder in sys.path if Path(folder).is_relative_to(library)]
    sys.argv[1:] = []
    os.environ.clear()
    try:
        lock_in(limits, scratch=scratch, library=library)
    except (LockError, OSError, ValueError) as error:
        os.write(status, f"{error}"[:1000].encode())
        os._exit(1)
    os.write(status, LOCKED)
    os.close(status)
    _run(source)
    try:
        sys.stdout.flush()
    finally:
        os._exit(0)


def _run(source: str) -> None:
    """Run the code in a module of its own; whatever it raises is printed in a line."""
    random.seed(0)  # the same code prints the same
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        body, last = _parse(source)
        exec(body, module.__dict__)
        value = None if last is None else eval(last, module.__dict__)
        if value is not None:
            sys.stdout.write(f"{value!r}\n")
    except SystemExit:
        return
    except BaseException as error:  # noqa: BLE001 - of any kind, also KeyboardInterrupt
        sys.stdout.write(f"{_describe(error)}\n")


def _parse(source: str) -> tuple[types.CodeType, types.CodeType | None]:
    """Compile the code; a last statement that is an expression apart, to show its value."""
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
