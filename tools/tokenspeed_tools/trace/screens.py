"""What a series of snapshots is shown on: lines of text, or a terminal that is drawn over.

Owns the terminal while it is shown on: another screen, no cursor, keys without Enter. It does not know what
the numbers mean.

Invariant: leaving the context restores the terminal, also after a signal that ends the process.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn, TextIO

from tokenspeed_tools.trace.live import Snapshot
from tokenspeed_tools.trace.top_view import Line, Style, frame

BEGIN, END = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # another screen, without a cursor
HOME, REST_OF_LINE, REST_OF_SCREEN, PLAIN = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[0m"
BLOCKS = str.maketrans("█▉▊▋▌▍▎▏", "####--- ")  # where there are no such characters
QUIT = frozenset(b"qQ")
KEYS_MAX = 64  # pressed at once
ENDS = (signal.SIGTERM, signal.SIGHUP)


class Screen:
    """Writes to `out` what `render` makes of each snapshot."""

    def __init__(self, out: TextIO, render: Callable[[Snapshot], str]) -> None:
        self._out = out
        self._render = render

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def pause(self, seconds: float) -> bool:
        """Wait, and return whether the user has had enough."""
        time.sleep(seconds)
        return False

    def show(self, now: Snapshot) -> None:
        """Show the state `now`."""
        self._write(self._render(now) + "\n")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
        except UnicodeEncodeError:
            self._out.write(text.translate(BLOCKS))
        self._out.flush()


class Terminal(Screen):
    """Draws a frame over the one before; `keys` is where the user types."""

    def __init__(self, out: TextIO, keys: TextIO, title: str) -> None:
        super().__init__(out, self._drawn)
        self._keys = keys if keys.isatty() else None
        self._title = title
        self._mode: list[Any] = []

    def __enter__(self) -> Screen:
        self._handlers = {number: signal.signal(number, _end) for number in ENDS}
        if self._keys is not None:
            self._mode = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._write(BEGIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(END)
        if self._keys is not None:
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._mode)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def pause(self, seconds: float) -> bool:
        """Wait, and return whether `q` was pressed."""
        if self._keys is None:
            return super().pause(seconds)
        ready, _, _ = select.select([self._keys], [], [], seconds)
        if not ready:
            return False
        pressed = os.read(self._keys.fileno(), KEYS_MAX)
        return not pressed or not QUIT.isdisjoint(pressed)

    def show(self, now: Snapshot) -> None:
        """Show the state `now`."""
        self._write(self._render(now))

    def _drawn(self, now: Snapshot) -> str:
        size = shutil.get_terminal_size()
        lines = frame(now, self._title, _clock(), size.columns, size.lines)
        shown = lines[: size.lines]
        return (
            HOME
            + "\r\n".join(_styled(line._replace(text=line.text[: size.columns])) for line in shown)
            + (REST_OF_SCREEN)
        )


def plain(title: str) -> Callable[[Snapshot], str]:
    """Return a renderer of whole frames without control characters."""

    def render(now: Snapshot) -> str:
        size = shutil.get_terminal_size()
        return "\n".join(line.text.rstrip() for line in frame(now, title, _clock(), size.columns, size.lines))

    return render


def timed(render: Callable[[Snapshot], str]) -> Callable[[Snapshot], str]:
    """Return a renderer that puts the time of day before what `render` makes."""
    return lambda now: f"{_clock()} {render(now)}"


def _styled(line: Line) -> str:
    end = PLAIN if line.style is not Style.PLAIN else ""
    return f"{line.style.value}{line.text}{end}{REST_OF_LINE}"


def _clock() -> str:
    return time.strftime("%H:%M:%S")


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
