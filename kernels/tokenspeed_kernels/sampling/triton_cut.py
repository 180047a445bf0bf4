"""top_k, top_p and min_p without a sort: one program settles one row.

The winner among all tokens is the row's id if it is kept. If it is not, all tokens ranked below it
are out as well, so the winner among those ranked above it is next; a few rounds end it, for each
draws from what is left outside. Whether a token is kept takes the number and the mass of the
tokens above it, and these lie in the few blocks whose largest logit is not below it (a *view*).

A rank is (key, token): the order-preserving integer of the scaled logit, then the lower id.
(key, FAR) stands below every token of that key.

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
    token, logits, vocab, heat, top_k, top_p, min_p, seed, position, suppress, count, maxima, blocks, whole, view,
    BLOCKS: tl.constexpr,
):  # fmt: skip
    """Return the kept token with the best noisy logit; `token` is the winner among all.

    `logits` and `suppress` point to the row's; `count` ids are suppressed. `maxima` [blocks] has the
    largest scaled logit of each block, `whole` the mass of all tokens, `view` is scratch [blocks].
    """
    index = tl.arange(0, BLOCKS)
    live = index < blocks
    peaks = tl.load(maxima + index, mask=live, other=NEVER)
    high = tl.max(peaks)
    peaks = ranking_key(peaks)
    bound = LOWEST
    limit = vocab
    if (top_k > 0) & (top_k < vocab):
        limit = top_k
        if top_k <= blocks:
            bound = _bound_of_top(peaks, live, top_k)
        if top_p < 1.0:
            seen = _view(view, peaks, live, bound)
            whole = _mass_of_top(top_k, bound, high, logits, vocab, heat, suppress, count, view, seen)
    if min_p > 0.0:
        bound = tl.maximum(bound, _floor(high, min_p))
    room = tl.where(top_p < 1.0, top_p * whole, float("inf"))
    key = ranking_key(_scaled(logits, token, vocab, heat, suppress, count))
    if key < bound:
        key = bound
        token = FAR
    outside = True
    while outside:
        seen = _view(view, peaks, live, key)
        if token != FAR:
            above, mass = _above(key, token, high, logits, vocab, heat, suppress, count, view, seen)
            outside = (above > 0) & ((above >= limit) | (mass >= room))
        if outside:
            token = _best_above(key, token, seed, position, logits, vocab, heat, suppress, count, view, seen)
            key = ranking_key(_scaled(logits, token, vocab, heat, suppress, count))
    return token


@triton.jit
def _bound_of_top(peaks, live, top_k):
    """Return a key that at least `top_k` tokens reach: as many blocks have a peak that does."""
    low = tl.min(tl.where(live, peaks, 0x7FFFFFFF)).to(tl.int64)
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
def _mass_of_top(top_k, bound, high, logits, vocab, heat, suppress, count, view, seen):
    """Return the mass of the `top_k` likeliest tokens, all of which reach `bound` and are in view.

    Searches the k-th largest key between `low`, which more than k tokens reach, and `up`, which at
    most k reach; of the tokens at the k-th key as many count as are left to k.
    """
    low = bound.to(tl.int64)
    up = ranking_key(high).to(tl.int64) + 1
    middle = low
    reach = 0
    mass = tl.full((), 0.0, tl.float64)
    searching = True
    while searching:
        above, sum_above = _above(middle.to(tl.int32), FAR, high, logits, vocab, heat, suppress, count, view, seen)
        if above > top_k:
            low = middle
        else:
            up = middle
            reach = above
            mass = sum_above
        searching = (reach != top_k) & (up - low > 1)
        middle = (low + up) >> 1
    tie = tl.exp(value_of(low.to(tl.int32)) - high).to(tl.float64)
    return mass + (top_k - reach).to(tl.float64) * tie


@triton.jit
def _floor(high, min_p):
    """Return the lowest key of a logit that is at least high + log(min_p), a sum in float64."""
    exact = high.to(tl.float64) + tl.log(min_p)
    near = exact.to(tl.float32)
    key = ranking_key(near) + (near.to(tl.float64) < exact).to(tl.int32)
    return tl.minimum(key, ranking_key(high))


@triton.jit
def _view(view, peaks, live, bound):
    """Write the blocks with a token that reaches `bound` to `view`, ascending; return their number."""
    chosen = live & (peaks >= bound)
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1
    # Other threads may still read the view before this one, and will read this one.
    tl.debug_barrier()
    tl.store(view + place, tl.arange(0, chosen.shape[0]), mask=chosen)
    tl.debug_barrier()
    return tl.sum(chosen.to(tl.int32))


@triton.jit
def _above(key, token, high, logits, vocab, heat, suppress, count, view, seen):
    """Return (number, mass) of the tokens in view that rank above (key, token)."""
    number = tl.zeros((VIEW_BLOCKS, BLOCK), tl.int32)
    mass = tl.zeros((VIEW_BLOCKS, BLOCK), tl.float64)
    start = 0
    while start < seen:
        block, tokens = _part(view, start, seen)
        x = _scaled(logits, tokens, vocab, heat, suppress, count)
        higher = _ranks_above(x, tokens, key, token, vocab)
        number += higher.to(tl.int32)
        mass += tl.where(higher, tl.exp(x - high), 0.0).to(tl.float64)
        start += VIEW_BLOCKS
    return tl.sum(number), tl.sum(mass)


@triton.jit
def _best_above(key, token, seed, position, logits, vocab, heat, suppress, count, view, seen):
    """Return the token in view with the best noisy logit among those that rank above (key, token)."""
    best = tl.full((VIEW_BLOCKS, BLOCK), NEVER, tl.float32)
    best_tokens = tl.full((VIEW_BLOCKS, BLOCK), FAR, tl.int32)
    start = 0
    while start < seen:
        block, tokens = _part(view, start, seen)
        x = _scaled(logits, tokens, vocab, heat, suppress, count)
        noisy = tl.where(_ranks_above(x, tokens, key, token, vocab), x + gumbel(seed, position, block), NEVER)
        # Blocks ascend, so of equal sums an earlier one has the lower id.
        better = noisy > best
        best = tl.where(better, noisy, best)
        best_tokens = tl.where(better, tokens, best_tokens)
        start += VIEW_BLOCKS
    _, found = best_of(best, best_tokens)
    return found


@triton.jit
def _part(view, start, seen):
    """Return the next VIEW_BLOCKS blocks of the view, and their tokens; past its end none is real."""
    index = start + tl.arange(0, VIEW_BLOCKS)
    block = tl.load(view + index, mask=index < seen, other=NOWHERE)
    return block, tokens_of(block)


@triton.jit
def _scaled(logits, tokens, vocab, heat, suppress, count):
    """Return logit / temperature of `tokens`, minus infinity for suppressed ones and from `vocab` on."""
    x = tl.load(logits + tokens, mask=tokens < vocab, other=NEVER)
    return suppressed(tl.div_rn(x, heat), tokens, suppress, count)


@triton.jit
def _ranks_above(x, tokens, key, token, vocab):
    keys = ranking_key(x)
    return (tokens < vocab) & ((keys > key) | ((keys == key) & (tokens < token)))
