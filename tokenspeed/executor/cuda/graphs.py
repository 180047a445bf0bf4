"""One CUDA graph per row bucket, each the whole of a decode step.

Owns the graphs and the memory pool that they share; the largest is captured first, so that the
others find room in what it took. What a step computes is the caller's.

Invariant: after construction nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tokenspeed.model.loader import Progress


class DecodeGraphs:
    """Replays a step by its bucket. Each graph's ids lie where its capture put them."""

    def __init__(self, sizes: tuple[int, ...], step: Callable[[int], torch.Tensor], progress: Progress) -> None:
        """Capture `step(bucket)`, which returns its ids, for every size, on the current stream.

        Each bucket runs once before its capture: what compiles or loads does so then.
        """
        pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        for done, size in enumerate(reversed(sizes)):
            progress("capture graphs", done / len(sizes))
            step(size)
            torch.cuda.current_stream().synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool)
            try:
                ids = step(size)
            finally:
                graph.capture_end()
            self._graphs[size] = graph, ids
        progress("capture graphs", 1.0)

    def replay(self, size: int) -> torch.Tensor:
        """Launch the graph of bucket `size` and return its ids, int32 [size]."""
        graph, ids = self._graphs[size]
        graph.replay()
        return ids
