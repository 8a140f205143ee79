"""Small pages on which a script of a task finds a text, and pages on which it does not."""

from __future__ import annotations

import html
import re

_SIMPLE = re.compile(
    r"""document\.querySelector\((['"])(?P<selector>(?:(?!\1).)+)\1\)"""
    r"""\.(?P<what>outerText|value|selectedIndex|getAttribute\('title'\))"""
)
_VOTE = "document.querySelector('div.submission__vote').querySelector('form').getAttribute('class')"
_ROLE = re.compile(r"func:gitlab_get_project_memeber_role\(__page__, '(\w+)'\)")
_PART = re.compile(r"""\.([\w-]+)|\#([\w-]+)|\[([\w-]+)=["'](.+?)["']\]?|^(\w+)""")


def element_with(locator: str, text: str) -> str | None:
    """Return HTML in which a locator finds a text; None where the locator is too intricate."""
    if not locator:
        return f"<p>{html.escape(text)}</p>"
    if locator == _VOTE:
        return f"<div class=submission__vote><form class={_quoted(text)}></form></div>"
    if member := _ROLE.fullmatch(locator):
        account = f"<span class=gl-avatar-labeled-sublabel>@{member[1]}</span>"
        role = f"<span>{html.escape(text)}</span>"
        cells = f"<td data-label=Account>{account}</td><td class=col-max-role>{role}</td>"
        return f"<table><tr>{cells}</tr></table>"
    found = _SIMPLE.fullmatch(locator)
    if found is None:
        return None
    selector = found["selector"]
    parts = [selector] if "[" in selector else re.split(r"[\s>]+", selector)
    made = _leaf(found["what"], *_tag(parts[-1]), text)
    for part in reversed(parts[:-1]):
        tag, attributes = _tag(part)
        made = f"<{tag or 'div'}{attributes}>{made}</{tag or 'div'}>"
    return made


def _tag(part: str) -> tuple[str, str]:
    """Return the tag of a selector's part, and its attributes as HTML."""
    tag, classes, attributes = "", list[str](), ""
    for class_, id_, name, value, element in _PART.findall(part):
        tag = element or tag
        classes += [class_] if class_ else []
        attributes += f" id={id_}" if id_ else ""
        attributes += f" {name}={_quoted(value)}" if name else ""
    return tag, attributes + (f" class={_quoted(' '.join(classes))}" if classes else "")


def _leaf(what: str, tag: str, attributes: str, text: str) -> str:
    if what == "outerText":
        tag = tag or "div"
        return f"<{tag}{attributes}>{html.escape(text)}</{tag}>"
    if what == "value":
        return f"<input{attributes} value={_quoted(text)}>"
    if what == "selectedIndex":
        chosen = int(text) if text.isdecimal() else 5
        options = "".join(f"<option{' selected' * (i == chosen)}>{i}" for i in range(8))
        return f"<select{attributes}>{options}</select>"
    return f"<div{attributes} title={_quoted(text)}>x</div>"


def _quoted(text: str) -> str:
    return f'"{html.escape(text)}"'
