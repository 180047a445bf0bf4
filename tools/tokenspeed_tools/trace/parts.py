"""A step cut into parts, one behind the other.

Owns the order of the parts and the points that end them. What happens beside the part in hand, as a launch
goes on while the device has begun, is not told.

Invariant: parts follow one another without a gap.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from tokenspeed.points import Kind, Stage
from tokenspeed_tools.trace.steps import Step

COMPUTE = "compute"
# Each part lasts from the end of the one before to the first of its points.
PARTS: tuple[tuple[str, tuple[Kind, ...]], ...] = (
    ("plan", (Kind.PLANNED,)),
    ("send plan", (Kind.PLAN_SENT,)),
    ("plan travels", (Kind.PLAN_RECEIVED,)),
    ("take plan", (Kind.LAUNCH_BEGIN,)),
    ("launch", (Kind.LAUNCHED, Kind.COMPUTE_BEGIN)),
    ("device is busy", (Kind.COMPUTE_BEGIN,)),
    (COMPUTE, (Kind.COMPUTE_END,)),
    ("ids down", (Kind.IDS_DOWN,)),
    ("send result", (Kind.RESULT_SENT,)),
    ("result travels", (Kind.RESULT_RECEIVED,)),
    ("apply result", (Kind.APPLIED,)),
    ("hand over", (Kind.BATCH_SENT,)),
)


class Part(NamedTuple):
    """A part of a step, from when to when in ns of the monotonic clock."""

    name: str
    begin_ns: int
    end_ns: int


def parts_of(step: Step) -> list[Part]:
    """Return the parts of `step`, [] if its begin was not noted. A part whose end is unknown is in the next one."""
    begin = step.times.get(Kind.PLAN_BEGIN)
    parts: list[Part] = []
    for name, ends in PARTS:
        known = [step.times[kind] for kind in ends if kind in step.times]
        if begin is not None and known:
            end = max(begin, min(known))
            parts.append(Part(name, begin, end))
            begin = end
    return parts


def stages_of(step: Step, end_ns: int) -> list[Part]:
    """Return the stages of a step's computation, which ends at `end_ns`."""
    stages: list[tuple[int, Stage | None]] = [*step.stages, (end_ns, None)]
    return [Part(stage.name.lower(), begin, end) for (begin, stage), (end, _) in pairwise(stages) if stage is not None]
