"""Drawing: Philox against its published vectors, filters against a naive float64 form, frequencies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling import DrawRows, draw, torch_draw
from tokenspeed_kernels.sampling.philox import gumbel_all, gumbel_of, philox4x32

DRAW = draw(selector("cpu"))


def _rows(count: int, **changes: object) -> DrawRows:
    values: dict[str, tuple[torch.dtype, object]] = {
        "temperature": (torch.float32, 1.0),
        "top_k": (torch.int64, 0),
        "top_p": (torch.float64, 1.0),
        "min_p": (torch.float64, 0.0),
        "seed": (torch.int64, 11),
        "position": (torch.int64, 0),
    }
    tensors = {name: torch.as_tensor(changes.get(name, value), dtype=kind) for name, (kind, value) in values.items()}
    return DrawRows(**{name: tensor.expand(count).clone() for name, tensor in tensors.items()})


@pytest.mark.parametrize(
    ("counter", "key", "wanted"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """The known-answer vectors that the authors publish for philox4x32-10."""
    c0, c1, c2, c3 = (torch.tensor(word) for word in counter)
    words = philox4x32((c0, c1, c2, c3), (torch.tensor(key[0]), torch.tensor(key[1])))
    assert tuple(word.item() for word in words) == wanted


def _philox_one(seed: int, position: int, token: int) -> float:
    """The noise of one token in Python's integers."""
    mask = 0xFFFFFFFF
    c, k = [token >> 2, position, 0, 0], [seed & mask, seed >> 32 & mask]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [b >> 32 ^ c[1] ^ k[0], b & mask, a >> 32 ^ c[3] ^ k[1], a & mask]
        k = [k[0] + 0x9E3779B9 & mask, k[1] + 0xBB67AE85 & mask]
    uniform = ((c[token & 3] >> 9) + 0.5) * 2.0**-23
    assert 0.0 < uniform < 1.0
    assert np.float32(uniform) == uniform
    return -math.log(-math.log(uniform))


def test_noise_is_a_function_of_seed_position_and_token() -> None:
    """All at once, picked ones and one at a time agree; a negative int64 is the bits of a seed."""
    seeds, positions = torch.tensor([7, -1, 2**40 + 5]), torch.tensor([0, 131_071, 3])
    everything = gumbel_all(seeds, positions, 103)
    tokens = torch.tensor([[0, 1, 2, 3], [102, 50, 50, 7], [4, 99, 5, 101]])
    assert torch.equal(gumbel_of(seeds, positions, tokens), everything.gather(1, tokens))
    for row in range(3):
        for token in (0, 3, 50, 102):
            one = _philox_one(int(seeds[row]) & (2**64 - 1), int(positions[row]), token)
            assert everything[row, token].item() == pytest.approx(one, rel=2e-6, abs=2e-6)


def _naive(logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The kept set, written from the definition."""
    scaled = [np.float32(logit) / np.float32(temperature) for logit in logits]
    order = sorted(range(len(scaled)), key=lambda token: (-scaled[token], token))
    if top_k > 0:
        order = order[:top_k]
    weights = [math.exp(float(scaled[token]) - float(scaled[order[0]])) for token in order]
    kept, mass = [], 0.0
    for token, weight in zip(order, weights, strict=True):
        if top_p < 1.0 and mass >= top_p * sum(weights):
            break
        kept.append(token)
        mass += weight
    return {token for token, weight in zip(kept, weights, strict=False) if weight >= min_p} or {order[0]}


# Logits with many ties, and values at which no cut falls on a rounding error.
LOGITS = st.lists(st.sampled_from([-3.0, -1.5, 0.0, 0.25, 1.0, 1.5, 4.0]), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, 30, 1000]),
    top_p=st.sampled_from([0.137, 0.501, 0.893, 1.0]),
    min_p=st.sampled_from([0.0, 0.0103, 0.307, 0.99]),
    widths=st.sampled_from([(), (1, 4), (3,), (256,)]),
    seed=st.integers(-(2**63), 2**63 - 1),
)
def test_the_best_of_the_kept_wins(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, widths: tuple[int, ...], seed: int
) -> None:
    """The draw is the argmax of score plus noise over the kept set, whichever path computes it."""
    kept = _naive(logits, temperature, top_k, top_p, min_p)
    rows = _rows(1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    noise = gumbel_all(rows.seed, rows.position, len(logits))[0]
    scores = torch.tensor(logits) / torch.tensor(temperature) + noise
    wanted = max(kept, key=lambda token: (scores[token].item(), -token))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_draw, "WIDTHS", widths)
        assert DRAW(torch.tensor([logits]), rows).item() == wanted


def test_rows_do_not_see_each_other() -> None:
    """A row draws the same id alone and in any company."""
    logits = torch.randn(24, 1000, generator=torch.Generator().manual_seed(2)) * 3
    index = torch.arange(24)
    rows = _rows(
        24,
        temperature=0.3 + index % 5 * 0.4,
        top_k=torch.tensor([0, 1, 40, 700])[index % 4],
        top_p=torch.tensor([1.0, 0.2, 0.95])[index % 3],
        min_p=torch.tensor([0.0, 0.0, 0.05])[index // 4 % 3],
        seed=index * 77,
        position=index,
    )
    together = DRAW(logits, rows)
    alone = [DRAW(logits[row : row + 1], torch_draw._take(rows, index[row : row + 1])).item() for row in range(24)]
    assert together.tolist() == alone
    backwards = index.flip(0)
    assert DRAW(logits[backwards], torch_draw._take(rows, backwards)).flip(0).tolist() == alone


@pytest.mark.parametrize(
    ("settings_of_row", "kept"),
    [
        ({}, range(8)),
        ({"temperature": 2.0}, range(8)),
        ({"top_k": 3}, range(3)),
        ({"top_p": 0.7}, range(3)),
        ({"min_p": 0.2}, range(4)),
        ({"temperature": 0.7, "top_k": 5, "top_p": 0.95}, range(4)),
    ],
)
def test_frequencies(settings_of_row: dict[str, float], kept: range) -> None:
    """Chi-square of 20,000 draws over positions against the distribution that was asked for."""
    logits = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -1.5])
    draws = 20_000
    rows = _rows(draws, position=torch.arange(draws), **settings_of_row)
    seen = torch.bincount(DRAW(logits.expand(draws, -1).clone(), rows), minlength=8).double()
    weights = torch.softmax(logits.double() / settings_of_row.get("temperature", 1.0), dim=0)
    weights[kept.stop :] = 0
    wanted = (weights / weights.sum() * draws)[: kept.stop]
    assert seen[kept.stop :].sum() == 0
    chi_square = ((seen[: kept.stop] - wanted) ** 2 / wanted).sum().item()
    # The 0.9999 quantile of chi-square with 7 degrees of freedom; the draws are fixed by the seed.
    assert chi_square < 29.9


def test_what_cannot_be_is_not_drawn() -> None:
    """Minus infinity stays out, with cuts and without."""
    logits = torch.full((200, 12), float("-inf"))
    logits[:, 5], logits[:, 9] = 0.0, -4.0
    for cut in ({}, {"top_k": 6}, {"top_p": 0.999999}, {"min_p": 1e-9}):
        drawn = DRAW(logits.clone(), _rows(200, position=torch.arange(200), **cut))
        assert set(drawn.tolist()) == {5, 9}
