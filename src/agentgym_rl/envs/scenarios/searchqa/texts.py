"""What the environment says of itself and in reply: instructions and fixed observations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the interpreter runs on Linux only
    from agentgym_rl.sandbox.interpreter import SandboxResult

CORRECT = "Correct."
WRONG = "Wrong. The task is over."
WRONG_RETRY = "Wrong. Search on, or answer again."

# How an action is written belongs to the format: `EnvSpec.action_tags` lets it show tags or tools.
_INTRODUCTION = """\
You answer a question with the help of a search engine over a collection of short texts. Every \
round you do one of these actions:
"""
_SEARCH = """\
search: a query
    Find passages. They come back between <information> tags, the best one first."""
_OPEN = """\
open: a number
    Read a passage of your last search in full, by the number of its Doc. A title works as well."""
_PYTHON = """\
python: code
    Run Python code and see what it prints, for calculations. Every call starts anew."""
_ANSWER = """\
answer: a few words
    Answer the question with a name, a date or a number and nothing else. {after}"""
_CLOSING = """
Most questions take several searches: find one fact, then search for the next with it.

An example of a whole task, with what you see cut short. You see:
Question: What is the highest point of the country of origin of the 1989 film "The Seventh \
Continent"?
Your first action: search: The Seventh Continent 1989 film country
You see:
<information>
Doc 1 (Title: The Seventh Continent (1989 film)) The Seventh Continent is a drama film from \
Austria, released in 1989. ...
</information>
Your next action: search: Austria highest point
You see:
<information>
Doc 1 (Title: Austria: Elevation, Natural resources and Land use) The highest point of Austria is \
Grossglockner. ...
</information>
Your next action: answer: Grossglockner
You see: Correct."""
_AFTER = {
    "end": "This ends the task.",
    "retry": "You are told whether it is right, and can answer again if not.",
}


def instructions(*, has_python: bool, on_wrong_answer: str) -> str:
    """Return what the agent is told once."""
    tools = [_SEARCH, _OPEN, *([_PYTHON] if has_python else [])]
    answer = _ANSWER.format(after=_AFTER[on_wrong_answer])
    return "\n".join((_INTRODUCTION, *tools, answer, _CLOSING))


def output_of(result: SandboxResult) -> str:
    """Return the observation of a call of the interpreter."""
    lines = [result.output.rstrip("\n")] if result.output.strip() else []
    if result.problem:
        lines.append(f"(stopped: {result.problem})")
    return "\n".join(("<output>", *(lines or ["(no output)"]), "</output>"))
