"""Errands on the code hosting: roles and members, branches, settings, groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because
from agentgym_rl.envs.scenarios.web.tasks.town_common import open_project, users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_NEW = "'2024-06-14 10:30:00'"
_ROLES = {10: "Guest", 20: "Reporter", 30: "Developer", 40: "Maintainer"}
_MANAGED = """
SELECT id, full_path, name, description, visibility FROM code_project
WHERE id IN (SELECT project_id FROM code_member WHERE user_id = 1 AND role >= 40) ORDER BY id
"""
_COLLEAGUES = """
SELECT m.id, p.id, p.full_path, u.username, m.role FROM code_member m
JOIN code_project p ON p.id = m.project_id JOIN auth_user u ON u.id = m.user_id
WHERE m.user_id <> 1 AND m.role < 50 AND p.id IN
(SELECT project_id FROM code_member WHERE user_id = 1 AND role >= 40) ORDER BY m.id
"""
"""People in the projects that the agent manages: (member, project, path, user, role)."""
_MEMBERS = "SELECT count(*), sum(role) FROM code_member"


class ChangeRole(Changing):
    """Give a member of an own project another role."""

    name = "code-change-role"
    number = 30
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((_, total),) = seeded.rows("code", _MEMBERS)
        rows = seeded.some(self, seeded.rows("code", _COLLEAGUES))
        for place, (member, _, path, user, old) in enumerate(rows):
            others = [role for role in _ROLES if role != old]
            new = others[place % len(others)]
            asked = (
                f"In the project {path}, change the role of {user} to {_ROLES[new]}.",
                f"{user} is a {_ROLES[int(str(old))]} in the project {path}, but should be a"
                f" {_ROLES[new]}. Correct that.",
            )
            yield Case(
                asked[place % 2],
                users=users("code"),
                values={"id": member, "path": path, "user": user, "role": _ROLES[new],
                        "number": new, "total": int(str(total)) + new - int(str(old))},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        rows = outcome.query("code", "SELECT role FROM code_member WHERE id = ?", (values["id"],))
        totals = outcome.query("code", "SELECT sum(role) FROM code_member", ())
        return rows == [(values["number"],)] and totals == [(values["total"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Members")
        yield from page.select(f"Role of {case.values['user']}", str(case.values["role"]))
        yield from page.done()


class NewBranch(Changing):
    """Create a branch that starts from another one."""

    name = "code-new-branch"
    number = 32
    sites = ("code",)
    level = 4
    split = "train"
    names = ("spring-cleaning", "fix-typos", "try-caching", "release-notes", "new-parser",
             "smaller-image", "drop-old-api")  # fmt: skip

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.id, p.full_path, b.name, b.head_id FROM code_branch b
            JOIN code_project p ON p.id = b.project_id
            JOIN code_member m ON m.project_id = p.id AND m.user_id = 1 AND m.role >= 30
            ORDER BY b.id""",
        )
        ((last,),) = seeded.rows("code", "SELECT max(id) FROM code_branch")
        for place, (project, path, source, head) in enumerate(seeded.some(self, rows)):
            new = self.names[place % len(self.names)]
            asked = (
                f"Create a branch with the name {new} in the project {path}. It starts from the"
                f" branch {source}.",
                f"Somebody wants to continue the branch {source} of the project {path}. Make a"
                f" branch called {new} from it for them.",
            )
            yield Case(
                asked[place % 2],
                users=users("code"),
                values={"project": project, "path": path, "source": source, "head": head,
                        "new": new, "last": last},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        rows = outcome.query(
            "code",
            "SELECT project_id, name, head_id FROM code_branch WHERE id > ?",
            (values["last"],),
        )
        return rows == [(values["project"], values["new"], values["head"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Branches")
        yield from page.type("textbox", "Branch name", str(case.values["new"]), enter=False)
        yield from page.select("Create from", str(case.values["source"]))
        yield from page.click("button", "Create branch")
        yield from page.done()


class ChangeVisibility(Changing):
    """Change who may see a project, and nothing else of its settings."""

    name = "code-visibility"
    number = 34
    sites = ("code",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        projects = seeded.rows("code", _MANAGED)
        found = list[Case]()
        for number, path, _, _, old in projects:
            for new in ("Public", "Internal", "Private"):
                if new.lower() == old:
                    continue
                rows = [(*row[:4], new.lower()) if row[0] == number else row for row in projects]
                found.append(
                    Case(
                        f"The project {path} is {old} now. Make it {new.lower()}, and leave its"
                        " name and its description as they are.",
                        users=users("code"),
                        values={"path": path, "new": new, "all": str(rows)},
                    )
                )
        return seeded.some(self, found)

    def check(self, case: Case, outcome: Outcome) -> bool:
        return (
            str([tuple(row) for row in outcome.query("code", _MANAGED, ())]) == case.values["all"]
        )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Settings")
        yield from page.select("Visibility", str(case.values["new"]))
        yield from page.click("button", "Save changes")
        yield from page.done()


class ReplaceMember(Changing):
    """Remove a member, and add somebody else with the same role."""

    name = "code-replace-member"
    number = 35
    sites = ("code",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((num, total),) = seeded.rows("code", _MEMBERS)
        rows = seeded.some(self, seeded.rows("code", _COLLEAGUES))
        for place, (member, project, path, leaver, role) in enumerate(rows):
            strangers = seeded.rows(
                "code",
                """SELECT username FROM auth_user WHERE id BETWEEN 2 AND 72 AND id NOT IN
                (SELECT user_id FROM code_member WHERE project_id = ?) ORDER BY id""",
                project,
            )
            joiner = strangers[(7 * place + 3) % len(strangers)][0]
            yield Case(
                f"{leaver} leaves the project {path}, and {joiner} takes over: remove {leaver} from"
                f" its members, and add {joiner} with the role that {leaver} had.",
                users=users("code"),
                values={"id": member, "project": project, "path": path, "leaver": leaver,
                        "joiner": joiner, "role": _ROLES[int(str(role))], "number": role,
                        "num": num, "total": total},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        rows = outcome.query(
            "code",
            f"""SELECT m.project_id, u.username, m.role FROM code_member m
            JOIN auth_user u ON u.id = m.user_id WHERE m.created >= {_NEW}""",
            (),
        )
        left = outcome.query("code", "SELECT 1 FROM code_member WHERE id = ?", (values["id"],))
        totals = outcome.query("code", _MEMBERS, ())
        is_added = rows == [(values["project"], values["joiner"], values["number"])]
        return is_added and not left and totals == [(values["num"], values["total"])]

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        role = "Guest" if case.values["role"] != "Guest" else "Reporter"
        mixed_up = replace(case, values={**case.values, "role": role})
        return (*super().wrong(case, other), Wrong("another role", "done", of_other=mixed_up))

    def expert(self, case: Case, page: Page) -> Script:
        leaver, role = str(case.values["leaver"]), str(case.values["role"])
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Members")
        yield from page.reach("button", "Remove", near=f"link {leaver} |")
        page.thought = f"{leaver} is a {role} here. I remember that, and remove {leaver}."
        yield f"click [{page.find('button', 'Remove', near=f'link {leaver} |')}]"
        yield from page.type("textbox", "Username", str(case.values["joiner"]), enter=False)
        yield from page.reach("combobox", "Role")
        page.thought = f"{leaver} was a {role}, so I choose {role} in the list Role."
        yield f"select_option [{page.find('combobox', 'Role')}] [{role}]"
        yield from page.click("button", "Invite")
        yield from page.done()


class GroupWithProject(Changing):
    """Create a group, and a project in it."""

    name = "code-group-with-project"
    number = 37
    sites = ("code",)
    level = 5
    split = "train"
    groups = ("Night Bakery", "Tin Whistle", "Canal Watch", "Paper Moon", "Left Luggage",
              "Cold Frame", "Loose Ends", "Second Breakfast", "Quiet Hours", "Spare Parts",
              "Long Table", "Rain Check", "Open Kitchen", "Small Hours", "Red Thread",
              "Blue Bicycle")  # fmt: skip
    projects = ("website", "minutes", "tools", "archive", "newsletter")

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, group in enumerate(self.groups):
            path, project = group.lower().replace(" ", "-"), self.projects[place % 5]
            visibility = ("Public", "Internal", "Private")[place % 3]
            yield Case(
                f'Create a group with the name "{group}" and the path {path}. Then create the'
                f" project {project} in this group. Both should be {visibility.lower()}.",
                users=users("code"),
                values={"group": group, "path": path, "project": project,
                        "visibility": visibility},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        groups = outcome.query(
            "code", f"SELECT name, path, visibility FROM code_group WHERE created >= {_NEW}", ()
        )
        projects = outcome.query(
            "code",
            f"""SELECT p.full_path, g.path, p.visibility FROM code_project p
            LEFT JOIN code_group g ON g.id = p.group_id WHERE p.created >= {_NEW}""",
            (),
        )
        path, visibility = str(values["path"]), str(values["visibility"]).lower()
        return groups == [(values["group"], path, visibility)] and projects == [
            (f"{path}/{values['project']}", path, visibility)
        ]

    def expert(self, case: Case, page: Page) -> Script:
        path, visibility = str(case.values["path"]), str(case.values["visibility"])
        yield from page.click("button", "New")
        yield from page.click("link", "New group")
        yield from page.type("textbox", "Group name", str(case.values["group"]), enter=False)
        yield from page.type("textbox", "Group path", path, enter=False)
        yield from page.select("Visibility", visibility)
        yield from page.click("button", "Create group")
        yield from page.click("button", "New")
        yield from page.click("link", "New project")
        yield from page.select("Namespace", path)
        yield from page.type("textbox", "Project name", str(case.values["project"]), enter=False)
        yield from page.select("Visibility", visibility)
        yield from page.click("button", "Create project")
        yield from page.done()


class SaveWhereTheyLive(Changing):
    """Save a place in the city that a developer lives in: the code hosting, then the map."""

    name = "code-map-home"
    number = 38
    sites = ("code", "map")
    level = 5
    split = "train"
    lists = ("Favourites", "Want to go", "Work trips")

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT u.username, u.first_name || ' ' || u.last_name, o.location, p.id, p.name,
                p.kind
            FROM auth_user u JOIN accounts_profile o ON o.user_id = u.id
            JOIN reference.place p ON p.city = o.location AND p.population = 0
            AND p.kind IN ('Hospital', 'University') AND (SELECT count(*) FROM reference.place q
                WHERE q.city = p.city AND q.kind = p.kind) = 1
            WHERE u.id BETWEEN 2 AND 72 AND o.location <> 'Bristol' ORDER BY u.id, p.id""",
        )
        for place, (user, full, city, number, name, kind) in enumerate(seeded.some(self, rows)):
            chosen = self.lists[place % 3]
            yield Case(
                f"Look up on Codeyard (code.test) in which city the developer {user} lives. Then"
                f" save the {str(kind).lower()} of that city to your list \"{chosen}\" on Wayfarer"
                " (map.test).",
                users=users("code", "map"),
                values={"user": user, "full": full, "city": city, "id": number, "name": name,
                        "kind": str(kind).lower(), "list": chosen},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "map",
            """SELECT l.name, s.place FROM map_savedplace s
            JOIN map_placelist l ON l.id = s.place_list_id WHERE l.user_id = 1""",
            (),
        )
        return rows == [(case.values["list"], case.values["id"])]

    def expert(self, case: Case, page: Page) -> Script:
        values = {name: str(value) for name, value in case.values.items()}
        yield from page.type("textbox", "Search", values["user"])
        yield from page.click("link", "Users")
        yield from page.click("link", values["full"])
        yield from page.read(values["city"])
        page.thought = f"{values['user']} lives in {values['city']}, so I go to the map."
        yield "goto [http://map.test/]"
        search = page.type("textbox", "Search places", f"{values['kind']} {values['city']}")
        thought = f"The profile said {values['city']}, so I look for the {values['kind']} there."
        yield from because(page, thought, search)
        yield from page.click("link", values["name"])
        yield from page.select("List", values["list"])
        yield from page.click("button", "Save")
        yield from page.done()


TEMPLATES: list[Template] = [
    ChangeRole(),
    NewBranch(),
    ChangeVisibility(),
    ReplaceMember(),
    GroupWithProject(),
    SaveWhereTheyLive(),
]
