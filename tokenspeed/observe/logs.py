"""Logging of every process: standard error, one line an event, with the actor's name.

Owns the form of a line. It does not know what is logged; callers never pass a user's text. A
message that holds line breaks stays one line. A traceback is shown at debug level only, where its
lines follow the event; elsewhere the exception's type and text end the line.
"""

from __future__ import annotations

import logging
import os
import time

STDERR = 2


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123 INFO  scheduler[4711] text`."""

    def __init__(self, actor: str, tracebacks: bool) -> None:
        super().__init__()
        self._who = f"{actor}[{os.getpid()}]"
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line, without its end."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        text = one_line(record.getMessage())
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<7} {self._who} {text}"
        error = record.exc_info[1] if record.exc_info else None
        if error is None or record.exc_info is None:
            return line
        line = f"{line}: {describe(error)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if self._tracebacks else line


class StderrHandler(logging.Handler):
    """Writes each event with one system call, so that lines of several processes do not mix."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`; a standard error that is gone is nobody's concern."""
        try:
            os.write(STDERR, f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except OSError:
            return


def set_up_logging(actor: str, level: int) -> None:
    """Send every log event of this process to standard error, from `level` (a number of `logging`) on."""
    handler = StderrHandler()
    handler.setFormatter(LineFormatter(actor, tracebacks=level <= logging.DEBUG))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def describe(error: BaseException) -> str:
    """Return `Type: text` on one line; a type says what an empty text does not."""
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Return `text` with its line breaks made visible."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
