"""Random numbers that are a function of (seed, position, token).

Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC11)
with key = (low, high 32 bits of the seed) and counter = (token >> 2, position, 0, 0); lane token & 3
of the four words is the token's. A word w becomes the float32 u = ((w >> 9) + 0.5) * 2^-23: the sum
needs 24 bits, so u is exact, lies strictly between 0 and 1, and is bit-equal on every device. The
Gumbel number is -log(-log(u)) in float32.

Words are kept in int64 tensors, since torch has no arithmetic on uint32.
"""

from __future__ import annotations

import torch

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def philox4x32(counter: Words, key: tuple[torch.Tensor, torch.Tensor]) -> Words:
    """Return the four words of each counter; all tensors are int64 in [0, 2^32) and broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product of two words may pass 2^63 and wrap: its bits are right, the sign is masked off.
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) & WORD ^ c1 ^ k0, p1 & WORD, (p0 >> 32) & WORD ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def gumbel_all(seed: torch.Tensor, position: torch.Tensor, vocab: int) -> torch.Tensor:
    """Return float32 [rows, vocab], the noise of every token; `seed` and `position` are int64 [rows]."""
    quads = torch.arange(-(-vocab // 4)).unsqueeze(0)
    words = torch.stack(_words(seed, position, quads), dim=2).flatten(1)
    return _gumbel(words[:, :vocab])


def gumbel_of(seed: torch.Tensor, position: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return float32 [rows, n], the noise of `tokens` (int64 [rows, n])."""
    words = torch.stack(_words(seed, position, tokens >> 2), dim=2)
    return _gumbel(words.gather(2, (tokens & 3).unsqueeze(2)).squeeze(2))


def _words(seed: torch.Tensor, position: torch.Tensor, quads: torch.Tensor) -> Words:
    key = ((seed & WORD).unsqueeze(1), ((seed >> 32) & WORD).unsqueeze(1))
    zero = torch.zeros((), dtype=torch.int64)
    return philox4x32((quads, position.unsqueeze(1), zero, zero), key)


def _gumbel(words: torch.Tensor) -> torch.Tensor:
    uniform = ((words >> 9).to(torch.float32) + 0.5) * 2.0**-23
    return -torch.log(-torch.log(uniform))
