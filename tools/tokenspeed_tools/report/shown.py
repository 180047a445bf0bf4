"""The runs of a page: read from raw files, named apart, each with its style.

Owns which requests count (never those of the warm-up) and what a run is called. Figures come from `summarise`, which
is asked anew: a page shows what the requests say, not what a file claims of itself.

Invariant: names are unique on the page, and a run has the same style in every plot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenspeed_tools.bench.raw import Recorded, Request, Run, Summary, read
from tokenspeed_tools.bench.summary import summarise
from tokenspeed_tools.report.palette import Style

LOAD_KEYS = ("concurrency", "sessions", "rate")


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
        """How much was asked of the server at once, as text: what a point of a sweep is labelled with."""
        found = next((key for key in LOAD_KEYS if self.run.workload.get(key) is not None), None)
        return f"{self.run.workload[found]:g}" if found and isinstance(self.run.workload[found], int | float) else ""

    @cached_property
    def turns(self) -> dict[int, list[Request]]:
        """The good requests by turn, turns rising."""
        found: dict[int, list[Request]] = defaultdict(list)
        for request in self.ok:
            found[request.turn].append(request)
        return dict(sorted(found.items()))


def load(files: Sequence[Path]) -> list[Shown]:
    """Return the runs of the files in order. Raise `RawFileError` and `OSError`."""
    recorded = [(path, run) for path in files for run in read(path)]
    names = list(apart([(run.run.label, path.stem) for path, run in recorded]))
    engines = [engine_of(run.run, path) for path, run in recorded]
    kinds = list(dict.fromkeys(engines))
    titles = dict(zip(kinds, apart([(title, stem) for title, stem, _ in kinds]), strict=True))
    return [
        Shown(run, name, titles[engine], Style(index), Style(kinds.index(engine)), path.name)
        for index, ((path, run), name, engine) in enumerate(zip(recorded, names, engines, strict=True))
    ]


def engine_of(run: Run, path: Path) -> tuple[str, str, str]:
    """Return what makes two runs points of one curve: server and model, the file, and the user's notes.

    The first is its title. A sweep is one file, so its runs are one engine; two files are two.
    """
    server = run.target.server if run.target.server != "unknown" else run.target.url
    notes = " ".join(f"{key}={value}" for key, value in sorted(run.notes.items()) if not key.startswith("client."))
    return server, path.stem, notes


def apart(named: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a unique name for each (label, file): the label, with the file and then a number where needed."""
    labels = Counter(label for label, _ in named)
    both = Counter(named)
    seen: Counter[tuple[str, str]] = Counter()
    for label, file in named:
        seen[label, file] += 1
        name = label or file
        if labels[label] > both[label, file]:
            name = f"{name} ({file})" if label else name
        yield f"{name} #{seen[label, file]}" if both[label, file] > 1 else name
