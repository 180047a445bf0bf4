"""Which kernel answers which question.

An operation is asked for by shape, dtype and traits (`Question`); each way to compute it describes
itself (`KernelSpec`). A `Registry` filters the specs of the question's family, ranks what is left
and says why each of the others was passed over. It does not know what any kernel computes, and a
kernel's module is imported only when that kernel is chosen.

Invariant: an overridden choice passes the same filters as any other.

Order of overrides, strongest first: environment (`TOKENSPEED_KERNELS`), context
(`override_kernels`), argument (`select(..., override=)`), configuration (`Selector.config`). Each
maps a family ("attention") or a family and mode ("attention.paged") to the name of a solution; the
longer key wins within one source.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

ENVIRONMENT = "TOKENSPEED_KERNELS"
Trait = int | str

_context: ContextVar[Mapping[str, str]] = ContextVar("kernel_overrides")


class KernelError(Exception):
    """No kernel answers the question, or an override cannot be followed."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Where a kernel is to run: "cpu" has capability (0, 0), a GPU its compute capability."""

    device: str
    capability: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: an operation of a family, on `dtype`, with traits such as `head_dim=64`.

    `features` are abilities that the answer must have; it may have more.
    """

    family: str
    mode: str
    dtype: torch.dtype
    traits: tuple[tuple[str, Trait], ...] = ()
    features: frozenset[str] = frozenset()


def ask(family: str, mode: str, dtype: torch.dtype, features: Iterable[str] = (), **traits: Trait) -> Question:
    """Return the question with its traits in a fixed order, so that equal questions are equal keys."""
    return Question(family, mode, dtype, tuple(sorted(traits.items())), frozenset(features))


@dataclass(frozen=True, slots=True)
class Capability:
    """Devices that a kernel runs on: `minimum` and `maximum` are inclusive."""

    device: str
    minimum: tuple[int, int] = (0, 0)
    maximum: tuple[int, int] | None = None

    def why_not(self, platform: Platform) -> str | None:
        """Return what is wrong with `platform`, or None."""
        if platform.device != self.device:
            return f"runs on {self.device}, not on {platform.device}"
        if platform.capability < self.minimum:
            return f"needs capability {_dotted(self.minimum)}, the device has {_dotted(platform.capability)}"
        if self.maximum is not None and platform.capability > self.maximum:
            return f"stops at capability {_dotted(self.maximum)}, the device has {_dotted(platform.capability)}"
        return None


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One way to compute one operation.

    `solution` is the name that overrides use. `entry` is "module:function" and is imported on
    choice. `capability` lists the devices, any of which will do. `traits` maps a trait to the
    values that are supported; a trait that is not named is free. `tags` name objectives at which
    the kernel is good ("latency", "throughput", "reference"); a higher `priority` wins among
    kernels of equal standing.
    """

    name: str
    family: str
    mode: str
    solution: str
    entry: str
    capability: tuple[Capability, ...]
    dtypes: frozenset[torch.dtype]
    features: frozenset[str] = frozenset()
    traits: Mapping[str, Container[Trait]] = field(default_factory=dict)
    priority: int = 0
    tags: frozenset[str] = frozenset()

    def why_not(self, question: Question, platform: Platform) -> tuple[str, ...]:
        """Return every reason why this kernel cannot answer; empty means that it can."""
        devices = [wanted.why_not(platform) for wanted in self.capability]
        reasons = [] if None in devices else [reason for reason in devices if reason]
        if question.dtype not in self.dtypes:
            reasons.append(f"takes {_names(self.dtypes)}, not {question.dtype}")
        for trait, value in question.traits:
            allowed = self.traits.get(trait)
            if allowed is not None and value not in allowed:
                reasons.append(f"{trait} is {value}, supported: {_values(allowed)}")
        missing = question.features - self.features
        if missing:
            reasons.append(f"lacks {', '.join(sorted(missing))}")
        return tuple(reasons)

    def load(self) -> Callable[..., Any]:
        """Import and return the kernel."""
        module, _, function = self.entry.partition(":")
        kernel: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return kernel


@dataclass(frozen=True, slots=True)
class Candidate:
    """A spec of the question's family and mode, and why it was passed over (empty if it was not)."""

    spec: KernelSpec
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """How a question was answered: candidates best first, then those that were passed over."""

    question: Question
    platform: Platform
    objective: str
    override: tuple[str, str] | None
    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> KernelSpec | None:
        """The kernel that answers, or None."""
        first = self.candidates[0] if self.candidates else None
        return first.spec if first is not None and not first.reasons else None

    def __str__(self) -> str:
        """Return one line for the question and one for each candidate."""
        traits = " ".join(f"{name}={value}" for name, value in self.question.traits)
        lines = [f"{_topic(self.question)} {self.question.dtype} {traits} on {self.platform.device} ({self.objective})"]
        if self.override is not None:
            lines.append(f"  override from {self.override[0]}: {self.override[1]}")
        for candidate in self.candidates:
            verdict = "; ".join(candidate.reasons) or ("chosen" if candidate.spec is self.chosen else "ranks lower")
            lines.append(f"  {candidate.spec.name}: {verdict}")
        return "\n".join(lines)


class Registry:
    """All kernels that are known, in no particular order."""

    def __init__(self, specs: Iterable[KernelSpec]) -> None:
        """Take `specs`; two of one name are an error."""
        self._specs = tuple(specs)
        names = [spec.name for spec in self._specs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise KernelError(f"kernels registered twice: {', '.join(twice)}.")

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        """Every registered kernel."""
        return self._specs

    def explain(
        self, question: Question, platform: Platform, objective: str, override: tuple[str, str] | None
    ) -> Choice:
        """Return every candidate for `question`, best first, with why it is not the answer."""
        candidates = []
        for spec in self._specs:
            if (spec.family, spec.mode) != (question.family, question.mode):
                continue
            reasons = spec.why_not(question, platform)
            if override is not None and spec.solution != override[1]:
                reasons = (f"{override[0]} asks for {override[1]}", *reasons)
            candidates.append(Candidate(spec, reasons))
        candidates.sort(key=lambda c: (bool(c.reasons), objective not in c.spec.tags, -c.spec.priority, c.spec.name))
        return Choice(question, platform, objective, override, tuple(candidates))


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

    def select(self, question: Question, override: str | None = None) -> Callable[..., Any]:
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
        topic = _topic(question)
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


def _topic(question: Question) -> str:
    return f"{question.family}.{question.mode}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def _values(allowed: Container[Trait]) -> str:
    return ", ".join(map(str, allowed)) if isinstance(allowed, frozenset | tuple) else str(allowed)
