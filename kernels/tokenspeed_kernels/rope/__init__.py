"""Rotary position embedding (Su et al., "RoFormer", 2021), joined with the store of KV into pages.

`rope.store` takes the projections of one step, qkv [tokens, heads + 2 * kv_heads, head_dim] (query
heads, key heads, value heads), rotates queries and keys, writes keys and values to their places in
the pages and returns the queries. Dimension i is paired with i + head_dim / 2.
"""

from __future__ import annotations

from typing import Protocol

import torch

from tokenspeed_kernels.platforms import CPU, GPU, GPU_DTYPES, NATIVE_DTYPES, REFERENCE_DTYPES, with_early_start
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import KernelSpec, ask


class RopeStoreKernel(Protocol):
    """Rotates one step's queries and keys and stores its keys and values."""

    def __call__(
        self,
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        key_pages: torch.Tensor,
        value_pages: torch.Tensor,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Return the rotated queries [tokens, heads, head_dim].

        `cos` and `sin` are [tokens, head_dim] (see `rotation`), pages are [pages, page_tokens,
        kv_heads, head_dim], `places` is int64 [tokens], on a GPU also int32: page * page_tokens + offset.
        """
        ...


def rope_store(kernels: Selector, dtype: torch.dtype, head_dim: int) -> RopeStoreKernel:
    """Return the kernel of `rope.store`."""
    return kernels.select_kernel(ask("rope", "store", dtype, head_dim=head_dim))


def rotation(positions: torch.Tensor, inverse_frequency: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float32 tables (cos, sin), both [positions, head_dim], that `rope.store` takes.

    `inverse_frequency` is float32 [head_dim / 2]. The angle of pair i is position times its inverse
    frequency. The first half of sin is negated, so that x * cos + swap_halves(x) * sin rotates.
    """
    angle = positions.float().unsqueeze(1) * inverse_frequency
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((cos, cos), dim=1), torch.cat((-sin, sin), dim=1)


SPECS = (
    KernelSpec(
        name="native_rope_store",
        family="rope",
        mode="store",
        solution="native",
        entry="tokenspeed_kernels.rope.native_rope:rope_store",
        capability=CPU,
        dtypes=NATIVE_DTYPES,
        traits={"head_dim": range(2, 1025, 2)},
        priority=20,
        tags=frozenset({"latency", "throughput"}),
    ),
    KernelSpec(
        name="torch_rope_store",
        family="rope",
        mode="store",
        solution="torch",
        entry="tokenspeed_kernels.rope.torch_rope:rope_store",
        capability=CPU,
        dtypes=REFERENCE_DTYPES,
        traits={"head_dim": range(2, 1025, 2)},
        tags=frozenset({"reference"}),
    ),
    *with_early_start(
        KernelSpec(
            name="triton_rope_store",
            family="rope",
            mode="store",
            solution="triton",
            entry="tokenspeed_kernels.rope.triton_rope:rope_store",
            requires=("triton",),
            capability=GPU,
            dtypes=GPU_DTYPES,
            traits={"head_dim": range(2, 1025, 2)},
            priority=10,
            tags=frozenset({"latency"}),
        ),
    ),
)
