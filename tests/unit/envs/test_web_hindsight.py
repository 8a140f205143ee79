"""The thoughts of a solved web task, told by who knows what came of each action."""

from agentgym_rl.envs.scenarios.web.hindsight import Taken, retell


def way(called: str) -> Taken:
    return Taken("click [1]", f"On the page Home the {called} leads on.", called, leads_on=True)


def retold(*steps: Taken) -> list[str]:
    return retell(steps)


TYPED = Taken(
    "type [4] [Attic room] [0]", "The task says Attic room.", "textbox Name", is_told=True
)
TOLD = Taken("click [9]", "The task is about Mugs, so I take the link Mugs.", "link Mugs")
SCROLL = Taken("scroll [down]", "The link Lists is not on the screen, so I scroll.")
DONE = Taken("stop [done]", "Everything is done.")


def test_a_way_is_told_by_what_it_leads_to():
    account, lists = way("link Account"), way("link Lists")
    assert retold(account, SCROLL, lists, TYPED, way("button Save"), DONE) == [
        "To enter Attic room I take the link Account, then Lists.",
        SCROLL.thought,
        "To enter Attic room I take the link Lists.",
        TYPED.thought,
        "All is as the task says, and the button Save completes it.",
        DONE.thought,
    ]


def test_each_kind_of_end_is_said_before_it_is_reached():
    choice = Taken("select_option [5] [Foot]", "", "combobox By", is_told=True)
    long = Taken(f"type [3] [{'a' * 80}]", "", "textbox Text", is_told=True)
    ends = {
        TOLD: "To get to the link Mugs I take the link More.",
        choice: "To choose Foot I take the link More.",
        long: f"To enter {'a' * 60}... I take the link More.",
        Taken("goto [http://map.test/]", ""): "To go on to http://map.test/ I take the link More.",
        Taken("stop [9]", ""): "To find the answer I take the link More.",
    }
    for end, thought in ends.items():
        assert retold(way("link More"), end)[0] == thought


def test_a_long_way_is_named_in_part():
    links = [way(f"link {name}") for name in "ABCD"]
    hidden = Taken("click [1]", "It comes first.", "link Omar", is_known=False)
    assert retold(*links, TOLD)[:2] == [
        "To get to the link Mugs I take the link A, then B, then C.",
        "To get to the link Mugs I take the link B, then C, then D.",
    ]
    assert retold(*links[:2], DONE)[0] == "To complete the task I take the link A, then B."
    assert retold(links[0], hidden)[0] == "To find what I look for I take the link A."


def test_what_the_task_does_not_say_is_not_told_before_it_is_seen():
    typed = Taken("type [4] [Bergen]", "", "textbox City")
    assert retold(way("link Map"), typed)[0] == "To get to the textbox City I take the link Map."


def test_a_button_that_does_something_does_not_lead_to_what_comes_next():
    create, menu = way("button Create list"), way("button Offers")
    assert retold(TYPED, create, TYPED)[1] == "All is filled in, so I take the button Create list."
    assert retold(create, TYPED)[0] == "Now I take the button Create list, as the task needs it."
    assert retold(menu, TYPED)[0] == "To enter Attic room I take the button Offers."


def test_a_step_that_says_nothing_leaves_the_thought_as_it_was():
    link = way("link More")
    assert retold(link, Taken("go_back", "")) == [link.thought, ""]
    assert retold(link) == [link.thought]
