"""Paged attention on the CPU through torch's fused attention.

Decode rows are sorted by context and cut into groups of like length; a group gathers its pages into
one padded block and attends in one call, the query heads of a key head standing in for queries, so
that nothing is repeated. Prefill rows go one by one, key heads spread over their group by stride 0.
Pages that lie side by side, as those of a row alone in the pool do, are read where they are.
What depends on the step alone (groups, page indices, masks) is prepared once for all layers.

Invariant: padding is finite in the pages and minus infinity in the mask, so it weighs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tokenspeed_kernels.attention.rows import AttentionRows

# A group's longest row has at most this many times the pages of its shortest: more would gather
# padding, less would make more calls of about 100 us.
PAGES_RATIO_MAX = 2
PAGES_SLACK = 8


# Indices of pages, or the range of them where they follow each other.
Pages = torch.Tensor | slice


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Decode rows of like context. `tokens` are their indices in the step."""

    tokens: torch.Tensor
    pages: Pages
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class PrefillRow:
    """One row with tokens [first, last) and `length` keys; no mask means causal from position 0."""

    first: int
    last: int
    length: int
    pages: Pages
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class StepLayout:
    """How the rows of one step are computed."""

    decode: tuple[DecodeGroup, ...]
    prefill: tuple[PrefillRow, ...]


def paged_attention(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, rows: AttentionRows
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `PagedAttentionKernel`."""
    layout = rows.prepared(prepare, key_pages.shape[1])
    if not layout.prefill and len(layout.decode) == 1:
        return _decode(queries, key_pages, value_pages, layout.decode[0])
    output = queries.new_empty(queries.shape[0], queries.shape[1] * queries.shape[2])
    for group in layout.decode:
        output[group.tokens] = _decode(queries[group.tokens], key_pages, value_pages, group)
    for row in layout.prefill:
        output[row.first : row.last] = _prefill(queries[row.first : row.last], key_pages, value_pages, row)
    return output


def prepare(rows: AttentionRows, page_tokens: int) -> StepLayout:
    """Return the layout of a step."""
    firsts = (rows.queries.cumsum(0) - rows.queries).tolist()
    queries, context = rows.queries.tolist(), rows.context.tolist()
    decode = [index for index, count in enumerate(queries) if count == 1]
    prefill = [
        _prefill_row(rows.page_table[index], firsts[index], count, context[index], page_tokens)
        for index, count in enumerate(queries)
        if count > 1
    ]
    groups = [
        _decode_group(rows, torch.tensor(members), [firsts[index] for index in members], page_tokens)
        for members in _alike(decode, [-(-(context[index] + 1) // page_tokens) for index in decode])
    ]
    return StepLayout(tuple(groups), tuple(prefill))


def _alike(rows: list[int], pages: list[int]) -> list[list[int]]:
    """Cut `rows` into groups of like page counts; one group that fits all keeps the rows' order."""
    if not rows:
        return []
    if max(pages) <= min(pages) * PAGES_RATIO_MAX + PAGES_SLACK:
        return [rows]
    groups: list[list[int]] = []
    shortest = 0
    for count, row in sorted(zip(pages, rows, strict=True)):
        if not groups or count > shortest * PAGES_RATIO_MAX + PAGES_SLACK:
            groups.append([])
            shortest = count
        groups[-1].append(row)
    return groups


def _decode_group(rows: AttentionRows, members: torch.Tensor, tokens: list[int], page_tokens: int) -> DecodeGroup:
    lengths = rows.context[members] + 1
    longest = int(lengths.max())
    table = rows.page_table[members, : -(-longest // page_tokens)]
    behind = torch.arange(table.shape[1] * page_tokens) >= lengths.unsqueeze(1)
    mask = torch.zeros(behind.shape).masked_fill_(behind, float("-inf"))[:, None, None]
    return DecodeGroup(torch.tensor(tokens), _side_by_side(table.flatten()), mask)


def _prefill_row(table: torch.Tensor, first: int, count: int, context: int, page_tokens: int) -> PrefillRow:
    length = context + count
    mask = torch.full((count, length), float("-inf")).triu_(context + 1) if context else None
    return PrefillRow(first, first + count, length, _side_by_side(table[: -(-length // page_tokens)]), mask)


def _side_by_side(pages: torch.Tensor) -> Pages:
    first = int(pages[0])
    if torch.equal(pages, torch.arange(first, first + len(pages))):
        return slice(first, first + len(pages))
    return pages


def _gather(pool: torch.Tensor, pages: Pages) -> torch.Tensor:
    return pool[pages] if isinstance(pages, slice) else pool.index_select(0, pages)


def _decode(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, group: DecodeGroup
) -> torch.Tensor:
    kv_heads, head_dim = key_pages.shape[-2:]
    rows = queries.shape[0]
    # [rows, kv_heads, heads per key head, head_dim] against [rows, kv_heads, keys, head_dim]
    keys = _gather(key_pages, group.pages).view(rows, -1, kv_heads, head_dim).transpose(1, 2)
    values = _gather(value_pages, group.pages).view(rows, -1, kv_heads, head_dim).transpose(1, 2)
    grouped = queries.view(rows, kv_heads, -1, head_dim)
    attended = torch.nn.functional.scaled_dot_product_attention(
        grouped, keys, values, attn_mask=group.mask.to(queries.dtype)
    )
    return attended.reshape(rows, -1)


def _prefill(
    queries: torch.Tensor, key_pages: torch.Tensor, value_pages: torch.Tensor, row: PrefillRow
) -> torch.Tensor:
    count, heads, head_dim = queries.shape
    kv_heads = key_pages.shape[2]
    keys = _gather(key_pages, row.pages).flatten(0, 1)[: row.length]
    values = _gather(value_pages, row.pages).flatten(0, 1)[: row.length]
    # key heads are the batch, the query heads of each are its heads: [kv_heads, group, tokens, head_dim]
    spread = (kv_heads, heads // kv_heads, row.length, head_dim)
    attended = torch.nn.functional.scaled_dot_product_attention(
        queries.view(count, kv_heads, -1, head_dim).permute(1, 2, 0, 3),
        keys.transpose(0, 1).unsqueeze(1).expand(spread),
        values.transpose(0, 1).unsqueeze(1).expand(spread),
        attn_mask=row.mask if row.mask is None else row.mask.to(queries.dtype),
        is_causal=row.mask is None,
    )
    return attended.permute(2, 0, 1, 3).reshape(count, -1)
