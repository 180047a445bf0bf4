"""All kernels, and which of them answers a question.

A `Registry` filters the specs of the question's family and mode, ranks what is left by objective
and priority, and says why each of the others was passed over.

Invariant: an overridden choice passes the same filters as any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenspeed_kernels.spec import KernelError, KernelSpec, Platform, Question


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
        lines = [f"{self.question.topic} {self.question.dtype} {traits} on {self.platform.device} ({self.objective})"]
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
