"""Sessions whose tokens are attended together: only where that changes nothing."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.engines.native import decode_attention
from agentgym_rl.engines.native.decode_attention import AgreeingLengths, HeadShape

SHAPE = HeadShape(num_heads=4, num_key_heads=2, head_dim=16, dtype=torch.float32)


def test_sessions_are_computed_together_as_far_as_their_lengths_agree(
    monkeypatch: pytest.MonkeyPatch,
):
    pasts = [10, 300, 63, 64, 1000]  # own lengths 64, 320, 64, 128, 1024
    lengths = AgreeingLengths(SHAPE)
    monkeypatch.setattr(lengths, "_check", lambda own, longer: True)
    assert lengths.groups(pasts) == [(1024, [0, 2, 3, 1, 4])]
    lengths = AgreeingLengths(SHAPE)
    monkeypatch.setattr(
        lengths, "_check", lambda own, longer: longer < 4 * own
    )  # 1024 with 320, 128 with 64
    assert lengths.groups(pasts) == [(1024, [1, 4]), (128, [0, 2, 3])]
    monkeypatch.setattr(lengths, "_check", lambda own, longer: False)
    lengths._agree.clear()
    assert lengths.groups(pasts) == [(1024, [4]), (320, [1]), (128, [3]), (64, [0, 2])]
    assert lengths.groups([]) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_check_is_one_of_the_machine(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch):
    lengths = AgreeingLengths(HeadShape(4, 2, 16, dtype))
    assert lengths.is_exact
    attend = decode_attention.attend_last

    def depends_on_length(query_SHD, keys, *others, **settings):
        return attend(query_SHD, keys, *others, **settings) * (1 + keys.shape[2] / 512)

    monkeypatch.setattr(decode_attention, "attend_last", depends_on_length)
    assert not lengths.agree(64, 256)
    assert lengths.agree(256, 256)
