"""Paged attention: the readable kernel against textbook attention, the fast one against the readable."""

from __future__ import annotations

import itertools

import pytest
import torch
from tokenspeed_kernels.attention import AttentionRows, sdpa_cpu
from tokenspeed_kernels.attention.reference import paged_attention as readable
from tokenspeed_kernels.attention.sdpa_cpu import paged_attention as fast

PAGE_TOKENS = 4
PAGES = 400


def _case(
    rows: list[tuple[int, int]], heads: int, kv_heads: int, head_dim: int = 8, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, AttentionRows]:
    """Random queries and pages for rows of (queries, context), each row in pages of its own."""
    random = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(PAGES, PAGE_TOKENS, kv_heads, head_dim, generator=random) for _ in range(2))
    queries = torch.randn(sum(count for count, _ in rows), heads, head_dim, generator=random)
    needed = [-(-(count + context) // PAGE_TOKENS) for count, context in rows]
    order = torch.randperm(PAGES - 1, generator=random) + 1
    table = torch.zeros(len(rows), max(needed), dtype=torch.int64)
    for row, pages in enumerate(needed):
        table[row, :pages], order = order[:pages], order[pages:]
    counts = torch.tensor([count for count, _ in rows])
    return queries, keys, values, AttentionRows(counts, torch.tensor([context for _, context in rows]), table)


def _textbook(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rows: list[tuple[int, int]], table: torch.Tensor
) -> torch.Tensor:
    """Attention by the definition, one query and one head at a time, in float64."""
    group = queries.shape[1] // keys.shape[2]
    outputs = []
    token = 0
    for row, (count, context) in enumerate(rows):
        for query in range(count):
            seen = range(context + query + 1)
            places = [(int(table[row, position // PAGE_TOKENS]), position % PAGE_TOKENS) for position in seen]
            for head in range(queries.shape[1]):
                own = queries[token, head].double()
                scores = torch.stack([own @ keys[page, at, head // group].double() for page, at in places])
                weights = torch.softmax(scores / queries.shape[2] ** 0.5, dim=0)
                found = torch.stack([values[page, at, head // group].double() for page, at in places])
                outputs.append(weights @ found)
            token += 1
    return torch.stack(outputs).view(token, -1)


MIXED = [(1, 0), (3, 0), (1, 6), (5, 7), (1, 3), (2, 1)]


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (3, 1), (2, 2)])
def test_readable_is_the_definition(heads: int, kv_heads: int) -> None:
    """Mixed rows, grouped heads, scattered pages."""
    queries, keys, values, rows = _case(MIXED, heads, kv_heads)
    wanted = _textbook(queries, keys, values, MIXED, rows.page_table)
    torch.testing.assert_close(readable(queries, keys, values, rows).double(), wanted, rtol=0, atol=1e-5)


BATCHES = {
    "mixed": MIXED,
    "one_decode": [(1, 41)],
    "first_token": [(1, 0)],
    "one_prefill": [(33, 0)],
    "continued_prefill": [(9, 30)],
    "decode_of_like_lengths": [(1, context) for context in (20, 24, 29, 31, 40)],
    "decode_of_unlike_lengths": [(1, context) for context in (300, 3, 150, 700, 0, 310)],
    "decode_among_prefill": [(7, 0), (1, 300), (6, 13), (1, 2)],
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (4, 4), (5, 1)])
def test_fast_equals_readable(batch: list[tuple[int, int]], heads: int, kv_heads: int) -> None:
    """Every way in which rows are grouped gives the same numbers in the same order."""
    queries, keys, values, rows = _case(batch, heads, kv_heads, head_dim=16)
    torch.testing.assert_close(
        fast(queries, keys, values, rows), readable(queries, keys, values, rows), rtol=0, atol=2e-6
    )


def test_unlike_lengths_are_cut_into_groups() -> None:
    """A short row is not padded to the longest, and the rows of a group keep to the bound."""
    batch = BATCHES["decode_of_unlike_lengths"]
    _, _, _, rows = _case(batch, 2, 1)
    groups = sdpa_cpu.prepare(rows, PAGE_TOKENS).decode
    assert sorted(itertools.chain.from_iterable(group.tokens.tolist() for group in groups)) == list(range(len(batch)))
    contexts = [sorted(batch[token][1] for token in group.tokens.tolist()) for group in groups]
    assert contexts == [[0, 3], [150, 300, 310], [700]]


def test_padding_never_counts() -> None:
    """What lies behind a row's last position, in its own page and in page 0, does not matter."""
    queries, keys, values, rows = _case([(1, 5), (1, 12), (3, 2)], 4, 2)
    before = fast(queries, keys, values, rows)
    used = {int(page) for page in rows.page_table.flatten()} - {0}
    unused = [page for page in range(PAGES) if page not in used]
    keys[unused] = values[unused] = 1e30
    for row, length in enumerate((6, 13, 5)):
        page, at = rows.page_table[row, (length - 1) // PAGE_TOKENS], (length - 1) % PAGE_TOKENS + 1
        keys[page, at:] = values[page, at:] = 1e30
    again = AttentionRows(rows.queries, rows.context, rows.page_table)
    assert torch.equal(fast(queries, keys, values, again), before)


@pytest.mark.parametrize("batch", [[(1, 41)], [(9, 30)], [(12, 0)]])
def test_pages_side_by_side_are_not_copied(batch: list[tuple[int, int]]) -> None:
    """A row whose pages follow each other reads them in place, with the same result."""
    queries, keys, values, rows = _case(batch, 4, 2)
    count = rows.page_table.shape[1]
    rows = AttentionRows(rows.queries, rows.context, torch.arange(7, 7 + count)[None])
    layout = sdpa_cpu.prepare(rows, PAGE_TOKENS)
    pages = [group.pages for group in layout.decode] + [row.pages for row in layout.prefill]
    assert pages == [slice(7, 7 + count)]
    torch.testing.assert_close(
        fast(queries, keys, values, rows), readable(queries, keys, values, rows), rtol=0, atol=2e-6
    )


def test_layout_is_prepared_once() -> None:
    """Thirty layers share one layout; another kernel has its own."""
    _, _, _, rows = _case(MIXED, 4, 2)
    assert rows.prepared(sdpa_cpu.prepare, PAGE_TOKENS) is rows.prepared(sdpa_cpu.prepare, PAGE_TOKENS)
    assert rows.prepared(lambda rows, page_tokens: page_tokens, PAGE_TOKENS) == PAGE_TOKENS
