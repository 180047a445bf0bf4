"""The settings of runs as flat names, parted into those that differ and those that are equal.

Every parameter of the workload, of the server and what it told of itself, of the client, and the user's notes.
Label, command and time are no settings. Invariant: a key that any run has is in exactly one of the two parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tokenspeed_tools.bench.raw import Run

PARTS = ("mode", "gpus", "workload", "warmup", "target", "client", "notes")
ABSENT = "–"


class Setting(NamedTuple):
    """A dotted name and its value in each run, as text; `ABSENT` where a run has none."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether two runs have different values."""
        return len(set(self.values)) > 1


def flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) of every leaf; a list is a leaf, an empty mapping none."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}")
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def flattened(run: Run) -> dict[str, str]:
    """Return every setting of one run."""
    fields = msgspec.to_builtins(run)
    return {name: text for part in PARTS for name, text in flat(fields[part], part)}


def settings(runs: Sequence[Run]) -> list[Setting]:
    """Return every setting of any run, in the order of the raw file."""
    each = [flattened(run) for run in runs]
    names = dict.fromkeys(name for values in each for name in values)
    return [Setting(name, tuple(values.get(name, ABSENT) for values in each)) for name in names]
