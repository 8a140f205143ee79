"""What the agent is told: instructions of both versions, and observations."""

from __future__ import annotations

from agentgym_rl.browser.browsing import Browsing

_ACTIONS = """\
You use a web browser to reach an objective. You see the current page as text; what you can act on \
has a number in brackets. Your actions:
click [number]
hover [number]
type [number] [text]   (replaces what the field holds, then presses Enter)
type [number] [text] [0]   (the same without Enter)
select_option [number] [option]
press [keys]   (e.g. press [ArrowDown], press [Control+a])
scroll [down] or scroll [up]
goto [url]
go_back
go_forward
new_tab
tab_focus [number of a tab]
close_tab
stop [answer]
Only the sites of the task can be reached. "stop" ends the task."""

_ORIGINAL = """\
Give the answer as briefly as the objective allows. Leave it empty where none is asked for, with \
the page that was asked for open. Answer N/A where the objective cannot be reached."""

_VERIFIED = """\
The answer is one JSON object:
stop [{"task_type": "RETRIEVE", "status": "SUCCESS", "retrieved_data": ["..."]}]
task_type: RETRIEVE where data is asked for, NAVIGATE where a page is to be open, MUTATE where \
something is to be changed.
status: SUCCESS, or NOT_FOUND_ERROR where what is asked for does not exist, \
ACTION_NOT_ALLOWED_ERROR \
where the site does not allow it, PERMISSION_DENIED_ERROR where the account may not, \
DATA_VALIDATION_ERROR where the input is missing or wrong, UNKNOWN_ERROR for any other failure.
retrieved_data: for RETRIEVE a list, with numbers as numbers and objects as the objective says; \
otherwise null."""


def instructions(version: str) -> str:
    """Return what the agent is told before the first page."""
    return f"{_ACTIONS}\n{_VERIFIED if version == 'verified' else _ORIGINAL}"


def first_words(intent: str, addresses: dict[str, str]) -> str:
    """Return the objective, and where the sites are, where there are several."""
    lines = [f"Objective: {intent}"]
    if len(addresses) > 1:
        sites = ", ".join(f"{name} {url}" for name, url in addresses.items())
        lines.append(f"Sites: {sites}")
    return "\n".join(lines)


def original_layout(browsing: Browsing, text: str, intent: str, last_action: str) -> str:
    """Return an observation with the parts of WebArena's own: tabs, tree, address, objective."""
    tabs = " | ".join(
        f"Tab {number}{' (current)' if number == browsing.current else ''}: {title}"
        for number, title in enumerate(browsing.titles)
    )
    return (
        f"OBSERVATION:\n{tabs}\n\n{text}\nURL: {browsing.url}\nOBJECTIVE: {intent}\n"
        f"PREVIOUS ACTION: {last_action}"
    )
