"""One thing to be timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """A call, with what it must move and compute; `graph` says that a CUDA graph may capture it."""

    name: str
    run: Callable[[], object]
    bytes: int = 0
    flops: int = 0
    graph: bool = True
