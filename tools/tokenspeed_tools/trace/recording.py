"""What an engine did for a while: its points, actor by actor, from its buffers or from a file.

Owns the collecting and the file. It does not know what points mean together. The engine notices
nothing: its buffers are read where they lie, and its control socket is asked once, and once more if an
actor was restarted meanwhile.

Invariant: points of an actor are in the order of time, and what was overwritten before it could be
read is counted.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenspeed.errors import UserError
from tokenspeed.observe.attach import Attachment, Topology, attach
from tokenspeed.observe.page import Word
from tokenspeed.points import Kind, Point

MAGIC = b"tokenspeed points 1\n"
# A buffer holds 65,536 points. The busiest actor writes some ten thousand a second.
POLL_S = 0.1
COLUMNS = len(Point._fields)
KINDS = {int(kind): kind for kind in Kind}
Progress = Callable[[float, int], None]


class Restart(msgspec.Struct, frozen=True):
    """An actor began a new life, about at `time_ns` of the monotonic clock, as process `pid`."""

    actor: str
    time_ns: int
    pid: int


class Recording(msgspec.Struct, frozen=True):
    """Points of each actor, by name, between `begin_ns` and `end_ns` of the monotonic clock.

    `begin_at_s` is the time of day of `begin_ns`, in seconds since 1970. With `past` there are also points
    from before `begin_ns`. `lost` counts the points of each actor that were overwritten before they could
    be read.
    """

    topology: Topology
    begin_ns: int
    end_ns: int
    begin_at_s: float
    points: dict[str, list[Point]]
    lost: dict[str, int]
    restarts: tuple[Restart, ...] = ()

    @property
    def seconds(self) -> float:
        """Return how long was recorded."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def points_lost(self) -> int:
        """Return how many points are missing in all buffers together."""
        return sum(self.lost.values())

    def process(self, actor: str) -> int:
        """Return the process id that `actor` had when the recording began."""
        return next((entry.pid for entry in self.topology.actors if entry.name == actor), self.topology.pid)


def record(path: Path, seconds: float, *, past: bool = False, on_poll: Progress | None = None) -> Recording:
    """Collect the points of the engine with the control socket `path` for so many seconds.

    With `past` the points that its buffers hold already come first. `on_poll` hears the seconds passed and
    the points so far, ten times a second. KeyboardInterrupt, or the engine's end, ends it at once, with what
    there is. Raises `UserError` if no engine answers.
    """
    attachment = attach(path)
    try:
        return _Collector(attachment, path, past).run(seconds, on_poll)
    finally:
        attachment.close()


class _Collector:
    def __init__(self, attachment: Attachment, path: Path, past: bool) -> None:
        self._traces = attachment.traces
        self._topology = attachment.topology
        self._path = path
        self._watch = RestartWatch(attachment)
        self._restarts: list[tuple[str, int]] = []
        if not past:
            for trace in self._traces.values():
                trace.skip()
        self._begin_ns, self._begin_at_s = time.monotonic_ns(), time.time()
        self._points = {name: trace.read() for name, trace in self._traces.items()}
        self._lost = {name: trace.lost for name, trace in self._traces.items()}  # before it began

    def run(self, seconds: float, on_poll: Progress | None) -> Recording:
        deadline_ns = self._begin_ns + int(seconds * 1e9)
        process = Path("/proc", str(self._topology.pid))
        visible = process.exists()  # not if the engine is in another container
        try:
            while (left_s := (deadline_ns - time.monotonic_ns()) / 1e9) > 0 and process.exists() == visible:
                time.sleep(min(POLL_S, left_s))
                self._poll()
                if on_poll is not None:
                    on_poll(self._seconds(), sum(map(len, self._points.values())))
        except KeyboardInterrupt:
            pass
        self._poll()
        return self._recording()

    def _seconds(self) -> float:
        return (time.monotonic_ns() - self._begin_ns) / 1e9

    def _poll(self) -> None:
        for name, trace in self._traces.items():
            self._points[name] += trace.read()
        self._restarts += ((name, time.monotonic_ns()) for name in self._watch.restarted())

    def _recording(self) -> Recording:
        return Recording(
            topology=self._topology,
            begin_ns=self._begin_ns,
            end_ns=time.monotonic_ns(),
            begin_at_s=self._begin_at_s,
            points={name: sorted(points, key=_time) for name, points in self._points.items()},
            lost={name: trace.lost - self._lost[name] for name, trace in self._traces.items()},
            restarts=self._named_restarts(),
        )

    def _named_restarts(self) -> tuple[Restart, ...]:
        if not self._restarts:
            return ()
        try:
            again = attach(self._path)
        except UserError:  # the engine has gone as well
            pids: dict[str, int] = {}
        else:
            pids = {entry.name: entry.pid for entry in again.topology.actors}
            again.close()
        return tuple(Restart(name, time_ns, pids.get(name, 0)) for name, time_ns in self._restarts)


class RestartWatch:
    """Tells which actors began a new life since it last looked: a line of the status page begins anew."""

    def __init__(self, attachment: Attachment) -> None:
        self._lines = {entry.name: attachment.page.line(entry.line) for entry in attachment.topology.actors}
        self._turns = {name: line[Word.TURNS] for name, line in self._lines.items()}

    def restarted(self) -> list[str]:
        """Return the names of those actors."""
        turns = {name: line[Word.TURNS] for name, line in self._lines.items()}
        found = [name for name, count in turns.items() if count < self._turns[name]]
        self._turns = turns
        return found


def save(recording: Recording, path: Path) -> None:
    """Write `recording` to `path`, to be read by `load`. OSError if that cannot be written."""
    head = {name: getattr(recording, name) for name in recording.__struct_fields__ if name != "points"}
    packed = {name: _packed(points) for name, points in recording.points.items()}
    path.write_bytes(MAGIC + zlib.compress(msgspec.msgpack.encode({**head, "packed": packed}), 1))


def load(path: Path) -> Recording:
    """Return what `save` wrote to `path`. Raises `UserError` if that is no such file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not data.startswith(MAGIC):
        raise UserError(f"{path} is no recording of points; make one with `trace record --format points -o {path}`.")
    try:
        fields = msgspec.msgpack.decode(zlib.decompress(data[len(MAGIC) :]))
        points = {name: _unpacked(packed) for name, packed in fields.pop("packed").items()}
        return msgspec.convert({**fields, "points": points}, Recording)
    except (zlib.error, msgspec.MsgspecError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); record it again.") from None


def _packed(points: list[Point]) -> bytes:
    """Return the points column by column, times as differences: small numbers, which compress well."""
    columns = np.array(points, np.int64).reshape(len(points), COLUMNS).T.copy()
    columns[0, 1:] = np.diff(columns[0])
    return columns.tobytes()


def _unpacked(packed: bytes) -> list[Point]:
    columns = np.frombuffer(packed, np.int64).reshape(COLUMNS, -1)
    times = np.cumsum(columns[0]).tolist()
    rest: list[list[Any]] = [column.tolist() for column in columns[1:]]
    return [Point(when, KINDS[kind], *more) for when, kind, *more in zip(times, *rest, strict=True) if kind in KINDS]


def _time(point: Point) -> int:
    return point.time_ns
