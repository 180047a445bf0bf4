"""`attention.extend` by FlashInfer's prefill over paged keys; its FA3 kernels on Hopper.

FlashInfer wants a plan made on the host, once a step: the first layer makes it, the others reuse it. A
plan lies in page-locked memory until the device has copied it, so two wrappers take turns and one
is planned again only when its last plan has been copied.

Steps that call this run eagerly. FlashInfer compiles its kernels on first use, which takes a minute
or two once on a machine. Where that fails, as without nvcc, Triton's kernel answers from the first
call on, and one line of the log says why.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tokenspeed_kernels.attention import triton_extend
from tokenspeed_kernels.attention.rows import ExtendRows, Ints

logger = logging.getLogger(__name__)

# What FlashInfer recommends for partial results.
WORKSPACE_BYTES = 128 << 20
WRAPPERS = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan depends on besides the rows."""

    device: torch.device
    dtype: torch.dtype
    heads: int
    kv_heads: int
    head_dim: int
    page_tokens: int


@dataclass(slots=True)
class Wrapper:
    """One of FlashInfer's, and the event behind its last plan's copy."""

    prefill: Any
    # Blocking: to wait for it costs no processor time.
    copied: torch.cuda.Event = field(default_factory=functools.partial(torch.cuda.Event, blocking=True))


def extend_attention(
    queries: torch.Tensor,
    key_pages: torch.Tensor,
    value_pages: torch.Tensor,
    rows: ExtendRows,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return [tokens, heads * head_dim]; arguments as in `ExtendKernel`, dtype bfloat16 or float16."""
    tokens, heads, head_dim = queries.shape
    _, page_tokens, kv_heads, _ = key_pages.shape
    shape = Shape(queries.device, queries.dtype, heads, kv_heads, head_dim, page_tokens)
    if not usable(shape):
        return triton_extend.extend_attention(queries, key_pages, value_pages, rows, out)
    if out is None:
        out = queries.new_empty(tokens, heads * head_dim)
    prefill = rows.prepared(plan, shape)
    prefill.run(queries, (key_pages, value_pages), out=out.view(queries.shape), enable_pdl=False)
    return out


@functools.cache
def usable(shape: Shape) -> bool:
    """Return whether FlashInfer has a kernel for `shape`; finding that out compiles it."""
    one, none = np.ones(1, np.int32), np.zeros(1, np.int32)
    try:
        plan(ExtendRows(one, none, none.reshape(1, 1)), shape)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        # Whatever its build stumbles over: no nvcc, no ninja, no place to write.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        logger.warning("FlashInfer has no kernel here (%s): Triton attends for prompts.", reason[0])
        return False
    return True


def plan(rows: ExtendRows, shape: Shape) -> Any:
    """Return a wrapper that is planned for `rows`."""
    wrapper = _next_wrapper(shape.device)
    wrapper.copied.synchronize()
    wrapper.prefill.plan(
        *map(_pinned, pages_of(rows, shape.page_tokens)),
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        shape.page_tokens,
        causal=True,
        sm_scale=shape.head_dim**-0.5,
        q_data_type=shape.dtype,
        kv_data_type=shape.dtype,
        seq_lens=_pinned(rows.lengths),
    )
    wrapper.copied.record()
    return wrapper.prefill


def _pinned(array: Ints) -> torch.Tensor:
    # A copy from other memory would wait for the stream, that is for the step before.
    return torch.from_numpy(array).pin_memory()


def pages_of(rows: ExtendRows, page_tokens: int) -> tuple[Ints, ...]:
    """Return FlashInfer's arrays, int32: starts of queries, starts of pages, pages, tokens in the last page."""
    pages = -(-rows.lengths // page_tokens)
    last = rows.lengths - (pages - 1) * page_tokens
    table = rows.table[np.arange(rows.table.shape[1]) < pages[:, None]]
    return _starts(rows.counts), _starts(pages), table, last.astype(np.int32)


def _starts(counts: Ints) -> Ints:
    return np.concatenate([[0], counts.cumsum()]).astype(np.int32)


@functools.cache
def _wrappers(device: torch.device) -> list[Wrapper]:
    """Return the wrappers of `device`, the one to be used next at the front."""
    import flashinfer  # here, so that the rest of this file can be tested where it is not installed

    made = []
    for _ in range(WRAPPERS):
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        made.append(Wrapper(flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="auto")))
    return made


def _next_wrapper(device: torch.device) -> Wrapper:
    wrappers = _wrappers(device)
    wrappers.append(wrappers.pop(0))
    return wrappers[-1]
