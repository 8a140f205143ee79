"""Questions that need a history, a comparison, filters or a search in the code hosting."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import counted, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    PROJECTS,
    Counting,
    open_project,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template, Wrong

_HISTORY = """
WITH RECURSIVE log(id) AS (
    SELECT head_id FROM code_branch WHERE project_id = ? AND name = 'main'
    UNION SELECT parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE parent_id IS NOT NULL
    UNION SELECT second_parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE second_parent_id IS NOT NULL
)
SELECT c.message, c.second_parent_id IS NOT NULL, c.tree, coalesce(p.tree, '{}') FROM code_commit c
JOIN log ON log.id = c.id LEFT JOIN code_commit p ON p.id = c.parent_id
ORDER BY c.created DESC, c.id DESC
"""
_FUNCTION = re.compile(r"^(?:export )?(?:def|func|function) (\w+)\(", re.MULTILINE)
_MAX_ROWS = 9


def _tree(text: object) -> Mapping[str, int]:
    """Return the files of a commit: path -> blob."""
    return json.loads(str(text))


def _head(seeded: Seeded, project: object) -> Mapping[str, int]:
    ((tree,),) = seeded.rows(
        "code",
        """SELECT c.tree FROM code_branch b JOIN code_commit c ON c.id = b.head_id
        WHERE b.project_id = ? AND b.name = 'main'""",
        int(str(project)),
    )
    return _tree(tree)


class CommitsOfFile(Counting):
    """How many commits changed a file? In its history."""

    name = "code-file-commits"
    number = 9
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            messages = self._changes(seeded, project)
            for file in _head(seeded, project):
                if not file.startswith("src/") or not 2 <= len(messages[file]) <= _MAX_ROWS:
                    continue
                found.append(
                    Case(
                        f"How many commits does the history of the file {file} in the project"
                        f" {path} list?",
                        str(len(messages[file])),
                        users=users("code"),
                        values={"path": path, "file": file, "oldest": messages[file][-1]},
                    )
                )
        return seeded.some(self, found)

    def _changes(self, seeded: Seeded, project: object) -> Mapping[str, list[str]]:
        """Return the messages of the commits that changed a file, the youngest first."""
        found = defaultdict[str, list[str]](list)
        for message, is_merge, tree, before in seeded.rows("code", _HISTORY, int(str(project))):
            new, old = _tree(tree), _tree(before)
            for file in new.keys() | old.keys():
                if not is_merge and new.get(file) != old.get(file):
                    found[file].append(str(message).partition("\n")[0])
        return found

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "src")
        yield from page.click("link", str(case.values["file"]).removeprefix("src/"))
        yield from page.click("link", "History")
        yield from page.read(str(case.values["oldest"]))
        rows = page.listed(r"link (.+) \| .+ \| .+ \| ([0-9a-f]{8})$")
        found = counted([message for message, _ in rows])
        page.thought = f"I count the commits: {found}. So there are {case.answer}."
        yield f"stop [{case.answer}]"


class FilesOfRequest(Reading):
    """Which files does a merge request change? Among its changes."""

    name = "code-request-files"
    number = 10
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT p.full_path, r.title, b.tree, h.tree FROM code_mergerequest r
            JOIN code_project p ON p.id = r.project_id JOIN code_commit b ON b.id = r.base_id
            JOIN code_commit h ON h.id = r.head_id
            WHERE r.state = 'open' AND p.visibility = 'public'
            AND (SELECT count(*) FROM code_mergerequest o
                WHERE o.project_id = r.project_id AND o.title = r.title) = 1 ORDER BY r.id""",
        )
        found = list[Case]()
        for path, title, before, after in rows:
            old, new = _tree(before), _tree(after)
            files = sorted(one for one in old.keys() | new.keys() if old.get(one) != new.get(one))
            if len(files) <= 2:
                found.append(
                    Case(
                        f'Which files does the open merge request "{title}" of the project {path}'
                        " change? There may be only one. Answer with their paths, separated by"
                        " semicolons.",
                        "; ".join(files),
                        users=users("code"),
                        values={"path": path, "title": title, "last": files[-1]},
                    )
                )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Merge requests")
        yield from page.click("link", str(case.values["title"]))
        yield from page.click("link", f"Changes {1 + case.answer.count(';')}")
        yield from page.read(str(case.values["last"]))
        files = page.listed(r"^(\S+) (?:added|changed|deleted), ")
        found = counted([file for (file,) in files])
        page.thought = f"Files with changes: {found}. So the answer is {case.answer}."
        yield f"stop [{case.answer}]"


class DefinedIn(Reading):
    """In which file is a function? By a search within the project."""

    name = "code-defined-in"
    number = 11
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            texts = {
                file: str(
                    seeded.rows("code", "SELECT text FROM code_blob WHERE id = ?", blob)[0][0]
                )
                for file, blob in _head(seeded, project).items()
            }
            for file, text in texts.items():
                for function in _FUNCTION.findall(text)[:2]:
                    files = [one for one, other in texts.items() if function in other]
                    is_defined = [one for one in files if function in _FUNCTION.findall(texts[one])]
                    if is_defined == [file] and len(files) > 1:
                        found.append(self._case(str(path), file, function, len(found)))
        return seeded.some(self, found)

    def _case(self, path: str, file: str, function: str, place: int) -> Case:
        asked = (
            f"Which file of the project {path} defines the function {function}?",
            f"Somewhere in the code of the project {path} there is a function called {function}."
            " In which file is it defined?",
        )
        return Case(
            f"{asked[place % 2]} Answer with the whole path of the file.",
            file,
            users=users("code"),
            values={"path": path, "function": function},
        )

    def expert(self, case: Case, page: Page) -> Script:
        function = str(case.values["function"])
        yield from open_project(page, str(case.values["path"]))
        yield from page.type("textbox", "Search", function)
        yield from page.click("link", "Code")
        yield from page.read(f"link {case.answer}")
        page.thought = f"The line that defines {function} is in {case.answer}."
        yield f"stop [{case.answer}]"


class MemberSince(Reading):
    """Who joined a project first or last? Among its members."""

    name = "code-member-since"
    number = 12
    sites = ("code",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for place, (project, path, _) in enumerate(seeded.rows("code", PROJECTS)):
            rows = seeded.rows(
                "code",
                """SELECT u.username, date(m.created) FROM code_member m
                JOIN auth_user u ON u.id = m.user_id WHERE m.project_id = ? ORDER BY m.created""",
                project,
            )
            if len(rows) < 3 or len({day for _, day in rows}) < len(rows):
                continue
            asked, chosen, second = (
                ("has been a member for the longest time", rows[0], rows[1]),
                ("became a member last", rows[-1], rows[-2]),
            )[place % 2]
            found.append(
                Case(
                    f"Going by the dates on the list of members of the project {path}, who"
                    f" {asked}? Answer with the username.",
                    str(chosen[0]),
                    users=users("code"),
                    values={"path": path, "second": second[0]},
                )
            )
        return seeded.some(self, found)

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        second = str(case.values["second"])
        return (*super().wrong(case, other), Wrong("another member", second))

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Members")
        yield from page.read(f"link {case.answer}")
        days = told(page.listed(r"link (\S+) \| (\d+ \w+ \d{4}) \|"))
        end = "earliest" if "longest" in case.objective else "latest"
        page.thought = f"Member since: {days}. The {end} day is that of {case.answer}."
        yield f"stop [{case.answer}]"


class PickOfGroup(Reading):
    """Which project of a group and a language is first in some order? Filtered and sorted."""

    name = "code-pick-of-group"
    number = 13
    sites = ("code",)
    level = 3
    split = "train"
    orders = (
        ("has the most stars", "Most stars", "num_stars DESC"),
        ("is the newest", "Newest", "created DESC"),
        ("has the fewest stars", "Most stars", "num_stars"),
    )

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        groups = seeded.rows(
            "code",
            """SELECT g.id, g.path, p.language FROM code_project p
            JOIN code_group g ON g.id = p.group_id WHERE p.visibility = 'public'
            GROUP BY g.id, p.language HAVING count(*) > 1 ORDER BY g.id, p.language""",
        )
        found = list[Case]()
        for number, group, language in groups:
            for asked, order, sql in self.orders:
                rows = seeded.rows(
                    "code",
                    f"""SELECT full_path FROM code_project WHERE group_id = ? AND language = ?
                    ORDER BY {sql}""",
                    number,
                    language,
                )
                found.append(
                    Case(
                        f"Which of the {language} projects in the group {group} {asked}? Answer"
                        " with its path, such as group/name.",
                        str(rows[0][0]),
                        users=users("code"),
                        values={
                            "group": group,
                            "language": language,
                            "order": order,
                            "asked": asked,
                            "other": rows[1][0],
                        },
                    )
                )
        return seeded.some(self, found)

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        return (*super().wrong(case, other), Wrong("another project", str(case.values["other"])))

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Explore")
        yield from page.type("textbox", "Filter by name", f"{case.values['group']}/")
        yield from page.select("Language", str(case.values["language"]))
        yield from page.select("Sort", str(case.values["order"]))
        yield from page.read(f"link {case.answer}")
        by_age = case.values["order"] == "Newest"
        rows = page.listed(r"link (\S+/\S+)\n(?:.*\n)??.* · (\d+ stars?)$")
        shown = told([row[:1] for row in rows] if by_age else rows)
        start = "The newest comes first" if by_age else "The projects by stars"
        page.thought = f"{start}: {shown}. So {case.answer} {case.values['asked']}."
        yield f"stop [{case.answer}]"


TEMPLATES: list[Template] = [
    CommitsOfFile(),
    FilesOfRequest(),
    DefinedIn(),
    MemberSince(),
    PickOfGroup(),
]
