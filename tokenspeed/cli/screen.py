"""What the person who starts a server sees on standard error.

Owns progress and banner: a line that is drawn over on a terminal, plain lines elsewhere. It is told
events and facts and asks nothing.

Invariant: a pipe or a log gets whole lines without control characters.
"""

from __future__ import annotations

import io
import logging
import re
import shutil
import time
from typing import TextIO

log = logging.getLogger("tokenspeed.cli")

BAR_CHARS = 24
REPEAT_S = 2.0
_OF = re.compile(r"([\d.,]+)\s*(?:/|of)\s*([\d.,]+)")
_PERCENT = re.compile(r"([\d.]+)\s?%")
_DIGITS = re.compile(r"[\d.,]+")


class Screen:
    """Writes to `out`. On a terminal one line shows the progress."""

    def __init__(self, out: TextIO, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._tty = out.isatty()
        self._drawn = False
        self._phase = ""
        self._told_s = 0.0

    def say(self, line: str = "") -> None:
        """Write one line for good."""
        if not self._quiet:
            self._write(f"{self._wipe()}{line}\n")

    def complain(self, line: str) -> None:
        """Write one line for good, even when quiet."""
        self._write(f"{self._wipe()}{line}\n")

    def progress(self, event: str) -> None:
        """Show how far the start has come."""
        event = "".join(char if char.isprintable() else " " for char in event)
        if self._tty:
            self._draw(event)
        elif self._is_news(event):
            self.say(event)

    def _draw(self, event: str) -> None:
        share = fraction(event)
        bar = (
            "" if share is None else "[" + "#" * round(share * BAR_CHARS) + "." * round((1 - share) * BAR_CHARS) + "] "
        )
        width = shutil.get_terminal_size().columns - 1
        self._write(f"{self._wipe()}{(bar + event)[:width]}")
        self._drawn = True

    def _wipe(self) -> str:
        drawn, self._drawn = self._drawn, False
        return "\r\x1b[K" if drawn else ""

    def _is_news(self, event: str) -> bool:
        """Tell whether a log wants this line: a new phase, its end, or a sign of life after a while."""
        phase, now_s = _DIGITS.sub("", event), time.monotonic()
        if phase == self._phase and fraction(event) != 1.0 and now_s - self._told_s < REPEAT_S:
            return False
        self._phase, self._told_s = phase, now_s
        return True

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            pass  # nobody reads: the server goes on


class LogScreen(Screen):
    """The same as events of the log, where standard error is for programs."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(io.StringIO(), quiet)

    def complain(self, line: str) -> None:
        """Log one line as an error, even when quiet."""
        log.error("%s", line.strip())

    def _write(self, text: str) -> None:
        if said := text.strip():
            log.info("%s", said)


def fraction(event: str) -> float | None:
    """Return how much of a phase is done, 0 to 1, if `event` tells: "12/30" or "40 %"."""
    if percent := _PERCENT.search(event):
        return min(float(percent[1]) / 100, 1.0)
    if of := _OF.search(event):
        done, total = (float(part.replace(",", "").rstrip(".") or 0) for part in of.groups())
        return min(done / total, 1.0) if total > 0 else None
    return None


def amount(count: float, unit: str = "") -> str:
    """Return `count` for people: 134515008 is "135M", 98362432 of unit "B" is "98.4 MB"."""
    prefixes = ("k", "M", "G", "T") if unit else ("K", "M", "B", "T")
    prefix = ""
    for candidate in prefixes:
        if count < 1000:
            break
        count, prefix = count / 1000, candidate
    return f"{count:.3g} {prefix}{unit}" if unit else f"{count:.3g}{prefix}"
