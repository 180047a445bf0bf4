"""The split between greedy rows and rows that draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling import DrawRows

from tokenspeed.executor.pools import SlotPool
from tokenspeed.executor.sampler import SampleKernels, sample
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.executor import SlotOpening
from tokenspeed.messages.logprobs import entries, entry_bytes
from tokenspeed.messages.scheduler import ROW_FAILED

KERNELS = SampleKernels.choose(selector("cpu"))


def _forbidden(logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
    raise AssertionError("a greedy batch draws nothing")


GREEDY = KERNELS._replace(draw=_forbidden)


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
    assert sample(logits, _slots(1, 2), _slots(5, 5), pool, GREEDY).ids.tolist() == wanted
    assert (pool.last_id[1:3].tolist(), pool.history[1:3, 5].tolist()) == (wanted, wanted)


def test_equal_logits_take_the_lower_id(pool: SlotPool) -> None:
    """Greedy ties are settled."""
    assert sample(torch.zeros(1, 300), _slots(1), _slots(0), pool, GREEDY).ids.tolist() == [0]


def test_mixed_rows_are_what_they_are_alone(pool: SlotPool) -> None:
    """Greedy and drawing rows in one step keep their order and their ids."""
    pool.temperature[2:4], pool.seed[2:4], pool.top_k[3] = (1.5, 0.8), (7, 9), 4
    logits = torch.randn(3, 50)
    slots, positions = _slots(3, 1, 2), _slots(8, 9, 10)
    together = sample(logits.clone(), slots, positions, pool, KERNELS).ids.tolist()
    alone = [
        sample(logits[row : row + 1].clone(), slots[row : row + 1], positions[row : row + 1], pool, KERNELS).ids.item()
        for row in range(3)
    ]
    assert together == alone
    assert together[1] == logits[1].argmax().item()


def test_suppression_ends_at_its_position(pool: SlotPool) -> None:
    """Below the position the ids are out, from it on they are in."""
    pool.suppress[1], pool.suppress_until[1] = np.array([3, 8]), 10
    logits = torch.zeros(1, 12)
    logits[0, 3], logits[0, 8], logits[0, 5] = 9.0, 8.0, 1.0
    assert sample(logits.clone(), _slots(1), _slots(9), pool, KERNELS).ids.tolist() == [5]
    assert sample(logits.clone(), _slots(1), _slots(10), pool, KERNELS).ids.tolist() == [3]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_logits_that_are_not_finite(pool: SlotPool, number: float) -> None:
    """That row fails alone, whether it is greedy or draws."""
    pool.temperature[3], pool.asks.logprobs[1:4] = 1.0, 2
    logits = torch.zeros(3, 12)
    logits[0, 4] = logits[2, 4] = number
    found = sample(logits, _slots(1, 2, 3), _slots(0, 0, 0), pool, KERNELS)
    assert (found.counts.tolist(), found.ids.tolist()) == ([ROW_FAILED, 1, ROW_FAILED], [0])
    assert len(found.logprobs) == entry_bytes(2)


def test_a_row_fails_whose_settings_leave_no_id(pool: SlotPool) -> None:
    """Not the lowest id is drawn, which is not allowed either."""
    values: dict[str, Any] = {"seed": 0, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
    words: dict[str, Any] = {"bad_word_ids": pack_ids([5, 7]), "bad_word_ends": pack_ids([1, 2])}
    pool.open(SlotOpening(2, 1, **values, suppress_until=0, suppress=b"", allowed=pack_ids([5, 7]), **words))
    found = sample(torch.randn(1, 12), _slots(2), _slots(3), pool, KERNELS)
    assert (found.counts.tolist(), found.ids.tolist()) == ([ROW_FAILED], [])


def test_log_probabilities_are_those_of_the_model(pool: SlotPool) -> None:
    """Whatever settings change, what is reported comes from the logits as they were."""
    values: dict[str, Any] = {"seed": 3, "temperature": 0.3, "top_p": 0.5, "top_k": 3, "min_p": 0.1}
    bias: dict[str, Any] = {"bias_ids": pack_ids([4]), "bias_values": np.array([50.0], np.float32).tobytes()}
    pool.open(SlotOpening(1, 1, **values, suppress_until=0, suppress=b"", **bias, logprobs=2))
    pool.asks.logprobs[3] = 0
    logits = torch.randn(3, 12)
    found = sample(logits.clone(), _slots(1, 2, 3), _slots(3, 3, 3), pool, KERNELS)
    assert found.ids[0] == 4
    size = entry_bytes(2)
    [first], [last] = entries(found.logprobs[:size], 2), entries(found.logprobs[size:], 0)
    wanted = logits.double().log_softmax(dim=1)
    assert (first.id, last.id) == (4, found.ids[2])
    assert first.logprob == pytest.approx(wanted[0, 4].item(), abs=1e-5)
    assert first.top_ids == logits[0].topk(2).indices.tolist()
    assert (last.rank, last.top_ids) == (1, [])


def test_an_id_behind_the_longest_sequence_is_not_kept(pool: SlotPool) -> None:
    """The draw behind a prompt that fills the context belongs to nobody."""
    found = sample(torch.zeros(1, 12), _slots(1), _slots(64), pool, KERNELS)
    assert found.ids.tolist() == [0]
    assert not pool.history.any()
