"""`agentgym bench web`: every template of `web` through the real browser.

For some tasks of each template the expert acts, which must solve the task, and then each near miss,
which must not. Reported are failures, rounds, and the sizes of all observations that experts saw.

The whole sweep takes hours, so it can be shared among processes or machines, whose reports are then
put together in one table:

    agentgym bench web --tasks 1000 --share 1/4 --json 1.jsonl    (and 2/4, 3/4, 4/4)
    agentgym bench web --merge 1.jsonl 2.jsonl 3.jsonl 4.jsonl
"""

from __future__ import annotations

import argparse
import itertools
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
    site: str = ""
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
    report = TemplateReport(template.name, template.level, template.split, entries[0].task.category)
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


@dataclass(frozen=True)
class Share:
    """Part `number` of `of` parts, counted from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, text: str) -> Share:
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise argparse.ArgumentTypeError(f"a share is written 2/4, not {text!r}")
        return cls(int(number), int(of))


def shared(counts: Sequence[int], share: Share) -> list[list[int]]:
    """Return which tasks of each template belong to a share: every n-th of all."""
    starts = itertools.accumulate(counts, initial=0)
    return [
        [n for n in range(count) if (start + n) % share.of == share.number - 1]
        for start, count in zip(starts, counts, strict=False)
    ]


def chosen(only: str, num_tasks: int, share: Share) -> dict[str, list[Entry]]:
    """Return the tasks to play by template: at most so many of each, and only a share of all."""
    spread = dict[str, Sequence[Entry]]()
    for template in sorted(all_templates(), key=lambda one: one.name):
        if template.name.startswith(only):
            entries = entries_of(template)
            spread[template.name] = entries[:: max(1, len(entries) // num_tasks)][:num_tasks]
    places = shared([len(entries) for entries in spread.values()], share)
    mine = zip(spread.items(), places, strict=True)
    return {name: [entries[n] for n in here] for (name, entries), here in mine if here}


def read_reports(files: Sequence[Path]) -> list[TemplateReport]:
    """Return the reports of several sweeps."""
    lines = (line for file in files for line in file.read_text("utf-8").splitlines())
    return [TemplateReport(**json.loads(line)) for line in lines]


def print_table(reports: Sequence[TemplateReport], console: Console) -> None:
    """Print what experts solved by site and level, and near misses that were rewarded."""
    levels = sorted({report.level for report in reports})
    heads = ["site", *(f"level {level}" for level in levels), "all", "near misses rewarded"]
    console.print(f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", sep="\n", markup=False)
    for site in [*sorted({report.site for report in reports}), "all"]:
        here = [report for report in reports if site in ("all", report.site)]
        cells = [solved_of([r for r in here if r.level == level]) for level in levels]
        wrong = sum(len(r.wrongly_rewarded) for r in here), sum(r.num_wrong for r in here)
        cells = [site, *cells, solved_of(here), f"{wrong[0]} of {wrong[1]}"]
        console.print(f"| {' | '.join(cells)} |", markup=False)


def solved_of(reports: Sequence[TemplateReport]) -> str:
    num_tasks = sum(report.num_tasks for report in reports)
    return f"{sum(r.num_solved for r in reports)} of {num_tasks}" if num_tasks else ""


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
        f"{len({report.name for report in reports})} templates, experts solved {solved} of {tasks} "
        f"tasks ({solved / tasks:.1%}); {sum(r.num_wrong for r in reports)} near misses, "
        f"{sum(len(r.wrongly_rewarded) for r in reports)} rewarded; observations of "
        f"{statistics.median(sizes):.0f} tokens (median), {sizes[int(0.95 * len(sizes))]:.0f} "
        f"(95th percentile), {len(sizes)} of them"
    )


def print_failures(report: TemplateReport, console: Console) -> None:
    for line in (*report.failures, *(f"REWARDED {w}" for w in report.wrongly_rewarded)):
        console.print(f"  {line}", markup=False)


def play(options: argparse.Namespace, console: Console) -> list[TemplateReport]:
    """Play what the options ask for, with a line for each template."""
    reports = []
    with closing(WebEnvironment()) as env:
        for name, entries in chosen(options.only, options.tasks, options.share).items():
            started = time.monotonic()
            report = sweep(env, entries, has_wrong=not options.no_wrong)
            reports.append(report)
            rounds = f"{statistics.median(report.rounds):.0f}" if report.rounds else "-"
            console.print(
                f"{name} (level {report.level}, {report.split}): "
                f"{report.num_solved}/{report.num_tasks} solved in {rounds} rounds, "
                f"{report.num_wrong} near misses, {time.monotonic() - started:.0f} s"
            )
            print_failures(report, console)
            if options.json:
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(vars(report)) + "\n")
    return reports


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench web", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tasks", type=whole_from(1), default=2, help="of each template, at most")
    parser.add_argument("--only", default="", help="only templates whose names begin with this")
    parser.add_argument("--share", type=Share.read, default=Share(), help="1/4: every fourth task")
    parser.add_argument("--no-wrong", action="store_true", help="only experts")
    parser.add_argument("--json", type=Path, help="add a line for each template to this file")
    parser.add_argument("--merge", type=Path, nargs="+", help="files of --json: play nothing")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json of a model, to count tokens")
    options = parser.parse_args(list(arguments))
    console = Console(soft_wrap=True)
    if options.merge:
        reports = read_reports(options.merge)
        for report in reports:
            print_failures(report, console)
    else:
        reports = play(options, console)
    if not reports:
        console.print(f"no task begins with {options.only!r} in share {options.share}")
        return
    print_table(reports, console)
    summarize(reports, options.tokenizer, console)
