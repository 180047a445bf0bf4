"""Attention in the shape of Llama-3.1-8B, bfloat16: every candidate configuration at every size.

A case's calls go through several layers' pages in turn, so that none finds its keys in the L2 cache.
A graph should hold many calls for the same reason.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
from tokenspeed_kernels.attention import DecodeRows, ExtendRows, triton_decode, triton_extend

from tokenspeed_tools.bench_kernels.case import Case

HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS = 32, 8, 128, 64
DTYPE = torch.bfloat16
# More than twice the L2 of an H200, at most as many as a model has layers.
ROTATED_BYTES, LAYERS = 160 << 20, 32
# (rows, tokens a row)
DECODES = ((1, 1 << 10), (8, 1 << 10), (32, 1 << 10), (128, 1 << 10))
LONG_DECODES = ((1, 1 << 15), (8, 1 << 15), (1, 1 << 16), (8, 1 << 13), (32, 1 << 13))
# (queries, context) of one row
EXTENDS = ((8192, 0), (800, 50_000))

Pages = tuple[torch.Tensor, torch.Tensor]


def cases() -> Iterator[Case]:
    """Yield what is to be timed; a case's memory is taken when it is reached."""
    for count, tokens in DECODES + LONG_DECODES:
        yield from _decode_cases(f"{count}x{tokens}", [tokens] * count)
    # One long row among short ones: what an even number of splits a row would be slow at.
    yield from _decode_cases("1x65536+31x1024", [1 << 16] + [1 << 10] * 31)
    for queries, context in EXTENDS:
        yield from _extend_cases(queries, context)


def _decode_cases(size: str, lengths: list[int]) -> Iterator[Case]:
    table = _table([-(-length // PAGE_TOKENS) for length in lengths])
    layers = _layers(table, sum(lengths))
    queries = _random(len(lengths), HEADS, HEAD_DIM)
    positions = torch.tensor(lengths, dtype=torch.int32, device="cuda") - 1
    rows = DecodeRows(torch.arange(len(lengths), dtype=torch.int32, device="cuda"), positions, table.cuda())
    for name, config in triton_decode.CANDIDATES.items():
        yield Case(
            f"decode {size} triton {name}",
            _decode_call(queries, layers, rows, config),
            sum(lengths) * 2 * KV_HEADS * HEAD_DIM * DTYPE.itemsize,
            sum(lengths) * 4 * HEADS * HEAD_DIM,
        )


def _decode_call(
    queries: torch.Tensor, layers: list[Pages], rows: DecodeRows, config: triton_decode.Config
) -> Callable[[], object]:
    turn = itertools.cycle(layers)
    return lambda: triton_decode.launch(queries, *next(turn), rows, None, config)


def _extend_cases(count: int, context: int) -> Iterator[Case]:
    length = count + context
    table = _table([-(-length // PAGE_TOKENS)])
    layers = _layers(table, length)
    queries = _random(count, HEADS, HEAD_DIM)
    rows = ExtendRows(np.array([count], np.int32), np.array([context], np.int32), table.numpy())
    moved = length * 2 * KV_HEADS * HEAD_DIM * DTYPE.itemsize
    flops = 4 * HEADS * HEAD_DIM * (count * context + count * (count + 1) // 2)
    for name, config in triton_extend.CANDIDATES.items():
        call = _extend_call(queries, layers, rows, config)
        yield Case(f"extend {count}@{context} triton {name}", call, moved, flops, graph=False)
    if importlib.util.find_spec("flashinfer") is not None:
        yield Case(
            f"extend {count}@{context} flashinfer", _flashinfer_call(queries, layers, rows), moved, flops, graph=False
        )


def _extend_call(
    queries: torch.Tensor, layers: list[Pages], rows: ExtendRows, config: triton_extend.Config
) -> Callable[[], object]:
    turn = itertools.cycle(layers)
    return lambda: triton_extend.launch(queries, *next(turn), rows, None, config)


def _flashinfer_call(queries: torch.Tensor, layers: list[Pages], rows: ExtendRows) -> Callable[[], object]:
    from tokenspeed_kernels.attention.flashinfer_extend import extend_attention

    turn = itertools.cycle(layers)
    return lambda: extend_attention(queries, *next(turn), rows)


def _table(pages: list[int]) -> torch.Tensor:
    """Return int32 [rows, pages] of distinct pages in random order, page 0 left out."""
    order = torch.randperm(sum(pages), generator=torch.Generator().manual_seed(0)).to(torch.int32) + 1
    table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
    for row, own in enumerate(torch.split(order, pages)):
        table[row, : len(own)] = own
    return table


def _layers(table: torch.Tensor, tokens: int) -> list[Pages]:
    pages = int(table.max()) + 1
    copies = min(LAYERS, -(-ROTATED_BYTES // (tokens * 2 * KV_HEADS * HEAD_DIM * DTYPE.itemsize)))
    shape = (pages, PAGE_TOKENS, KV_HEADS, HEAD_DIM)
    return [(_random(*shape), _random(*shape)) for _ in range(copies)]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=DTYPE, device="cuda")
