"""`sampling.adjust` in torch and in Triton against float64 written from the definition."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenspeed_kernels import KernelError, selector
from tokenspeed_kernels.sampling import Adjusted, SlotSettings, torch_adjust, torch_choose, triton_adjust, triton_choose
from tokenspeed_kernels.sampling import adjust as ask_adjust
from tokenspeed_kernels.sampling.edits import SlotEdits, edits_of

from tests.kernels.edits import Edits, bad_words, biases, naive, packed

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
POSITIONS = 4096
# Behind the first split, so that its edge is met; the interpreter takes a tenth of a second a program.
VOCAB = triton_adjust.SPLIT_TOKENS + 259
pytestmark = pytest.mark.usefixtures("poisoned")

FORMS = pytest.mark.parametrize("form", [torch_adjust.adjust, triton_adjust.adjust], ids=["torch", "triton"])
Form = Callable[..., torch.Tensor]


class Slots:
    """Openings in slots of their own, on the device of a form."""

    def __init__(self, form: Form, *openings: Edits, vocab: int = VOCAB) -> None:
        """Open them; slot 0 is padding."""
        self.form, self.device = form, DEVICE if form is triton_adjust.adjust else "cpu"
        slots, rows = len(openings) + 2, len(openings) + 1
        self.edits = SlotEdits.allocate(slots, POSITIONS, self.device, rows, vocab)
        # What an earlier request left in its slot means nothing.
        self.edits.table.fill_(5)
        self.edits.history.fill_(1)
        self.asked = torch.zeros(slots, dtype=torch.int32)
        for opening in openings:
            self.edits.open(opening)
            self.asked[opening.slot] = edits_of(opening)

    def adjust(self, logits: torch.Tensor, slots: list[int], positions: list[int]) -> torch.Tensor:
        """Return the edited logits, on the CPU; what was given is as it was, and so are the counts."""
        given = logits.to(self.device)
        places, at = (torch.tensor(column, dtype=torch.int32, device=self.device) for column in (slots, positions))
        edited = self.form(given, self.asked.to(self.device), self.edits, places, at)
        assert torch.equal(given.cpu(), logits)
        assert not self.edits.counts.any()
        return edited.cpu()


def _logits(rows: int, vocab: int = VOCAB) -> torch.Tensor:
    seed = secrets.randbits(32)
    print(f"logits seed {seed}")
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 5


def _close(seen: torch.Tensor, wanted: np.typing.NDArray[np.float64]) -> None:
    torch.testing.assert_close(seen.double(), torch.from_numpy(wanted), rtol=3e-7, atol=1e-6)


def _history(count: int) -> list[int]:
    """Ids of which some come often."""
    numbers = np.random.default_rng(count)
    ids: list[int] = np.where(numbers.random(count) < 0.3, 7, numbers.integers(0, VOCAB, count)).tolist()
    return ids


LONG = _history(triton_adjust.COUNT_IDS * 2 + 100)
EDGE = triton_adjust.SPLIT_TOKENS
CASES = {
    "presence": (Edits(1, presence_penalty=0.7), [3, 3, 9, EDGE]),
    "frequency": (Edits(1, frequency_penalty=-1.3), [3, 3, 9, 3]),
    "repetition": (Edits(1, repetition_penalty=1.7, prompt_tokens=2), [3, 3, 9, EDGE - 1]),
    "prompt alone": (Edits(1, repetition_penalty=0.6, frequency_penalty=1.0, prompt_tokens=3), [5, 8, 5]),
    "all, long": (Edits(1, 900, 0.3, 0.2, 1.2), LONG),
    "empty history": (Edits(1, 0, 0.3, 0.2, 1.2), []),
    "bias": (Edits(1, **biases({0: 2.5, EDGE: -100.0, VOCAB - 1: 1.0})), []),
    "most biases": (Edits(1, **biases({token * 7: token - 150.0 for token in range(300)})), []),
    "allowed": (Edits(1, allowed=packed([5, EDGE - 1, EDGE, VOCAB - 1])), []),
    "most allowed": (Edits(1, allowed=packed(range(100, 1124))), []),
    "bad words": (
        Edits(1, 2, **bad_words([4], [7, 8, 9], [9, EDGE], [2, 8, 9], [6, 7, 8, 9, 1])),
        [6, 7, 7, 8, 9, 7, 8],
    ),
    "a bad word is no longer than the reply": (Edits(1, 2, **bad_words([1, 2, 3], [2, 4])), [1, 1, 2]),
    "a long bad word": (Edits(1, **bad_words([*LONG[-60:], 3], [*LONG[-59:], 3, 4])), LONG),
    "everything": (
        Edits(
            1, 1, 0.5, 0.25, 1.3, **biases({3: 9.0, 4: 1.0, 5: -2.0}), allowed=packed([3, 4, 5, 9]),
            **bad_words([9], [3, 4]),
        ),
        [4, 5, 5, 3],
    ),
}  # fmt: skip


@FORMS
@pytest.mark.parametrize("case", CASES)
def test_as_defined(form: Form, case: str) -> None:
    """One slot, with what the case asks for."""
    opening, history = CASES[case]
    opening = replace(opening, history=packed(history))
    logits = _logits(1)
    edited = Slots(form, opening).adjust(logits, [1], [len(history)])
    _close(edited[0], naive(logits[0].tolist(), opening, history))


def _every_case() -> list[Edits]:
    """Every case in a slot of its own."""
    return [
        replace(opening, slot=slot, history=packed(history))
        for slot, (opening, history) in enumerate(CASES.values(), 1)
    ]


def test_both_forms_give_equal_bits() -> None:
    """Every case at once, rows in any order beside padding; twice."""
    openings = _every_case()
    order = [0, *np.random.default_rng(3).permutation(len(openings)) + 1]
    positions = [len(CASES[list(CASES)[slot - 1]][1]) if slot else 0 for slot in order]
    logits = _logits(len(order))
    slots = Slots(triton_adjust.adjust, *openings)
    wanted = Slots(torch_adjust.adjust, *openings).adjust(logits, order, positions)
    for _ in range(2):
        assert torch.equal(slots.adjust(logits, order, positions)[1:], wanted[1:])


@FORMS
def test_position_is_the_only_progress(form: Form) -> None:
    """What stands in a history at a position or behind it does not count."""
    history = [3, 4, 5, 6, 7]
    opening = Edits(1, 1, 0.5, 0.25, 1.3, **bad_words([4, 5, 9]), history=packed(history))
    logits, slots = _logits(1), Slots(form, opening)
    for position in (3, 1, 2, 5, 3):
        _close(slots.adjust(logits, [1], [position])[0], naive(logits[0].tolist(), opening, history[:position]))


@FORMS
def test_history_may_begin_behind_the_prompt(form: Form) -> None:
    """Only the reply is needed: the prompt's places are never read."""
    opening = Edits(1, 2000, 0.5, 0.25, history_first=2000, history=packed([8, 8, 9]))
    logits = _logits(1)
    edited = Slots(form, opening).adjust(logits, [1], [2003])
    _close(edited[0], naive(logits[0].tolist(), opening, [0] * 2000 + [8, 8, 9]))


def test_a_choice_is_made_of_edited_logits() -> None:
    """Slots with edits choose by them and remember ids in their history; others as ever; both forms agree."""
    vocab = 259
    openings = [
        Edits(1, allowed=packed([70])),
        Edits(2),
        Edits(3, presence_penalty=60.0, history=packed([1, 2, 3])),
        Edits(4, allowed=packed([9]), **bad_words([9])),
        Edits(5, **biases({40: 50.0})),
    ]
    logits = _logits(6, vocab)
    logits[2, 2] = 40.0
    logits[4, 0] = float("nan")
    slots, positions = [1, 2, 3, 4, 5, 0], [0, 0, 3, 5, POSITIONS, 0]
    results = []
    for form, choose in ((torch_adjust, torch_choose.choose), (triton_adjust, triton_choose.choose)):
        made = Slots(form.adjust, *openings, vocab=vocab)
        settings = SlotSettings.allocate(len(openings) + 2, made.device)
        settings.temperature[[1, 3, 4]] = 0.8
        settings.top_p[3] = 0.9
        settings.edits.copy_(made.asked)
        last_id = torch.zeros(len(openings) + 2, dtype=torch.int32, device=made.device)
        places, at = (torch.tensor(column, dtype=torch.int32, device=made.device) for column in (slots, positions))
        given = logits.to(made.device)
        edited = form.adjust(given, settings.edits, made.edits, places, at)
        chosen = choose(given, settings, places, at, last_id, Adjusted(edited, made.edits.history))
        plain = choose(given, settings, places, at, last_id.clone())
        assert chosen[1] == plain[1]
        results.append((chosen.tolist(), last_id.tolist(), made.edits.history.tolist()))
    first, second = results
    assert first == second
    ids, last, history = first
    assert (ids[0], ids[3], ids[4]) == (70, -1, -1)
    assert ids[2] not in (1, 2, 3)
    assert last[1:6] == [70, ids[1], ids[2], 0, 0]
    assert [history[1][0], history[2][0], history[3][3], history[4][5]] == [70, ids[1], ids[2], 0]
    assert set(history[5]) == {1}
    assert history[0][:2] == [0, 1]


def test_more_than_a_slot_holds() -> None:
    """What is too much is named."""
    edits = SlotEdits.allocate(3, 8, "cpu")
    with pytest.raises(KernelError, match="allowed has 1025 entries, a slot holds 1024"):
        edits.open(Edits(1, allowed=packed(range(1025))))
    with pytest.raises(KernelError, match="slot 1 has ids up to position 9, a history holds 8"):
        edits.open(Edits(1, history_first=4, history=packed(range(5))))


@pytest.mark.skipif(not CUDA, reason="captures a graph")
def test_graph_replays() -> None:
    """A captured edit follows histories and positions, and repeats itself bit by bit."""
    openings = _every_case()
    slots, reference = Slots(triton_adjust.adjust, *openings), Slots(torch_adjust.adjust, *openings)
    order = list(range(1, len(openings) + 1))
    logits = _logits(len(order))
    given, asked = logits.cuda(), slots.asked.cuda()
    places = torch.tensor(order, dtype=torch.int32, device=DEVICE)
    at = torch.zeros_like(places)
    triton_adjust.adjust(given, asked, slots.edits, places, at)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        edited = triton_adjust.adjust(given, asked, slots.edits, places, at)
    lengths = [len(history) for _, history in CASES.values()]
    for positions in (lengths, [max(0, length - 2) for length in lengths], lengths):
        at.copy_(torch.tensor(positions))
        graph.replay()
        assert torch.equal(edited.cpu(), reference.adjust(logits, order, positions))


def test_the_catalogue_knows_both() -> None:
    """The torch form answers on the CPU, the kernel on a GPU."""
    assert ask_adjust(selector("cpu")) is torch_adjust.adjust
    assert ask_adjust(selector("cuda", capability=(9, 0))) is triton_adjust.adjust
