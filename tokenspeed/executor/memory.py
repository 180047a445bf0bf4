"""How much memory an executor needs, held against how much there is.

Owns the sums and the refusals. It reserves nothing.
"""

from __future__ import annotations

from pathlib import Path

from tokenspeed.errors import StartError
from tokenspeed.executor.pools import PageShape
from tokenspeed.machine import ROOT, memory_available_bytes

# Activations and logits of the largest step, the interpreter and its libraries.
OVERHEAD_BYTES = 512 << 20


def pages_that_fit(shape: PageShape, kv_cache_bytes: int, tokens_min: int) -> int:
    """Return how many pages `kv_cache_bytes` hold, page 0 included.

    Raises `StartError` if a sequence of `tokens_min` tokens would not fit.
    """
    pages = kv_cache_bytes // shape.bytes
    needed = 1 + -(-tokens_min // shape.page_tokens)
    if pages < needed:
        tokens = max(0, pages - 1) * shape.page_tokens
        raise StartError(
            f"The KV cache of {mib(kv_cache_bytes)} holds {tokens} tokens; "
            f"{tokens_min} are needed, which take {mib(needed * shape.bytes)}. "
            "Raise the KV cache's size or lower the largest model length."
        )
    return pages


def check_memory(weights_bytes: int, kv_bytes: int, root: Path = ROOT) -> None:
    """Raise `StartError` if weights and pages do not fit into the memory that is available.

    A limit of the container counts as the memory that there is.
    """
    available = memory_available_bytes(root)
    needed = weights_bytes + kv_bytes + OVERHEAD_BYTES
    if available is not None and needed > available:
        raise StartError(
            f"The model needs {mib(needed)} of memory (weights {mib(weights_bytes)}, KV cache {mib(kv_bytes)}, "
            f"work {mib(OVERHEAD_BYTES)}) and {mib(available)} are available. "
            "Serve a smaller model, make the KV cache smaller (--kv-cache-memory-bytes), free memory, or raise the "
            "container's limit.",
            code="out_of_memory",
        )


def mib(count: int) -> str:
    """Return `count` bytes for a reader."""
    return f"{count / (1 << 20):,.0f} MiB"
