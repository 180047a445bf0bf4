"""Runs one proof and reads its figures from what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tokenspeed_tools.prove.registry import Proof

FIGURES_LINE = "PROOF "
TAIL_CHARS = 2000


class Outcome(NamedTuple):
    """What one run showed. `reason` is empty when it is as promised."""

    figures: dict[str, Any]
    seconds: float
    reason: str


def run(proof: Proof, repository: Path) -> Outcome:
    """Run `proof` within its limit; its whole process group ends with it."""
    begun = time.monotonic()
    process = subprocess.Popen(
        proof.command,
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=proof.limit_s)
        reason = "" if process.returncode == 0 else f"exit status {process.returncode}: {printed[-TAIL_CHARS:]}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        reason = f"not done within {proof.limit_s:.0f} s: {printed[-TAIL_CHARS:]}"
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    figures = read_figures(printed)
    return Outcome(figures, round(time.monotonic() - begun, 2), reason or proof.fault(figures))


def read_figures(printed: str) -> dict[str, Any]:
    """Return the figures of all `PROOF {json}` lines, or of a last line that is a JSON object.

    A test with parameters prints a line for each: those are kept apart by the parameters' names.
    """
    found = list(_figure_lines(printed))
    if len(found) == 1:
        return found[0][1]
    merged: dict[str, Any] = {}
    for case, figures in found:
        if case:
            merged.setdefault(case, {}).update(figures)
        else:
            merged.update(figures)
    return merged


def _figure_lines(printed: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name of the case or "", figures)."""
    lines = printed.strip().splitlines()
    marked = [line.removeprefix(FIGURES_LINE) for line in lines if line.startswith(FIGURES_LINE)]
    if not marked and lines and lines[-1].startswith("{"):
        marked = [lines[-1]]
    for text in marked:
        try:
            entry = json.loads(text)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield str(entry.pop("case", "")), entry
