"""Steps on their tracks: a slice from plan to apply with its parts inside, and stages inside the computation.

Owns the lanes: with overlap the next step is planned while this one computes, and slices of one track may
not cross. Perfetto shows tracks of one name together.

Invariant: slices of a lane do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenspeed_tools.trace.flows import Flows, flow
from tokenspeed_tools.trace.parts import COMPUTE, Part, parts_of, stages_of
from tokenspeed_tools.trace.perfetto import Argument, Picture, Slice
from tokenspeed_tools.trace.steps import Step


def draw_steps(picture: Picture, steps: Sequence[Step], flows: Flows) -> None:
    """Draw `steps` on as few lanes as hold them."""
    lanes: list[list[Slice]] = []
    for parts, step in sorted(((parts_of(step), step) for step in steps), key=_begin):
        if parts:
            drawn = _slice(step, parts, flows)
            lane = next((each for each in lanes if each[-1].end_ns <= drawn.begin_ns), None)
            if lane is None:
                lanes.append(lane := [])
            lane.append(drawn)
    for lane in lanes:
        picture.slices(picture.track("steps", rank=1), lane)


def _carrier(step: Step, parts: Sequence[Part]) -> int:
    """Return the index of the part at which arrows arrive: not before they begin at the request."""
    begins = [index for index, part in enumerate(parts) if part.begin_ns >= (step.begin_ns or 0)]
    computed = [index for index in begins if parts[index].name == COMPUTE]
    return next(iter([*computed, *begins]), len(parts) - 1)


def _begin(drawn: tuple[Sequence[Part], Step]) -> int:
    return drawn[0][0].begin_ns if drawn[0] else 0


def _slice(step: Step, parts: Sequence[Part], flows: Flows) -> Slice:
    arguments: dict[str, Argument] = {
        "step": step.number,
        "kind": step.kind,
        "rows": step.rows,
        "prompt_tokens": step.prompt_tokens,
    }
    inside = [_part(step, part) for part in parts]
    requests = {**step.chunks, **step.results}
    arrows = [arrow for request in requests for arrow in flow(flows, request, step.number)]
    carrier = _carrier(step, parts)
    inside[carrier] = inside[carrier]._replace(flows=arrows)
    return Slice("step", parts[0].begin_ns, parts[-1].end_ns, arguments, inside)


def _part(step: Step, part: Part) -> Slice:
    own = {"step": step.number}
    stages = stages_of(step, part.end_ns) if part.name == COMPUTE else ()
    return Slice(part.name, part.begin_ns, part.end_ns, own, [Slice(*stage, own) for stage in stages])
