"""The split between greedy rows and rows that draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling import DrawRows, draw

from tokenspeed.errors import EngineError
from tokenspeed.executor.pools import SlotPool
from tokenspeed.executor.sampler import sample

DRAW = draw(selector("cpu"))


def _forbidden(logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
    raise AssertionError("a greedy batch draws nothing")


@pytest.fixture
def pool() -> SlotPool:
    """Four slots, all greedy."""
    return SlotPool(4, 64, 16)


def _slots(*slots: int) -> np.typing.NDArray[np.int64]:
    return np.array(slots, np.int64)


def test_greedy_rows_pay_nothing(pool: SlotPool) -> None:
    """The largest logit, without a random number; a temperature near 0 is greedy too."""
    pool.temperature[2] = 1e-6
    logits = torch.randn(2, 30)
    wanted = logits.argmax(dim=1).tolist()
    assert sample(logits, _slots(1, 2), _slots(5, 5), pool, _forbidden).tolist() == wanted


def test_equal_logits_take_the_lower_id(pool: SlotPool) -> None:
    """Greedy ties are settled."""
    assert sample(torch.zeros(1, 300), _slots(1), _slots(0), pool, _forbidden).tolist() == [0]


def test_mixed_rows_are_what_they_are_alone(pool: SlotPool) -> None:
    """Greedy and drawing rows in one step keep their order and their ids."""
    pool.temperature[2:4], pool.seed[2:4], pool.top_k[3] = (1.5, 0.8), (7, 9), 4
    logits = torch.randn(3, 50)
    slots, positions = _slots(3, 1, 2), _slots(8, 9, 10)
    together = sample(logits.clone(), slots, positions, pool, DRAW).tolist()
    alone = [
        sample(logits[row : row + 1].clone(), slots[row : row + 1], positions[row : row + 1], pool, DRAW).item()
        for row in range(3)
    ]
    assert together == alone
    assert together[1] == logits[1].argmax().item()


def test_suppression_ends_at_its_position(pool: SlotPool) -> None:
    """Below the position the ids are out, from it on they are in."""
    pool.suppress[1], pool.suppress_until[1] = np.array([3, 8]), 10
    logits = torch.zeros(1, 12)
    logits[0, 3], logits[0, 8], logits[0, 5] = 9.0, 8.0, 1.0
    assert sample(logits.clone(), _slots(1), _slots(9), pool, DRAW).tolist() == [5]
    assert sample(logits.clone(), _slots(1), _slots(10), pool, DRAW).tolist() == [3]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite(pool: SlotPool, number: float) -> None:
    """The slot is named."""
    logits = torch.zeros(2, 12)
    logits[1, 4] = number
    with pytest.raises(EngineError, match=r"slots \[3\]"):
        sample(logits, _slots(1, 3), _slots(0, 0), pool, DRAW)
