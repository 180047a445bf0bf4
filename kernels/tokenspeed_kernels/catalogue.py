"""Every kernel of this package, and the selector that answers with them.

The one file that knows all families. A new family adds its `SPECS` here.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenspeed_kernels import activation, attention, embedding, gemm, norm, rope, sampling, step
from tokenspeed_kernels.registry import Registry
from tokenspeed_kernels.selection import Selector
from tokenspeed_kernels.spec import Platform

REGISTRY = Registry(
    (
        *attention.SPECS,
        *gemm.SPECS,
        *norm.SPECS,
        *rope.SPECS,
        *activation.SPECS,
        *embedding.SPECS,
        *sampling.SPECS,
        *step.SPECS,
    )
)


def selector(
    device: str,
    objective: str = "latency",
    config: Mapping[str, str] | None = None,
    capability: tuple[int, int] = (0, 0),
) -> Selector:
    """Return the selector for `device`: "cpu", or "cuda" with its compute `capability`.

    `config` holds overrides, see `selection`.
    """
    return Selector(REGISTRY, Platform(device, capability), objective, config)
