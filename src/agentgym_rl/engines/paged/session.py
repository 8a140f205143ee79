"""Sessions, replies under way and launches, as the host of the paged engine knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch

from agentgym_rl.engines.host import HostEngine, HostSession, Request
from agentgym_rl.engines.paged.device_rows import NewRow
from agentgym_rl.engines.paged.pages import HeldPages
from agentgym_rl.engines.paged.runner import Sampled


class PagedSession(HostSession):
    """The context of one episode, with its pages and, while it is sampled, its reply."""

    def __init__(self, engine: HostEngine[Self], key: int) -> None:
        super().__init__(engine, key)
        self.held = HeldPages()
        self.reply: RowReply | None = None


@dataclass(slots=True, eq=False)
class RowReply:
    """A request that has a row on the device."""

    request: Request[PagedSession]
    row: int
    num_context: int
    """Tokens of the context when the reply began."""
    max_tokens: int
    """As far as the request and the room in the model's context allow."""
    num_planned: int
    """Tokens of the context that are cached, or computed by a pass already launched."""
    num_launched: int = 0
    """Tokens requested so far; if the reply stops earlier, there are fewer."""

    @property
    def is_decoding(self) -> bool:
        return self.num_planned == self.num_context and self.num_launched < self.max_tokens


@dataclass(slots=True)
class Launch:
    """Work that was launched together, and its future results."""

    event: torch.cuda.Event | None = None
    started: list[RowReply] = field(default_factory=list)
    first: Sampled | None = None
    decoded: list[RowReply] = field(default_factory=list)
    later: Sampled | None = None


def have_cuts(replies: list[RowReply]) -> bool:
    """Return whether any of the replies excludes tokens."""
    return any(reply.request.params.has_cuts for reply in replies)


def new_row(reply: RowReply) -> NewRow:
    """Return a reply that begins, as the device needs it."""
    session = reply.request.session
    return NewRow(
        row=reply.row,
        key=session.key,
        num_context=reply.num_context,
        max_tokens=reply.max_tokens,
        params=reply.request.params,
        pages=session.held.pages,
    )
