"""top_k, top_p and min_p without a sort: one program settles one row.

The winner among all tokens is the row's id if it is kept. If it is not, all tokens ranked below it
are out as well, so the winner among those ranked above it is next; a few rounds end it, for each
draws from what is left outside. Whether a token is kept takes the number and the mass of the
tokens above it, and these lie in the few blocks whose largest logit is not below it (a *view*).

A rank is (key, token): the order-preserving integer of the scaled logit, then the lower id.
(key, FAR) stands below every token of that key. `row` is the tuple (logits, vocab, temperature,
suppress, count, view): pointers to the row's logits and suppressed ids, and scratch for the view.

Invariant: `high` is the row's largest scaled logit; masses are sums of exp(scaled - high) in float64.
"""

from __future__ import annotations

import triton
import triton.language as tl

from tokenspeed_kernels.sampling.triton_noise import (
    BLOCK,
    FAR,
    LOWEST,
    NEVER,
    NOWHERE,
    best_of,
    gumbel,
    ranking_key,
    suppressed,
    tokens_of,
    value_of,
)

VIEW_BLOCKS = tl.constexpr(32)
# How many blocks more than k a lower bound of the k-th largest may let in: a narrower one takes
# more steps of the search than reading these blocks costs.
BOUND_SLACK = tl.constexpr(12)


@triton.jit
def settle_cut(
    token: tl.tensor,
    row: tl.tuple,
    top_k: tl.tensor,
    top_p: tl.tensor,
    min_p: tl.tensor,
    seed: tl.tensor,
    position: tl.tensor,
    maxima: tl.tensor,
    blocks: tl.tensor,
    whole: tl.tensor,
    BLOCKS: tl.constexpr,
) -> tl.tensor:
    """Return the kept token with the best noisy logit; `token` is the winner among all, not at minus infinity.

    `maxima` points to the largest scaled logit of each of the row's `blocks`, `whole` is the mass of
    all tokens (needed only for top_p without top_k).
    """
    index = tl.arange(0, BLOCKS)
    live = index < blocks
    peaks = tl.load(maxima + index, mask=live, other=NEVER)
    high = tl.max(peaks)
    peaks = ranking_key(peaks)
    kth = LOWEST
    limit = row[1]
    # The mass of which top_p takes its share is in [least, most].
    least = whole
    most = whole
    if (top_k > 0) & (top_k < limit):
        limit = top_k
        least = tl.full((), 0.0, tl.float64)
        most = tl.full((), float("inf"), tl.float64)
        if top_k <= blocks:
            kth = _bound_of_top(peaks, live, top_k)
    low = kth.to(tl.int64)
    up = ranking_key(high).to(tl.int64) + 1
    reach = 0
    middle = low
    bound = kth
    if min_p > 0.0:
        bound = tl.maximum(bound, _floor(high, min_p))
    key = ranking_key(_scaled(row, token))
    if key < bound:
        key = bound
        token = FAR
    outside = True
    while outside:
        seen = _view(row, peaks, live, key)
        if token != FAR:
            above, mass = _above(key, token, high, row, seen)
            outside = above >= limit
            if (top_p < 1.0) & (above > 0) & (above < limit):
                if (mass >= top_p * least) & (mass < top_p * most):
                    seen = _view(row, peaks, live, kth)
                # Both bounds agree at last; mostly they need not come that near.
                while (mass >= top_p * least) & (mass < top_p * most):
                    low, up, reach, least, most = _narrow(middle, low, up, reach, least, most, top_k, high, row, seen)
                    middle = (low + up) >> 1
                outside = mass >= top_p * least
        if outside:
            token = _best_above(key, token, seed, position, row, seen)
            key = ranking_key(_scaled(row, token))
    return token


@triton.jit
def _bound_of_top(peaks: tl.tensor, live: tl.tensor, top_k: tl.tensor) -> tl.tensor:
    """Return a key that at least `top_k` tokens reach: as many blocks have a peak that does."""
    low = tl.min(tl.where(live, peaks, FAR)).to(tl.int64)
    high = tl.max(peaks).to(tl.int64) + 1
    reach = tl.sum(live.to(tl.int32))
    while (high - low > 1) & (reach > top_k + BOUND_SLACK):
        middle = (low + high) >> 1
        seen = tl.sum((live & (peaks >= middle)).to(tl.int32))
        if seen >= top_k:
            low = middle
            reach = seen
        else:
            high = middle
    return low.to(tl.int32)


@triton.jit
def _narrow(
    middle: tl.tensor,
    low: tl.tensor,
    up: tl.tensor,
    reach: tl.tensor,
    least: tl.tensor,
    most: tl.tensor,
    top_k: tl.tensor,
    high: tl.tensor,
    row: tl.tuple,
    seen: tl.tensor,
) -> tl.tuple:
    """Return low, up, reach, least and most after a look at the key `middle`, all reaching tokens being in view.

    Of the `top_k` likeliest tokens all reach `low`, as more than k tokens do, and their mass is at most
    `most`; `reach` of them reach `up`, at most k, with a mass of `least`. Between neighbouring keys
    only equals are left, of which as many count as are missing.
    """
    above, mass = _above(middle.to(tl.int32), FAR, high, row, seen)
    if above > top_k:
        low = middle
        most = mass
    else:
        up = middle
        reach = above
        least = mass
    if reach == top_k:
        most = least
    elif up - low <= 1:
        tie = tl.exp(value_of(low.to(tl.int32)) - high).to(tl.float64)
        least += (top_k - reach).to(tl.float64) * tie
        most = least
    return low, up, reach, least, most


@triton.jit
def _floor(high: tl.tensor, min_p: tl.tensor) -> tl.tensor:
    """Return the lowest key of a logit that is at least high + log(min_p), a sum in float64."""
    exact = high.to(tl.float64) + tl.log(min_p)
    near = exact.to(tl.float32)
    key = ranking_key(near) + (near.to(tl.float64) < exact).to(tl.int32)
    return tl.minimum(key, ranking_key(high))


@triton.jit
def _view(row: tl.tuple, peaks: tl.tensor, live: tl.tensor, bound: tl.tensor) -> tl.tensor:
    """Write the blocks with a token that reaches `bound` to the view, ascending; return their number."""
    chosen = live & (peaks >= bound)
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    # Other threads may still read the view before this one, and will read this one.
    tl.debug_barrier()
    tl.store(row[5] + place, tl.arange(0, chosen.shape[0]), mask=chosen)
    tl.debug_barrier()
    return tl.sum(chosen.to(tl.int32))


@triton.jit
def _above(key: tl.tensor, token: tl.tensor, high: tl.tensor, row: tl.tuple, seen: tl.tensor) -> tl.tuple:
    """Return (number, mass) of the tokens in view that rank above (key, token)."""
    number = tl.zeros((VIEW_BLOCKS, BLOCK), tl.int32)
    mass = tl.zeros((VIEW_BLOCKS, BLOCK), tl.float64)
    for start in range(0, seen, VIEW_BLOCKS):
        tokens = tokens_of(_part(row, start, seen))
        x = _scaled(row, tokens)
        higher = _ranks_above(row, x, tokens, key, token)
        number += higher.to(tl.int32)
        mass += tl.where(higher, tl.exp(x - high), 0.0).to(tl.float64)
    return tl.sum(number), tl.sum(mass)


@triton.jit
def _best_above(
    key: tl.tensor, token: tl.tensor, seed: tl.tensor, position: tl.tensor, row: tl.tuple, seen: tl.tensor
) -> tl.tensor:
    """Return the token in view with the best noisy logit among those that rank above (key, token)."""
    best = tl.full((VIEW_BLOCKS, BLOCK), NEVER, tl.float32)
    best_tokens = tl.full((VIEW_BLOCKS, BLOCK), FAR, tl.int32)
    for start in range(0, seen, VIEW_BLOCKS):
        block = _part(row, start, seen)
        tokens = tokens_of(block)
        x = _scaled(row, tokens)
        noisy = tl.where(_ranks_above(row, x, tokens, key, token), x + gumbel(seed, position, block), NEVER)
        # Blocks ascend, so of equal sums an earlier one has the lower id.
        better = noisy > best
        best = tl.where(better, noisy, best)
        best_tokens = tl.where(better, tokens, best_tokens)
    _, found = best_of(best, best_tokens)
    return found


@triton.jit
def _part(row: tl.tuple, start: tl.tensor, seen: tl.tensor) -> tl.tensor:
    """Return the next VIEW_BLOCKS blocks of the view; past its end none is real."""
    index = start + tl.arange(0, VIEW_BLOCKS)
    return tl.load(row[5] + index, mask=index < seen, other=NOWHERE)


@triton.jit
def _scaled(row: tl.tuple, tokens: tl.tensor) -> tl.tensor:
    """Return logit / temperature of `tokens`, minus infinity for suppressed ones and beyond the vocabulary."""
    logits, vocab, temperature, suppress, count, _ = row
    x = tl.load(logits + tokens, mask=tokens < vocab, other=NEVER)
    return suppressed(tl.div_rn(x, temperature), tokens, suppress, count)


@triton.jit
def _ranks_above(row: tl.tuple, x: tl.tensor, tokens: tl.tensor, key: tl.tensor, token: tl.tensor) -> tl.tensor:
    keys = ranking_key(x)
    return (tokens < row[1]) & ((keys > key) | ((keys == key) & (tokens < token)))
