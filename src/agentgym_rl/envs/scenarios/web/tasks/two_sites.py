"""Tasks that need two of the own sites. They are reported under the site that they begin on."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because
from agentgym_rl.envs.scenarios.web.tasks.town_common import open_project, open_submission, users
from agentgym_rl.envs.scenarios.web.tasks.wiki_tasks import articles, open_article, plain, target
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Reading,
    Seeded,
    Template,
)

_NEW_SUBMISSIONS = """
SELECT f.name, s.title, trim(s.body) FROM forum_submission s
JOIN forum_forum f ON f.id = s.forum_id
WHERE s.author_id = 1 AND s.created >= '2024-06-14 10:30:00'
"""


def _submit(page: Page, found: str, forum: str, title: str, body: str) -> Script:
    """Create a submission with what was found on another site."""
    thought = f"{found}. Now I need the forum."
    yield from because(page, thought, page.goto("http://forum.test/submit"))
    yield from page.select("Forum", forum)
    yield from page.type("textbox", "Title", title, enter=False)
    yield from page.type("textbox", "Body", body, enter=False)
    yield from page.click("button", "Create submission")
    yield from page.done()


class PlaceInCapital(Reading):
    """An address in the capital of a country: the encyclopedia, then the map."""

    name = "wiki-map-capital"
    number = 40
    sites = ("wiki", "map")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for title, facts in articles(seeded, "country"):
            capital = plain(facts.get("Capital", ""))
            rows = seeded.rows(
                "map",
                """SELECT name, kind, address FROM reference.place WHERE city = ? AND country = ?
                AND kind IN ('Hospital', 'University') ORDER BY id""",
                capital,
                title,
            )
            for name, kind, address in rows:
                found.append(
                    Case(
                        f"What is the address of the {str(kind).lower()} in the capital of {title}?"
                        " Lexica (wiki.test) knows the capital, and Wayfarer (map.test) the"
                        " address.",
                        str(address),
                        users=users("wiki", "map"),
                        values={
                            "title": title,
                            "capital": capital,
                            "name": name,
                            "kind": str(kind).lower(),
                        },
                    )
                )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.read(str(case.values["capital"]))
        capital = str(case.values["capital"])
        thought = f"The capital of {case.values['title']} is {capital}. Now I need the map."
        yield from because(page, thought, page.goto("http://map.test/"))
        name = str(case.values["name"])
        search = page.type("textbox", "Search places", f"{case.values['kind']} {capital}")
        thought = f"The capital was {capital}, so I look for the {case.values['kind']} there."
        yield from because(page, thought, search)
        yield from page.click("link", name)
        yield from page.answer(case.answer)


class ZoneOfPlace(Reading):
    """The time zone of a city on the map, from the encyclopedia."""

    name = "map-wiki-zone"
    number = 40
    sites = ("map", "wiki")
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        zones = dict(articles(seeded, "city"))
        rows = seeded.rows(
            "map",
            """SELECT id, name, address, city, country FROM reference.place p
            WHERE kind = 'Museum' ORDER BY id""",
        )
        for number, name, _, city, country in seeded.some(self, rows):
            ((article,),) = seeded.rows(
                "map",
                """SELECT article FROM reference.place WHERE name = ? AND country = ?
                AND population > 0 ORDER BY population DESC LIMIT 1""",
                city,
                country,
            )
            yield Case(
                f"In which city is this museum ({name}), and which time zone does that city keep?"
                " Lexica (wiki.test) knows the time zone. Answer with the time zone.",
                zones[str(article)]["Time zone"],
                f"/place/{number}",
                users("map", "wiki"),
                {"article": article},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.goto("http://wiki.test/")
        yield from open_article(page, str(case.values["article"]))
        yield from page.answer(case.answer)


class AnnounceProject(Changing):
    """Read a project's description, and post it in the forum."""

    name = "code-forum-announce"
    number = 40
    sites = ("code", "forum")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "code",
            """SELECT full_path, name, description FROM code_project WHERE owner_id IS NULL
            AND visibility = 'public' ORDER BY id""",
        )
        for place, (path, name, description) in enumerate(seeded.some(self, rows)):
            forum = ("homelab", "python", "linux", "technology")[place % 4]
            yield Case(
                f"Look up the description of the project {path} on Codeyard (code.test). Then"
                f" create a submission in the forum {forum} on Agora (forum.test) with the title"
                f' "Have you tried {name}?" and this description as its body.',
                users=users("code", "forum"),
                values={"path": path, "forum": forum, "title": f"Have you tried {name}?",
                        "body": description},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        rows = outcome.query("forum", _NEW_SUBMISSIONS, ())
        if len(rows) != 1 or rows[0][:2] != (values["forum"], values["title"]):
            return False
        return str(rows[0][2]).rstrip(".") == values["body"]

    def expert(self, case: Case, page: Page) -> Script:
        values = {name: str(value) for name, value in case.values.items()}
        yield from open_project(page, values["path"])
        yield from page.read(values["body"])
        found = f"The description is “{values['body']}”"
        yield from _submit(page, found, values["forum"], values["title"], values["body"])


class ReportFromForum(Changing):
    """Open an issue named after a submission of the forum."""

    name = "forum-code-report"
    number = 40
    sites = ("forum", "code")
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT s.title, u.username FROM forum_submission s
            JOIN forum_forum f ON f.id = s.forum_id JOIN auth_user u ON u.id = s.author_id
            WHERE f.name IN ('python', 'linux', 'homelab', 'technology') AND s.author_id <> 1
            AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
            ORDER BY s.id""",
        )
        projects = ("samcarter/bike-routes", "samcarter/budget-cli", "samcarter/website")
        for place, (title, author) in enumerate(seeded.some(self, rows)):
            project = projects[place % 3]
            yield Case(
                f"Find out who submitted “{title}” on Agora (forum.test). Then open an issue in the"
                f" project {project} on Codeyard (code.test) with the title"
                ' "Feedback from USER", where USER is the username of that person.',
                users=users("forum", "code"),
                values={"title": title, "author": author, "project": project},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "code",
            """SELECT p.full_path, i.title FROM code_issue i
            JOIN code_project p ON p.id = i.project_id
            WHERE i.author_id = 1 AND i.created >= '2024-06-14 10:30:00'""",
            (),
        )
        return rows == [(case.values["project"], f"Feedback from {case.values['author']}")]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.read(str(case.values["author"]))
        yield from page.goto("http://code.test/")
        yield from open_project(page, str(case.values["project"]))
        yield from page.click("link", "Issues")
        yield from page.click("link", "New issue")
        yield from page.type("textbox", "Title", f"Feedback from {case.values['author']}",
                             enter=False)  # fmt: skip
        yield from page.click("button", "Create issue")
        yield from page.done()


class PostDirector(Changing):
    """Look a director up, and post the name in the forum."""

    name = "wiki-forum-director"
    number = 41
    sites = ("wiki", "forum")
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [
            (title, target(facts["Directed by"]))
            for title, facts in articles(seeded, "film")
            if facts.get("Directed by", "").count("[[") == 1
            and facts["Directed by"].startswith("[[")
            and facts["Directed by"].endswith("]]")
        ]
        for title, director in seeded.some(self, rows):
            yield Case(
                f"Look up in Lexica (wiki.test) who directed “{title}”. Then create a submission in"
                " the forum movies on Agora (forum.test) with the name of the director as the title"
                f' and "{title}" as the body.',
                users=users("wiki", "forum"),
                values={"title": title, "director": director},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = ("movies", case.values["director"], case.values["title"])
        return outcome.query("forum", _NEW_SUBMISSIONS, ()) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.read(str(case.values["director"]))
        title, director = str(case.values["title"]), str(case.values["director"])
        yield from _submit(page, f"{title} was directed by {director}", "movies", director, title)


TEMPLATES: list[Template] = [
    PlaceInCapital(),
    ZoneOfPlace(),
    AnnounceProject(),
    ReportFromForum(),
    PostDirector(),
]
