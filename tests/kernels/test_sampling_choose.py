"""`sampling.choose` in Triton against the torch form, id by id; on the GPU if there is one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
import triton
import triton.language as tl
from tokenspeed_kernels import selector
from tokenspeed_kernels.sampling import SUPPRESS_MAX, SlotSettings, torch_choose, triton_choose, triton_cut
from tokenspeed_kernels.sampling import choose as ask_choose
from tokenspeed_kernels.sampling.philox import gumbel_all
from tokenspeed_kernels.sampling.triton_noise import BLOCK_TOKENS, gumbel, tokens_of
from tokenspeed_kernels.sampling.triton_scan import SPLIT_TOKENS

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# The interpreter takes a tenth of a second a row.
VOCABS = (17, 259, 1000, 49152, 128256) if CUDA else (17, 259)
ROUNDS = 20 if CUDA else 1
needs_cuda = pytest.mark.skipif(not CUDA, reason="captures a graph")
# Whatever is read of scratch memory has been written before.
pytestmark = pytest.mark.usefixtures("poisoned")


@dataclass(frozen=True)
class Batch:
    """Rows to choose for, on the CPU; row i lies in slot i + 1."""

    logits: torch.Tensor
    settings: SlotSettings
    positions: torch.Tensor

    @property
    def slots(self) -> torch.Tensor:
        """Slots of the rows."""
        return torch.arange(1, len(self.logits) + 1, dtype=torch.int32)

    def reference(self) -> tuple[list[int], list[int]]:
        """Return ids, and the last ids of all slots, of the torch form."""
        last = torch.full((len(self.logits) + 1,), 7, dtype=torch.int32)
        ids = torch_choose.choose(self.logits, self.settings, self.slots, self.positions, last)
        return ids.tolist(), last.tolist()

    def triton(self, rows: list[int] | None = None) -> tuple[list[int], list[int]]:
        """Return ids of `rows` (default all), and the last ids of all slots, of the kernel."""
        picked = torch.arange(len(self.logits)) if rows is None else torch.tensor(rows)
        last = torch.full((len(self.logits) + 1,), 7, dtype=torch.int32, device=DEVICE)
        logits = self.logits[picked].to(DEVICE)
        before = logits.clone()
        ids = triton_choose.choose(
            logits, _moved(self.settings), self.slots[picked].to(DEVICE), self.positions[picked].to(DEVICE), last
        )
        assert torch.equal(logits.nan_to_num(), before.nan_to_num())
        return ids.tolist(), last.tolist()


def _moved(settings: SlotSettings) -> SlotSettings:
    names = SlotSettings.__dataclass_fields__
    return SlotSettings(**{name: getattr(settings, name).to(DEVICE) for name in names})


def _batch(
    logits: torch.Tensor,
    temperature: object = 1.0,
    top_k: object = 0,
    top_p: object = 1.0,
    min_p: object = 0.0,
    seed: int = 5,
) -> Batch:
    rows = len(logits)
    settings = SlotSettings.allocate(rows + 1, "cpu")
    for name, value in (("temperature", temperature), ("top_k", top_k), ("top_p", top_p), ("min_p", min_p)):
        tensor: torch.Tensor = getattr(settings, name)
        tensor[1:] = torch.as_tensor(value, dtype=tensor.dtype)
    # Seeds of all 64 bits, positions beyond 16 bits.
    settings.seed[1:] = (torch.arange(rows) + seed) * 0x123456789ABCDEF1
    return Batch(logits, settings, (torch.arange(rows) * 40_009 + seed).int())


# top_k, top_p, min_p; the last are off.
ALL_CUTS = (*itertools.product((0, 1, 20, 300), (1.0, 0.3137, 0.9171), (0.0, 0.0513)), (0, 1.0, 0.0))
SOME_CUTS = (
    (0, 0.9171, 0.0),
    (20, 0.9171, 0.0),
    (300, 0.3137, 0.0513),
    (1, 1.0, 0.0),
    (0, 1.0, 0.0513),
    (20, 1.0, 0.0513),
    (0, 1.0, 0.0),
)
TIE_CUTS = SOME_CUTS if CUDA else (*SOME_CUTS[:3], SOME_CUTS[-1])
Cuts = tuple[tuple[int, float, float], ...]


def _cut(logits: torch.Tensor, cuts: Cuts, seed: int) -> Batch:
    """A row for each of `cuts`, at three temperatures in turn; the last row is greedy."""
    top_k, top_p, min_p = (torch.tensor(column, dtype=torch.float64) for column in zip(*cuts, strict=True))
    temperature = torch.tensor([0.6, 1.0, 1.7])[torch.arange(len(cuts)) % 3]
    temperature[-1] = 0.0
    return _batch(logits, temperature, top_k, top_p, min_p, seed)


def _random(rows: int, vocab: int, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


@pytest.fixture
def small_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interpreted, a view has several parts though the vocabulary is small."""
    if not CUDA:
        monkeypatch.setattr(triton_cut, "VIEW_BLOCKS", tl.constexpr(4))


@pytest.mark.parametrize("vocab", VOCABS)
def test_equal_to_the_reference(vocab: int) -> None:
    """Every combination of cuts, over seeds and positions."""
    cuts = ALL_CUTS if CUDA or vocab == 259 else SOME_CUTS
    for seed in range(ROUNDS):
        batch = _cut(_random(len(cuts), vocab, seed), cuts, seed)
        assert batch.triton() == batch.reference()


@pytest.mark.usefixtures("small_views")
@pytest.mark.parametrize("vocab", VOCABS[2:] or (1000,))
@pytest.mark.parametrize(("spread", "grain"), [(2.0, 0.5), (0.1, 0.1)])
def test_equal_logits_rank_by_id(vocab: int, spread: float, grain: float) -> None:
    """Few different values, so that every cut falls among equals; nearly flat, so that all is in view."""
    for seed in range(ROUNDS):
        logits = (_random(len(TIE_CUTS), vocab, seed, spread) / grain).round() * grain
        batch = _cut(logits, TIE_CUTS, seed)
        assert batch.triton() == batch.reference()


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    """Draws fall on both sides of the cut and near it, whichever bound of the mass decides."""
    rows = 400 if CUDA else 24
    batch = _batch(_random(rows, 40, 1, 0.4), 1.0, torch.arange(rows) % 4 + 12, 0.8, seed=1)
    assert batch.triton() == batch.reference()


def test_more_than_one_split() -> None:
    """Winners of splits are merged; of equal ones the lower id wins."""
    vocab = 2 * SPLIT_TOKENS + 77
    logits = _random(4, vocab)
    logits[0, [vocab - 1, SPLIT_TOKENS + 9, SPLIT_TOKENS + 3]] = 30.0
    batch = _batch(
        logits, torch.tensor([0.0, 1.0, 0.8, 1.0]), torch.tensor([0, 0, 0, 40]), torch.tensor([1, 1, 0.9, 0.8])
    )
    assert batch.triton() == batch.reference()
    assert batch.triton([0])[0] == [SPLIT_TOKENS + 3]


def test_temperature_near_zero_is_greedy() -> None:
    """Cuts and seeds do not matter then; just above, they do."""
    logits = torch.zeros(2, 40)
    batch = _batch(logits, torch.tensor([9e-6, 2e-5]), 5)
    assert batch.triton() == batch.reference()
    assert batch.triton()[0][0] == 0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_rows_that_are_not_finite(number: float) -> None:
    """They get -1, leave a last id of 0, and their neighbours are as without them."""
    logits = _random(4, 300)
    whole = _batch(logits.clone(), torch.tensor([0.0, 1.0, 0.0, 1.0]), 30, 0.9).triton()[0]
    logits[:2, 123] = number
    batch = _batch(logits, torch.tensor([0.0, 1.0, 0.0, 1.0]), 30, 0.9)
    ids, last = batch.triton()
    assert (ids, last) == batch.reference()
    assert ids == [-1, -1, *whole[2:]]
    assert last == [7, 0, 0, *whole[2:]]


def test_suppressed_ids() -> None:
    """Below their position they are out, for greedy rows and with every cut; from it on they are in."""
    rows, likeliest = 5, [3, 250, 8]
    logits = _random(1, 300).repeat(rows, 1)
    logits[:, likeliest] = torch.tensor([40.0, 39.0, 38.0])
    batch = _batch(
        logits, torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 3, 3, 0]), torch.tensor([1, 1, 1, 0.9, 1])
    )
    batch.settings.suppress[1:, :3] = torch.tensor(likeliest, dtype=torch.int32)
    batch.settings.suppress_count[1:] = 3
    batch.settings.suppress_until[1:] = batch.positions + 1
    batch.settings.suppress_until[rows] = batch.positions[-1]
    ids, last = batch.triton()
    assert (ids, last) == batch.reference()
    assert not set(ids[:-1]) & set(likeliest)
    assert ids[-1] == 3


def test_everything_suppressed() -> None:
    """Nothing is left to choose from: -1, whatever the cuts."""
    batch = _batch(
        _random(4, SUPPRESS_MAX),
        torch.tensor([0.0, 1.0, 1.0, 1.0]),
        torch.tensor([0, 0, 9, 9]),
        torch.tensor([1, 1, 1, 0.5]),
    )
    batch.settings.suppress[:] = torch.arange(SUPPRESS_MAX)
    batch.settings.suppress_count[:] = SUPPRESS_MAX
    batch.settings.suppress_until[:] = 2**31 - 1
    assert batch.triton()[0] == batch.reference()[0] == [-1] * 4


def test_rows_do_not_see_each_other() -> None:
    """Alone, backwards, and again: the same ids."""
    batch = _cut(_random(len(SOME_CUTS), 300, 3), SOME_CUTS, 11)
    together = batch.triton()[0]
    chosen = [5, 1, 6, 0]
    assert batch.triton(chosen)[0] == [together[row] for row in chosen]
    assert batch.triton([2]) == batch.triton([2])
    assert batch.triton([2])[0] == [together[2]]


def test_padding_rows_leave_zero() -> None:
    """Slot 0 holds no id, whatever its rows chose."""
    logits = _random(3, 50).to(DEVICE)
    settings = SlotSettings.allocate(2, DEVICE)
    last = torch.full((2,), 7, dtype=torch.int32, device=DEVICE)
    slots = torch.tensor([0, 1, 0], dtype=torch.int32, device=DEVICE)
    ids = triton_choose.choose(logits, settings, slots, torch.zeros_like(slots), last)
    assert ids.tolist() == logits.argmax(1).tolist()
    assert last.tolist() == [0, ids.tolist()[1]]


@triton.jit  # type: ignore[untyped-decorator]
def _noise(out: tl.tensor, seed: tl.tensor, position: tl.tensor) -> None:
    blocks = tl.arange(0, 8)
    tl.store(out + tokens_of(blocks), gumbel(tl.load(seed), tl.load(position), blocks))


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (7, 131_071), (-1, 2**31 - 1), (-(2**63) + 5, 3)])
def test_noise(seed: int, position: int) -> None:
    """All words of Philox, and logarithms that differ by rounding at most."""
    seeds, positions = torch.tensor([seed]), torch.tensor([position])
    out = torch.empty(8 * BLOCK_TOKENS, device=DEVICE)
    _noise[(1,)](out, seeds.to(DEVICE), positions.int().to(DEVICE))
    torch.testing.assert_close(out.cpu(), gumbel_all(seeds, positions, len(out))[0], rtol=1e-6, atol=5e-7)


@needs_cuda
def test_graph_replays() -> None:
    """A captured choice follows what changes in its buffers, and repeats itself bit by bit."""
    first, second = (_cut(_random(len(ALL_CUTS), 49152, seed), ALL_CUTS, seed) for seed in (1, 2))
    logits, positions = first.logits.to(DEVICE), first.positions.to(DEVICE)
    settings, slots = _moved(first.settings), first.slots.to(DEVICE)
    last = torch.zeros(len(ALL_CUTS) + 1, dtype=torch.int32, device=DEVICE)
    triton_choose.choose(logits, settings, slots, positions, last)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ids = triton_choose.choose(logits, settings, slots, positions, last)
    for batch in (second, first, second):
        logits.copy_(batch.logits)
        positions.copy_(batch.positions)
        settings.seed.copy_(batch.settings.seed)
        for _ in range(3):
            graph.replay()
            assert ids.tolist() == batch.reference()[0]


def test_the_catalogue_knows_both() -> None:
    """The torch form answers on the CPU, the kernel on a GPU."""
    assert ask_choose(selector("cpu")) is torch_choose.choose
    assert ask_choose(selector("cuda", capability=(9, 0))) is triton_choose.choose
