"""Errands on the code hosting with issues and milestones that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import open_project, users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_ISSUES = """
SELECT i.id, i.title, coalesce(u.username, ''), coalesce(m.title, ''), coalesce(i.due, ''),
    i.is_open + 0, trim(replace(i.description, char(13), ''), ' ' || char(10)),
    (SELECT group_concat(label_id) FROM (SELECT label_id FROM code_issue_labels x
        WHERE x.issue_id = i.id ORDER BY label_id))
FROM code_issue i LEFT JOIN auth_user u ON u.id = i.assignee_id
LEFT JOIN code_milestone m ON m.id = i.milestone_id WHERE {} ORDER BY i.id
"""
"""(id, title, assignee, milestone, due, is open, description, labels) of some issues."""
_CHANGED = _ISSUES.format("i.updated >= '2024-06-14 10:30:00'")
_FREE = """
SELECT u.username FROM code_member m JOIN auth_user u ON u.id = m.user_id
WHERE m.project_id = ? AND m.user_id NOT IN
(SELECT coalesce(assignee_id, 0) FROM code_issue WHERE id IN (?, ?)) ORDER BY m.id
"""
"""People of a project whom neither of two issues is assigned to."""


def _issue(seeded: Seeded, number: object) -> Row:
    (row,) = seeded.rows("code", _ISSUES.format("i.id = ?"), int(str(number)))
    return row


def _is_so(case: Case, outcome: Outcome) -> bool:
    """Return whether exactly the issues were changed that the case has, and as it has them."""
    return str([tuple(row) for row in outcome.query("code", _CHANGED, ())]) == case.values["all"]


class DueWithMilestone(Changing):
    """Give an issue the due date of its milestone."""

    name = "code-due-with-milestone"
    number = 31
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT i.id, p.full_path, i.title, m.title, m.due
            FROM code_issue i JOIN code_project p ON p.id = i.project_id
            JOIN code_milestone m ON m.id = i.milestone_id
            WHERE i.is_open AND NOT m.is_closed AND i.due IS NULL AND m.due IS NOT NULL
            AND p.id IN (SELECT project_id FROM code_member WHERE user_id = 1)
            AND (SELECT count(*) FROM code_issue o WHERE o.project_id = i.project_id
                AND o.title = i.title) = 1 ORDER BY i.id""",
        )
        for place, row in enumerate(seeded.some(self, rows)):
            number, path, title, milestone, due = row
            issue = _issue(seeded, number)
            wanted = (*issue[:4], due, *issue[5:])
            asked = (
                f'The issue "{title}" of the project {path} has no due date. Give it one: the day'
                " on which its milestone is due.",
                f'Look up when the milestone of the issue "{title}" in {path} is due, and set'
                " the issue's due date to the same day.",
            )
            yield Case(
                asked[place % 2],
                users=users("code"),
                values={"path": path, "title": title, "milestone": milestone, "due": due,
                        "all": str([wanted])},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return _is_so(case, outcome)

    def expert(self, case: Case, page: Page) -> Script:
        due = str(case.values["due"])
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Issues")
        yield from page.click("link", str(case.values["title"]))
        milestone = str(case.values["milestone"])
        yield from page.reach("link", milestone)
        page.thought = f"The milestone of the issue is {milestone}: its page says when it is due."
        yield f"click [{page.find('link', milestone)}]"
        yield from page.read("due ")
        day = page.listed(r"\bdue (\d+ \w+ \d{4})")[0][0]
        page.thought = f"{milestone} is due {day}, which is {due}. Now I go back to the issue."
        yield "go_back"
        yield from page.click("link", "Edit")
        thought = f"{milestone} is due {day}, so the due date of the issue is {due}, too."
        due_date = page.type("date", "Due date", due, enter=False)
        yield from because(page, thought, due_date)
        yield from page.click("button", "Save changes")
        yield from page.done()


class CloseMilestone(Changing):
    """Close the open milestone of a project that is due first or last."""

    name = "code-close-milestone"
    number = 33
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        by_project = dict[str, list[Row]]()
        for row in seeded.rows(
            "code",
            """SELECT p.full_path, s.id, s.title FROM code_milestone s
            JOIN code_project p ON p.id = s.project_id
            JOIN code_member m ON m.project_id = p.id AND m.user_id = 1 AND m.role >= 30
            WHERE NOT s.is_closed ORDER BY p.id, s.due""",
        ):
            by_project.setdefault(str(row[0]), []).append(row)
        ((num,),) = seeded.rows("code", "SELECT count(*) FROM code_milestone WHERE is_closed")
        found = list[Case]()
        for path, rows in by_project.items():
            for which, (chosen, other) in (("first", (rows[0], rows[-1])),
                                           ("last", (rows[-1], rows[0]))):  # fmt: skip
                found.append(
                    Case(
                        f"Close one milestone of the project {path}: of those that are open, the"
                        f" one that is due {which}.",
                        users=users("code"),
                        values={"path": path, "id": chosen[1], "title": chosen[2],
                                "other_id": other[1], "other": other[2],
                                "num": int(str(num)) + 1},
                    )
                )  # fmt: skip
        return seeded.some(
            self, [one for one in found if one.values["id"] != one.values["other_id"]]
        )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("code", "SELECT id FROM code_milestone WHERE is_closed", ())
        return len(rows) == case.values["num"] and (case.values["id"],) in rows

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        values = case.values
        swapped = {"id": values["other_id"], "title": values["other"]}
        mixed_up = replace(case, values={**values, **swapped})
        return (*super().wrong(case, other), Wrong("another milestone", "", of_other=mixed_up))

    def expert(self, case: Case, page: Page) -> Script:
        title = str(case.values["title"])
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Milestones")
        yield from page.reach("link", title)
        days = told(page.listed(r"link (.+) \| open \| (\d+ \w+ \d{4})"))
        end = "first" if "due first" in case.objective else "last"
        page.thought = f"The open milestones are due: {days}. So {title} is due {end}."
        yield f"click [{page.find('link', title)}]"
        yield from page.click("button", "Close milestone")
        yield from page.done()


class AssignAll(Changing):
    """Assign the two open issues that have a label."""

    name = "code-assign-all"
    number = 36
    sites = ("code",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.id, p.full_path, l.name, min(i.id), max(i.id) FROM code_issue i
            JOIN code_issue_labels x ON x.issue_id = i.id JOIN code_label l ON l.id = x.label_id
            JOIN code_project p ON p.id = i.project_id
            JOIN code_member m ON m.project_id = p.id AND m.user_id = 1
            LEFT JOIN code_milestone s ON s.id = i.milestone_id
            WHERE i.is_open GROUP BY p.id, l.id
            HAVING count(*) = 2 AND sum(coalesce(s.is_closed, 0)) = 0
            AND min(i.title) <> max(i.title)
            ORDER BY p.id, l.id""",
        )
        for place, (project, path, label, *numbers) in enumerate(seeded.some(self, rows)):
            issues = [_issue(seeded, number) for number in numbers]
            people = [str(name) for (name,) in seeded.rows("code", _FREE, project, *numbers)]
            user = people[place % len(people)]
            wanted = [(*issue[:2], user, *issue[3:]) for issue in issues]
            yield Case(
                f'Assign both open issues of the project {path} that have the label "{label}" to'
                f" {user}.",
                users=users("code"),
                values={"path": path, "label": label, "user": user, "all": str(wanted),
                        "first": issues[0][1], "second": issues[1][1]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return _is_so(case, outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        for key in ("first", "second"):
            yield from page.click("link", "Issues")
            yield from page.select("Label", str(case.values["label"]))
            title, done = str(case.values[key]), str(case.values["first"])
            issues = told(page.listed(r"link (.+)\n#\d+ opened"))
            state = f"{done} is done" if key == "second" else "None is done"
            thought = f"The issues with this label: {issues}. {state}, so I open {title}."
            yield from because(page, thought, page.click("link", title))
            yield from page.click("link", "Edit")
            yield from page.select("Assignee", str(case.values["user"]))
            yield from page.click("button", "Save changes")
        yield from page.done()


TEMPLATES: list[Template] = [
    DueWithMilestone(),
    CloseMilestone(),
    AssignAll(),
]
