"""Logging of every process: standard error, one line an event, with the actor's name.

Owns the form of a line: text for people or JSON for programs. It does not know what is logged. An
event may bring `extra={"fields": {...}}`: names and values that follow the text, a request's `id`
first. A message that holds line breaks stays one line. A traceback is shown at debug level only,
where its lines follow the event (in JSON: a field); elsewhere the exception's type and text end it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

import msgspec

STDERR = 2
TEXT, JSON = "text", "json"


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123 INFO    scheduler[4711] text name=value`."""

    def __init__(self, actor: str, tracebacks: bool) -> None:
        super().__init__()
        self._who = f"{actor}[{os.getpid()}]"
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one line, without its end."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        named = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{stamp}.{int(record.msecs):03d} {record.levelname:<7} {self._who} {_message(record)}{named}"
        if record.exc_info and record.exc_info[1] is not None and self._tracebacks:
            return f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """`{"time":"2026-01-31T12:00:00.123Z","level":"info","component":"scheduler","pid":4711,"message":...}`."""

    def __init__(self, actor: str, tracebacks: bool) -> None:
        super().__init__()
        self._who = {"component": actor, "pid": os.getpid()}
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """Return the event as one JSON object; the fields of an event stand beside the fixed ones."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fixed = {"time": f"{stamp}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), **self._who}
        event = {**_fields(record), **fixed, "message": _message(record)}
        if record.exc_info and record.exc_info[1] is not None and self._tracebacks:
            event["traceback"] = self.formatException(record.exc_info)
        ordered = {name: event.pop(name) for name in (*fixed, "message")} | event
        return msgspec.json.encode(ordered, enc_hook=str).decode()


FORMATTERS: dict[str, type[LineFormatter | JsonFormatter]] = {TEXT: LineFormatter, JSON: JsonFormatter}


class StderrHandler(logging.Handler):
    """Writes each event with one system call, so that lines of several processes do not mix."""

    def __init__(self, actor: str, level: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.setFormatter(FORMATTERS[form](actor, tracebacks=level <= logging.DEBUG))

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`; a standard error that is gone is nobody's concern."""
        try:
            os.write(STDERR, f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except OSError:
            return


def set_up_logging(actor: str, level: int, form: str = TEXT) -> None:
    """Send every log event of this process to standard error, from `level` (a number of `logging`) on."""
    root = logging.getLogger()
    root.handlers[:] = [StderrHandler(actor, level, form)]
    root.setLevel(level)


def form_in_use() -> str:
    """Return the form of this process's log, which its children shall have too."""
    return next((handler.form for handler in logging.getLogger().handlers if isinstance(handler, StderrHandler)), TEXT)


def describe(error: BaseException) -> str:
    """Return `Type: text` on one line; a type says what an empty text does not."""
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Return `text` with its line breaks made visible."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _message(record: logging.LogRecord) -> str:
    text = one_line(record.getMessage())
    error = record.exc_info[1] if record.exc_info else None
    return text if error is None else f"{text}: {describe(error)}"


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def _plain(value: object) -> str:
    """Return a value that a reader can tell from the next: what is not one plain word stands in quotes."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    plain = text and text.isprintable() and not set(text) & set(" =\"'")
    return text if plain else msgspec.json.encode(text).decode()
