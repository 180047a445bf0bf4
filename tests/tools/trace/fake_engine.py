"""Buffers of an engine that does not run, and what attaching to it returns."""

from __future__ import annotations

import os

from tokenspeed.ipc.trace import Trace, TraceFile, TraceReader
from tokenspeed.observe.attach import PROTOCOL, ActorEntry, Attachment, EdgeEntry, Topology
from tokenspeed.observe.page import StatusPage

ACTORS = ("engine", "tokenizer", "scheduler", "executor", "detokenizer")
EDGES = (
    EdgeEntry("scheduler", ("executor",), 1 << 20, 1),
    EdgeEntry("executor", ("scheduler",), 1 << 20, 1),
)


def topology(pid: int | None = None) -> Topology:
    """Return what an engine in this process would tell."""
    actors = tuple(ActorEntry(name, 1000 + line, line) for line, name in enumerate(ACTORS))
    return Topology(PROTOCOL, os.getpid() if pid is None else pid, "0.1.0", actors, EDGES, ())


class FakeEngine:
    """Its actors' traces, by name, to be written by a test."""

    def __init__(self, capacity: int = 1 << 10, pid: int | None = None) -> None:
        self._files = {name: TraceFile(capacity) for name in ACTORS}
        self.traces = {name: Trace(file.fileno()) for name, file in self._files.items()}
        self._pid = pid

    def attachment(self) -> Attachment:
        """Attach to it."""
        readers = {name: TraceReader(file.fileno()) for name, file in self._files.items()}
        return Attachment(topology(self._pid), StatusPage.create(len(ACTORS)), readers)

    def close(self) -> None:
        """Let go of everything."""
        for name, trace in self.traces.items():
            trace.close()
            self._files[name].close()
