"""Errands on the code hosting: stars, issues, members, merge requests, projects."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.town_common import PROJECTS, open_project, users
from agentgym_rl.envs.scenarios.web.templates import Case, Changing, Outcome, Seeded, Template

_NEW = "'2024-06-14 10:30:00'"
_OPEN_ISSUES = """
SELECT p.full_path, i.iid, i.title, p.id FROM code_issue i
JOIN code_project p ON p.id = i.project_id
JOIN code_member m ON m.project_id = p.id AND m.user_id = 1 AND m.role >= 30
WHERE i.is_open ORDER BY i.id
"""
"""Open issues of projects that the agent takes part in."""
_OPEN_REQUESTS = """
SELECT p.full_path, r.iid, r.title, r.source, r.id FROM code_mergerequest r
JOIN code_project p ON p.id = r.project_id
JOIN code_member m ON m.project_id = p.id AND m.user_id = 1 AND m.role >= 30
WHERE r.state = 'open' AND (SELECT count(*) FROM code_mergerequest o
    WHERE o.project_id = r.project_id AND o.title = r.title) = 1 ORDER BY r.id
"""
_OWN = """
SELECT id, full_path FROM code_project p WHERE id IN
(SELECT project_id FROM code_member WHERE user_id = 1 AND role >= 40) ORDER BY id
"""


class Star(Changing):
    """Give a project a star."""

    name = "code-star"
    number = 20
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for project, path, _ in seeded.some(self, seeded.rows("code", PROJECTS)):
            yield Case(
                f"Give the project {path} a star.",
                users=users("code"),
                values={"id": project, "path": path},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("code", "SELECT project_id FROM code_star WHERE user_id = 1", ())
        return rows == [(case.values["id"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("button", "Star")
        yield from page.done()


class NewIssue(Changing):
    """Open an issue with a label and an assignee."""

    name = "code-new-issue"
    number = 21
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.id, p.full_path, u.username FROM code_member m
            JOIN code_project p ON p.id = m.project_id JOIN auth_user u ON u.id = m.user_id
            WHERE p.visibility = 'public' AND m.user_id <> 1 ORDER BY m.id""",
        )
        titles = ("The build fails on ARM", "Typo in the README", "Crash on an empty list",
                  "Add a logo", "Slow start on old machines")  # fmt: skip
        labels = ("bug", "documentation", "urgent", "feature", "maintenance")
        for place, (project, path, user) in enumerate(seeded.some(self, rows)):
            title, label = titles[place % 5], labels[(place + place // 5) % 5]
            yield Case(
                f'Open an issue in the project {path} with the title "{title}" and the label'
                f' "{label}", and assign it to {user}.',
                users=users("code"),
                values={"id": project, "path": path, "title": title, "label": label, "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            f"""SELECT i.project_id, i.title, u.username, group_concat(l.name) FROM code_issue i
            LEFT JOIN auth_user u ON u.id = i.assignee_id
            LEFT JOIN code_issue_labels x ON x.issue_id = i.id
            LEFT JOIN code_label l ON l.id = x.label_id
            WHERE i.author_id = 1 AND i.created >= {_NEW} GROUP BY i.id""",
            (),
        )
        values = case.values
        return rows == [(values["id"], values["title"], values["user"], values["label"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Issues")
        yield from page.click("link", "New issue")
        yield from page.type("textbox", "Title", str(case.values["title"]), enter=False)
        yield from page.select("Assignee", str(case.values["user"]))
        yield from page.check(str(case.values["label"]))
        yield from page.click("button", "Create issue")
        yield from page.done()


class CloseIssue(Changing):
    """Close an issue."""

    name = "code-close-issue"
    number = 22
    sites = ("code",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for path, iid, title, _ in seeded.some(self, seeded.rows("code", _OPEN_ISSUES)):
            yield Case(
                f'Close the issue "{title}" of the project {path}.',
                users=users("code"),
                values={"path": path, "iid": iid, "title": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            f"""SELECT p.full_path, i.iid FROM code_issue i
            JOIN code_project p ON p.id = i.project_id
            WHERE NOT i.is_open AND i.closed >= {_NEW}""",
            (),
        )
        return rows == [(case.values["path"], case.values["iid"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Issues")
        yield from page.click("link", str(case.values["title"]))
        yield from page.click("button", "Close issue")
        yield from page.done()


class CommentRequest(Changing):
    """Comment on a merge request."""

    name = "code-comment-request"
    number = 23
    sites = ("code",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        texts = ("Looks good to me", "Please add a test", "Can you rebase this?",
                 "Why is this needed?", "Thanks, merging soon")  # fmt: skip
        rows = seeded.rows(
            "code",
            """SELECT p.full_path, r.iid, r.title, r.id FROM code_mergerequest r
            JOIN code_project p ON p.id = r.project_id
            WHERE r.state = 'open' AND p.visibility = 'public'
            AND (SELECT count(*) FROM code_mergerequest o
                WHERE o.project_id = r.project_id AND o.title = r.title) = 1 ORDER BY r.id""",
        )
        for place, (path, iid, title, number) in enumerate(seeded.some(self, rows)):
            text = texts[place % len(texts)]
            yield Case(
                f'Comment "{text}" on the merge request !{iid} of the project {path}.',
                users=users("code"),
                values={"path": path, "title": title, "text": text, "id": number, "iid": iid},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            f"""SELECT merge_request_id, trim(body) FROM code_note
            WHERE author_id = 1 AND created >= {_NEW}""",
            (),
        )
        return rows == [(case.values["id"], case.values["text"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Merge requests")
        yield from page.click("link", str(case.values["title"]))
        yield from page.type("textbox", "Comment", str(case.values["text"]), enter=False)
        yield from page.click("button", "Comment")
        yield from page.done()


class Invite(Changing):
    """Give somebody a role in an own project."""

    name = "code-invite"
    number = 24
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[tuple[int, str, str]]()
        for project, path in seeded.rows("code", _OWN):
            strangers = seeded.rows(
                "code",
                """SELECT username FROM auth_user WHERE id BETWEEN 2 AND 72 AND id NOT IN
                (SELECT user_id FROM code_member WHERE project_id = ?) ORDER BY id LIMIT 8""",
                project,
            )
            found += [(int(str(project)), str(path), str(name)) for (name,) in strangers]
        roles = ("Guest", "Reporter", "Developer", "Maintainer")
        for place, (project, path, user) in enumerate(seeded.some(self, found)):
            role = roles[place % 4]
            yield Case(
                f"Add the user {user} as a {role} to the project {path}.",
                users=users("code"),
                values={"id": project, "path": path, "user": user, "role": role,
                        "number": 10 * (1 + place % 4)},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            f"""SELECT m.project_id, u.username, m.role FROM code_member m
            JOIN auth_user u ON u.id = m.user_id WHERE m.created >= {_NEW}""",
            (),
        )
        return rows == [(case.values["id"], case.values["user"], case.values["number"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Members")
        yield from page.type("textbox", "Username", str(case.values["user"]), enter=False)
        yield from page.select("Role", str(case.values["role"]))
        yield from page.click("button", "Invite")
        yield from page.done()


class NewMilestone(Changing):
    """Plan a milestone with a day."""

    name = "code-new-milestone"
    number = 25
    sites = ("code",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("code", _OWN)
        for place in range(20):
            project, path = rows[place % len(rows)]
            title, due = f"v{7 + place // 3}.{place % 3}", f"2024-0{7 + place % 3}-{10 + place}"
            yield Case(
                f"Create the milestone {title} in the project {path}. It is due on {due}.",
                users=users("code"),
                values={"id": project, "path": path, "title": title, "due": due},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code", "SELECT project_id, due FROM code_milestone WHERE title = ?",
            (case.values["title"],),
        )  # fmt: skip
        return rows == [(case.values["id"], case.values["due"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Milestones")
        yield from page.type("textbox", "Title", str(case.values["title"]), enter=False)
        yield from page.type("date", "Due date", str(case.values["due"]), enter=False)
        yield from page.click("button", "Create milestone")
        yield from page.done()


class NewProject(Changing):
    """Create a project."""

    name = "code-new-project"
    number = 26
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        names = ("night-bus", "tea-timer", "moon-phase", "knit-chart", "bird-count", "rain-gauge",
                 "word-clock", "map-pins", "stamp-book", "dice-log", "trail-mix", "photo-sort",
                 "plant-tags", "train-set", "lamp-post", "ice-rink")  # fmt: skip
        for place, name in enumerate(names):
            visibility = ("Public", "Internal", "Private")[place % 3]
            description = f"Experiments with a {name.replace('-', ' ')}"
            yield Case(
                f'Create a project with the name {name} and the description "{description}". Its'
                f" visibility should be {visibility.lower()}.",
                users=users("code"),
                values={"name": name, "visibility": visibility, "description": description},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            f"""SELECT full_path, description, visibility FROM code_project
            WHERE created >= {_NEW}""",
            (),
        )
        values = case.values
        wanted = (f"samcarter/{values['name']}", values["description"],
                  str(values["visibility"]).lower())  # fmt: skip
        return rows == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "New project")
        yield from page.type("textbox", "Project name", str(case.values["name"]), enter=False)
        description = str(case.values["description"])
        yield from page.type("textbox", "Description", description, enter=False)
        yield from page.select("Visibility", str(case.values["visibility"]))
        yield from page.click("button", "Create project")
        yield from page.done()


class ApproveAndMerge(Changing):
    """Approve a merge request, then merge it."""

    name = "code-approve-and-merge"
    number = 27
    sites = ("code",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for path, iid, title, source, number in seeded.some(
            self, seeded.rows("code", _OPEN_REQUESTS)
        ):
            yield Case(
                f'Approve the merge request "{title}" (branch {source}) of the project {path}, and'
                " then merge it.",
                users=users("code"),
                values={"path": path, "iid": iid, "title": title, "id": number},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        merged = outcome.query(
            "code",
            f"""SELECT id FROM code_mergerequest WHERE state = 'merged' AND merged_by_id = 1
            AND finished >= {_NEW}""",
            (),
        )
        approved = outcome.query(
            "code", "SELECT merge_request_id FROM code_approval WHERE user_id = 1", ()
        )
        return merged == approved == [(case.values["id"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Merge requests")
        yield from page.click("link", str(case.values["title"]))
        yield from page.click("button", "Approve")
        yield from page.click("button", "Merge")
        yield from page.done()


class LabelAnIssue(Changing):
    """Create a label, and put it on an issue."""

    name = "code-label-issue"
    number = 28
    sites = ("code",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        labels = ("blocked", "design", "question", "regression", "wontfix")
        rows = seeded.some(self, seeded.rows("code", _OPEN_ISSUES))
        for place, (path, iid, title, project) in enumerate(rows):
            label = labels[place % len(labels)]
            own = seeded.rows(
                "code",
                """SELECT x.id FROM code_issue_labels x JOIN code_issue i ON i.id = x.issue_id
                WHERE i.iid = ? AND i.project_id = ?""",
                iid,
                project,
            )
            yield Case(
                f'Create the label "{label}" in the project {path} and add it to the issue'
                f' "{title}" there. Keep the other labels of the issue.',
                users=users("code"),
                values={"path": path, "iid": iid, "title": title, "label": label,
                        "num": len(own) + 1},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        rows = outcome.query(
            "code",
            """SELECT p.full_path, i.iid, (SELECT count(*) FROM code_issue_labels o
            WHERE o.issue_id = i.id) FROM code_label l JOIN code_issue_labels x ON x.label_id = l.id
            JOIN code_issue i ON i.id = x.issue_id JOIN code_project p ON p.id = i.project_id
            WHERE l.name = ?""",
            (values["label"],),
        )
        return rows == [(values["path"], values["iid"], values["num"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Labels")
        yield from page.type("textbox", "Name", str(case.values["label"]), enter=False)
        yield from page.click("button", "Create label")
        yield from page.click("link", "Issues")
        yield from page.click("link", str(case.values["title"]))
        yield from page.click("link", "Edit")
        yield from page.check(str(case.values["label"]))
        yield from page.click("button", "Save changes")
        yield from page.done()


class ForkAndDescribe(Changing):
    """Fork a project, and change the fork's description."""

    name = "code-fork"
    number = 29
    sites = ("code",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT id, full_path, name FROM code_project WHERE owner_id IS NULL
            AND visibility = 'public' ORDER BY id""",
        )
        for project, path, name in seeded.some(self, rows):
            text = f"My copy of {name}"
            yield Case(
                f"Fork the project {path} into your own namespace, with the same name and the"
                f' description "{text}". Then give the original project a star.',
                users=users("code"),
                values={"id": project, "path": path, "name": name, "text": text},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        forks = outcome.query(
            "code",
            """SELECT full_path, description, forked_from_id FROM code_project
            WHERE forked_from_id IS NOT NULL""",
            (),
        )
        stars = outcome.query("code", "SELECT project_id FROM code_star WHERE user_id = 1", ())
        values = case.values
        wanted = (f"samcarter/{values['name']}", values["text"], values["id"])
        return forks == [wanted] and stars == [(values["id"],)]

    def expert(self, case: Case, page: Page) -> Script:
        path = str(case.values["path"])
        yield from open_project(page, path)
        yield from page.click("link", "Fork")
        yield from page.type("textbox", "Description", str(case.values["text"]), enter=False)
        yield from page.click("button", "Fork project")
        yield from page.click("link", path)
        yield from page.click("button", "Star")
        yield from page.done()


TEMPLATES: list[Template] = [
    Star(),
    NewIssue(),
    CloseIssue(),
    CommentRequest(),
    Invite(),
    NewMilestone(),
    NewProject(),
    ApproveAndMerge(),
    LabelAnIssue(),
    ForkAndDescribe(),
]
