"""Writes the list of metrics into docs/metrics.md, from the very table that they are told by.

    python -m tokenspeed_tools.metrics [FILE]    rewrites what stands between the two marks of the page

Owns the form of the list, and of the frozen one, which tests hold against a change. What a metric
means is said by its help.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tokenspeed.engine.metrics import GROUPS, METRICS, SAME, Group, Label, Metric

DOCUMENT = Path("docs/metrics.md")
BEGIN, END = "<!-- list: begin -->\n", "<!-- list: end -->\n"
COLUMNS = "| name | kind | labels | meaning | vLLM | upstream |\n|---|---|---|---|---|---|"
VALUES_SHOWN_MAX = 5


def page(text: str) -> str:
    """Return `text` with the present list between its marks."""
    before, _, rest = text.partition(BEGIN)
    return "".join((before, BEGIN, "\n", *map(_table, GROUPS), END, rest.partition(END)[2]))


def frozen() -> Iterator[str]:
    """Yield a line for each family: name, kind, and labels with their closed values."""
    for metric in METRICS.values():
        labels = (f" {label.name}={','.join(label.values) or '*'}" for label in metric.labels)
        yield f"{metric.full_name} {metric.kind}{''.join(labels)}"


def _table(group: Group) -> str:
    return "\n".join([f"### {group.title}\n", COLUMNS, *map(_row, group.metrics), "", ""])


def _row(metric: Metric) -> str:
    labels = "; ".join(map(_label, metric.labels))
    return (
        f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {_elsewhere(metric.vllm)} "
        f"| {_elsewhere(metric.upstream)} |"
    )


def _label(label: Label) -> str:
    values = ", ".join(f"`{value}`" for value in label.values[:VALUES_SHOWN_MAX])
    more = len(label.values) - VALUES_SHOWN_MAX
    return f"`{label.name}`: {label.means or values}{f' and {more} more' if more > 0 else ''}"


def _elsewhere(text: str) -> str:
    return {SAME: "same", "": "-"}.get(text, text)


def main() -> None:
    """Rewrite the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(page(path.read_text()))


if __name__ == "__main__":
    main()
