"""Drawing tokens: the right distribution, from noise that depends on key and position alone."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from agentgym_rl.engines.sampling import cut_rows, draw, session_key, signed, uniform, uniforms

LOGITS_V = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5, -3.0])
CHI_SQUARE_LIMIT = 25.7  # 5 degrees of freedom, exceeded once in 10,000


def noise(num: int, *, key: int = 7) -> list[float]:
    return [uniform(key, position) for position in range(num)]


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def correlation(first: list[float], second: list[float]) -> float:
    return float(torch.corrcoef(torch.tensor([first, second]))[0, 1])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_drawn_tokens_follow_the_softmax_at_the_temperature(temperature: float):
    num = 20_000
    tokens, _ = draw(LOGITS_V.expand(num, -1), [temperature] * num, noise(num))
    counts = torch.bincount(tokens, minlength=len(LOGITS_V)).double()
    probabilities = (LOGITS_V.double() / temperature).softmax(dim=0)
    assert chi_square(counts, probabilities) < CHI_SQUARE_LIMIT


def test_evenly_spread_noise_hits_every_token_by_its_share():
    # Probabilities 1/2, 1/4, 1/8, 1/8: of 8 even points the first 4, then 2, 1 and 1.
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().expand(8, -1)
    tokens, _ = draw(logits, [1.0] * 8, [(index + 0.5) / 8 for index in range(8)])
    assert tokens.tolist() == [0, 0, 0, 0, 1, 1, 2, 3]


def test_logprobs_are_under_the_distribution_drawn_from():
    temperatures = [0.3, 0.7, 1.0, 2.0]
    tokens, logprobs = draw(LOGITS_V.expand(4, -1), temperatures, noise(4))
    for token, logprob, temperature in zip(tokens, logprobs, temperatures, strict=True):
        expected = (LOGITS_V / temperature).log_softmax(dim=0)[token]
        assert float(logprob) == pytest.approx(float(expected), abs=1e-6)


def test_temperature_zero_takes_the_most_likely_token():
    logits = torch.tensor([[0.0, 3.0, 2.0], [5.0, 5.0, 1.0]])
    tokens, logprobs = draw(logits, [0.0, 0.0], [0.99, 0.99])
    assert tokens.tolist() == [1, 0]
    assert logprobs.tolist() == [0.0, 0.0]


def test_a_row_does_not_depend_on_the_others():
    logits = torch.randn(16, 50, generator=torch.Generator().manual_seed(0))
    temperatures = [0.0, 0.7, 1.0, 1.3] * 4
    tokens, logprobs = draw(logits, temperatures, noise(16))
    for row in range(16):
        token, logprob = draw(
            logits[row : row + 1], temperatures[row : row + 1], noise(16)[row:][:1]
        )
        assert (token.item(), logprob.item()) == (tokens[row].item(), logprobs[row].item())


def test_impossible_tokens_are_never_drawn():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    uniforms = [0.0, 0.25, 0.49, 0.5, 0.75, 1 - 2**-52]
    tokens, _ = draw(logits.expand(6, -1), [1.0] * 6, uniforms)
    assert tokens.tolist() == [1, 1, 1, 3, 3, 3]


def test_noise_is_even_in_zero_to_one():
    for values in (noise(20_000), [uniform(key, 3) for key in range(20_000)]):
        assert min(values) >= 0.0 and max(values) < 1.0
        counts = torch.histc(torch.tensor(values), bins=6, min=0, max=1).double()
        assert chi_square(counts, torch.full((6,), 1 / 6, dtype=torch.float64)) < CHI_SQUARE_LIMIT


def test_noise_of_neighbouring_positions_and_keys_is_unrelated():
    values = noise(20_000)
    # Four standard deviations of a correlation of 20,000 independent pairs: 4 / sqrt(20000).
    assert abs(correlation(values[:-1], values[1:])) < 0.029
    assert abs(correlation(values, noise(20_000, key=8))) < 0.029
    keys = [session_key("train", 1, "babyai/0", index) for index in range(20_000)]
    first = [uniform(key, 0) for key in keys]
    assert abs(correlation(first[:-1], first[1:])) < 0.029


def test_noise_depends_on_key_and_position_alone():
    assert uniform(2**64 - 1, 0) == uniform(2**64 - 1, 0)
    assert 0.0 <= uniform(2**64 - 1, 100_000) < 1.0
    assert len({uniform(key, position) for key in range(50) for position in range(50)}) == 2500


def test_session_key_has_64_bits_and_depends_on_every_part():
    keys = {
        session_key("train", 1, "babyai/0", 0),
        session_key("eval", 1, "babyai/0", 0),
        session_key("train", 2, "babyai/0", 0),
        session_key("train", 1, "babyai/1", 0),
        session_key("train", 1, "babyai/0", 1),
        session_key("train", 1, "babyai/00"),
        session_key("train1", "babyai/0", 0),
    }
    assert len(keys) == 7
    assert all(0 <= key < 2**64 for key in keys)
    assert max(keys) > 2**60


def test_noise_on_a_device_is_bitwise_that_of_the_host():
    rng = random.Random(0)
    keys = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, *(rng.getrandbits(64) for _ in range(500))]
    positions = [rng.choice([0, 1, 15, 4096, 131071]) for _ in keys]
    got = uniforms(torch.tensor([signed(key) for key in keys]), torch.tensor(positions))
    assert got.dtype == torch.float64
    assert got.tolist() == list(map(uniform, keys, positions))


@pytest.mark.parametrize(
    ("cuts", "kept"),
    [
        ((1.0, 0, 0.0), [0, 1, 2, 3]),
        ((0.5, 0, 0.0), [0]),
        ((0.51, 0, 0.0), [0, 1]),
        ((0.8, 0, 0.0), [0, 1, 2, 3]),  # the last two are equally likely
        ((1.0, 1, 0.0), [0]),
        ((1.0, 2, 0.0), [0, 1]),
        ((1.0, 9, 0.0), [0, 1, 2, 3]),
        ((1.0, 0, 0.5), [0, 1]),
        ((1.0, 0, 1.0), [0]),
        ((0.9, 3, 0.4), [0, 1]),
        ((0.0, 0, 0.0), [0]),
    ],
)
def test_cuts_by_hand(cuts: tuple[float, int, float], kept: list[int]):
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    cut = cut_rows(logits, torch.tensor([1.0]), torch.tensor([cuts]))
    assert torch.isfinite(cut[0]).nonzero()[:, 0].tolist() == kept
    assert torch.equal(cut[:, kept], logits[:, kept])


def test_cuts_are_of_the_distribution_at_the_temperature():
    # At temperature 1/2 probabilities go like their squares: 16, 4, 1, 1 of 22.
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    cut = cut_rows(logits, torch.tensor([0.5]), torch.tensor([[0.8, 0, 0.0]]))
    assert torch.isfinite(cut[0]).nonzero()[:, 0].tolist() == [0, 1]
