"""What an engine did for a while: its points, actor by actor, from its buffers or from a file.

Owns the collecting and the file. It does not know what points mean together. The engine notices
nothing: its control socket is asked once for the buffers, which are then read where they lie. They outlive
actors that are restarted.

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
from tokenspeed.ipc.trace import KINDS
from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.observe.attach import Attachment, Topology, attach
from tokenspeed.points import Point

MAGIC = b"tokenspeed points 1\n"
# A buffer holds 65,536 points. The busiest actor writes some ten thousand a second.
POLL_S = 0.1
COLUMNS = len(Point._fields)
Progress = Callable[[float, int], None]


class Recording(msgspec.Struct, frozen=True):
    """Points of each actor, by name, between `begin_ns` and `end_ns` of the monotonic clock.

    `begin_at_s` is the time of day of `begin_ns`, in seconds since 1970. With `past` there are also points
    from before `begin_ns`. `lost` counts the points of each actor that were overwritten before they could
    be read. `kernels` are those of the GPU, if they were asked for.
    """

    topology: Topology
    begin_ns: int
    end_ns: int
    begin_at_s: float
    points: dict[str, list[Point]]
    lost: dict[str, int]
    kernels: tuple[KernelSlice, ...] = ()

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


def record(
    path: Path,
    seconds: float,
    *,
    past: bool = False,
    on_poll: Progress | None = None,
    goes_on: Callable[[], bool] = lambda: False,
) -> Recording:
    """Collect the points of the engine with the control socket `path` for so many seconds, and while `goes_on()`.

    With `past` the points that its buffers hold already come first. `on_poll` hears the seconds passed and
    the points so far, ten times a second. KeyboardInterrupt, or the engine's end, ends it at once, with what
    there is. Raises `UserError` if no engine answers.
    """
    attachment = attach(path)
    try:
        return _Collector(attachment, past).run(seconds, on_poll, goes_on)
    finally:
        attachment.close()


class _Collector:
    def __init__(self, attachment: Attachment, past: bool) -> None:
        self._traces = attachment.traces
        self._topology = attachment.topology
        if not past:
            for trace in self._traces.values():
                trace.skip()
        self._begin_ns, self._begin_at_s = time.monotonic_ns(), time.time()
        self._points = {name: trace.read() for name, trace in self._traces.items()}
        self._lost = {name: trace.lost for name, trace in self._traces.items()}  # before it began

    def run(self, seconds: float, on_poll: Progress | None, goes_on: Callable[[], bool]) -> Recording:
        deadline_ns = self._begin_ns + int(seconds * 1e9)
        process = Path("/proc", str(self._topology.pid))
        visible = process.exists()  # not if the engine is in another container
        try:
            while process.exists() == visible:
                left_s = (deadline_ns - time.monotonic_ns()) / 1e9
                if left_s <= 0 and not goes_on():
                    break
                time.sleep(min(POLL_S, left_s) if left_s > 0 else POLL_S)
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

    def _recording(self) -> Recording:
        return Recording(
            topology=self._topology,
            begin_ns=self._begin_ns,
            end_ns=time.monotonic_ns(),
            begin_at_s=self._begin_at_s,
            points={name: sorted(points, key=_time) for name, points in self._points.items()},
            lost={name: trace.lost - self._lost[name] for name, trace in self._traces.items()},
        )


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
