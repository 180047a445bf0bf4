"""Products of few tokens with a weight, in Triton: bound by reading the weight once.

The weight is [in, out] and lies the other way round in memory, one output's inputs side by side, so
that every load runs along the inputs, 16 bytes a thread. One token is multiplied on the plain
units, more on the matrix units with the weight as the tall operand. Where outputs are few, several
programs split the inputs of a tile; their float32 partial sums are added in order by the one that
arrives last, so equal inputs give equal bits. More tokens than `TOKENS_MAX`, float32 and other
layouts go to cuBLAS: the choice depends on shapes and strides alone.

Invariant: the arrival counters are zero between launches.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl

from tokenspeed_kernels.aot import Launch
from tokenspeed_kernels.gemm import torch_linear
from tokenspeed_kernels.gemm.skinny_configs import Config, choose, token_tile

ARRIVALS = 4096


@triton.jit
def _merge(
    total: tl.tensor,
    partials: tl.tensor,
    arrivals: tl.tensor,
    out: tl.tensor,
    place: tl.tensor,
    target: tl.tensor,
    wanted: tl.tensor,
    TILE: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Write this program's partial sums; the last of a tile's programs adds them all up, in order."""
    tile, part = tl.program_id(0), tl.program_id(1)
    mine = partials + (tile * SPLIT + part).to(tl.int64) * TILE
    tl.store(mine + place, total)
    # All threads' stores before the one thread's release below.
    tl.debug_barrier()
    if tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu") == SPLIT - 1:
        first = partials + (tile * SPLIT).to(tl.int64) * TILE
        # Past the L1 cache, which other multiprocessors' stores do not reach.
        whole = tl.load(first + place, cache_modifier=".cg")
        for other in tl.static_range(1, SPLIT):
            whole += tl.load(first + other * TILE + place, cache_modifier=".cg")
        tl.store(arrivals + tile, 0)
        tl.store(out + target, whole.to(out.dtype.element_ty), mask=wanted)


@triton.jit
def _vector(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    partials: tl.tensor,
    arrivals: tl.tensor,
    outputs: int,
    inputs: int,
    weight_stride: int,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN: tl.constexpr,
    PDL: tl.constexpr,
) -> None:
    tile, part = tl.program_id(0), tl.program_id(1)
    rows = tile * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    columns = tl.arange(0, BLOCK_IN)
    # Rows past the end read the last one again and store nothing: cheaper than a mask on each load.
    weights = weight + tl.minimum(rows, outputs - 1).to(tl.int64)[:, None] * weight_stride + columns[None, :]
    share = tl.cdiv(tl.cdiv(inputs, BLOCK_IN), SPLIT) * BLOCK_IN
    first = part * share
    last = tl.minimum(first + share, inputs)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    # Two tiles are on the way: the next is asked for before the present one is used. The first is
    # read before the kernel in front has ended, since no kernel writes weights.
    if EVEN:
        ahead = tl.load(weights + first)
    else:
        ahead = tl.load(weights + first, mask=(first + columns < last)[None, :], other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    total = tl.zeros([BLOCK_OUT, BLOCK_IN], dtype=tl.float32)
    for column in range(first, last - BLOCK_IN, BLOCK_IN):
        now = ahead
        if EVEN:
            ahead = tl.load(weights + column + BLOCK_IN)
        else:
            left = (column + BLOCK_IN + columns < last)[None, :]
            ahead = tl.load(weights + column + BLOCK_IN, mask=left, other=0.0)
        # All but the last block lie within the inputs.
        total += now.to(tl.float32) * tl.load(x + column + columns).to(tl.float32)[None, :]
    rest = first + tl.cdiv(last - first, BLOCK_IN) * BLOCK_IN - BLOCK_IN + columns
    final = tl.load(x + rest) if EVEN else tl.load(x + rest, mask=(rest >= first) & (rest < last), other=0.0)
    total += ahead.to(tl.float32) * final.to(tl.float32)[None, :]
    product = tl.sum(total, axis=1)
    if SPLIT == 1:
        tl.store(out + rows, product.to(out.dtype.element_ty), mask=rows < outputs)
    else:
        _merge(product, partials, arrivals, out, tl.arange(0, BLOCK_OUT), rows, rows < outputs, BLOCK_OUT, SPLIT)


@triton.jit(do_not_specialize=["tokens"])
def _matrix(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    partials: tl.tensor,
    arrivals: tl.tensor,
    tokens: int,
    outputs: int,
    inputs: int,
    x_stride: int,
    weight_stride: int,
    TOKENS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    SPLIT: tl.constexpr,
    EVEN: tl.constexpr,
) -> None:
    tile, part = tl.program_id(0), tl.program_id(1)
    rows = tile * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    token = tl.arange(0, TOKENS)
    columns = tl.arange(0, BLOCK_IN)
    # Rows and tokens past the end read the last one again and store nothing.
    weights = weight + tl.minimum(rows, outputs - 1).to(tl.int64)[:, None] * weight_stride + columns[None, :]
    vectors = x + tl.minimum(token, tokens - 1)[None, :] * x_stride + columns[:, None]
    share = tl.cdiv(tl.cdiv(inputs, BLOCK_IN), SPLIT) * BLOCK_IN
    first = part * share
    last = tl.minimum(first + share, inputs)
    total = tl.zeros([BLOCK_OUT, TOKENS], dtype=tl.float32)
    for column in range(first, last, BLOCK_IN):
        if EVEN:
            total = tl.dot(tl.load(weights + column), tl.load(vectors + column), total)
        else:
            inside = column + columns < last
            left = tl.load(weights + column, mask=inside[None, :], other=0.0)
            total = tl.dot(left, tl.load(vectors + column, mask=inside[:, None], other=0.0), total)
    target = token[None, :].to(tl.int64) * outputs + rows[:, None]
    wanted = (rows < outputs)[:, None] & (token < tokens)[None, :]
    if SPLIT == 1:
        tl.store(out + target, total.to(out.dtype.element_ty), mask=wanted)
    else:
        place = tl.arange(0, BLOCK_OUT)[:, None] * TOKENS + token[None, :]
        _merge(total, partials, arrivals, out, place, target, wanted, BLOCK_OUT * TOKENS, SPLIT)


def linear(x: torch.Tensor, weight: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Return x [tokens, in] times `weight` [in, out] in their dtype."""
    config = plan(x, weight)
    if config is None:
        return torch_linear.linear(x, weight)
    return launch(x, weight, x.new_empty(len(x), weight.shape[1]), config, pdl)


def head(x: torch.Tensor, weight: torch.Tensor, pdl: bool = False) -> torch.Tensor:
    """Return float32 logits, x [rows, hidden] times `weight` [hidden, vocab]."""
    config = plan(x, weight)
    if config is None:
        return torch_linear.head(x, weight)
    return launch(x, weight, x.new_empty(len(x), weight.shape[1], dtype=torch.float32), config, pdl)


def linear_pdl(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `linear`, started before the kernel in front has ended."""
    return linear(x, weight, pdl=True)


def head_pdl(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return `head`, started before the kernel in front has ended."""
    return head(x, weight, pdl=True)


def plan(x: torch.Tensor, weight: torch.Tensor) -> Config | None:
    """Return how this file would multiply, or None where cuBLAS does; it reads shapes, strides and the dtype."""
    if x.dtype is torch.float32 or weight.stride(0) != 1 or x.stride(1) != 1:
        return None
    return choose(weight.shape[1], weight.shape[0], len(x))


def launch(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, config: Config, pdl: bool = False) -> torch.Tensor:
    """Write x [tokens, in] times `weight` [in, out] into `out` [tokens, out], contiguous, and return it.

    With `pdl` one token starts before the kernel in front has ended. The matrix kernel never does: its
    programs would wait with the shared memory that the kernel in front could use, and take longer.
    Launches of one device follow each other on one stream: split tiles share their counters.
    """
    (tokens, inputs), outputs = x.shape, weight.shape[1]
    tile = token_tile(tokens)
    tiles = triton.cdiv(outputs, config.block_out)
    split = config.split if tiles <= ARRIVALS else 1
    # Without a split nobody touches either.
    partials = arrivals = out
    if split > 1:
        partials = out.new_empty(tiles * split * config.block_out * tile, dtype=torch.float32)
        arrivals = _arrivals(x.device)
    keywords = {
        "BLOCK_OUT": config.block_out,
        "BLOCK_IN": config.block_in,
        "SPLIT": split,
        # The vector kernel reads a tile ahead: there every part must have one.
        "EVEN": inputs % (config.block_in * (split if tile == 1 else 1)) == 0,
        "num_warps": config.warps,
        "num_stages": config.stages,
    }
    tensors = (x, weight, out, partials, arrivals)
    if tile == 1:
        early = {"launch_pdl": True} if pdl else {}
        _vector[(tiles, split)](*tensors, outputs, inputs, weight.stride(1), PDL=pdl, **early, **keywords)
    else:
        strides = (x.stride(0), weight.stride(1))
        _matrix[(tiles, split)](*tensors, tokens, outputs, inputs, *strides, TOKENS=tile, **keywords)
    return out


@functools.cache
def _arrivals(device: torch.device) -> torch.Tensor:
    """Return a counter for each tile of a split product; the last program of a tile sets its own back to 0."""
    return torch.zeros(ARRIVALS, dtype=torch.int32, device=device)


def _aot(config: Config, tokens: int, out: str, even: bool = True, pdl: bool = False) -> Launch:
    constants = {"BLOCK_OUT": config.block_out, "BLOCK_IN": config.block_in, "SPLIT": config.split}
    constants |= {"EVEN": even}
    scratch = "*fp32 *i32" if config.split > 1 else f"*{out} *{out}"
    tensors = f"*bf16 *bf16 *{out} {scratch}"
    if tokens == 1:
        types = f"{tensors} i32:16 i32:16 i32:16"
        return Launch(_vector, types, {**constants, "PDL": pdl}, config.warps, config.stages)
    types = f"{tensors} i32 i32:16 i32:16 i32:16 i32:16"
    return Launch(_matrix, types, {"TOKENS": tokens, **constants}, config.warps, config.stages)


AOT = (
    _aot(Config(4, 1024), 1, "bf16"),
    _aot(Config(4, 1024), 1, "fp32", pdl=True),
    _aot(Config(1, 1024, split=2), 1, "bf16", even=False),
    _aot(Config(64, 128, split=4, stages=4), 16, "bf16"),
    _aot(Config(64, 128, stages=4), 16, "fp32", even=False),
    _aot(Config(128, 128, split=4, stages=4), 32, "bf16"),
    _aot(Config(32, 256, split=2, stages=4), 16, "bf16"),
)
