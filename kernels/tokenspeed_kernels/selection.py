"""Answers questions for one platform, listening to overrides.

Order of overrides, strongest first: environment (`TOKENSPEED_KERNELS`), context
(`override_kernels`), argument (`select_kernel(..., override=)`), configuration (`Selector`'s `config`).
Each maps a family ("attention") or a family and mode ("attention.paged") to the name of a solution;
the longer key wins within one source. The environment is read for this alone.

Invariant: the same question under the same override gets the same kernel, looked up once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from tokenspeed_kernels.registry import Choice, Registry
from tokenspeed_kernels.spec import KernelError, Platform, Question

ENVIRONMENT = "TOKENSPEED_KERNELS"

_context: ContextVar[Mapping[str, str]] = ContextVar("kernel_overrides")


class Selector:
    """Answers questions for one platform and objective, and remembers the answers."""

    def __init__(
        self,
        registry: Registry,
        platform: Platform,
        objective: str = "latency",
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`config` holds the overrides of the configuration: family or family.mode to solution."""
        self.platform = platform
        self._registry = registry
        self._objective = objective
        self._config = dict(config or {})
        self._cache: dict[tuple[Question, tuple[str, str] | None], Callable[..., Any]] = {}

    def select_kernel(self, question: Question, override: str | None = None) -> Callable[..., Any]:
        """Return the kernel for `question`; `override` names a solution. Raises `KernelError`."""
        key = (question, self._override(question, override))
        kernel = self._cache.get(key)
        if kernel is None:
            choice = self.explain(question, override)
            if choice.chosen is None:
                raise KernelError(f"no kernel answers:\n{choice}")
            kernel = self._cache[key] = choice.chosen.load()
        return kernel

    def explain(self, question: Question, override: str | None = None) -> Choice:
        """Return how `question` is answered and why."""
        return self._registry.explain(question, self.platform, self._objective, self._override(question, override))

    def _override(self, question: Question, argument: str | None) -> tuple[str, str] | None:
        topic = question.topic
        sources: tuple[tuple[str, Mapping[str, str]], ...] = (
            (f"the environment ({ENVIRONMENT})", parse_overrides(os.environ.get(ENVIRONMENT, ""))),
            ("the context", _context.get({})),
            ("the argument", {topic: argument} if argument is not None else {}),
            ("the configuration", self._config),
        )
        for source, overrides in sources:
            solution = overrides.get(topic, overrides.get(question.family))
            if solution is not None:
                return source, solution
        return None


@contextlib.contextmanager
def override_kernels(overrides: Mapping[str, str]) -> Iterator[None]:
    """Within the block, answer with these solutions (family or family.mode to solution)."""
    token = _context.set({**_context.get({}), **overrides})
    try:
        yield
    finally:
        _context.reset(token)


def parse_overrides(text: str) -> dict[str, str]:
    """Return `text` ("attention=reference,gemm.linear=torch_mm") as a mapping. Raises `KernelError`."""
    overrides = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        topic, separator, solution = part.partition("=")
        if not (topic and separator and solution):
            raise KernelError(f'override "{part}" is not of the form family=solution or family.mode=solution.')
        overrides[topic] = solution
    return overrides
