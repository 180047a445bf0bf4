"""How far a tool is: a bar on a terminal, a line for each piece elsewhere. Written to stderr."""

from __future__ import annotations

import sys

BAR_CHARS = 24


def bar(tool: str, done: int, total: int, name: str) -> None:
    """Say that `tool` has done `done` of `total` pieces and begins with `name`."""
    if sys.stderr.isatty():
        filled = BAR_CHARS * done // max(total, 1)
        drawn = "#" * filled + "-" * (BAR_CHARS - filled)
        print(f"\r\x1b[K[{drawn}] {done}/{total} {name[:60]}", end="", file=sys.stderr, flush=True)
    elif done < total:
        print(f"{tool}: {done + 1}/{total} {name}", file=sys.stderr, flush=True)
