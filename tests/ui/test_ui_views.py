"""Every view of the web UI in a real browser: what it shows, its deep links, its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from ui_browser import expect_link, go_by_keys, link_of, show, wait_for_points, watched_page
from ui_runs import long_episode, played, write_run
from ui_servers import make_run, ui_process

ACTIONS = ("turn left", "turn left", "move forward", "dance")
OTHER = ("turn left", "turn right", "move forward", "turn left")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def url(runs: Path) -> Iterator[str]:
    task = BabyAI.tasks("test")[0]
    group = [played(task, ACTIONS), played(task, OTHER, sample_index=1)]
    write_run(runs / "grid", [[group]], env="babyai", horizons=(3, 3, 3, 5, 5, 8))
    write_run(runs / "long", [[[long_episode()]]], env="textcraft", horizons=(100,))
    make_run(runs / "crafting")
    with ui_process(runs) as client:
        yield client.url


@pytest.mark.long
def test_the_overview_lays_runs_over_each_other(page: Page, url: str):
    show(page, url, "#/runs?sel=long")
    for run in ("grid", "long", "crafting"):
        check = page.get_by_role("checkbox", name=f"Show the curves of {run}")
        check.set_checked(run in ("grid", "crafting"))
    expect(page.get_by_label("Runs shown").get_by_role("listitem")).to_have_count(2)
    assert set(re.findall("grid|long|crafting", link_of(page))) == {"grid", "crafting"}
    chart = page.get_by_role("img", name=re.compile("rollout.success_rate: .*grid 60.0%"))
    expect(chart).to_be_visible()
    expect(chart).to_have_accessible_name(re.compile("crafting 75.0% after 3 steps"))
    # The stages of the horizon: three limits, the second on a ground of its own.
    texts = "node => node.layout.annotations.map(item => item.text)"
    assert chart.evaluate(texts) == ["≤3", "≤5", "≤8"]


@pytest.mark.long
def test_a_warm_start_does_not_press_the_curves_of_its_run(page: Page, tmp_path: Path):
    write_run(tmp_path / "mine", [], env="babyai", horizons=(5, 5))
    write_run(tmp_path / "mine" / "warm_start", [], env="babyai", horizons=(5,) * 9)
    write_run(tmp_path / "begun" / "warm_start", [], env="babyai", horizons=(5,) * 9)
    with ui_process(tmp_path) as ui:
        show(page, ui.url, "#/runs")
        shown = page.get_by_label("Runs shown").get_by_role("listitem")
        expect(shown).to_have_text(["mine"])


def test_metrics_are_searched_enlarged_and_smoothed(page: Page, url: str):
    show(page, url, "#/runs?sel=grid&smooth=0")
    page.keyboard.press("/")
    page.keyboard.type("entr")
    expect(page.locator("[data-metric]")).to_have_count(1)
    expect(page.get_by_text("1 metric", exact=True)).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("train.entropy"))).to_be_visible()
    expect_link(page, "q=entr")
    page.get_by_role("searchbox", name="Search metrics").press("Escape")
    page.locator("[data-metric='train/entropy']").hover()
    page.get_by_role("button", name="Enlarge train/entropy").click()
    expect(page.locator(".board-grid.is-focused")).to_be_visible()
    expect_link(page, "focus=train/entropy")
    page.go_back()
    expect(page.locator(".board-grid.is-focused")).to_have_count(0)
    assert wait_for_points(page, "train/entropy", 6) == 6


def test_curves_asked_for_twice_at_once_have_each_step_once(page: Page, url: str):
    show(page, url, "#/runs")
    steps = page.evaluate(
        """async () => {
            const {Curves} = await import('/js/run_store.js');
            const curves = new Curves('grid');
            await Promise.all(['train/kl', 'train/kl', 'train/entropy'].map(
                name => curves.refresh([name])));
            return [curves.steps, curves.values['train/kl'].length];
        }"""
    )
    assert steps == [[1, 2, 3, 4, 5, 6], 6]


def test_a_run_has_its_facts_and_its_configuration(page: Page, url: str):
    show(page, url, "#/run?run=grid")
    expect(page.get_by_label("config.toml")).to_contain_text('name = "babyai"')
    expect(page.get_by_text("No evaluation yet")).to_be_visible()
    page.get_by_role("link", name="Curves").click()
    expect(page.get_by_role("checkbox", name="Show the curves of grid")).to_be_checked()


def test_the_processes_of_a_run_are_shown_with_what_was_lost(page: Page, url: str, runs: Path):
    run = make_run(runs / "cluster")
    lost = {
        "cluster/restarts_engine": 1.0,
        "cluster/episodes_lost": 3.0,
        "cluster/time_lost_s": 4.5,
    }
    for step in (4, 5):
        work = {"cluster/engines": 2.0, "cluster/tokens_engine_0": 600.0}
        work |= {"cluster/tokens_engine_1": 400.0, "cluster/tokens_rank_0": 1.0}
        run.append_metrics({"step": step, **work, **(lost if step == 4 else {})})
    show(page, url, "#/run?run=cluster")
    panel = page.get_by_role("region", name="Processes", exact=True)
    expect(panel).to_contain_text("in step 5")
    expect(
        panel.get_by_role("img", name="Engines: engine 0 600 tokens, engine 1 400")
    ).to_be_visible()
    expect(panel.get_by_role("row", name="Engines")).to_contain_text("2 of 2")
    expect(panel.get_by_role("row", name="Learner ranks")).to_contain_text("rank 0 1 token")
    expect(panel.get_by_role("listitem").last).to_have_text(
        "Step 4: 1 engine lost; 3 episodes started again; 4.50 s until all was made good"
    )
    show(page, url, "#/run?run=grid")
    expect(page.get_by_label("config.toml")).to_be_visible()
    expect(panel).to_be_hidden()


def test_episodes_are_filtered_sorted_and_opened(page: Page, url: str):
    show(page, url, "#/episodes?run=crafting")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(12)
    page.get_by_label("Outcome").select_option("success")
    expect(rows).to_have_count(3)
    expect_link(page, "outcome=success")
    page.get_by_role("button", name="step", exact=False).first.click()
    expect(page.get_by_role("columnheader", name=re.compile("^step"))).to_have_attribute(
        "aria-sort", "ascending"
    )
    expect(rows.first.locator("td").nth(1)).to_have_text("1")
    page.get_by_label("Text in an episode").fill("nobody says this")
    expect(page.get_by_text("No episode fits")).to_be_visible()
    page.get_by_role("button", name="Clear filters").last.click()
    expect(rows).to_have_count(12)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("toolbar", name="Replay")).to_be_visible()
    page.go_back()
    expect(rows).to_have_count(12)


def test_what_was_searched_for_can_be_seen_in_the_list(page: Page, url: str):
    show(page, url, "#/episodes?run=grid&text=carrying")
    excerpt = page.locator(".row-excerpt").first
    hit, box = excerpt.locator("mark").first.bounding_box(), excerpt.bounding_box()
    assert hit is not None and box is not None
    assert hit["x"] + hit["width"] <= box["x"] + box["width"]
    assert hit["y"] + hit["height"] <= box["y"] + box["height"]


def test_a_deep_link_to_filtered_episodes_is_the_same_list(page: Page, url: str):
    show(page, url, "#/episodes?run=crafting&outcome=failure&step_min=2&sort=reward&order=asc")
    expect(page.locator("tbody tr")).to_have_count(6)
    expect(page.get_by_label("Outcome")).to_have_value("failure")
    expect(page.get_by_label("Step from")).to_have_value("2")


def test_a_trajectory_is_replayed_round_by_round(page: Page, url: str):
    states: list[str] = []
    page.on("request", lambda request: states.append(request.url) if "state" in request.url else 0)
    show(page, url, "#/replay?run=grid&episode=train-000001:0")
    scrubber = page.get_by_role("slider", name="Round")
    expect(scrubber).to_have_attribute("aria-valuetext", "start")
    picture = page.get_by_alt_text("Picture of the environment")
    asked = page.get_by_role("button", name="Show the environment's state")
    expect(asked).to_be_visible()
    expect(picture).to_have_count(0)
    page.wait_for_load_state("networkidle")
    assert not states  # nothing is played again unasked
    asked.click()
    expect(picture).to_be_visible()
    expect(asked).to_have_count(0)
    first = picture.get_attribute("src")
    page.keyboard.press("ArrowRight")
    expect(scrubber).to_have_attribute("aria-valuetext", "round 1 of 4")
    expect(page.locator(".round-card.is-current")).to_contain_text("turn left")
    expect(picture).not_to_have_attribute("src", first or "")
    page.keyboard.press("End")
    expect(page.locator(".round-card.is-current")).to_contain_text("invalid action")
    expect_link(page, "round=4")
    page.keyboard.press("Home")
    page.get_by_label("Speed").select_option("4")
    page.get_by_role("button", name="Play", exact=True).click()
    expect(scrubber).to_have_attribute("aria-valuetext", "round 4 of 4")
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()


def test_a_deep_link_to_a_round_shows_that_round(page: Page, url: str):
    show(page, url, "#/replay?run=crafting&episode=train-000002:0&round=2")
    current = page.locator(".round-card.is-current")
    expect(current).to_contain_text("Round 2")
    first = page.get_by_role("article", name="Round 1")
    expect(first.locator(".kind-thought")).to_contain_text("I need wood.")
    expect(first.locator(".kind-action")).to_contain_text("get 1 oak log")
    expect(first.locator(".kind-observation")).to_contain_text("Got 1 oak log")


def test_tokens_are_coloured_and_explained(page: Page, url: str):
    show(page, url, "#/tokens?run=grid&episode=train-000001:0&token=8")
    tokens = page.locator(".tok")
    expect(tokens).to_have_count(36)
    detail = page.get_by_role("complementary", name="Token")
    expect(detail).to_contain_text("learned from")
    before = tokens.nth(6).evaluate("node => node.style.backgroundColor")
    page.keyboard.press("2")
    expect(page.get_by_role("radio", name="Log-prob")).to_be_checked()
    expect(page.get_by_role("img", name=re.compile("Log-prob from 0 to"))).to_be_visible()
    expect_link(page, "color=logprob")
    assert tokens.nth(6).evaluate("node => node.style.backgroundColor") != before
    page.keyboard.press("ArrowRight")
    expect_link(page, "token=9")
    page.keyboard.press("ArrowDown")
    expect_link(page, "token=12")
    expect(detail).to_contain_text("action")
    tokens.nth(4).hover()
    expect(detail).to_contain_text("5 of 36")


def test_a_long_sample_stays_smooth(page: Page, url: str):
    show(page, url, "#/tokens?run=long&episode=train-000001:0")
    text = page.get_by_role("region", name="20,004 tokens; arrow keys move from one to the next")
    expect(text.locator(".tok").first).to_be_visible()
    assert text.locator(".tok").count() < 5_000  # the others are made when they come into view
    # Time on the page's own thread: to colour anew, and to go to the other end and back.
    redraw = """async (color) => {
        const began = performance.now();
        location.hash = `${location.hash.split('&color=')[0]}&color=${color}`;
        await new Promise(requestAnimationFrame);
        const text = document.querySelector('.token-text');
        for (const place of [1e9, 0, 1e9]) {
            text.scrollTo(0, place);
            await new Promise(requestAnimationFrame);
        }
        return performance.now() - began;
    }"""
    # The fastest of three; it takes a tenth of this on a machine that does nothing else.
    assert min(page.evaluate(redraw, color) for color in ("logprob", "mask", "logprob")) < 5000
    show(page, url, "#/tokens?run=long&episode=train-000001:0&token=20003")
    expect(page.locator(".tok.is-selected")).to_be_in_viewport()


def test_a_group_is_compared_where_it_parts(page: Page, url: str):
    show(page, url, "#/group?run=grid&phase=train&step=1&group=0")
    expect(page.get_by_text("Here they part, after 1 round in common")).to_be_visible()
    table = page.get_by_role("table", name="Rounds of each episode")
    expect(table.locator("[data-round='2'] .group-action")).to_have_text(
        ["turn left", "turn right"]
    )
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect_link(page, "round=2")
    table.get_by_role("link", name="turn right").click()
    expect(page.locator(".round-card.is-current")).to_contain_text("Round 2")


def test_a_run_is_diagnosed(page: Page, url: str):
    show(page, url, "#/diagnosis?run=grid")
    expect(page.get_by_role("region", name="Findings")).to_be_visible()
    expect(page.locator("figure.card").first).to_be_visible()


def test_time_is_told_apart_step_by_step(page: Page, url: str):
    show(page, url, "#/time?run=grid")
    chart = page.get_by_role("img", name=re.compile("Time of 6 steps: "))
    expect(chart).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("columnheader", name="step 6")).to_be_visible()
    page.get_by_role("radio", name="share of the step").check()
    expect_link(page, "#/time?run=grid&step=6&unit=share")
    page.keyboard.press("Escape")
    expect(page.get_by_role("columnheader", name="step 6")).to_have_count(0)


def test_an_environment_is_played_by_hand(page: Page, url: str):
    show(page, url, "#/play?env=babyai&split=test&task=29")
    page.get_by_role("button", name="Start").click()
    actions = page.get_by_role("group", name="Available actions")
    expect(page.get_by_alt_text("Picture of the environment")).to_be_visible()
    actions.get_by_role("button", name="turn left").click()
    expect(page.get_by_role("heading", name="Round 1")).to_be_visible()
    page.get_by_role("textbox", name="Action").fill("dance wildly")
    page.get_by_role("button", name="Act", exact=True).click()
    expect(page.locator(".round-card").last).to_contain_text("invalid action")


def test_keys_lead_everywhere_and_help_tells_them(page: Page, url: str):
    show(page, url, "#/runs")
    expect(page.get_by_role("checkbox").first).to_be_visible()
    for keys, title in (
        ("g e", "Episodes"),
        ("g d", "Diagnosis"),
        ("g t", "Time"),
        ("g p", "Play"),
    ):
        go_by_keys(page, keys, title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Dark or light")
    page.keyboard.press("Escape")
    go_by_keys(page, "g e", "Episodes")
    page.keyboard.press("o")
    page.keyboard.type("crafting")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Run crafting, choose another")).to_be_visible()


def test_both_themes_and_the_switch_between_them(browser: Browser, url: str):
    for theme, other in (("light", "dark"), ("dark", "light")):
        with watched_page(browser, theme=theme) as page:
            show(page, url, "#/runs?sel=grid")
            html = page.locator("html")
            expect(html).to_have_attribute("data-theme", theme)
            page.keyboard.press("t")
            expect(html).to_have_attribute("data-theme", other)
            page.reload()
            expect(html).to_have_attribute("data-theme", other)


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("#/nowhere", "There is no such page"),
        ("#/run?run=none", "No such run"),
        ("#/episodes?run=none", "This cannot be shown"),
        ("#/replay?run=grid&episode=train-000009:0", "This cannot be shown"),
        ("#/replay?run=grid", "No episode chosen"),
    ],
)
def test_a_link_to_nothing_says_so(page: Page, url: str, link: str, says: str):
    show(page, url, link)
    expect(page.get_by_text(says).first).to_be_visible()
