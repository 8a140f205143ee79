"""What the paged engine's host knows of sessions, of replies under way and of launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch

from agentgym_rl.engines.host import HostEngine, HostSession, Request
from agentgym_rl.engines.paged.device_rows import NewRow
from agentgym_rl.engines.paged.pages import HeldPages
from agentgym_rl.engines.paged.runner import Sampled


class PagedSession(HostSession):
    """Context of one episode, with its pages and, while it is sampled, its reply."""

    def __init__(self, engine: HostEngine[Self], key: int) -> None:
        super().__init__(engine, key)
        self.held = HeldPages()
        self.reply: Reply | None = None


@dataclass(slots=True, eq=False)
class Reply:
    """A request that has a row on the device."""

    request: Request[PagedSession]
    row: int
    num_context: int
    """Tokens of the context when the reply began."""
    max_tokens: int
    """What the request allows and the model's context has room for."""
    num_planned: int
    """Tokens of the context that are cached, or are computed by a pass already launched."""
    num_launched: int = 0
    """Tokens that have been asked for; if it stops earlier, the rest will not come."""

    @property
    def is_decoding(self) -> bool:
        return self.num_planned == self.num_context and self.num_launched < self.max_tokens


@dataclass(slots=True)
class Launch:
    """What was launched together, and where its results will be."""

    event: torch.cuda.Event | None = None
    started: list[Reply] = field(default_factory=list)
    first: Sampled | None = None
    decoded: list[Reply] = field(default_factory=list)
    later: Sampled | None = None


def have_cuts(replies: list[Reply]) -> bool:
    """Return whether any of them leaves tokens out."""
    return any(reply.request.params.has_cuts for reply in replies)


def new_row(reply: Reply) -> NewRow:
    """Return what the device is told of a reply that begins."""
    session = reply.request.session
    return NewRow(
        row=reply.row,
        key=session.key,
        num_context=reply.num_context,
        max_tokens=reply.max_tokens,
        params=reply.request.params,
        pages=session.held.pages,
    )
