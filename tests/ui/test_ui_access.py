"""Can everybody use it: contrast in both themes, names on all controls, nothing cut off."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from axe import grave_faults
from case_shares import spread_over
from ui_browser import show
from ui_runs import played, write_evaluation, write_run
from ui_servers import ui_process

LINKS = (
    "#/runs?sel=grid",
    "#/run?run=grid",
    "#/run?run=grid&with=other",
    "#/evaluations?sel=grid@1@babyai,grid@2@babyai",
    "#/evaluations?steps=all&sel=grid@2@babyai",
    "#/episodes?run=grid",
    "#/replay?run=grid&episode=train-000001:0&round=2",
    "#/tokens?run=grid&episode=train-000001:0&color=logprob&token=6",
    "#/group?run=grid&phase=train&step=1&group=0&round=1",
    "#/diagnosis?run=grid",
    "#/time?run=grid&step=2",
    "#/play?env=babyai",
    "#/nowhere",
)
MIN_CONTRAST = 4.5
"""Of text, by WCAG 2 AA."""

# Every text that is shown, with its contrast to the colours under it. Plotly's own texts (svg) and
# disabled controls, which the rule leaves out, are not looked at.
POOR_CONTRASTS = """least => {
    const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = color => {
        paint.clearRect(0, 0, 1, 1);
        paint.fillStyle = color;
        paint.fillRect(0, 0, 1, 1);
        return [...paint.getImageData(0, 0, 1, 1).data];
    };
    const over = (top, below) => {
        const alpha = top[3] / 255;
        return [0, 1, 2].map(i => top[i] * alpha + below[i] * (1 - alpha)).concat(255);
    };
    const light = color => {
        const parts = color.slice(0, 3).map(part => {
            const value = part / 255;
            return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = node => {
        const below = node.parentElement ? ground(node.parentElement) : [255, 255, 255, 255];
        return over(rgba(getComputedStyle(node).backgroundColor), below);
    };
    const poor = [];
    for (const node of document.querySelectorAll('body *')) {
        const hasText = [...node.childNodes].some(item => item.nodeType === 3 && item.data.trim());
        const isOut = node.closest('svg, .chart, noscript, .visually-hidden, option, .skip')
            || node.closest(':disabled') || node.parentElement?.querySelector(':scope > :disabled')
            || !node.checkVisibility({checkOpacity: true});
        if (!hasText || isOut) continue;
        const below = ground(node);
        const [high, low] = [light(over(rgba(getComputedStyle(node).color), below)), light(below)]
            .sort((a, b) => b - a);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < least)
            poor.push(`${contrast.toFixed(2)} ${node.className} ${node.textContent}`);
    }
    return poor;
}"""
NAMELESS = """() => [
        ...document.querySelectorAll('button, a, input, select, textarea, [tabindex="0"]')]
    .filter(node => node.checkVisibility())
    .filter(node => !(node.getAttribute('aria-label') || node.textContent.trim()
        || node.labels?.length || node.title))
    .map(node => node.outerHTML.slice(0, 120))"""
PHONE: ViewportSize = {"width": 390, "height": 844}
OVERFLOWING = """() => {
    const main = document.querySelector('main');
    return main.scrollWidth - main.clientWidth;
}"""
CUT_OFF = "() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    runs = tmp_path_factory.mktemp("runs")
    task = BabyAI.tasks("test")[0]
    group = [played(task, ("turn left", "dance")), played(task, ("turn right",), sample_index=1)]
    run = write_run(runs / "grid", [[group]], env="babyai", horizons=(3, 5))
    for step in (1, 2):
        write_evaluation(run, group, step=step)
    write_run(runs / "other", [], env="babyai", horizons=(3,))
    with ui_process(runs) as client:
        yield client.url


@pytest.mark.parametrize("link", spread_over(LINKS, 1))
def test_every_view_can_be_read_and_used_by_everybody(page: Page, url: str, link: str):
    show(page, url, link)
    page.wait_for_load_state("networkidle")
    page.locator("main > *").first.wait_for()
    for theme in ("light", "dark"):
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        assert page.evaluate(POOR_CONTRASTS, MIN_CONTRAST) == []
        page.keyboard.press("t")
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(CUT_OFF) == [1366, 768]
    assert grave_faults(page) == []


@pytest.mark.parametrize("link", spread_over(LINKS, 1))
def test_every_view_fits_a_phone(page: Page, url: str, link: str):
    page.set_viewport_size(PHONE)
    show(page, url, link)
    page.wait_for_load_state("networkidle")
    page.locator("main > *").first.wait_for()
    assert page.evaluate(CUT_OFF) == [PHONE["width"], PHONE["height"]]
    assert page.evaluate(OVERFLOWING) <= 0
    expect(page.get_by_role("navigation", name="Views", exact=True)).to_be_in_viewport(ratio=1)
    assert page.evaluate(POOR_CONTRASTS, MIN_CONTRAST) == []
    assert grave_faults(page) == []


def test_on_a_phone_filters_open_and_rows_tell_goal_and_action(page: Page, url: str):
    page.set_viewport_size(PHONE)
    show(page, url, "#/episodes?run=grid&text=turn")
    row = page.locator("tbody tr").first
    expect(row.locator("mark").first).to_have_text("turn")
    expect(page.get_by_role("combobox", name="Outcome")).to_be_hidden()
    page.get_by_role("button", name="More filters").click()
    expect(page.get_by_role("combobox", name="Outcome")).to_be_visible()


@pytest.mark.long
def test_the_focus_is_seen_and_stays_in_dialogs(page: Page, url: str):
    show(page, url, "#/runs?sel=grid")
    page.get_by_role("checkbox").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"
    page.keyboard.press("?")
    for _ in range(3):
        page.keyboard.press("Tab")
        is_out = "() => Boolean(document.activeElement.closest('#app'))"
        assert not page.evaluate(is_out)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Episodes").focus()
    page.keyboard.press("Tab")
    width = "() => getComputedStyle(document.activeElement).outlineWidth"
    assert page.evaluate(width) == "2px"
