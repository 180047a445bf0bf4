"""Draws the states of a request into the docs, from the native table itself.

    python -m tokenspeed_tools.diagrams [FILE]    rewrites what stands between the markers

Owns the part of a document between `<!-- states: begin -->` and its end. A pair that leads back to
its own state is left out: nothing changes there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokenspeed.capi import ffi, lib

if TYPE_CHECKING:
    from tokenspeed._native import CData

BEGIN, END = "<!-- states: begin -->\n", "<!-- states: end -->"
DOCUMENT = Path("docs/architecture.md")


def name(text: CData) -> str:
    """Return a C string as text."""
    said = ffi.string(text)
    return said.decode() if isinstance(said, bytes) else said


def transitions() -> dict[tuple[str, str], list[str]]:
    """Return the events that lead from one state to another."""
    found: dict[tuple[str, str], list[str]] = {}
    for state in range(lib.ts_state_count()):
        for event in range(lib.ts_event_count()):
            target = lib.ts_state_next(state, event)
            if target >= 0 and target != state:
                pair = (name(lib.ts_state_name(state)), name(lib.ts_state_name(target)))
                found.setdefault(pair, []).append(name(lib.ts_event_name(event)))
    return found


def diagram() -> str:
    """Return the states as a Mermaid diagram."""
    lines = [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in transitions().items()]
    first = name(lib.ts_state_name(0))
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {first}: Submit", *lines, "```"]) + "\n"


def redrawn(text: str) -> str:
    """Return the document with the present table in it."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"diagrams: no markers {BEGIN.strip()} and {END} in the document")
    return before + begin + diagram() + end + after


def main() -> None:
    """Rewrite the document."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(redrawn(path.read_text()))


if __name__ == "__main__":
    main()
