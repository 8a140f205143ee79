"""The replies under way, kept on the device: decoding a token needs nothing from the host.

Every reply has a row. The host fills rows when requests are admitted, names the rows of each pass,
and reads the sampled tokens one launch later. The row after the last is always idle: it pads
passes. A row that is done keeps its state and writes to the scrap page.

Shape legend: R rows, B rows of one pass, P pages of a row, S stop tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentgym_rl.engines.sampling import signed, uniforms
from agentgym_rl.types import SamplingParams

NO_TOKEN = -1
"""The result of a row that was already done."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A reply that begins, as the host describes it."""

    row: int
    key: int
    """Decides the session's noise, 64 bits."""
    num_context: int
    max_tokens: int
    """As far as `params` and the room in the context allow."""
    params: SamplingParams
    pages: list[int]


class DeviceRows:
    """The state of `num_rows` replies and of the idle row."""

    def __init__(
        self, num_rows: int, max_pages: int, stop_ids: Iterable[int], *, device: torch.device
    ) -> None:
        def numbers(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(num_rows + 1, *shape, dtype=dtype, device=device)

        self.idle_row = num_rows
        self.table_RP = numbers(max_pages, dtype=torch.int32)
        self._ids_R = numbers()
        self._lengths_R = numbers()
        """Position of the newest token: all before it have keys and values in the pages."""
        self._keys_R = numbers()
        self._left_R = numbers()
        self._sampling_R4 = numbers(4, dtype=torch.float32)
        """Temperature, top_p, top_k, min_p."""
        self._is_done_R = torch.ones(num_rows + 1, dtype=torch.bool, device=device)
        self._stop_ids_S = torch.tensor(sorted(stop_ids), dtype=torch.long, device=device)

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Begin replies in the given rows."""
        width = max(len(new.pages) for new in new_rows)
        numbers = [
            [
                new.row,
                new.num_context - 1,
                signed(new.key),
                new.max_tokens,
                *new.pages,
                *[0] * (width - len(new.pages)),
            ]
            for new in new_rows
        ]
        device = self._ids_R.device
        numbers_BX = to_device(torch.tensor(numbers), device)
        sampling = [
            (p.temperature, p.top_p, p.top_k, p.min_p) for p in (n.params for n in new_rows)
        ]
        sampling_B4 = to_device(torch.tensor(sampling, dtype=torch.float32), device)
        rows_B = numbers_BX[:, 0]
        self._lengths_R[rows_B] = numbers_BX[:, 1]
        self._keys_R[rows_B] = numbers_BX[:, 2]
        self._left_R[rows_B] = numbers_BX[:, 3]
        self._sampling_R4[rows_B] = sampling_B4
        # index_fill_: an assignment would copy the number from the host and wait.
        self._is_done_R.index_fill_(0, rows_B, False)
        self.table_RP[rows_B, :width] = numbers_BX[:, 4:].to(torch.int32)

    def newest(self, rows_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's newest token and its position, -1 for a row that is done."""
        positions_B = torch.where(self._is_done_R[rows_B], -1, self._lengths_R[rows_B])
        return self._ids_R[rows_B], positions_B

    def noise(self, rows_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the temperature and the uniform number of each row's next token."""
        uniforms_B = uniforms(self._keys_R[rows_B], self._lengths_R[rows_B] + 1)
        return self._sampling_R4[rows_B, 0], uniforms_B

    def cuts(self, rows_B: Tensor) -> Tensor:
        """Return `top_p`, `top_k` and `min_p` of each row, (B, 3)."""
        return self._sampling_R4[rows_B, 1:]

    def accept(self, rows_B: Tensor, tokens_B: Tensor, logprobs_B: Tensor) -> Tensor:
        """Append a sampled token to each row that is not done; return the appended tokens.

        A stop token, the last allowed token or a log-probability that is not finite (for which the
        host fails the reply later) ends a row.
        """
        was_done_B = self._is_done_R[rows_B]
        lengths_B, left_B = self._lengths_R[rows_B], self._left_R[rows_B]
        is_live_B = (~was_done_B).long()
        is_last_B = (tokens_B[:, None] == self._stop_ids_S).any(dim=1)
        is_last_B = is_last_B | (left_B <= 1) | ~torch.isfinite(logprobs_B)
        self._ids_R[rows_B] = torch.where(was_done_B, self._ids_R[rows_B], tokens_B)
        self._lengths_R[rows_B] = lengths_B + is_live_B
        self._left_R[rows_B] = left_B - is_live_B
        self._is_done_R[rows_B] = was_done_B | is_last_B
        return torch.where(was_done_B, NO_TOKEN, tokens_B)


def to_device(numbers: Tensor, device: torch.device) -> Tensor:
    """Return a copy on the device, without waiting for it."""
    if device.type == "cuda":
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)
