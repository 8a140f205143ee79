"""Carries out actions in a session (`act`). What an agent cannot do is an answer, not an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.actions import (
    BrowserAction,
    Click,
    CloseTab,
    GoBack,
    GoForward,
    Goto,
    Hover,
    NewTab,
    Press,
    Scroll,
    SelectOption,
    TabFocus,
    Type,
)
from agentgym_rl.browser.page_tree import Node
from agentgym_rl.browser.session import MAX_TABS, BrowserSession
from agentgym_rl.browser.tab import Tab

_MAX_KEYSTROKES = 200
"""Of one text; what is longer is put in at once."""
_SELECT = """
function(wanted) {
    const list = this.tagName === "OPTION" ? this.closest("select") : this;
    if (!list || list.tagName !== "SELECT") return "no list";
    const clean = text => text.replace(/\\s+/g, " ").trim().toLowerCase();
    const options = [...list.options];
    const found = options.find(o => clean(o.label) === clean(wanted))
        || options.find(o => o.value === wanted)
        || options.find(o => clean(o.label).startsWith(clean(wanted)));
    if (!found) return "no option";
    if (found.disabled) return "disabled";
    if (list.multiple) found.selected = !found.selected; else list.value = found.value;
    if (!list.multiple) found.selected = true;
    list.dispatchEvent(new Event("input", {bubbles: true}));
    list.dispatchEvent(new Event("change", {bubbles: true}));
    return "";
}
"""
_FOCUS = """
function() {
    const field = this.nodeType === 1 ? this : this.parentElement;
    if (!field) return "gone";
    const is_field = field.matches("input, textarea, select, [contenteditable]");
    const target = is_field || field.isContentEditable
        ? field : field.querySelector("input, textarea, [contenteditable]") || field;
    if (target.tagName === "SELECT") return "list";
    const kinds = ["checkbox", "radio", "button", "submit", "reset", "file", "image", "color"];
    const writes = target.isContentEditable || target.tagName === "TEXTAREA"
        || target.tagName === "INPUT" && !kinds.includes(target.type);
    if (!writes) return target.type === "file" ? "file" : "no field";
    if (target.disabled || target.readOnly) return "read-only";
    target.focus();
    const pickers = ["date", "time", "month", "week", "datetime-local", "range"];
    if (pickers.includes(target.type)) return "value";
    if (target.select) target.select();
    else document.getSelection().selectAllChildren(target);
    return "";
}
"""
_SET_VALUE = """
function(text) {
    const field = this.matches("input") ? this : this.querySelector("input");
    const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set;
    set.call(field, text);
    field.dispatchEvent(new Event("input", {bubbles: true}));
    field.dispatchEvent(new Event("change", {bubbles: true}));
    return field.value === text ? "" : "refused";
}
"""
_SCROLL = """
step => {
    let part = null;
    const middle = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    for (let box = middle; box; box = box.parentElement) {
        const style = getComputedStyle(box);
        const scrolls = ["auto", "scroll"].includes(style.overflowY);
        if (!part && scrolls && box.scrollHeight > box.clientHeight) part = box;
        if (part && style.position === "fixed") {
            part.scrollBy({top: step, behavior: "instant"});
            return;
        }
    }
    window.scrollBy({top: step, behavior: "instant"});
}
"""
"""Moves what lies fixed over the page, such as a dialog longer than the screen, else the page."""
_REASONS = {
    "gone": "it is no longer on the page",
    "no list": "it is no list of options",
    "no option": "the list has no such option",
    "disabled": "this option cannot be chosen",
    "list": "it is a list of options: use select_option",
    "file": "files cannot be given",
    "no field": "it takes no text",
    "read-only": "it cannot be changed",
    "refused": "it does not take this value (a date is written 2024-05-31)",
}


class CannotActError(Exception):
    """The action cannot be done; the message is for the agent."""


async def act(session: BrowserSession, action: BrowserAction, elements: Mapping[int, Node]) -> None:
    """Do one action. Raises CannotActError where the agent cannot do this here."""
    await _do(session, action, elements)
    session.tab.begin_wait()


async def _do(session: BrowserSession, action: BrowserAction, elements: Mapping[int, Node]) -> None:
    match action:
        case Click(number):
            await _point(session.tab, _element(number, elements), number, click=True)
        case Hover(number):
            await _point(session.tab, _element(number, elements), number, click=False)
        case Type(number, text, enter):
            await _type(session.tab, _element(number, elements), number, text, enter=enter)
        case SelectOption(number, option):
            await _run(session.tab, _element(number, elements), number, _SELECT, option)
        case Press(keys):
            await session.tab.within(session.tab.page.keyboard.press(keys))
        case Scroll(is_down):
            await _scroll(session, is_down=is_down)
        case _:
            await _move(session, action)


async def _move(session: BrowserSession, action: BrowserAction) -> None:
    """Do an action on tabs and addresses."""
    match action:
        case Goto(written):
            url = session.options.origins.meant(written, session.tab.page.url)
            if not session.options.origins.allows(url):
                raise CannotActError(f"{written[:200]} is outside the sites of this task.")
            await session.goto(url)
        case NewTab():
            if not session.has_room:
                raise CannotActError(f"No tab was opened: there are {MAX_TABS} already.")
            await session.new_tab()
        case TabFocus(number):
            if not await session.focus(number):
                raise CannotActError(f"There is no tab {number}.")
        case CloseTab():
            await session.close_tab()
        case GoBack():
            await session.go_back()
        case GoForward():
            await session.go_forward()


def _element(number: int, elements: Mapping[int, Node]) -> Node:
    node = elements.get(number)
    if node is None or not node.backend_id:
        raise CannotActError(f"There is no element [{number}] on this page.")
    return node


async def _point(tab: Tab, node: Node, number: int, *, click: bool) -> None:
    x, y = await _place(tab, node, number)
    mouse = tab.page.mouse
    await tab.within(mouse.click(x, y) if click else mouse.move(x, y))


async def _place(tab: Tab, node: Node, number: int) -> tuple[float, float]:
    """Return the centre of an element on the screen, scrolled into view."""
    try:
        await tab.call("DOM.scrollIntoViewIfNeeded", backendNodeId=node.backend_id)
        answer = await tab.call("DOM.getContentQuads", backendNodeId=node.backend_id)
    except PlaywrightError as error:
        raise CannotActError(f"[{number}] is hidden, or no longer on the page.") from error
    quads = cast(list[list[float]], answer["quads"])
    for quad in quads:
        xs, ys = quad[0::2], quad[1::2]
        if max(xs) - min(xs) >= 1 and max(ys) - min(ys) >= 1:
            return sum(xs) / 4, sum(ys) / 4
    raise CannotActError(f"[{number}] is hidden.")


async def _type(tab: Tab, node: Node, number: int, text: str, *, enter: bool) -> None:
    await _point(tab, node, number, click=True)
    outcome = await _result(tab, node, number, _FOCUS)
    if outcome == "value":
        await _run(tab, node, number, _SET_VALUE, text)
    elif outcome:
        raise CannotActError(f"Nothing was typed into [{number}]: {_REASONS[outcome]}.")
    else:
        keyboard = tab.page.keyboard
        if not text:
            await tab.within(keyboard.press("Delete"))
        elif len(text) > _MAX_KEYSTROKES:
            await tab.within(keyboard.insert_text(text))
        else:
            await tab.within(keyboard.type(text))
    if enter:
        await tab.within(tab.page.keyboard.press("Enter"))


async def _scroll(session: BrowserSession, *, is_down: bool) -> None:
    """Move the page by most of a screen, so that some lines are seen twice."""
    step = round(0.9 * session.options.height) * (1 if is_down else -1)
    await session.tab.call("Runtime.evaluate", expression=f"({_SCROLL})({step})")


async def _run(tab: Tab, node: Node, number: int, function: str, argument: str) -> None:
    """Call one of the functions above on an element. Raises CannotActError with its reason."""
    outcome = await _result(tab, node, number, function, argument)
    if outcome:
        raise CannotActError(f"Nothing was done with [{number}]: {_REASONS[outcome]}.")


async def _result(tab: Tab, node: Node, number: int, function: str, *arguments: str) -> str:
    try:
        answer = await tab.call("DOM.resolveNode", backendNodeId=node.backend_id)
        target = cast(Mapping[str, object], answer["object"])["objectId"]
        answer = await tab.call(
            "Runtime.callFunctionOn",
            objectId=target,
            functionDeclaration=function,
            arguments=[{"value": argument} for argument in arguments],
            returnByValue=True,
        )
    except PlaywrightError as error:
        raise CannotActError(f"[{number}] is no longer on the page.") from error
    outcome = cast(Mapping[str, object], answer["result"]).get("value")
    known = (*_REASONS, "value")
    return outcome if isinstance(outcome, str) and outcome in known else ""
