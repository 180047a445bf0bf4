"""`sampling.logprobs` in torch and in Triton against a log-softmax in float64."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling import LOGPROBS_MAX, torch_logprobs, triton_logprobs
from tokenspeed_kernels.sampling import logprobs as ask_logprobs
from tokenspeed_kernels.sampling.triton_scan import SPLIT_TOKENS

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
VOCABS = (21, 259, 2 * SPLIT_TOKENS + 77, *((49152, 128256) if CUDA else ()))
# Slot 0 is padding; the last slot asks for nothing.
TOP = torch.tensor([-1, 0, 1, 5, LOGPROBS_MAX, -1], dtype=torch.int32)
SLOTS = [3, 0, 4, 1, 5, 2, 4]
pytestmark = pytest.mark.usefixtures("poisoned")

Form = Callable[..., torch.Tensor]
FORMS = pytest.mark.parametrize("form", [torch_logprobs.logprobs, triton_logprobs.logprobs], ids=["torch", "triton"])


def _entries(form: Form, logits: torch.Tensor, ids: list[int], slots: list[int]) -> torch.Tensor:
    device = DEVICE if form is triton_logprobs.logprobs else "cpu"
    columns = (torch.tensor(column, dtype=torch.int32, device=device) for column in (ids, slots))
    return form(logits.to(device), *columns, TOP.to(device)).cpu()


def _check(entry: torch.Tensor, logits: torch.Tensor, token: int, top: int) -> None:
    """Hold an entry against float64."""
    scores = torch.log_softmax(logits.double(), 0)
    assert entry[:2].tolist() == [token, 1 + int((logits > logits[token]).sum())]
    numbers = entry.view(torch.float32).double()
    assert abs(float(numbers[2] - scores[token])) < 1e-5
    best = np.lexsort((np.arange(len(logits)), -logits.numpy()))[:top]
    assert entry[3 : 3 + top].tolist() == best.tolist()
    torch.testing.assert_close(numbers[3 + top : 3 + 2 * top], scores[best.copy()], rtol=0, atol=1e-5)


@FORMS
@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("grain", [0.0, 1.0], ids=["random", "ties"])
def test_as_defined(form: Form, vocab: int, grain: float) -> None:
    """Every k, likely and unlikely ids, numbers that are different and ones that are not."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    numbers = torch.Generator().manual_seed(seed)
    logits = (
        torch.randn(len(SLOTS), vocab, generator=numbers) * 4
        + torch.tensor([0.0, 80.0, -50.0])[torch.arange(7) % 3, None]
    )
    if grain:
        logits = (logits / grain).round() * grain
    ids = torch.randint(vocab, (len(SLOTS),), generator=numbers).tolist()
    ids[0], ids[2] = int(logits[0].argmax()), int(logits[2].argmin())
    entries = _entries(form, logits, ids, SLOTS)
    for row, slot in enumerate(SLOTS):
        if TOP[slot] >= 0:
            _check(entries[row], logits[row], ids[row], int(TOP[slot]))


@FORMS
def test_a_row_that_failed_is_passed_over(form: Form) -> None:
    """An id of -1 has no entry, and its neighbour's is as without it."""
    logits = torch.linspace(-3, 3, 2 * 259).view(2, 259)
    logits[0, 5] = float("nan")
    entries = _entries(form, logits, [-1, 258], [4, 4])
    _check(entries[1], logits[1], 258, LOGPROBS_MAX)


def test_company_does_not_change_bits() -> None:
    """Alone and in a batch: the same words."""
    logits = torch.randn(3, SPLIT_TOKENS + 500, generator=torch.Generator().manual_seed(1)) * 3
    together = _entries(triton_logprobs.logprobs, logits, [9, 8, 7], [4, 3, 2])
    alone = _entries(triton_logprobs.logprobs, logits[1:2].clone(), [8], [3])
    assert torch.equal(together[1, : 3 + 2 * 5], alone[0, : 3 + 2 * 5])


def test_the_catalogue_knows_both() -> None:
    """The torch form answers on the CPU, the kernel on a GPU."""
    assert ask_logprobs(selector("cpu")) is torch_logprobs.logprobs
    assert ask_logprobs(selector("cuda", capability=(9, 0))) is triton_logprobs.logprobs
