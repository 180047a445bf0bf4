"""One CUDA graph per row bucket, each the whole of a decode step; and one for what few rows ask for.

Owns the graphs and the memory pool that they share; the largest is captured first, so that the
others find room in what it took. What a step computes is the caller's.

A bucket's second graph, its tail, goes over the logits that the first has left and chooses again, as
settings of rows say. So a step that needs none of it costs nothing, and what both have in common is
held once. Graphs lie in each other's memory: a tail follows its step at once or not at all.

Invariant: after construction nothing is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch

from tokenspeed.model.loader import Progress

T = TypeVar("T")


class Chosen(NamedTuple):
    """What comes down from a step: int32 ids [rows], and entries [rows, words] of log-probabilities if it is full."""

    ids: torch.Tensor
    entries: torch.Tensor | None = None


class Step(NamedTuple):
    """A step before its tail: float32 logits [rows, vocab], and the ids chosen of them, int32 [rows]."""

    logits: torch.Tensor
    ids: torch.Tensor


class _Bucket(NamedTuple):
    step: torch.cuda.CUDAGraph
    ids: torch.Tensor
    tail: torch.cuda.CUDAGraph
    chosen: Chosen


class DecodeGraphs:
    """Replays a step by its bucket. What each graph brings lies where its capture put it."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        step: Callable[[int], Step],
        tail: Callable[[int, torch.Tensor], Chosen],
        progress: Progress,
    ) -> None:
        """Capture `step(bucket)` and `tail(bucket, logits)` for every size, on the current stream.

        Each bucket runs once before its capture: what compiles or loads does so then.
        """
        self._pool = torch.cuda.graph_pool_handle()
        self._buckets: dict[int, _Bucket] = {}
        for done, size in enumerate(reversed(sizes)):
            progress("capture graphs", done / len(sizes))
            tail(size, step(size).logits)
            torch.cuda.current_stream().synchronize()
            self._buckets[size] = self._capture_both(size, step, tail)
        progress("capture graphs", 1.0)

    def replay(self, size: int, full: bool) -> Chosen:
        """Launch the graph of bucket `size`, with its tail if the step is `full`."""
        bucket = self._buckets[size]
        bucket.step.replay()
        if not full:
            return Chosen(bucket.ids)
        bucket.tail.replay()
        return bucket.chosen

    def _capture_both(
        self, size: int, step: Callable[[int], Step], tail: Callable[[int, torch.Tensor], Chosen]
    ) -> _Bucket:
        step_graph, (logits, ids) = self._capture(lambda: step(size))
        # While the logits are held, no part of the tail is put where they lie; later graphs may be.
        tail_graph, chosen = self._capture(lambda: tail(size, logits))
        return _Bucket(step_graph, ids, tail_graph, chosen)

    def _capture(self, work: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self._pool)
        try:
            made = work()
        finally:
            graph.capture_end()
        return graph, made
