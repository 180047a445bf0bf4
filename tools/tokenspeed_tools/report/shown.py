"""The runs of a page: read from raw files, named apart, each with its style.

Owns which requests count (never those of the warm-up) and what a run is called. Figures come from `summarise`, which
is asked anew: a page shows what the requests say, not what a file claims of itself.

Invariant: names are unique on the page, and a run has the same style in every plot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenspeed_tools.bench.raw import Recorded, Request, Run, Summary, read
from tokenspeed_tools.bench.summary import summarise
from tokenspeed_tools.bench.table import concurrency
from tokenspeed_tools.report.palette import Style


@dataclass(frozen=True)
class Shown:
    """One run of the page. `recorded.requests` has all, the properties only those that count."""

    recorded: Recorded
    name: str
    engine: str
    style: Style
    engine_style: Style
    file: str

    @property
    def run(self) -> Run:
        """The head of the run."""
        return self.recorded.run

    @cached_property
    def summary(self) -> Summary:
        """The figures, computed from the requests."""
        return summarise(self.run, self.recorded.requests)

    @cached_property
    def counted(self) -> list[Request]:
        """Every request that is no warm-up, failed ones included."""
        return [request for request in self.recorded.requests if not request.warmup]

    @cached_property
    def ok(self) -> list[Request]:
        """Every request that counts and did not fail."""
        return [request for request in self.counted if request.error is None]

    @property
    def load(self) -> str:
        """How much was asked of the server at once: what a point of a sweep is labelled with."""
        return load_of(self.run)

    @cached_property
    def turns(self) -> dict[int, list[Request]]:
        """The good requests by turn, turns rising."""
        found: dict[int, list[Request]] = defaultdict(list)
        for request in self.ok:
            found[request.turn].append(request)
        return dict(sorted(found.items()))


def load_of(run: Run) -> str:
    """Return how many requests (or sessions) were open at once, "10/s" for a rate of ten, 1 for one at a time."""
    rate = run.workload.get("request_rate")
    if isinstance(rate, int | float):
        return f"{rate:g}/s"
    return str(concurrency(run) or 1)


def _asked(run: Run) -> str:
    asked = load_of(run)
    return f"at {asked}" if asked.endswith("/s") else f"{asked} at once"


def load(files: Sequence[Path]) -> list[Shown]:
    """Return the runs of the files in order. Raise `RawFileError` and `OSError`."""
    recorded = [(path, run) for path in files for run in read(path)]
    names = apart([(run.run.label, _asked(run.run), path.stem) for path, run in recorded])
    engines = [engine_of(run.run, path) for path, run in recorded]
    kinds = list(dict.fromkeys(engines))
    titles = dict(zip(kinds, apart(kinds), strict=True))
    return [
        Shown(run, name, titles[engine], Style(index), Style(kinds.index(engine)), path.name)
        for index, ((path, run), name, engine) in enumerate(zip(recorded, names, engines, strict=True))
    ]


def engine_of(run: Run, path: Path) -> tuple[str, str, str]:
    """Return what makes two runs points of one curve: its title (the label), the user's notes, the file.

    A sweep is one file, so its runs are one engine; two files are two.
    """
    notes = ", ".join(f"{key}={value}" for key, value in sorted(run.notes.items()) if not key.startswith("client."))
    return run.label, notes, path.stem


def apart(named: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return a unique name for each (name, detail, file): as much of the three as tells those of one name apart."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (name, _, _) in enumerate(named):
        groups[name].append(index)
    found = [""] * len(named)
    for members in groups.values():
        for index, name in zip(members, _told_apart([named[index] for index in members]), strict=True):
            found[index] = name
    return _numbered(found)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, those that are still equal with the number of their run."""
    times = Counter(names)
    found: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        unique = f"{name} #{number}" if times[name] > 1 else name
        while unique in found:
            unique += f" #{number}"
        found[unique] = None
    return list(found)


def _told_apart(named: Sequence[tuple[str, str, str]]) -> list[str]:
    for parts in ((0,), (0, 1), (0, 2), (0, 1, 2)):
        names = [", ".join(one[part] for part in parts if one[part]) or "run" for one in named]
        if len(set(names)) == len(names):
            break
    return names
