"""How many pages a GPU has room for.

Owns the sum: what is there, less the weights and all else that is taken, less the measured peaks of
the largest step and of the largest decode step, which is what the graphs share. It reserves nothing.

What slots hold is taken before the sum is made. The largest of it: ids of every position, 135 MB for
257 slots of 131,072 positions, and counts of ids, 66 MB for 128 rows of 128,256.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import StartError
from tokenspeed.executor.memory import mib
from tokenspeed.executor.pools import PageShape

# What allocators lose to rounding, and what the driver takes for graphs and modules.
SLACK_BYTES = 256 << 20


def measured_peak(step: Callable[[], object]) -> int:
    """Return the bytes that `step` takes while it runs, beyond what is held before and after."""
    step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated() - before)


def check_weights_fit(weights_bytes: int, utilization: float) -> None:
    """Raise `StartError` if the weights alone do not fit."""
    free, total = torch.cuda.mem_get_info()
    allowed = free - int(total * (1 - utilization))
    if weights_bytes > allowed:
        raise StartError(
            f"The model's weights take {mib(weights_bytes)}; of the GPU's {mib(total)}, {mib(free)} are free and "
            f"{mib(max(allowed, 0))} may be used. Serve a smaller model, free the GPU, or raise the GPU memory "
            f"utilization, which is {utilization}.",
            code="out_of_memory",
        )


def page_count(config: ExecutorConfig, page: PageShape, step_bytes: int) -> int:
    """Return the number of pages, page 0 included, beside steps that take `step_bytes`.

    Raises `StartError` if one request of the full context would not fit.
    """
    torch.cuda.empty_cache()  # what the measured steps left behind is free
    free, total = torch.cuda.mem_get_info()
    allowed = free - int(total * (1 - config.gpu_memory_utilization)) - step_bytes - SLACK_BYTES
    pages = max(0, min(allowed, config.kv_cache_bytes or allowed)) // page.bytes
    length = config.model.max_model_len
    needed = 1 + -(-length // page.page_tokens)
    if pages < needed:
        raise StartError(
            f"The KV cache would hold {max(0, pages - 1) * page.page_tokens} tokens, less than one request of "
            f"max_model_len {length}, which takes {mib(needed * page.bytes)}: {mib(free)} of the GPU's {mib(total)} "
            f"are free, and a step takes {mib(step_bytes)}. Lower max_model_len or chunked_prefill_size, or raise "
            "the KV cache's size or the GPU memory utilization.",
            code="out_of_memory",
        )
    return int(pages)
