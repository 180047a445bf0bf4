"""How the skinny products are cut up, by shape: measured winners, and a rule for the rest.

A configuration is chosen by (outputs, inputs, tokens) alone, so a graph's bucket always runs the
same code. The rule wants enough programs in flight to keep every multiprocessor's memory pipe full
(about 32 KB each), and splits the inputs where the outputs are too few for that.

Invariant: whatever this file returns gives the right product; it decides about speed only.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

# Widths of the tokens' tile: one token has a kernel of its own, the others multiply on matrix units.
TOKEN_TILES = (1, 16, 32)
TOKENS_MAX = TOKEN_TILES[-1]
# Programs wanted: four of 128 threads on each of an H200's 132 multiprocessors.
PROGRAMS = 528
SHARED_BYTES_MAX = 200 * 1024


@dataclass(frozen=True, slots=True)
class Config:
    """A program takes `block_out` outputs and reads `block_in` inputs at a time.

    `split` programs share an output tile; `stages` is the depth of the pipeline of loads.
    """

    block_out: int
    block_in: int
    split: int = 1
    warps: int = 4
    stages: int = 1


# (outputs, inputs, tile of tokens) to the fastest candidate; None is cuBLAS.
SM90: dict[tuple[int, int, int], Config | None] = {
    # Llama 3.1 8B: QKV, O, gate and up, down, head
    (6144, 4096, 1): Config(16, 512),  # 14.5 us, cuBLAS 16.1
    (6144, 4096, 16): None,  # 15.5 us, best here 15.7
    (6144, 4096, 32): None,  # 16.1 us, best here 16.5
    (4096, 4096, 1): Config(4, 512),  # 10.4 us, cuBLAS 13.5
    (4096, 4096, 16): Config(64, 128, split=4, stages=3),  # 11.4 us, cuBLAS 13.4
    (4096, 4096, 32): Config(64, 128, split=4, stages=3),  # 12.0 us, cuBLAS 13.9
    (28672, 4096, 1): Config(2, 1024),  # 57.1 us, cuBLAS 57.1
    (28672, 4096, 16): None,  # 56.6 to 57.6 us, here 58.0 to 63.4
    (28672, 4096, 32): None,  # 58.6 us, here 58.7
    (4096, 14336, 1): Config(4, 512),  # 29.6 us, cuBLAS 32.1
    (4096, 14336, 16): Config(64, 128, split=4, stages=3),  # 30.9 us, cuBLAS 32.5
    (4096, 14336, 32): Config(64, 128, split=4, stages=3),  # 32.0 us, cuBLAS 33.5
    (128256, 4096, 1): Config(2, 1024),  # 240 us, cuBLAS 247
    (128256, 4096, 16): Config(128, 128, stages=3),  # 241 us, cuBLAS 251
    (128256, 4096, 32): Config(64, 128, stages=4),  # 250 us, cuBLAS 270
}


@functools.cache
def choose(outputs: int, inputs: int, tokens: int) -> Config | None:
    """Return how to multiply `tokens` by a weight [inputs, outputs]; None leaves it to cuBLAS."""
    if not 0 < tokens <= TOKENS_MAX:
        return None
    tile = token_tile(tokens)
    key = (outputs, inputs, tile)
    return SM90[key] if key in SM90 else _rule(outputs, inputs, tile)


def token_tile(tokens: int) -> int:
    """Return the smallest tile that holds `tokens`."""
    return next(tile for tile in TOKEN_TILES if tokens <= tile)


def candidates(outputs: int, inputs: int, tokens: int) -> tuple[Config, ...]:
    """Return the configurations worth timing for a shape; the rule's own is the first."""
    tile = token_tile(tokens)
    grid = _vector_grid() if tile == 1 else _matrix_grid(tile)
    fitting = [config for config in grid if _fits(config, outputs, inputs)]
    rule = _rule(outputs, inputs, tile)
    return (rule, *(config for config in fitting if config != rule))


def _rule(outputs: int, inputs: int, tile: int) -> Config:
    if tile == 1:
        block_out, block_in = 4, min(1024, _power_of_two_up(inputs))
        while block_out > 1 and outputs < block_out * PROGRAMS:
            block_out //= 2
        return Config(block_out, block_in, _split(outputs, inputs, block_out, 2 * block_in))
    # Two programs of this size fit on a multiprocessor.
    block_in = min(128, max(16, _power_of_two_up(inputs)))
    return Config(64, block_in, _split(outputs, inputs, 64, 4 * block_in), stages=4)


def _split(outputs: int, inputs: int, block_out: int, inputs_min: int) -> int:
    """Return into how many parts to split the inputs, each of `inputs_min` or more."""
    split, tiles = 1, -(-outputs // block_out)
    # Half of the multiprocessors with two programs and half with one are near enough to full.
    while tiles * split * 3 < PROGRAMS and inputs >= 2 * split * inputs_min:
        split *= 2
    return split


def _vector_grid() -> list[Config]:
    """For one token: 16 to 64 weights a thread and load."""
    return [
        Config(block_out, block_in, split, warps)
        for block_out in (1, 2, 4, 8, 16)
        for block_in in (512, 1024, 2048)
        for warps in (4, 8)
        for split in (1, 2, 4)
        if 16 <= block_out * block_in // (32 * warps) <= 64
    ]


def _matrix_grid(tile: int) -> list[Config]:
    """For several tokens: 48 KB or more on the way, in one to three programs a multiprocessor."""
    return [
        Config(block_out, block_in, split, 4, stages)
        for block_out in (32, 64, 128)
        for block_in in (64, 128, 256)
        for stages in (3, 4, 6)
        for split in (1, 2, 3, 4, 8)
        if 48 * 1024 <= 2 * stages * block_in * (block_out + tile) <= SHARED_BYTES_MAX
    ]


def _fits(config: Config, outputs: int, inputs: int) -> bool:
    """Return whether a candidate suits the shape: full programs, and a split only where it is needed."""
    programs = -(-outputs // config.block_out) * config.split
    enough = programs >= PROGRAMS // 4
    needed = config.split == 1 or programs <= 3 * PROGRAMS
    return enough and needed and inputs >= config.block_in * config.split


def _power_of_two_up(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
