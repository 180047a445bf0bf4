"""The file of all runs: lines are added at its end and never rewritten.

Reads what it can: a line of another schema, or one that was cut short, is passed over. It does not
know what a verdict is.
"""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from tokenspeed_tools.bench_suite.line import SCHEMA, Line
from tokenspeed_tools.prove import ledger

PACKAGES = ("numpy", "torch", "msgspec", "tokenizers", "uvloop")


class Book:
    """The lines of the file at `path`, which need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        texts = path.read_text().splitlines() if path.exists() else []
        self._lines = [line for text in texts if (line := _read(text)) is not None]

    def last(self, line: Line, commit: str = "") -> Line | None:
        """Return the last line that `line` can be compared with, of a commit that begins with `commit`."""
        fitting = (one for one in self._lines if one.comparable(line) and one.commit.startswith(commit))
        return max(fitting, key=lambda one: one.date, default=None)

    def add(self, line: Line) -> None:
        """Write `line` at the end of the file."""
        ledger.append(self._path, msgspec.json.encode(line).decode())


def _read(text: str) -> Line | None:
    try:
        line = msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError:
        return None
    return line if line.schema == SCHEMA else None


def commit_of(repository: Path) -> tuple[str, bool]:
    """Return the commit of the source in `repository`, and whether the source differs from it."""
    try:
        commit = ledger.commit(repository)
    except (OSError, subprocess.CalledProcessError):
        return "unknown", True
    return commit.removesuffix("+"), commit.endswith("+")


def versions() -> dict[str, str]:
    """Return the versions of what a figure may depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
