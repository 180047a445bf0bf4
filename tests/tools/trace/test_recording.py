"""Collecting points from buffers, and the file that they are kept in."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace import recording as module
from tokenspeed_tools.trace.engines import engines, find_engine, name_of, told_choice
from tokenspeed_tools.trace.recording import Recording, load, record, save

from tests.server.sockets import short_folder
from tests.tools.trace.fake_engine import ACTORS, FakeEngine, topology
from tokenspeed.actors.rundir import SOCKET_NAME
from tokenspeed.errors import UserError
from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.points import Kind, Point

NOWHERE = Path("control.sock")
NUMBERS = st.integers(0, (1 << 62) - 1)
POINTS = st.lists(
    st.builds(Point, NUMBERS, st.sampled_from(Kind), NUMBERS, st.integers(0, (1 << 32) - 1), st.integers(-9, 1 << 62))
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    engine = FakeEngine()
    monkeypatch.setattr(module, "attach", lambda path: engine.attachment())
    yield engine
    engine.close()


def _times(count: int) -> Callable[[], bool]:
    """Return what is true so many times."""
    left = iter([True] * count)
    return lambda: next(left, False)


def test_points_of_the_time_alone_or_with_the_past(engine: FakeEngine) -> None:
    def write(passed_s: float, points: int) -> None:
        engine.traces["engine"].point(Kind.OPENED, 2)

    engine.traces["engine"].point(Kind.OPENED, 1)
    for past, expected in ((False, [2]), (True, [1, 2])):
        found = record(NOWHERE, 0.0, past=past, on_poll=write, goes_on=_times(2))
        assert list(dict.fromkeys(point.request for point in found.points["engine"])) == expected
        assert found.points["scheduler"] == []
        assert found.points_lost == 0
        assert found.seconds >= 2 * module.POLL_S
        assert found.process("scheduler") == 1002


def test_points_are_in_the_order_of_time(engine: FakeEngine) -> None:
    for time_ns in (3, 1, 2):
        engine.traces["executor"].point_at(time_ns, Kind.LAUNCHED)
    found = record(NOWHERE, 0.01, past=True)
    assert [point.time_ns for point in found.points["executor"]] == [1, 2, 3]


def test_what_is_overwritten_before_it_is_read_is_counted(engine: FakeEngine) -> None:
    """Only what was lost since it began: the buffer went round before as well."""

    def flood(passed_s: float, points: int) -> None:
        for _ in range(1500):
            engine.traces["scheduler"].point(Kind.RESULT)

    for _ in range(3000):
        engine.traces["scheduler"].point(Kind.RESULT)
    found = record(NOWHERE, 0.0, past=True, on_poll=flood, goes_on=_times(1))
    assert len(found.points["scheduler"]) == 2048
    assert found.lost == {**dict.fromkeys(ACTORS, 0), "scheduler": 1500 - 1024}


def test_ctrl_c_and_the_end_of_the_engine_keep_what_there_is(engine: FakeEngine) -> None:
    def interrupt(passed_s: float, points: int) -> None:
        raise KeyboardInterrupt

    engine.traces["engine"].point(Kind.OPENED, 1)
    assert len(record(NOWHERE, 60, past=True, on_poll=interrupt).points["engine"]) == 1


def test_it_goes_on_while_something_else_does(engine: FakeEngine) -> None:
    answers = [True, True, False]
    record(NOWHERE, 0.01, goes_on=lambda: answers.pop(0))
    assert answers == []


@settings(max_examples=40)
@given(first=POINTS, second=POINTS, lost=st.dictionaries(st.sampled_from(ACTORS), NUMBERS))
def test_a_file_brings_everything_back(
    tmp_path_factory: pytest.TempPathFactory, first: list[Point], second: list[Point], lost: dict[str, int]
) -> None:
    kernels = (KernelSlice("gemm", 1, 2, 7),)
    points = {"engine": sorted(first), "executor": sorted(second)}
    whole = Recording(topology(), 5, 9, 1.5, points, lost, kernels)
    path = tmp_path_factory.getbasetemp() / "whole.points"
    save(whole, path)
    assert load(path) == whole


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "is no recording of points"),
        (module.MAGIC + b"xx", "is damaged"),
        (None, "cannot be read: No such file"),
    ],
)
def test_another_file_is_refused(data: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=message):
        load(path)


def test_the_newest_engine_is_found_and_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        assert engines() == []
        with pytest.raises(UserError, match=r"No engine of yours runs .* start one with `tokenspeed serve`"):
            find_engine()
        made = []
        for age, pid in enumerate((os.getpid(), os.getppid(), 4_000_000)):
            path = folder / "tokenspeed" / str(pid) / SOCKET_NAME
            path.parent.mkdir(parents=True)
            with socket.socket(socket.AF_UNIX) as end:
                end.bind(str(path))
            os.utime(path, (100 + age, 100 + age))
            made.append(path)
        own, parent, dead = made
        assert engines() == [parent, own]
        assert find_engine() == parent
        assert find_engine(str(os.getpid())) == own
        assert find_engine(str(own)) == find_engine(str(own.parent)) == own
        assert name_of(own) == str(os.getpid())
        assert told_choice(parent, None) == (
            f"engine {os.getppid()}, the newest; also running: {os.getpid()} (choose with --engine PID)"
        )
        assert told_choice(parent, "123") == ""
        with pytest.raises(
            UserError, match=f"No engine with process id 4000000 .* running: {os.getppid()}, {os.getpid()}"
        ):
            find_engine("4000000")
        with pytest.raises(UserError, match="neither the process id of an engine nor a control socket"):
            find_engine("nowhere")
        assert dead.exists()
