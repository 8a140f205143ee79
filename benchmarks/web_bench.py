"""`agentgym bench web`: every template of `web` through the real browser.

For some tasks of each template the expert acts, which must solve the task, and then each near miss,
which must not. Reported are failures, rounds, and the sizes of all observations that experts saw.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bench_arguments import whole_from
from rich.console import Console

from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.table import Entry, entries_of
from agentgym_rl.envs.scenarios.web.templates import Case, Wrong, all_templates, cases_of

_CHARS_PER_TOKEN = 3.0
"""Of compact observations, roughly; `--tokenizer` counts exactly."""


@dataclass
class TemplateReport:
    """What was found out about one template."""

    name: str
    level: int
    split: str
    num_tasks: int = 0
    num_solved: int = 0
    rounds: list[int] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    num_wrong: int = 0
    wrongly_rewarded: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)


def play_expert(env: WebEnvironment, entry: Entry, report: TemplateReport) -> int:
    """Let the expert act; return the number of its actions, `stop` included."""
    seen = env.start(entry)
    report.seen.append(seen)
    report.num_tasks += 1
    for number in range(1, 4 * env.spec.max_rounds):
        action = env.expert_action()
        if action is None:
            last = env.details()["url"]
            report.failures.append(f"{entry.task.id}: lost after {number - 1} rounds on {last}")
            return number - 1
        result = env.step(action)
        if result.terminated:
            report.rounds.append(number)
            report.num_solved += result.success
            if not result.success:
                report.failures.append(f"{entry.task.id}: {entry.case.objective} -> {action}")
            return number
        report.seen.append(result.observation)
        if not result.valid_action:
            report.failures.append(f"{entry.task.id}: {action} was refused")
    return number


def play_wrong(env: WebEnvironment, entry: Entry, wrong: Wrong, num_actions: int) -> float:
    """Play a near miss and return its reward."""
    env.start(entry)
    if wrong.of_other is not None:
        env.follow(wrong.of_other)
    num_taken = 0
    if wrong.of_other is not None:
        num_taken = 4 * env.spec.max_rounds
    elif wrong.leaves_out is not None:
        num_taken = num_actions - 1 - wrong.leaves_out
    for _ in range(num_taken):
        action = env.expert_action()
        if action is None or action.startswith("stop"):
            break
        env.step(action)
    return env.step(f"stop [{wrong.answer}]").reward


def sweep(env: WebEnvironment, entries: Sequence[Entry], *, has_wrong: bool) -> TemplateReport:
    """Play some tasks of one template."""
    template = entries[0].template
    report = TemplateReport(template.name, template.level, template.split)
    for entry in entries:
        num_actions = play_expert(env, entry, report)
        if not has_wrong:
            continue
        other = another_case(entry)
        misses = template.wrong(entry.case, other)
        if len(misses) < 3:
            report.wrongly_rewarded.append("fewer than three near misses")
        for wrong in misses:
            report.num_wrong += 1
            if play_wrong(env, entry, wrong, num_actions) > 0:
                report.wrongly_rewarded.append(f"{entry.task.id}: {wrong.name}")
    return report


def another_case(entry: Entry) -> Case:
    """Return the next case of the same template, with another answer where there is one."""
    cases = cases_of(entry.template.name)
    place = cases.index(entry.case)
    later = [*cases[place + 1 :], *cases[:place]]
    return next((case for case in later if case.answer != entry.case.answer), later[0])


def entries_by_template(only: str) -> dict[str, tuple[Entry, ...]]:
    named = (one for one in all_templates() if one.name.startswith(only))
    return {template.name: entries_of(template) for template in named}


def tokens_of(texts: Sequence[str], tokenizer: Path | None) -> list[float]:
    """Return the sizes of texts in tokens, smallest first."""
    if tokenizer is None:
        return sorted(len(text) / _CHARS_PER_TOKEN for text in texts)
    from tokenizers import Tokenizer  # only here is it needed

    counting = Tokenizer.from_file(str(tokenizer))
    return sorted(float(len(counting.encode(text).ids)) for text in texts)


def summarize(reports: Sequence[TemplateReport], tokenizer: Path | None, console: Console) -> None:
    tasks, solved = (sum(r.num_tasks for r in reports), sum(r.num_solved for r in reports))
    sizes = tokens_of([text for report in reports for text in report.seen], tokenizer)
    console.print(
        f"{len(reports)} templates, experts solved {solved} of {tasks} tasks "
        f"({solved / tasks:.1%}); {sum(r.num_wrong for r in reports)} near misses, "
        f"{sum(len(r.wrongly_rewarded) for r in reports)} rewarded; observations of "
        f"{statistics.median(sizes):.0f} tokens (median), {sizes[int(0.95 * len(sizes))]:.0f} "
        f"(95th percentile), {len(sizes)} of them"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench web", description=__doc__)
    parser.add_argument("--tasks", type=whole_from(1), default=2, help="of each template")
    parser.add_argument("--only", default="", help="templates whose names begin so")
    parser.add_argument("--no-wrong", action="store_true", help="only experts")
    parser.add_argument("--json", type=Path, help="write everything down")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of a model, to count with")
    options = parser.parse_args(list(arguments))
    console = Console(soft_wrap=True)
    reports = []
    with closing(WebEnvironment()) as env:
        for name, entries in sorted(entries_by_template(options.only).items()):
            started = time.monotonic()
            spread = entries[:: max(1, len(entries) // options.tasks)][: options.tasks]
            report = sweep(env, spread, has_wrong=not options.no_wrong)
            reports.append(report)
            rounds = f"{statistics.median(report.rounds):.0f}" if report.rounds else "-"
            console.print(
                f"{name} (level {report.level}, {report.split}, {len(entries)} tasks): "
                f"{report.num_solved}/{report.num_tasks} solved in {rounds} rounds, "
                f"{report.num_wrong} near misses, {time.monotonic() - started:.0f} s"
            )
            for line in (*report.failures, *(f"REWARDED {w}" for w in report.wrongly_rewarded)):
                console.print(f"  {line}", markup=False)
    summarize(reports, options.tokenizer, console)
    if options.json:
        options.json.write_text(json.dumps([vars(report) for report in reports], indent=1))
