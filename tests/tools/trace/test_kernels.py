"""Kernels asked from an engine over its Unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tokenspeed_tools.trace import kernels as module
from tokenspeed_tools.trace.kernels import KernelCall

from tests.server.fake_engine import FakeEngine
from tests.server.sockets import background_door
from tokenspeed.errors import UserError
from tokenspeed.kernel_slices import KernelSlice, write_slices

FOUND = [KernelSlice("gemm", 5, 9, 7)]


class _Profiled(FakeEngine):
    """Leaves a file with one kernel, or refuses."""

    def __init__(self, path: Path, *, refuses: bool) -> None:
        super().__init__()
        self._path = path
        self._refuses = refuses

    async def profile(self, seconds: float) -> Path:
        if self._refuses:
            raise UserError("this engine computes on the CPU", code="no_profile")
        await asyncio.sleep(seconds)
        write_slices(self._path, FOUND)
        return self._path


def _call(monkeypatch: pytest.MonkeyPatch, path: Path, *, refuses: bool) -> KernelCall:
    def engine() -> FakeEngine:
        return _Profiled(path, refuses=refuses).begin()

    with background_door(engine) as (_, socket):
        monkeypatch.setattr(module, "socket_path", lambda pid: socket)
        call = KernelCall(123, 0.05)
        assert call.take() == ()  # not yet
        call.start()
        call.join(10.0)
    return call


def test_kernels_are_taken_and_their_file_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call = _call(monkeypatch, tmp_path / "profile", refuses=False)
    call.check()
    assert call.take() == tuple(FOUND)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_raised_where_it_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call = _call(monkeypatch, tmp_path / "profile", refuses=True)
    with pytest.raises(UserError, match="computes on the CPU"):
        call.check()
    assert call.take() == ()
