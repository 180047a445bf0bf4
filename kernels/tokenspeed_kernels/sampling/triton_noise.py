"""The noise of `philox` and the ranking of `torch_draw`, in Triton.

Tiles are [blocks, BLOCK_TOKENS]: a block is what one warp reads with 16 bytes a lane, and the four
tokens of a lane share one Philox call.

Invariant: the bits of u are those of `philox`; only the two logarithms may round differently.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tokenspeed_kernels.sampling import philox

BLOCK_TOKENS = 128
BLOCK = tl.constexpr(BLOCK_TOKENS)
QUADS = tl.constexpr(BLOCK_TOKENS // 4)
NOWHERE = tl.constexpr(2**23)
"""A block beyond every token."""
FAR = tl.constexpr(2**31 - 1)
"""An id beyond every token."""
NEVER = tl.constexpr(float("-inf"))
LOWEST = tl.constexpr(-0x7F800001)
"""The ranking key of minus infinity."""

_M0 = tl.constexpr(philox.MULTIPLIERS[0])
_M1 = tl.constexpr(philox.MULTIPLIERS[1])
_W0 = tl.constexpr(philox.WEYL[0])
_W1 = tl.constexpr(philox.WEYL[1])
_ROUNDS = tl.constexpr(philox.ROUNDS)
_UNIT = tl.constexpr(2.0**-23)


@triton.jit
def gumbel(seed: tl.tensor, position: tl.tensor, blocks: tl.tensor) -> tl.tensor:
    """Return float32 [n, BLOCK], the noise of the tokens of `blocks` (int32 [n]).

    `seed` is an int64 scalar, `position` an int32 scalar.
    """
    quads = blocks[:, None] * QUADS + tl.arange(0, QUADS)[None, :]
    w0, w1, w2, w3 = _philox(seed, position, quads.to(tl.uint32))
    # The last join is the fastest index: (w0, w1), (w2, w3).
    pairs = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    words = tl.reshape(pairs, (quads.shape[0], BLOCK))
    uniform = ((words >> 9).to(tl.float32) + 0.5) * _UNIT
    return -tl.log(-tl.log(uniform))


@triton.jit
def _philox(seed: tl.tensor, position: tl.tensor, c0: tl.tensor) -> tl.tuple:
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c1 = tl.zeros_like(c0) + position.to(tl.uint32)
    c2 = tl.zeros_like(c0)
    c3 = tl.zeros_like(c0)
    for _ in tl.static_range(_ROUNDS):
        # One wide product gives both halves; a high and a low product would be two instructions.
        p0 = c0.to(tl.uint64) * _M0
        p1 = c2.to(tl.uint64) * _M1
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = p1.to(tl.uint32)
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = p0.to(tl.uint32)
        k0 = tl.add(k0, _W0, sanitize_overflow=False)
        k1 = tl.add(k1, _W1, sanitize_overflow=False)
    return c0, c1, c2, c3


@triton.jit
def tokens_of(blocks: tl.tensor) -> tl.tensor:
    """Return int32 [n, BLOCK], the ids of the tokens of `blocks` (int32 [n])."""
    return blocks[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]


@triton.jit
def suppressed(x: tl.tensor, tokens: tl.tensor, suppress: tl.tensor, count: tl.tensor) -> tl.tensor:
    """Return `x` with minus infinity where `tokens` are among the `count` ids at `suppress`."""
    for index in range(count):
        x = tl.where(tokens == tl.load(suppress + index), NEVER, x)
    return x


@triton.jit
def ranking_key(x: tl.tensor) -> tl.tensor:
    """Return int32 keys in the order of `x`; equal values have equal keys."""
    # -0.0 and 0.0 are equal: adding 0.0 makes their bits equal too.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def value_of(key: tl.tensor) -> tl.tensor:
    """Return the float32 whose ranking key is `key`."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def best_of(values: tl.tensor, ids: tl.tensor) -> tl.tuple:
    """Return (the largest of `values`, the lowest of `ids` among those that equal it)."""
    best = tl.max(values)
    return best, tl.min(tl.where(values == best, ids, FAR))
