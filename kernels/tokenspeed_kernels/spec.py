"""What is asked of a kernel, and how a kernel describes itself.

An operation is asked for by shape, dtype and traits (`Question`); each way to compute it says where
and for what it works (`KernelSpec`). Nothing here knows what any kernel computes, and a kernel's
module is imported only by `KernelSpec.load`.

Invariant: `KernelSpec.why_not` is empty exactly if the kernel can answer.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

Trait = int | str


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

    @property
    def topic(self) -> str:
        """Family and mode, as overrides name them."""
        return f"{self.family}.{self.mode}"


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
    kernels of equal standing. `requires` names the modules that the kernel imports and that this
    package does not depend on; they are looked for, not imported, until the kernel is chosen.
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
    requires: tuple[str, ...] = ()

    def missing(self) -> tuple[str, ...]:
        """Return the names of `requires` that are not installed."""
        return tuple(name for name in self.requires if not _installed(name))

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
        reasons.extend(f"needs {name}, which is not installed" for name in self.missing())
        return tuple(reasons)

    def load(self) -> Callable[..., Any]:
        """Import and return the kernel."""
        module, _, function = self.entry.partition(":")
        kernel: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return kernel


@functools.cache
def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(map(str, dtypes)))


def _values(allowed: Container[Trait]) -> str:
    return ", ".join(map(str, allowed)) if isinstance(allowed, frozenset | tuple) else str(allowed)
