"""Questions that the code hosting answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row
from agentgym_rl.envs.scenarios.web.tasks.thinking import told
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    CONTRIBUTORS,
    PROJECTS,
    Counting,
    open_project,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template

LOG = """
WITH RECURSIVE log(id) AS (
    SELECT head_id FROM code_branch WHERE project_id = ? AND name = 'main'
    UNION SELECT parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE parent_id IS NOT NULL
    UNION SELECT second_parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE second_parent_id IS NOT NULL
)
SELECT c.id, c.message, u.username, u.first_name || ' ' || u.last_name, c.tree FROM code_commit c
JOIN log ON log.id = c.id JOIN auth_user u ON u.id = c.author_id ORDER BY c.created DESC, c.id DESC
"""
_CONSTANT = re.compile(r"^(?:const )?([A-Z][A-Z_]+) = (\d+);?$", re.MULTILINE)


def _log(seeded: Seeded, project: object) -> list[Row]:
    return seeded.rows("code", LOG, int(str(project)))


class NumCommits(Counting):
    """How many commits does a project have? Its page says so."""

    name = "code-num-commits"
    number = 1
    sites = ("code",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for project, path, _ in seeded.some(self, seeded.rows("code", PROJECTS)):
            count = len(_log(seeded, project))
            yield Case(
                f"How many commits does the project {path} have?",
                str(count),
                f"/{path}",
                users("code"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"{case.answer} commits")


class IssueMilestone(Reading):
    """Which milestone does an issue belong to? Its page says so."""

    name = "code-issue-milestone"
    number = 2
    sites = ("code",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.full_path, i.iid, m.title FROM code_issue i
            JOIN code_project p ON p.id = i.project_id
            JOIN code_milestone m ON m.id = i.milestone_id
            WHERE p.visibility = 'public' ORDER BY i.id""",
        )
        for path, iid, milestone in seeded.some(self, rows):
            yield Case(
                f"Which milestone does issue #{iid} of {path} belong to?",
                str(milestone),
                f"/{path}/-/issues/{iid}",
                users("code"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class TopContributor(Reading):
    """Who made the most commits? One click away."""

    name = "code-top-contributor"
    number = 3
    sites = ("code",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            counts = Counter(row[3] for row in _log(seeded, project)).most_common(2)
            if counts[0][1] != counts[1][1]:
                found.append(
                    Case(
                        "What is the full name of the person who made the most commits to the main"
                        f" branch of {path}?",
                        str(counts[0][0]),
                        f"/{path}",
                        users("code"),
                    )
                )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Contributors")
        yield from page.read(case.answer)
        commits = told(page.listed(CONTRIBUTORS))
        page.thought = f"Commits: {commits}. So {case.answer} made the most."
        yield f"stop [{case.answer}]"


class StarsOf(Counting):
    """How many stars does a project have? A search away."""

    name = "code-stars"
    number = 4
    sites = ("code",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT full_path, num_stars FROM code_project p WHERE visibility = 'public'
            AND owner_id IS NULL ORDER BY id""",
        )
        for path, count in seeded.some(self, rows):
            yield Case(
                f"How many stars does the project {path} have?",
                str(count),
                users=users("code"),
                values={"path": path},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", str(case.values["path"]))
        yield from page.reach("link", str(case.values["path"]))
        yield from page.answer(case.answer)


class OpenWithLabel(Counting):
    """How many open issues have a label? By a filter or on the page of labels."""

    name = "code-open-with-label"
    number = 5
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.full_path, l.name, count(*) FROM code_issue i
            JOIN code_issue_labels x ON x.issue_id = i.id JOIN code_label l ON l.id = x.label_id
            JOIN code_project p ON p.id = i.project_id
            WHERE i.is_open AND p.visibility = 'public' GROUP BY p.id, l.id
            HAVING count(*) > 1 ORDER BY p.id, l.id""",
        )
        for path, label, count in seeded.some(self, rows):
            yield Case(
                f'How many open issues of the project {path} have the label "{label}"?',
                str(count),
                users=users("code"),
                values={"path": path, "label": label},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Labels")
        yield from page.answer(case.answer, shown=f"{case.values['label']} |")


class MostDiscussed(Reading):
    """Which open issue has the most comments? Sorted."""

    name = "code-most-discussed"
    number = 6
    sites = ("code",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            best = seeded.rows(
                "code",
                """SELECT i.title, count(n.id) FROM code_issue i
                JOIN code_note n ON n.issue_id = i.id AND NOT n.is_system
                WHERE i.project_id = ? AND i.is_open GROUP BY i.id
                ORDER BY 2 DESC, i.id LIMIT 2""",
                project,
            )
            if len(best) == 2 and best[0][1] != best[1][1]:
                found.append(
                    Case(
                        f"What is the title of the open issue with the most comments in the project"
                        f" {path}?",
                        str(best[0][0]),
                        users=users("code"),
                        values={"path": path},
                    )
                )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Issues")
        yield from page.select("Sort", "Comments")
        yield from page.answer(case.answer)


class WhoCommitted(Reading):
    """Who made a commit? By a search in the log."""

    name = "code-who-committed"
    number = 7
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            log = _log(seeded, project)
            messages = Counter(row[1] for row in log)
            for _, message, user, _, _ in log:
                is_plain = str(message).startswith(("Raise", "Lower", "Add "))
                if is_plain and messages[message] == 1:
                    found.append(
                        Case(
                            f'Which user made the commit "{message}" on the main branch of the'
                            f" project {path}?",
                            str(user),
                            users=users("code"),
                            values={"path": path, "message": message},
                        )
                    )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Commits")
        yield from page.turn_to("link", str(case.values["message"]))
        yield from page.answer(case.answer)


class ConstantInFile(Counting):
    """Which value does a constant have? In a file two folders down."""

    name = "code-constant"
    number = 8
    sites = ("code",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            tree = json.loads(str(_log(seeded, project)[0][4]))
            for file, blob in tree.items():
                if not file.startswith("src/"):
                    continue
                ((text,),) = seeded.rows("code", "SELECT text FROM code_blob WHERE id = ?", blob)
                for name, value in _CONSTANT.findall(str(text))[:1]:
                    found.append(
                        Case(
                            f"Which value does {name} have in the file {file} of the project"
                            f" {path}?",
                            value,
                            users=users("code"),
                            values={"path": path, "file": file.removeprefix("src/"), "name": name},
                        )
                    )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "src")
        yield from page.click("link", str(case.values["file"]))
        yield from page.answer(case.answer, shown=f"{case.values['name']} = {case.answer}")


TEMPLATES: list[Template] = [
    NumCommits(),
    IssueMilestone(),
    TopContributor(),
    StarsOf(),
    OpenWithLabel(),
    MostDiscussed(),
    WhoCommitted(),
    ConstantInFile(),
]
