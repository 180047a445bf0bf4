"""How much memory an executor needs, held against how much there is.

Owns the sums and the refusals. It reserves nothing.
"""

from __future__ import annotations

from pathlib import Path

from tokenspeed.errors import StartError
from tokenspeed.executor.pools import PageShape

MEMINFO = Path("/proc/meminfo")

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


def check_memory(weights_bytes: int, kv_bytes: int, meminfo: Path = MEMINFO) -> None:
    """Raise `StartError` if weights and pages do not fit into the memory that is available."""
    available = _available_bytes(meminfo)
    needed = weights_bytes + kv_bytes + OVERHEAD_BYTES
    if available is not None and needed > available:
        raise StartError(
            f"The model needs {mib(needed)} of memory (weights {mib(weights_bytes)}, KV cache {mib(kv_bytes)}, "
            f"work {mib(OVERHEAD_BYTES)}) and {mib(available)} are available. "
            "Serve a smaller model, make the KV cache smaller, or free memory.",
            code="out_of_memory",
        )


def _available_bytes(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib is not None else None


def mib(count: int) -> str:
    """Return `count` bytes for a reader."""
    return f"{count / (1 << 20):,.0f} MiB"
