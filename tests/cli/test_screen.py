from __future__ import annotations

import io

import pytest

from tokenspeed.cli.screen import Screen, amount, fraction


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("event", "share"),
    [
        ("weights 1/2", 0.5),
        ("weights 3 of 4 tensors", 0.75),
        ("weights 40%", 0.4),
        ("weights 12.5 %", 0.125),
        ("250/100", 1.0),
        ("1,000/2,000 MB", 0.5),
        ("0/0", None),
        ("warming up", None),
    ],
)
def test_how_much_is_done(event: str, share: float | None) -> None:
    assert fraction(event) == share


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (134_515_008, "", "135M"),
        (8_030_261_248, "", "8.03B"),
        (950, "", "950"),
        (98_362_432, "B", "98.4 MB"),
        (1_500, "B", "1.5 kB"),
        (12, "B", "12 B"),
        (25_300_000_000, "B", "25.3 GB"),
    ],
)
def test_amounts(count: int, unit: str, text: str) -> None:
    assert amount(count, unit) == text


def test_a_terminal_gets_a_line_that_is_drawn_over() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.progress("weights 1/2")
    screen.progress("weights 2/2")
    screen.say("ready")
    screen.say("more")
    first, second, third = out.getvalue().split("\r\x1b[K")
    assert first == "[############............] weights 1/2"
    assert second == "[########################] weights 2/2"
    assert third == "ready\nmore\n"


def test_a_log_gets_each_phase_and_its_end() -> None:
    out = io.StringIO()
    screen = Screen(out)
    for event in ["weights 1/9", "weights 2/9", "weights 9/9", "warming up", "warming up", "first token\x1b[0m"]:
        screen.progress(event)
    assert out.getvalue() == "weights 1/9\nweights 9/9\nwarming up\nfirst token [0m\n"


def test_a_long_phase_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenspeed.cli.screen.REPEAT_S", 0.0)
    out = io.StringIO()
    screen = Screen(out)
    for step in range(3):
        screen.progress(f"weights {step}/9")
    assert out.getvalue().count("\n") == 3


def test_quiet_keeps_complaints() -> None:
    out = io.StringIO()
    screen = Screen(out, quiet=True)
    screen.say("banner")
    screen.progress("weights 1/2")
    screen.complain("broken")
    assert out.getvalue() == "broken\n"


def test_nobody_reading_is_no_reason_to_stop() -> None:
    out = io.StringIO()
    screen = Screen(out)
    out.close()
    screen.say("into the void")
