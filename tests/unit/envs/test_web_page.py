"""What the web's experts think: from the objective and the page. No browser, pages by hand."""

from __future__ import annotations

from agentgym_rl.browser.page_tree import Node
from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import counted, told

TEXT = """Mugs (http://shop.test/mugs/)
[1] link Blue mug
[2] link Next page
[3] textbox Search
[4] button Edit order 1004"""


def page_of(objective: str) -> Page:
    page = Page()
    page.objective = objective
    named = [("link", "Blue mug"), ("link", "Next page"), ("textbox", "Search"), ("button", "Edit")]
    page.show(TEXT, "http://shop.test/mugs/", {
        number: Node(number, number, role, name, "", {}, None, True)
        for number, (role, name) in enumerate(named, 1)
    })  # fmt: skip
    return page


def first_thought(page: Page, script: Script) -> tuple[str, str]:
    """Return the first action of a script and what the expert thinks before it."""
    return next(script), page.thought


def test_what_the_task_names_is_the_reason():
    page = page_of("What does the blue mug cost?")
    assert first_thought(page, page.click("link", "Blue mug")) == (
        "click [1]",
        "The task is about Blue mug, so I take the link Blue mug.",
    )
    assert first_thought(page, page.type("textbox", "Search", "blue mug"))[1] == (
        "The task says blue mug: it belongs into the textbox Search."
    )


def test_what_the_task_does_not_name_leads_on():
    page = page_of("What does the red mug cost?")
    assert first_thought(page, page.click("link", "Next page"))[1] == (
        "On the page Mugs the link Next page leads on."
    )


def test_a_line_of_a_table_is_named():
    page = page_of("Cancel order 1004.")
    assert first_thought(page, page.click("button", "Edit", near="1004")) == (
        "click [4]",
        "The task is about 1004, so I take the button Edit beside it.",
    )


def test_an_action_of_a_script_without_a_thought_explains_itself():
    page = page_of("Set the stock to 277.")
    assert page.reason("type [3] [277] [0]") == (
        "The task says 277: it belongs into the textbox Search."
    )
    assert page.reason("click [2]") == "On the page Mugs the link Next page leads on."
    assert page.reason("go_back") == ""


def test_an_answer_is_quoted_from_the_page():
    page = page_of("How many inhabitants has Porto?")
    page.text = "Porto (http://wiki.test/p)\n[3] link 252,687\nPopulation | [4] link 252,687"
    assert first_thought(page, page.answer("252,687")) == (
        "stop [252,687]",
        "The page says “Population | 252,687”: the answer is 252,687.",
    )
    page.text = f"Porto (http://wiki.test/p)\n{'a ' * 99}252,687{' b' * 99}"
    _, thought = first_thought(page, page.answer("252,687"))
    assert thought.startswith("The page says “...a a") and "a 252,687 b" in thought
    assert thought.endswith("...”: the answer is 252,687.") and len(thought) < 180
    page.text = "Porto (http://wiki.test/p)\n[3] link 252,687"
    assert first_thought(page, page.answer("252,687"))[1].startswith("The page shows it: ")
    page.text = "Commits\nRelease | dara | 0cae\nLower the inhabitants from 53 | dara | 1b2c"
    assert "“Lower the inhabitants from 53 | dara" in first_thought(page, page.answer("dara"))[1]
    assert "“Release" in first_thought(page, page.answer("dara", shown="0cae"))[1]


def test_what_has_to_be_found_is_not_named_before_it_was_seen():
    page = page_of("Who made the most commits?")
    page.begin("Who made the most commits in lantern?", ["Omar Sokolov", "a; lantern"])
    page.show(TEXT + "\n(3 more lines below: scroll [down])", "http://shop.test/", {})
    assert first_thought(page, page.click("link", "Omar Sokolov"))[1].startswith("What I look for")
    assert "The link lantern is not" in first_thought(page, page.click("link", "lantern"))[1]
    assert "The link All reviews is" in first_thought(page, page.click("link", "All reviews"))[1]
    assert "What I look for" in first_thought(page, page.select("Shipped", "Open"))[1]


def test_what_is_listed_is_remembered_while_scrolling_down_a_page():
    page, pattern = page_of("Which order has the most items?"), r"link (\d+) \| (\d+) items$"
    page.show("Orders (u)\n[1] link 7 | 2 items\n[2] link 8 | 5 items", "u", {})
    page.show("Orders (u)\n(1 lines above: scroll [up])\n[2] link 8 | 5 items", "u", {})
    page.show("Orders (u)\n(2 lines above: scroll [up])\n[9] link 9 | 1 items", "u", {})
    assert page.listed(pattern) == [("7", "2"), ("8", "5"), ("9", "1")]
    page.show("Orders (v)\n[3] link 6 | 4 items", "v", {})
    assert page.listed(pattern) == [("6", "4")]


def test_a_thought_lists_what_it_compares_or_counts():
    films = [("Once", "2007"), ("Jaws", "1975")]
    assert told(films) == "Once 2007; Jaws 1975"
    many = [(f"Film {n}", str(n)) for n in range(20)]
    assert told(many, lambda film: -int(film[1])) == (
        "Film 19 19; Film 18 18; Film 17 17; 17 others come after them"
    )
    assert told([("a long name " * 30, "1")]).endswith("... 1")
    assert counted(["a", "b"]) == "a (1); b (2)"
