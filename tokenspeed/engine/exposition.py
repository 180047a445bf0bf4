"""Numbers for Prometheus, in its text format 0.0.4.

Owns the format and the histogram. What is counted, and when, is known by whoever holds the numbers.
See https://prometheus.io/docs/instrumenting/exposition_formats/.

Invariant: a family is told once, and the buckets of a histogram never go down.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Kind = Literal["counter", "gauge", "histogram"]
NONE: Labels = MappingProxyType({})


class Sample(NamedTuple):
    """One line: `suffix` stands behind the family's name."""

    value: float
    labels: Labels = NONE
    suffix: str = ""


class Family(NamedTuple):
    """All lines of one name. The name of a counter ends in `_total`, and a unit stands last before that."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[Sample]


class Histogram:
    """Counts values below or at each of the ascending `bounds`."""

    def __init__(self, bounds: Sequence[float], counts: Sequence[int] = (), total: float = 0.0) -> None:
        """Begin with `counts` values in each bucket, the one above all bounds included, which sum to `total`."""
        self._bounds = tuple(bounds)
        self._counts = list(counts) or [0] * (len(bounds) + 1)
        self._sum = total

    def observe(self, value: float, count: int = 1) -> None:
        """Take `value`, seen `count` times."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def samples(self) -> list[Sample]:
        """Return the cumulative buckets, the sum and the count."""
        totals = list(accumulate(self._counts))
        edges = [*map(_number, self._bounds), "+Inf"]
        buckets = [Sample(total, {"le": edge}, "_bucket") for edge, total in zip(edges, totals, strict=True)]
        return [*buckets, Sample(self._sum, suffix="_sum"), Sample(totals[-1], suffix="_count")]


def exposition(families: Iterable[Family], labels: Labels) -> str:
    """Return the text of `families`; `labels` stand on every line."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += (
            f"{family.name}{sample.suffix}{_braces({**labels, **sample.labels})} {_number(sample.value)}"
            for sample in family.samples
        )
    return "\n".join([*lines, ""])


def _braces(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
