"""The native operations of the CPU: against torch, at odd sizes, and the same bits whoever computes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tokenspeed_kernels import native
from tokenspeed_kernels.activation import native_silu, torch_silu
from tokenspeed_kernels.attention import AttentionRows, native_paged, reference
from tokenspeed_kernels.norm import native_rms, torch_rms
from tokenspeed_kernels.rope import native_rope, rotation, torch_rope

from tests.kernels.numerics import draw, error

ERROR_MAX = 1e-6
MODULES = (native_silu, native_rms, native_rope, native_paged)
ISAS = tuple(range(native.ISA + 1))
PAGES = 160


@pytest.fixture(params=[(isa, threads) for isa in ISAS for threads in (1, 3)], ids=str, autouse=True)
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every instruction set of this machine, with one thread and with three."""
    isa, threads = request.param
    for module in MODULES:
        monkeypatch.setattr(module, "ISA", isa)
    native.set_threads(threads)
    yield
    native.set_threads(1)


@pytest.mark.parametrize(("rows", "hidden"), [(1, 1), (3, 13), (5, 576), (40, 1040)])
def test_norms(rows: int, hidden: int) -> None:
    x, residual, weight = draw(rows, hidden), draw(rows, hidden), draw(hidden)
    wanted = torch_rms.rms_norm(x.double(), weight.double(), 1e-5)
    assert error(native_rms.rms_norm(x, weight, 1e-5), wanted) < ERROR_MAX
    wanted, total = torch_rms.add_rms_norm(x.double(), residual.double(), weight.double(), 1e-5)
    seen, found = native_rms.add_rms_norm(x.clone(), residual, weight, 1e-5)
    assert error(seen, wanted) < ERROR_MAX
    assert error(found, total) < ERROR_MAX


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (4, 37), (40, 1536)])
def test_silu_mul(rows: int, width: int) -> None:
    both = draw(rows, 2 * width) * 20
    assert error(native_silu.silu_mul(both), torch_silu.silu_mul(both.double())) < ERROR_MAX


def test_silu_mul_keeps_what_is_no_number_and_what_is_far_from_zero() -> None:
    gate_up = torch.tensor([[float("nan"), 200.0, -200.0, 0.0, 1.0, 1.0, 1.0, 1.0]])
    seen = native_silu.silu_mul(gate_up)[0].tolist()
    assert seen[0] != seen[0]
    assert seen[1:] == [200.0, pytest.approx(0.0, abs=1e-30), 0.0]


@pytest.mark.parametrize("head_dim", [2, 12, 40, 64, 128])
def test_rope_store(head_dim: int) -> None:
    tokens, heads, kv_heads = 9, 4, 2
    qkv = draw(tokens, heads + 2 * kv_heads, head_dim)
    cos, sin = rotation(torch.arange(tokens) * 37, torch.rand(head_dim // 2))
    places = torch.randperm(4 * 16)[:tokens]
    pages = [torch.zeros(2, 4, 16, kv_heads, head_dim) for _ in range(2)]
    seen = native_rope.rope_store(qkv, cos, sin, pages[0][0], pages[0][1], places)
    wanted = torch_rope.rope_store(qkv, cos, sin, pages[1][0], pages[1][1], places)
    assert error(seen, wanted.double()) < ERROR_MAX
    assert error(pages[0], pages[1].double()) < ERROR_MAX


def rows_of(page_tokens: int, *rows: tuple[int, int]) -> AttentionRows:
    """Rows of (queries, context), each in scattered pages of its own."""
    needed = [-(-(count + context) // page_tokens) for count, context in rows]
    order = torch.randperm(PAGES - 1) + 1
    table = torch.zeros(len(rows), max(needed), dtype=torch.int64)
    for row, count in enumerate(needed):
        table[row, :count], order = order[:count], order[count:]
    counts, contexts = (torch.tensor(column) for column in zip(*rows, strict=True))
    return AttentionRows(counts, contexts, table)


SHAPES = [(9, 3, 64), (4, 2, 8), (8, 1, 40), (30, 1, 16), (2, 2, 256)]
# Around the borders of blocks of 64 and parts of 512 keys.
ROWS = [((1, 0),), ((1, 62), (1, 63), (1, 64)), ((33, 0), (1, 511), (7, 508)), ((1, 1100), (5, 1022))]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize("page_tokens", [16, 20])
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_attention(
    heads: int, kv_heads: int, head_dim: int, page_tokens: int, rows: tuple[tuple[int, int], ...]
) -> None:
    asked = rows_of(page_tokens, *rows)
    keys, values = (draw(PAGES, page_tokens, kv_heads, head_dim) for _ in range(2))
    queries = draw(sum(count for count, _ in rows), heads, head_dim)
    seen = native_paged.paged_attention(queries, keys, values, asked)
    assert error(seen, reference.paged_attention(queries.double(), keys.double(), values.double(), asked)) < ERROR_MAX


def test_a_query_gives_the_same_bits_alone_in_a_batch_and_in_any_chunk() -> None:
    rows = ((600, 0), (1, 1100), (40, 490))
    asked = rows_of(16, *rows)
    keys, values = (draw(PAGES, 16, 3, 64) for _ in range(2))
    queries = draw(sum(count for count, _ in rows), 9, 64)
    together = native_paged.paged_attention(queries, keys, values, asked)
    first = 0
    for row, (count, context) in enumerate(rows):
        table = asked.page_table[row : row + 1]
        for begin, end in ((0, 1), (count // 3, count // 3 + 2), (count - 1, count)):
            if 0 <= begin < end <= count:
                alone = AttentionRows(torch.tensor([end - begin]), torch.tensor([context + begin]), table)
                part = native_paged.paged_attention(queries[first + begin : first + end], keys, values, alone)
                assert torch.equal(part, together[first + begin : first + end])
        first += count


def test_what_lies_behind_the_last_key_never_matters() -> None:
    asked = rows_of(16, (1, 70), (3, 5))
    keys, values = (draw(PAGES, 16, 1, 16) for _ in range(2))
    queries = draw(4, 2, 16)
    wanted = native_paged.paged_attention(queries, keys, values, asked)
    for row, length in enumerate((71, 8)):
        page = int(asked.page_table[row, (length - 1) // 16])
        keys[page, length % 16 :], values[page, length % 16 :] = 1e30, float("nan")
    assert torch.equal(native_paged.paged_attention(queries, keys, values, asked), wanted)


def test_numbers_may_lie_anyhow() -> None:
    asked = rows_of(16, (2, 30), (1, 4))
    apart = AttentionRows(
        torch.stack((asked.queries, asked.queries), 1)[:, 0],
        torch.stack((asked.context, asked.context), 1)[:, 1],
        asked.page_table.t().contiguous().t(),
    )
    keys, values, queries = draw(PAGES, 16, 1, 16), draw(PAGES, 16, 1, 16), draw(3, 2, 16)
    wanted = native_paged.paged_attention(queries, keys, values, asked)
    assert torch.equal(native_paged.paged_attention(queries, keys, values, apart), wanted)


def test_head_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(native.KernelError, match="refused"):
        native_paged.paged_attention(draw(1, 1, 12), draw(2, 4, 1, 12), draw(2, 4, 1, 12), rows_of(4, (1, 0)))
