"""The form of a log line."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator

import pytest

from tokenspeed.observe.logs import describe, form_in_use, set_up_logging


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Give the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_one_line_an_event(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging("scheduler", logging.INFO)
    logging.getLogger("x").info("steps %d\nof many", 3)
    logging.getLogger("x").debug("unseen")
    line = capfd.readouterr().err
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} INFO    scheduler\[(\d+)\] steps 3\\nof many\n"
    found = re.fullmatch(pattern, line)
    assert found is not None, line
    assert int(found[1]) == os.getpid()


def test_fields_follow_and_odd_values_are_quoted(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging("a", logging.INFO)
    fields = {"id": "req-1", "n": 3, "who": "two words", "empty": "", "list": ["x"], "line": "a\nb"}
    logging.getLogger("x").info("done", extra={"fields": fields})
    line = capfd.readouterr().err
    assert line.endswith('done id=req-1 n=3 who="two words" empty="" list="[\\"x\\"]" line="a\\nb"\n')


def test_json_is_one_object_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging("a", logging.DEBUG, "json")
    assert form_in_use() == "json"
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("x").exception("fails", extra={"fields": {"id": "r", "level": "mine"}})
    (line,) = capfd.readouterr().err.splitlines()
    event = json.loads(line)
    assert list(event)[:5] == ["time", "level", "component", "pid", "message"]
    assert event["level"] == "error"
    assert event["component"] == "a"
    assert event["id"] == "r"
    assert event["message"] == "fails: ValueError: two\\nlines"
    assert event["traceback"].startswith("Traceback")


def test_an_exception_ends_the_line_without_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging("a", logging.INFO)
    logging.getLogger("x").error("fails", exc_info=ValueError("two\nlines"))
    assert capfd.readouterr().err.endswith("fails: ValueError: two\\nlines\n")


def test_tracebacks_show_at_debug_level(capfd: pytest.CaptureFixture[str]) -> None:
    set_up_logging("a", logging.DEBUG)
    try:
        raise ValueError("seen")
    except ValueError:
        logging.getLogger("x").exception("fails")
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].endswith("fails: ValueError: seen")
    assert lines[1].startswith("Traceback")


def test_a_standard_error_that_is_gone_is_no_error() -> None:
    set_up_logging("a", logging.INFO)
    kept = os.dup(2)
    os.close(2)
    try:
        logging.getLogger("x").info("into the void")
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_an_exception_without_text_is_named_by_its_type() -> None:
    assert describe(KeyError()) == "KeyError"
    assert describe(OSError("a\r\nb")) == "OSError: a\\r\\nb"
