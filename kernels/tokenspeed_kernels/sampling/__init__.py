"""The choice of the next token.

`sampling.draw` draws one id per row from logits. The distribution is softmax(logits / temperature)
of float32, cut in this order: `top_k` keeps the k likeliest; `top_p` keeps the shortest run of the
likeliest whose share of what top_k left reaches p; `min_p` drops what is less likely than min_p
times the likeliest. Tokens are ranked by (probability, then the lower id first), so a tie at a cut
is settled, and what is kept is always a prefix of that ranking with at least one token.

Among the kept tokens the largest logit / temperature + Gumbel(0, 1) wins (Gumbel-max trick), equal
sums going to the lower id. The noise depends on seed, position and token alone (`philox`), so a
request draws the same tokens alone, in any batch, and again after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


@dataclass(frozen=True, slots=True)
class DrawRows:
    """Settings of the rows to draw for, each a tensor [rows].

    `temperature` (float32, above 0), `top_p` and `min_p` (float64; 1 and 0 are off), `top_k` (int64;
    0 is off), `seed` (int64, the bits of an unsigned number), `position` (int64, the index in the
    sequence of the token that is drawn).
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    seed: torch.Tensor
    position: torch.Tensor


class DrawKernel(Protocol):
    """Draws one id per row."""

    def __call__(self, logits: torch.Tensor, rows: DrawRows) -> torch.Tensor:
        """Return int64 ids [rows]; `logits` is float32 [rows, vocab], minus infinity is never drawn."""
        ...


def draw(kernels: Selector) -> DrawKernel:
    """Return the kernel of `sampling.draw`."""
    return kernels.select_kernel(ask("sampling", "draw", torch.float32))


SPECS = (
    KernelSpec(
        name="torch_draw",
        family="sampling",
        mode="draw",
        solution="torch",
        entry="tokenspeed_kernels.sampling.torch_draw:draw",
        capability=CPU,
        dtypes=frozenset({torch.float32}),
        tags=frozenset({"reference"}),
    ),
)
