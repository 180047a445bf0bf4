"""What `top` puts on a screen, and that it leaves the terminal as it was."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace import top
from tokenspeed_tools.trace.live import Ring, Snapshot
from tokenspeed_tools.trace.screens import BEGIN, END, HOME, Screen, plain
from tokenspeed_tools.trace.top_view import bar, frame, log_line

from tests.tools.trace.fake_engine import FakeEngine
from tokenspeed.points import Kind

BUSY = Snapshot(
    steps_per_s=41.25,
    tokens_per_s=310.5,
    prompt_tokens_per_s=12_345,
    shares={"plan": 0.01, "compute: forward": 0.75, "idle": 0.24},
    running=8,
    waiting=1234,
    hit_share=0.715,
    itl_ms_p50=24.1,
    itl_ms_p99=141.6,
    ttft_ms=(61.2, 1234.5, 58.0),
    rings=(Ring("scheduler", "executor", 41.2, 863, 1 << 20), Ring("detokenizer", "engine", 310.0, 600_000, 1 << 20)),
    busy={"engine": 0.12, "executor": 0.034},
    restarts={"engine": 0, "executor": 1},
    lost=0,
    pages={"pages_total": 5824, "pages_owned": 17, "pages_cached_idle": 364, "pages_free": 5443},
)


def test_a_frame_says_it_all() -> None:
    text = "\n".join(line.text for line in frame(BUSY, "TokenSpeed", "12:00:00", 80, 24))
    for pattern in (
        r"^ TokenSpeed +12:00:00 $",
        r"^ steps/s +41\.2 +running +8 +ITL p50 ms +24\.1 +TTFT ms +58\.0 +1,234$",
        r"^ tokens/s +310\.5 +waiting +1,234 +ITL p99 ms +142 +61\.2$",
        r"^ prompt/s +12,345 +cache hits +72 %",
        r"^ pages +5,824:  owned 17  leased 0  cached 364  zombie 0  free 5,443",
        r"^ plan +1\.0 % ▏ +scheduler to executor +41\.2 +863 B$",
        r"^ compute: forward +75\.0 % █+▌ +detokenizer to engine +310\.0 +57 %$",
        r"^ busy +engine 12 %  executor 3 %$",
        r"^ restarts executor 1   points lost 0 ",
    ):
        assert re.search(pattern, text, re.MULTILINE), f"{pattern} is not in\n{text}"


@settings(max_examples=40)
@given(st.integers(1, 300), st.integers(1, 100), st.integers(0, 40))
def test_a_frame_fits(width: int, height: int, many: int) -> None:
    """Whatever there is; what is smaller than 80 by 24 is treated as that and cut by the screen."""
    now = msgspec.structs.replace(
        BUSY,
        shares={f"part {index}": 1 / (many + 1) for index in range(many + 1)},
        rings=(Ring("a", "b", 1.0, 1, 2),) * many,
        busy={f"executor{index}": 1.0 for index in range(many)},
    )
    lines = frame(now, "x" * many * 3, "12:00:00", width, height)
    assert len(lines) <= max(height, 24)
    assert max(len(line.text) for line in lines) <= max(width, 80)


def test_the_least_shares_are_told_together() -> None:
    now = msgspec.structs.replace(BUSY, shares={f"part {index}": (index + 1) / 210 for index in range(20)})
    text = "\n".join(line.text for line in frame(now, "", "", 80, 24))
    shown = [float(share) for share in re.findall(r"^ (?:part \d+|the rest) +([\d.]+) %", text, re.MULTILINE)]
    assert sum(shown) == pytest.approx(100, abs=1)


def test_a_line_for_a_log() -> None:
    assert log_line(BUSY) == (
        "steps/s 41.2 tokens/s 310.5 running 8 waiting 1234 itl_ms p50 24.1 p99 142 ttft_ms 58.0 compute 75 % "
        "idle 24 % lost 0 restarts 1"
    )


def test_bars_grow_in_eighths() -> None:
    assert [bar(share, 2) for share in (-1.0, 0.0, 1 / 16, 0.5, 1.0, 2.0)] == ["", "", "▏", "█", "██", "██"]


def test_a_terminal_without_blocks_gets_others() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    Screen(out, plain("")).show(BUSY)
    assert b"compute: forward 75.0 % ##########" in raw.getvalue()


class _Terminal:
    """`top` of an engine that does nothing, in a terminal of 80 columns and 24 lines."""

    def __init__(self) -> None:
        self._user, program = pty.openpty()
        termios.tcsetwinsize(program, (24, 80))
        self.before = termios.tcgetattr(self._user)
        command = [sys.executable, "-m", "tests.tools.trace.fake_top"]
        self.process = subprocess.Popen(command, stdin=program, stdout=program, stderr=subprocess.PIPE)
        os.close(program)
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read what it writes until `text` was in it."""
        while text not in self.shown:
            ready, _, _ = select.select([self._user], [], [], 30.0)
            assert ready, f"{text!r} did not come in:\n{self.shown}"
            self.shown += os.read(self._user, 1 << 16).decode()

    def press(self, key: bytes) -> None:
        os.write(self._user, key)

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._user)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self._user)


@pytest.fixture
def terminal() -> Iterator[_Terminal]:
    terminal = _Terminal()
    yield terminal
    terminal.close()


@pytest.mark.parametrize("by", ["key", "signal"])
def test_a_terminal_is_drawn_over_and_left_as_it_was(terminal: _Terminal, by: str) -> None:
    terminal.read_until("q ends")
    assert terminal.mode() != terminal.before
    begin = terminal.shown.index(BEGIN)
    screen = terminal.shown[begin + len(BEGIN) :]
    assert screen.startswith(HOME)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).split("\r\n")
    assert 10 < len(lines) <= 24
    assert lines[0].startswith(" TokenSpeed 0.1.0")
    if by == "key":
        terminal.press(b"x")  # which does nothing
        terminal.press(b"q")
    else:
        terminal.process.send_signal(signal.SIGTERM)
    terminal.read_until(END)
    assert terminal.process.wait(10.0) == (0 if by == "key" else 128 + signal.SIGTERM)
    assert terminal.mode() == terminal.before


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    engine = FakeEngine()
    monkeypatch.setattr(top, "attach", lambda path: engine.attachment())
    monkeypatch.setattr(top, "find_engine", lambda named: Path("1/control.sock"))
    monkeypatch.setattr(top, "EACH_S", 0.1)
    yield engine
    engine.close()


def test_once_prints_a_frame_and_ends(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert top.main(["--once"]) == 0
    printed = capsys.readouterr().out
    assert "steps/s" in printed
    assert "\x1b" not in printed
    assert " pages       -" in printed  # nobody answers at its Unix socket


def test_json_is_a_snapshot_a_line(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.traces["engine"].point(Kind.OPENED, 1)
    assert top.main(["--once", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert msgspec.json.decode(line, type=Snapshot).shares == {"idle": 1.0}


def test_it_counts_what_it_missed_and_ends_with_the_engine(engine: FakeEngine) -> None:
    attachment = engine.attachment()
    pauses = 0

    def pause(seconds: float) -> bool:
        nonlocal pauses
        pauses += 1
        for _ in range(1500):
            engine.traces["scheduler"].point(Kind.RESULT)
        return pauses == 3

    lost = [now.lost for now in top.snapshots(attachment, pause)]
    assert lost == [1500 - 1024, 2 * (1500 - 1024)]
    attachment.close()
