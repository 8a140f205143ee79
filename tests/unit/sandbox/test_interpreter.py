"""Code in the sandbox computes and answers as in an interactive session.

What it must not do is in tests/security/test_sandbox_escapes.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentgym_rl.sandbox.interpreter import (
    MAX_CODE_CHARS,
    SandboxLimits,
    SandboxResult,
    run_code,
    why_unavailable,
)

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

LIMITS = SandboxLimits(wall_s=60.0, cpu_s=5, output_chars=500)


def test_code_answers_like_an_interactive_session():
    assert run_code("2 + 2", LIMITS).output == "4\n"
    assert run_code("x = 6\nprint(x)\nx * 7", LIMITS).output == "6\n42\n"
    assert run_code("None", LIMITS).output == ""
    assert run_code("", LIMITS).output == ""
    assert (
        run_code("x = 1\n1 / 0", LIMITS).output == "ZeroDivisionError: division by zero (line 2)\n"
    )
    assert run_code("x = (", LIMITS).output == "SyntaxError: '(' was never closed (line 1)\n"
    assert run_code("import sys\nprint('a')\nsys.exit(3)", LIMITS).output == "a\n"
    assert run_code("print('\ud800é')", LIMITS).output == "?é\n"


def test_the_standard_library_is_there():
    modules = (
        "math cmath decimal fractions statistics datetime calendar re json itertools collections "
        "functools random string hashlib bisect heapq operator unicodedata textwrap csv zlib enum "
        "dataclasses typing copy numbers difflib array cmath email.mime.text xml.dom.minidom"
    )
    result = run_code("\n".join(f"import {name}" for name in modules.split()), LIMITS)
    assert result == SandboxResult("", "")


def test_there_are_no_files_to_write():
    for code in ("open('x', 'w')", "open('/tmp/x', 'w')", "open('/dev/shm/x', 'w')"):
        assert run_code(code, LIMITS).output.startswith("PermissionError")


def test_the_same_code_prints_the_same():
    code = "import random\nprint({'a', 'b', 'c', 'd'}, random.random())"
    assert run_code(code, LIMITS) == run_code(code, LIMITS)


def test_output_before_the_end_is_kept():
    result = run_code("print('so far')\nwhile True: pass", SandboxLimits(wall_s=60.0, cpu_s=1))
    assert result == SandboxResult("so far\n", "it used more than 1 seconds of computing time")


def test_long_output_is_cut():
    result = run_code("print('x' * 600)", LIMITS)
    assert result == SandboxResult("x" * 500, "it printed too much")


def test_long_code_is_refused():
    assert "longer than" in run_code("#" * (MAX_CODE_CHARS + 1), LIMITS).problem
    assert run_code("#" + "漢" * (MAX_CODE_CHARS - 1), LIMITS).problem == ""


def test_calls_run_side_by_side():
    with ThreadPoolExecutor(8) as pool:
        outputs = list(pool.map(lambda n: run_code(f"{n} ** 2", LIMITS).output, range(16)))
    assert outputs == [f"{n**2}\n" for n in range(16)]
