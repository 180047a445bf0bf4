"""Actors, a process each: when its loop was busy, what it sent and received, when the cycle collector ran.

Owns the arrows from a send to its receive. It does not know what a message says.

Invariant: a track of slices belongs to one thread, so that they do not cross.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.observe.attach import EdgeEntry
from tokenspeed.points import Kind, Point
from tokenspeed_tools.trace.perfetto import Picture, Slice
from tokenspeed_tools.trace.recording import Recording
from tokenspeed_tools.trace.rings import Message
from tokenspeed_tools.trace.steps import Step, pairs

FIRST_RANK = 10  # behind steps, requests and counters
OF_RINGS = (Kind.RING_SENT, Kind.RING_RECEIVED, Kind.RING_FULL)
End = tuple[str, Kind, int, int]  # of a message: actor, kind, edge, time
Arrows = Mapping[End, list[int]]


def draw_actors(
    picture: Picture, recording: Recording, steps: Sequence[Step], sent: Sequence[Message], numbers: Iterator[int]
) -> None:
    """Draw a process for each actor of `recording`."""
    arrows = _arrows(recording.topology.edges, sent, numbers)
    kinds = {step.number: step.kind for step in steps}
    for rank, (actor, points) in enumerate(recording.points.items(), FIRST_RANK):
        pid = recording.process(actor)
        process = picture.process(pid, actor, rank)
        loop = picture.thread(pid, pid, "loop")
        picture.slices(loop, list(_turns(points)))
        _draw_rings(picture, loop, actor, recording.topology.edges, points, arrows)
        for point in points:
            if point.kind is Kind.STARTED:
                picture.instant(loop, point.time_ns, "started", {})
        _draw_track(picture, process, "garbage collector", list(_collections(points)))
        _draw_track(picture, process, "device", list(_computations(points, kinds)))
        if actor == "executor":
            _draw_kernels(picture, process, recording.kernels)


def _arrows(edges: Sequence[EdgeEntry], sent: Sequence[Message], numbers: Iterator[int]) -> Arrows:
    arrows: dict[End, list[int]] = defaultdict(list)
    for message in sent:
        arrow = next(numbers)
        arrows[edges[message.edge].writer, Kind.RING_SENT, message.edge, message.sent_ns].append(arrow)
        arrows[message.reader, Kind.RING_RECEIVED, message.edge, message.received_ns].append(arrow)
    return arrows


def _draw_track(picture: Picture, process: int, name: str, slices: Sequence[Slice]) -> None:
    if slices:
        picture.slices(picture.track(name, process), slices)


def _draw_rings(
    picture: Picture, track: int, actor: str, edges: Sequence[EdgeEntry], points: Sequence[Point], arrows: Arrows
) -> None:
    for point in points:
        if point.kind in OF_RINGS and point.step < len(edges):
            edge = edges[point.step]
            peer = edge.writer if point.kind is Kind.RING_RECEIVED else ", ".join(edge.readers)
            name = {Kind.RING_SENT: "send to", Kind.RING_RECEIVED: "receive from"}.get(point.kind, "no room to")
            arguments = {"edge": point.step, "bytes": point.value}
            own = arrows.get((actor, point.kind, point.step, point.time_ns), ())
            picture.instant(track, point.time_ns, f"{name} {peer}", arguments, *own)


def _draw_kernels(picture: Picture, process: int, kernels: Sequence[KernelSlice]) -> None:
    """Draw a track for each stream of the GPU."""
    for stream in sorted({kernel.stream for kernel in kernels}):
        own = sorted((kernel for kernel in kernels if kernel.stream == stream), key=attrgetter("begin_ns"))
        drawn = [Slice(kernel.name, kernel.begin_ns, kernel.end_ns) for kernel in own]
        _draw_track(picture, process, f"GPU stream {stream}", drawn)


def _turns(points: Sequence[Point]) -> Iterator[Slice]:
    for begun, ended in pairs(points, Kind.TURN_BEGIN, Kind.TURN_END):
        yield Slice("turn", begun.time_ns, ended.time_ns, {"records": ended.value})


def _collections(points: Sequence[Point]) -> Iterator[Slice]:
    for begun, ended in pairs(points, Kind.GC_BEGIN, Kind.GC_END):
        yield Slice("collect", begun.time_ns, ended.time_ns, {"generation": begun.value})


def _computations(points: Sequence[Point], kinds: Mapping[int, str]) -> Iterator[Slice]:
    """Yield when the device worked, each step named by its kind."""
    for begun, ended in pairs(points, Kind.COMPUTE_BEGIN, Kind.COMPUTE_END):
        if begun.step == ended.step:
            yield Slice(kinds.get(ended.step, "step"), begun.time_ns, ended.time_ns, {"step": ended.step})
