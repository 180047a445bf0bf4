"""A Perfetto file read back: parsed with Google's own descriptors, held to its rules, and asked with SQL."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
VARIABLE = "TRACE_PROCESSOR"


class Found(NamedTuple):
    """A slice, an instant (it ends when it begins) or a counter's value, on its track."""

    track: str
    name: str
    begin_ns: int
    end_ns: int
    depth: int
    arguments: dict[str, int | str]
    flows: tuple[int, ...]
    value: int


def read(data: bytes) -> list[Found]:
    """Return what is drawn in a file, in the order of its begins; fail if the file breaks a rule.

    Times go up, what begins ends, on its own track and inside what is around it; every number of a name was
    given one before; each arrow has two ends at least.
    """
    trace = perfetto_trace_pb2.Trace.FromString(data)
    assert trace.packet, "an empty file"
    reader = _Reader()
    last_ns = 0
    for packet in trace.packet:
        assert packet.timestamp >= last_ns, "times go back"
        last_ns = 0 if packet.HasField("track_descriptor") else packet.timestamp
        reader.take(packet)
    assert not any(reader.open.values()), f"begun and not ended: {reader.open}"
    reader.check_flows()
    return sorted(reader.found, key=lambda each: (each.begin_ns, each.depth))


class _Reader:
    def __init__(self) -> None:
        self.found: list[Found] = []
        self.open: dict[int, list[Any]] = defaultdict(list)
        self._names: dict[int, str] = {}
        self._keys: dict[int, str] = {}
        self._tracks: dict[int, str] = {}

    def take(self, packet: Any) -> None:
        self._names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        self._keys |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            self._add_track(packet.track_descriptor)
        elif packet.HasField("track_event"):
            self._event(packet.timestamp, packet.track_event)

    def check_flows(self) -> None:
        ends: dict[int, int] = defaultdict(int)
        for each in self.found:
            for flow in each.flows:
                ends[flow] += 1
        assert [flow for flow, count in ends.items() if count < 2] == []

    def _add_track(self, track: Any) -> None:
        assert track.uuid not in self._tracks
        assert not track.parent_uuid or track.parent_uuid in self._tracks
        self._tracks[track.uuid] = track.name or track.process.process_name or f"loop {track.thread.pid}"

    def _event(self, time_ns: int, event: Any) -> None:
        track, stack = self._tracks[event.track_uuid], self.open[event.track_uuid]
        if event.type == END:
            begun: Found = stack.pop()
            self.found.append(begun._replace(end_ns=time_ns))
            return
        values = {self._keys[each.name_iid]: each.string_value or each.int_value for each in event.debug_annotations}
        name = "" if event.type == COUNTER else self._names[event.name_iid]
        found = Found(track, name, time_ns, time_ns, len(stack), values, tuple(event.flow_ids), event.counter_value)
        (stack if event.type == BEGIN else self.found).append(found)


def trace_processor() -> str | None:
    """Return where Perfetto's trace processor is: what TRACE_PROCESSOR says, else on the PATH, else None."""
    found = os.environ.get(VARIABLE) or shutil.which("trace_processor_shell")
    return found if found and os.access(found, os.X_OK) else None


NO_PROCESSOR = (
    f"no trace processor: {VARIABLE} is {os.environ.get(VARIABLE)!r} and trace_processor_shell is not on the PATH; "
    "the file was checked by its descriptors alone"
)


@contextlib.contextmanager
def asked(path: Path) -> Iterator[TraceProcessor]:
    """Yield Perfetto's trace processor with the file at `path`; there must be one."""
    config = TraceProcessorConfig(bin_path=trace_processor())
    processor = TraceProcessor(trace=str(path), config=config)
    try:
        yield processor
    finally:
        processor.close()
