"""Parts many runs into plots of few lines: one panel for each engine, on the same axes.

Knows no plot. Invariant: every run is in exactly one panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenspeed_tools.report.shown import Shown

TOGETHER = 6  # runs that one panel shows, whatever their engines


@dataclass(frozen=True, slots=True)
class Panel:
    """Some runs, and what tells their panel from the others: an end for its file's name and one for its title."""

    runs: Sequence[Shown]
    file: str = ""
    title: str = ""


def panels(runs: Sequence[Shown]) -> list[Panel]:
    """Return one panel of all runs, or one for each engine where there are many runs."""
    engines = list(dict.fromkeys(run.engine for run in runs))
    if len(runs) <= TOGETHER or len(engines) == 1:
        return [Panel(runs)]
    return [
        Panel([run for run in runs if run.engine == engine], f"-{index}", f": {engine}")
        for index, engine in enumerate(engines, 1)
    ]
