"""Decode and extend attention on a device against float64; under Triton's interpreter without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from tokenspeed_kernels import KernelError, Selector, ask, selector
from tokenspeed_kernels.attention import (
    DecodeRows,
    ExtendRows,
    SlotAttention,
    SlotRows,
    flashinfer_extend,
    paged_attention,
    reference,
)

interpreter = pytest.importorskip("tests.kernels.interpreter")
triton_decode = pytest.importorskip("tokenspeed_kernels.attention.triton_decode")
triton_extend = pytest.importorskip("tokenspeed_kernels.attention.triton_extend")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
SPLITS = triton_decode.Config(block_tokens=16, warps=4, stages=2, programs_per_sm=2, piece_tokens_min=16)
TILES = triton_extend.Config(tile_rows=32, block_tokens=16, warps=4, stages=2)
HUGE = 1e30


@dataclass(frozen=True)
class Pool:
    """Pages and a table of distinct ones in random order; what no row may see is poisoned by `poison`."""

    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor

    def poison(self, lengths: list[int]) -> Pool:
        """Return the pool with NaN in unused pages and huge numbers behind row i's last key of `lengths[i]`."""
        keys, values = self.keys.clone(), self.values.clone()
        page_tokens = keys.shape[1]
        used = {0}
        for row, length in enumerate(lengths):
            pages = self.table[row, : -(-length // page_tokens)].tolist()
            used.update(pages)
            for tensor in (keys, values):
                tensor[pages[-1], (length - 1) % page_tokens + 1 :] = HUGE
        unused = [page for page in range(len(keys)) if page not in used]
        keys[unused] = values[unused] = float("nan")
        return Pool(keys, values, self.table)


def _pool(
    lengths: list[int], kv_heads: int, head_dim: int, dtype: torch.dtype, page_tokens: int = 16, seed: int = 0
) -> Pool:
    random = torch.Generator().manual_seed(seed)
    needed = max(-(-length // page_tokens) for length in lengths) + 1
    order = torch.randperm(len(lengths) * needed, generator=random).to(torch.int32) + 1
    shape = (len(order) + 2, page_tokens, kv_heads, head_dim)
    keys, values = (torch.randn(shape, generator=random).to(dtype) for _ in range(2))
    return Pool(keys, values, order.view(len(lengths), needed))


def _queries(count: int, heads: int, head_dim: int, dtype: torch.dtype, seed: int = 9) -> torch.Tensor:
    return torch.randn(count, heads, head_dim, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _decode_rows(pool: Pool, lengths: list[int], padding: int = 0) -> DecodeRows:
    """Row i in slot i + 1, behind them `padding` rows of slot 0."""
    table = torch.zeros(len(lengths) + 1, pool.table.shape[1], dtype=torch.int32)
    table[1:] = pool.table
    slots = list(range(1, len(lengths) + 1)) + [0] * padding
    positions = [length - 1 for length in lengths] + [0] * padding
    return DecodeRows(torch.tensor(slots, dtype=torch.int32), torch.tensor(positions, dtype=torch.int32), table)


def _extend_rows(pool: Pool, rows: list[tuple[int, int]]) -> ExtendRows:
    counts, contexts = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    return ExtendRows(counts, contexts, pool.table.numpy())


def _on_device(rows: DecodeRows) -> DecodeRows:
    return DecodeRows(*(tensor.to(DEVICE) for tensor in (rows.slots, rows.positions, rows.page_table)))


def _close(seen: torch.Tensor, wanted: torch.Tensor) -> None:
    bound = TOLERANCE[seen.dtype]
    torch.testing.assert_close(seen.cpu().double(), wanted, rtol=bound, atol=bound)


def _decode(
    queries: torch.Tensor, pool: Pool, rows: DecodeRows, config: object = SPLITS, out: torch.Tensor | None = None
) -> torch.Tensor:
    on = (tensor.to(DEVICE) for tensor in (queries, pool.keys, pool.values))
    result: torch.Tensor = triton_decode.launch(*on, _on_device(rows), out, config)
    counters = triton_decode.arrivals(DEVICE, len(queries) * pool.keys.shape[2])
    assert not counters.any()
    return result


def _check_decode(lengths: list[int], heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    pool = _pool(lengths, kv_heads, head_dim, dtype)
    queries = _queries(len(lengths) + 2, heads, head_dim, dtype)
    rows = _decode_rows(pool, lengths, padding=2)
    wanted = reference.decode_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    dirty = pool.poison(lengths)
    out = torch.full((len(queries), heads * head_dim), float("nan"), dtype=dtype, device=DEVICE)
    seen = _decode(queries, dirty, rows, out=out)
    assert seen is out
    _close(seen, wanted)


RAGGED = [1, 16, 17, 100, 15]


@pytest.mark.parametrize("lengths", [[1], [16], [17], RAGGED], ids=str)
def test_decode_lengths(lengths: list[int]) -> None:
    """One key, page boundaries, ragged batches; padding rows; poison behind every row."""
    _check_decode(lengths, 2, 1, 16, torch.float32)


def test_decode_in_bfloat16() -> None:
    """The sums are in float32."""
    _check_decode([1, 33, 50], 4, 2, 16, torch.bfloat16)


def test_decode_gives_the_same_bits_again() -> None:
    """Pieces are merged in their order, not in the order in which they finish."""
    pool = _pool([200], 1, 16, torch.float32)
    rows = _decode_rows(pool, [200])
    queries = _queries(1, 3, 16, torch.float32)
    assert torch.equal(_decode(queries, pool, rows), _decode(queries, pool, rows))


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (9, 3), (4, 1), (8, 1), (16, 1), (5, 1)])
def test_decode_groups(heads: int, kv_heads: int) -> None:
    """Any number of query heads to a key head."""
    _check_decode([40, 3], heads, kv_heads, 16, torch.float32)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128])
def test_decode_head_dims(head_dim: int) -> None:
    """Head sizes that are no power of two are padded inside the kernel."""
    _check_decode([40], 2, 1, head_dim, torch.float32)


def test_decode_spreads_a_long_row() -> None:
    """A long row among short ones gets nearly all of the pieces: its partial results fill the scratch."""
    lengths = [300, 5, 7]
    pool = _pool(lengths, 1, 16, torch.float32)
    config = triton_decode.Config(16, 4, 2, programs_per_sm=5, piece_tokens_min=16)
    budget = triton_decode.processors(DEVICE) * 5
    blocks = [-(-length // 16) for length in lengths]
    quantum = max(1, -(-sum(blocks) // budget))
    assert sum(-(-count // quantum) for count in blocks) <= budget + len(lengths)
    queries = _queries(3, 2, 16, torch.float32)
    rows = _decode_rows(pool, lengths)
    wanted = reference.decode_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    _close(_decode(queries, pool, rows, config), wanted)


def test_decode_pages_larger_than_blocks() -> None:
    """Several blocks to a page."""
    lengths = [70, 31]
    pool = _pool(lengths, 1, 16, torch.float32, page_tokens=64)
    queries = _queries(2, 2, 16, torch.float32)
    rows = _decode_rows(pool, lengths)
    wanted = reference.decode_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    _close(_decode(queries, pool.poison(lengths), rows), wanted)


def test_too_many_decode_rows_are_refused() -> None:
    """The scan over rows has a bound, and says so."""
    with pytest.raises(KernelError, match="1025 decode rows"):
        _check_decode([1] * 1023, 1, 1, 16, torch.float32)


def _check_extend(batch: list[tuple[int, int]], heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    lengths = [count + context for count, context in batch]
    pool = _pool(lengths, kv_heads, head_dim, dtype)
    queries = _queries(sum(count for count, _ in batch), heads, head_dim, dtype)
    rows = _extend_rows(pool, batch)
    wanted = reference.extend_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    dirty = pool.poison(lengths)
    out = torch.full((len(queries), heads * head_dim), float("nan"), dtype=dtype, device=DEVICE)
    on = [tensor.to(DEVICE) for tensor in (queries, dirty.keys, dirty.values)]
    seen = triton_extend.launch(*on, rows, out, TILES)
    assert seen is out
    _close(seen, wanted)
    assert torch.equal(triton_extend.launch(*on, rows, None, TILES), seen)


EXTENDS = [(1, 0), (16, 0), (33, 0), (1, 40), (5, 30), (17, 15)]


@pytest.mark.parametrize("batch", [[(1, 0)], [(48, 0)], [(7, 57)], EXTENDS], ids=str)
def test_extend_rows(batch: list[tuple[int, int]]) -> None:
    """From the start, behind a context, one query, several rows; poison behind every row; twice the same."""
    _check_extend(batch, 2, 1, 16, torch.float32)


def test_extend_in_bfloat16() -> None:
    """The sums are in float32."""
    _check_extend([(20, 20), (3, 0)], 4, 2, 16, torch.bfloat16)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (9, 3), (16, 1)])
def test_extend_groups(heads: int, kv_heads: int) -> None:
    """A query may lie in two tiles, and a tile holds the heads of few queries."""
    _check_extend([(15, 5), (2, 0)], heads, kv_heads, 16, torch.float32)


@pytest.mark.parametrize("head_dim", [64, 80])
def test_extend_head_dims(head_dim: int) -> None:
    """Whole and partial blocks with and without padding of the head."""
    _check_extend([(10, 25)], 2, 1, head_dim, torch.float32)


def test_tiles_are_listed_heaviest_first() -> None:
    """Each (query, head) pair is in one tile, and the tiles with most keys start first."""
    rows = ExtendRows(np.array([5, 40], np.int32), np.array([100, 0], np.int32), np.zeros((2, 7), np.int32))
    tiles = triton_extend.list_tiles(rows, 32, 3).tolist()
    assert tiles == [[0, 0, 5, 100, 0], [5, 96, 40, 0, 7], [5, 64, 40, 0, 7], [5, 32, 40, 0, 7], [5, 0, 40, 0, 7]]


def test_a_step_is_prepared_once() -> None:
    """Layers share what the first one prepared; another configuration has its own."""
    rows = ExtendRows(np.array([5], np.int32), np.array([0], np.int32), np.ones((1, 1), np.int32))
    first = rows.prepared(triton_extend.upload_tiles, (32, 1, DEVICE))
    assert rows.prepared(triton_extend.upload_tiles, (32, 1, DEVICE)) is first
    assert rows.prepared(triton_extend.upload_tiles, (16, 1, DEVICE)) is not first


def _whole_step() -> tuple[torch.Tensor, Pool, DecodeRows, ExtendRows]:
    lengths = [40, 9, 33, 20]
    pool = _pool(lengths, 2, 16, torch.float32)
    decode = _decode_rows(Pool(pool.keys, pool.values, pool.table[:2]), lengths[:2])
    extend = _extend_rows(Pool(pool.keys, pool.values, pool.table[2:].contiguous()), [(3, 30), (20, 0)])
    return _queries(25, 4, 16, torch.float32), pool, decode, extend


def test_a_whole_step() -> None:
    """Decode rows first, extend rows behind them, in one output; either kind alone is one call."""
    queries, pool, decode, extend = _whole_step()
    attend = SlotAttention(triton_decode.decode_attention, triton_extend.extend_attention)
    wanted_first = reference.decode_attention(queries[:2].double(), pool.keys.double(), pool.values.double(), decode)
    wanted_rest = reference.extend_attention(queries[2:].double(), pool.keys.double(), pool.values.double(), extend)
    queries, keys, values = (tensor.to(DEVICE) for tensor in (queries, pool.keys, pool.values))
    there = _on_device(decode)
    _close(attend(queries, keys, values, SlotRows(there, extend)), torch.cat([wanted_first, wanted_rest]))
    _close(attend(queries[:2], keys, values, SlotRows(decode=there)), wanted_first)
    _close(attend(queries[2:], keys, values, SlotRows(extend=extend)), wanted_rest)
    with pytest.raises(KernelError, match="without rows"):
        attend(queries, keys, values, SlotRows())


def test_which_kernels_answer() -> None:
    """A GPU gets the two kernels, of which float32 never goes to one that rounds; a CPU its own kernel."""
    kernels = selector("cuda", capability=(9, 0))
    assert isinstance(paged_attention(kernels, torch.float32, 64), SlotAttention)
    assert _solution(kernels, "decode", torch.bfloat16) == "triton"
    assert _solution(kernels, "extend", torch.float32) == "triton"
    assert _solution(selector("cpu"), "paged", torch.float32) == "native"


def _solution(kernels: Selector, mode: str, dtype: torch.dtype) -> str:
    chosen = kernels.explain(ask("attention", mode, dtype, head_dim=64)).chosen
    assert chosen is not None
    return chosen.solution


def test_flashinfer_is_told_the_pages() -> None:
    """Starts of queries and pages, the pages row after row, and the tokens of each last one."""
    table = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    rows = ExtendRows(np.array([3, 16, 1], np.int32), np.array([0, 16, 48], np.int32), table)
    starts, page_starts, pages, last = (array.tolist() for array in flashinfer_extend.pages_of(rows, 16))
    assert starts == [0, 3, 19, 20]
    assert page_starts == [0, 1, 3, 7]
    assert pages == [1, 5, 6, 9, 10, 11, 12]
    assert last == [3, 16, 1]


def test_triton_stands_in_for_flashinfer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where FlashInfer cannot build its kernels, prompts are attended to all the same, and one line says so."""

    def plan(rows: ExtendRows, shape: flashinfer_extend.Shape) -> None:
        raise RuntimeError("Could not find nvcc\nand more")

    monkeypatch.setattr(flashinfer_extend, "plan", plan)
    batch = [(5, 3)]
    pool = _pool([8], 1, 16, torch.float16)
    queries, rows = _queries(5, 2, 16, torch.float16), _extend_rows(pool, batch)
    wanted = reference.extend_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    for _ in range(2):
        on = [tensor.to(DEVICE) for tensor in (queries, pool.keys, pool.values)]
        _close(flashinfer_extend.extend_attention(on[0], on[1], on[2], rows), wanted)
    assert [record.message for record in caplog.records] == [
        "FlashInfer has no kernel here (Could not find nvcc): Triton attends for prompts."
    ]


@pytest.mark.skipif(DEVICE.type == "cpu" or find_spec("flashinfer") is None, reason="needs a GPU and FlashInfer")
@pytest.mark.parametrize("head_dim", [64, 128])
def test_flashinfer_extends(head_dim: int) -> None:
    """Three steps through two wrappers, each planned once and run by two layers, behind poisoned keys."""
    for seed in range(3):
        batch = [(100, 0), (1, 300), (37, 64 * seed + 5)]
        lengths = [count + context for count, context in batch]
        pool = _pool(lengths, 3, head_dim, torch.bfloat16, page_tokens=64, seed=seed)
        queries = _queries(138, 9, head_dim, torch.bfloat16, seed)
        rows = _extend_rows(pool, batch)
        on = [tensor.to(DEVICE) for tensor in (queries, pool.keys, pool.values)]
        wanted = reference.extend_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
        for _ in range(2):
            _close(flashinfer_extend.extend_attention(on[0], on[1], on[2], rows), wanted)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="realistic sizes need a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(9, 3, 64), (32, 8, 128)])
def test_real_sizes(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    """The shapes of SmolLM2 and Llama 3.1 8B with the configurations that are chosen for them."""
    lengths = [5000, 1, 64, 65, 1023, 1024, 1025, 130]
    pool = _pool(lengths, kv_heads, head_dim, dtype, page_tokens=64)
    rows = _decode_rows(pool, lengths, padding=8)
    queries = _queries(16, heads, head_dim, dtype)
    wanted = reference.decode_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    dirty = pool.poison(lengths)
    config = triton_decode.choose(dtype, 16)
    seen = _decode(queries, dirty, rows, config)
    _close(seen, wanted)
    assert torch.equal(_decode(queries, dirty, rows, config), seen)
    extend = _extend_rows(pool, [(900, 4100), (1, 0), (64, 0), (1, 64), (1000, 23), (24, 1000), (1025, 0), (65, 65)])
    queries = _queries(int(extend.counts.sum()), heads, head_dim, dtype)
    wanted = reference.extend_attention(queries.double(), pool.keys.double(), pool.values.double(), extend)
    on = [tensor.to(DEVICE) for tensor in (queries, dirty.keys, dirty.values)]
    _close(triton_extend.extend_attention(*on, extend), wanted)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("name", sorted(triton_decode.CANDIDATES))
def test_decode_candidates(name: str) -> None:
    """Every configuration that may be chosen, with many pieces in flight at once."""
    lengths = [20000, 3, 700, 8193]
    pool = _pool(lengths, 8, 128, torch.bfloat16, page_tokens=64)
    rows = _decode_rows(pool, lengths)
    queries = _queries(4, 32, 128, torch.bfloat16)
    wanted = reference.decode_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    for _ in range(20):
        _close(_decode(queries, pool, rows, triton_decode.CANDIDATES[name]), wanted)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("name", sorted(triton_extend.CANDIDATES))
def test_extend_candidates(name: str) -> None:
    """Every configuration that may be chosen."""
    batch = [(300, 1000), (1, 0), (129, 0)]
    pool = _pool([1300, 1, 129], 8, 128, torch.bfloat16, page_tokens=64)
    rows = _extend_rows(pool, batch)
    queries = _queries(430, 32, 128, torch.bfloat16)
    wanted = reference.extend_attention(queries.double(), pool.keys.double(), pool.values.double(), rows)
    on = [tensor.to(DEVICE) for tensor in (queries, pool.keys, pool.values)]
    _close(triton_extend.launch(*on, rows, None, triton_extend.CANDIDATES[name]), wanted)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="graphs need a GPU")
def test_decode_in_a_graph() -> None:
    """A replay reads rows, positions and tables anew, and its counters start from zero."""
    lengths = [900, 70, 5000]
    pool = _pool(lengths, 8, 128, torch.bfloat16, page_tokens=64)
    rows = _on_device(_decode_rows(pool, lengths, padding=1))
    queries = _queries(4, 32, 128, torch.bfloat16).to(DEVICE)
    keys, values = pool.keys.to(DEVICE), pool.values.to(DEVICE)
    triton_decode.decode_attention(queries, keys, values, rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = triton_decode.decode_attention(queries, keys, values, rows)
    for positions in ([899, 69, 4999, 0], [0, 3, 64, 0], [800, 0, 4000, 0]):
        rows.positions.copy_(torch.tensor(positions, dtype=torch.int32))
        rows.slots.copy_(rows.slots[[1, 0, 2, 3]] if positions[1] == 3 else rows.slots)
        graph.replay()
        assert torch.equal(out, triton_decode.decode_attention(queries, keys, values, rows))
