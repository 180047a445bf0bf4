"""A recording as a picture for Perfetto: what is drawn, and in which order.

Owns the counters and the note about the recording itself. Steps, requests and actors are drawn by modules
of their own; docs/tracing.md lists the names and arguments that queries rely on.

Invariant: a flow that begins also ends: an arrow is drawn only where both ends were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, groupby
from operator import attrgetter, itemgetter

from tokenspeed.points import Kind, Point, rows_and_tokens
from tokenspeed_tools.trace.draw_actors import draw_actors
from tokenspeed_tools.trace.draw_requests import draw_requests
from tokenspeed_tools.trace.draw_steps import draw_steps
from tokenspeed_tools.trace.flows import flows_of
from tokenspeed_tools.trace.life import Doing, Life
from tokenspeed_tools.trace.past import Past
from tokenspeed_tools.trace.perfetto import Argument, Picture, Slice
from tokenspeed_tools.trace.recording import Recording
from tokenspeed_tools.trace.rings import Message, fill, messages

WAITING = (Doing.ADMISSION, Doing.RETRACTED)
RUNNING = (Doing.ADMITTED, Doing.PROMPT, Doing.PROMPT_GAP, Doing.DECODE, Doing.DECODE_GAP)
Changes = Iterable[tuple[int, int]]


def draw(recording: Recording) -> Picture:
    """Return the picture of `recording`."""
    picture = Picture()
    past = Past(recording.points, recording.end_ns, recording.topology.edges)
    lives = [life for request in past.requests if (life := past.life(request)) is not None]
    sent = list(messages(recording.topology.edges, recording.points))
    numbers = count(1)
    flows = flows_of(past.steps, lives, numbers)
    _draw_recording(picture, recording)
    draw_requests(picture, lives, flows)  # first: an arrow begins here, at the time at which the step does
    draw_steps(picture, past.steps, flows)
    draw_actors(picture, recording, past.steps, sent, numbers)
    _draw_counters(picture, recording, lives, sent)
    return picture


def _draw_recording(picture: Picture, recording: Recording) -> None:
    lost = {f"lost_{actor}": count for actor, count in recording.lost.items()}
    arguments: dict[str, Argument] = {"version": recording.topology.version, "pid": recording.topology.pid, **lost}
    begin_ns = min(chain([recording.begin_ns], (points[0].time_ns for points in recording.points.values() if points)))
    picture.slices(picture.track("recording"), [Slice("recording", begin_ns, recording.end_ns, arguments)])


# ---- counters ----


def _draw_counters(picture: Picture, recording: Recording, lives: Sequence[Life], sent: Sequence[Message]) -> None:
    group = picture.track("counters", rank=3)
    parts = [part for life in lives for part in life.parts]
    for name, doing in (("requests waiting", WAITING), ("requests running", RUNNING)):
        changes = [((part.begin_ns, 1), (part.end_ns, -1)) for part in parts if part.doing in doing]
        _count(picture, picture.counter(name, "requests", group), levels(chain.from_iterable(changes)))
    planned = [point for point in recording.points.get("scheduler", ()) if point.kind is Kind.PLANNED]
    for name, unit, index in (("rows", "rows", 0), ("prompt tokens", "tokens", 1)):
        _count(picture, picture.counter(name, unit, group), _of_plans(planned, index))
    rings = picture.track("ring fill", group)
    for edge, found in groupby(sent, key=attrgetter("edge")):
        entry = recording.topology.edges[edge]
        to_first = [message for message in found if message.reader == entry.readers[0]]
        _count(picture, picture.counter(f"{entry.writer} to {entry.readers[0]}", "bytes", rings), fill(to_first))


def levels(changes: Changes) -> Iterator[tuple[int, int]]:
    """Yield (time, level from then on) for changes (time, by how much), beginning at 0."""
    level = 0
    for time_ns, together in groupby(sorted(changes), key=itemgetter(0)):
        level += sum(change for _, change in together)
        yield time_ns, level


def _of_plans(planned: Sequence[Point], index: int) -> Iterator[tuple[int, int]]:
    return ((point.time_ns, rows_and_tokens(point.value)[index]) for point in planned)


def _count(picture: Picture, track: int, values: Changes) -> None:
    for time_ns, value in values:
        picture.count(track, time_ns, value)
