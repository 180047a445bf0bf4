"""What every executor is to its actor, whatever it computes on.

Owns the form of the crossing: plans go in without waiting, outcomes come out when a descriptor says
so. It does not know devices, threads or messages' transport.

Invariant: each plan submitted since the last `forget` has one outcome, in the order of `submit`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.messages.executor import StepPlan


class StepOutcome(NamedTuple):
    """How one step went.

    `step_us` is the time from the begin of its work, not before the step ahead of it ended, to its
    end. `counts` and `ids`, `logprobs` and `scores` are those of `StepResult`, all empty if `failure`
    says why there are none; it is empty if all went well.
    """

    step: int
    step_us: int
    counts: bytes
    ids: bytes
    failure: str
    logprobs: bytes = b""
    scores: bytes = b""


class Executor(Protocol):
    """One rank: a model, its pages and slots. Of one thread once loaded.

    `pages_total` per cache group counts page 0, `slots` counts slot 0; both belong to padding.
    """

    page_tokens: int
    pages_total: tuple[int, ...]
    slots: int
    vocab_tokens: int

    def submit(self, plan: StepPlan) -> None:
        """Begin `plan` behind those submitted before; never waits for a result.

        What is needed of `plan` has been taken out of it when this returns: its bytes may be views
        of memory that changes afterwards. A plan that breaks a rule becomes an outcome with a
        failure, in its turn, and changes nothing.
        """

    def fileno(self) -> int:
        """Return a descriptor that is readable while outcomes wait."""

    def collect(self) -> list[StepOutcome]:
        """Return the outcomes that are there, in the order of `submit`; never waits."""

    def forget(self) -> None:
        """Drop the outcomes of all plans submitted so far; those not yet begun need not run."""

    def begin_profile(self) -> None:
        """Observe kernels from now on; `UserError` on a device that has none to observe."""

    def end_profile(self) -> list[KernelSlice]:
        """End what `begin_profile` began, and return what was observed."""

    def close(self) -> None:
        """Wait for the step in hand, drop the others and give everything back."""
