"""The waiter's face before a driver that obeys the test; what it does in depth is shown natively."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.ipc.helpers import open_descriptors, readable
from tokenspeed.capi import ArgumentError, CapacityError, HandleClosedError
from tokenspeed.executor.waiter import EVENTS_MAX, EventEnd, EventWaiter

FAKE = Path(__file__).resolve().parents[2] / "native" / "tests" / "waiter_fake.cpp"
LIMIT_S = 10.0


class FakeDriver:
    """A driver library, and the strings by which its events are pulled."""

    def __init__(self, path: Path) -> None:
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-shared", "-fPIC", str(FAKE), "-o", str(path)]
        subprocess.run([*command, "-pthread"], check=True)
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)

    def complete(self, event: int, result: int = 0) -> None:
        """Let `event` come."""
        self._library.fake_complete(ctypes.c_uint64(event), result)

    def until_waiting(self) -> None:
        """Return once a thread waits for an event."""
        self._library.fake_until_waiting()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """One for all tests: each uses events of its own."""
    return FakeDriver(tmp_path_factory.mktemp("driver") / "libfake.so")


def test_events_come_back_with_their_tokens(driver: FakeDriver) -> None:
    before = open_descriptors()
    waiter = EventWaiter(0, driver.path)
    for token, event in enumerate((11, 12, 0)):
        waiter.wait(event, token)
    assert waiter.collect() == []
    assert not readable(waiter.fileno())
    begin_us = time.monotonic_ns() // 1000
    driver.complete(12, 700)
    driver.complete(11)
    ends: list[EventEnd] = []
    while len(ends) < 3:
        assert readable(waiter.fileno(), LIMIT_S)
        ends += waiter.collect()
    assert [(end.token, end.status) for end in ends] == [(0, 0), (1, 700), (2, 0)]
    assert begin_us <= ends[0].done_us <= ends[1].done_us <= ends[2].done_us <= time.monotonic_ns() // 1000
    assert waiter.explain(700) == "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
    assert not readable(waiter.fileno())
    assert waiter.close()
    assert waiter.close()
    assert open_descriptors() == before


def test_a_hanging_event_holds_nobody_up(driver: FakeDriver) -> None:
    """Neither while it is waited for, nor at the end."""
    waiter = EventWaiter(0, driver.path)
    waiter.wait(21, 0)
    for token in range(1, EVENTS_MAX):
        waiter.wait(0, token)
    with pytest.raises(CapacityError, match="64 events"):
        waiter.wait(0, 99)
    driver.until_waiting()
    begin = time.monotonic()
    assert not waiter.close(limit_s=0.05)
    assert 0.05 <= time.monotonic() - begin < LIMIT_S
    driver.complete(21)


def test_what_cannot_work_is_said(driver: FakeDriver) -> None:
    with pytest.raises(ArgumentError, match=r"the CUDA driver cannot be loaded: libabsent\.so\.1"):
        EventWaiter(0, "libabsent.so.1")
    with pytest.raises(ArgumentError, match="cuDeviceGet for device 7: CUDA_ERROR_INVALID_DEVICE"):
        EventWaiter(7, driver.path)
    waiter = EventWaiter(1, driver.path)
    waiter.close()
    with pytest.raises(HandleClosedError):
        waiter.collect()
