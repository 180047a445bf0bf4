from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.doors import HI, until
from tests.server.fake_engine import FOREVER, FakeEngine
from tests.server.sockets import knock_unix, short_folder, unix_door
from tokenspeed.errors import StartError
from tokenspeed.server import unix
from tokenspeed.server.frames import Answer, Failure, Reply, frame, socket_path
from tokenspeed.server.unix import bind_unix

CALL = {"path": "/v1/chat/completions", "body": {**HI, "stream": True}}


async def say(path: Path, data: bytes) -> Any:
    """Send `data` and return the one answer."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(data)
    size = int.from_bytes(await asyncio.wait_for(reader.readexactly(4), 2.0), "big")
    answer = msgspec.msgpack.decode(await reader.readexactly(size), type=Answer)
    assert await asyncio.wait_for(reader.read(), 2.0) == b""
    writer.close()
    return answer


def test_the_socket_is_for_its_owner_alone_and_goes_with_the_door() -> None:
    async def main(path: Path) -> None:
        async with unix_door(FakeEngine().begin(), path):
            assert os.stat(path).st_mode & 0o777 == 0o600
            assert isinstance(await say(path, frame({"path": "/health"})), Reply)

    with short_folder() as folder:
        asyncio.run(main(folder / "api.sock"))
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (frame({"path": "/nothing"}), 404, "not_found"),
        (frame({"path": "/health", "protocol": 2}), 400, "protocol_mismatch"),
        (frame({"body": {}}), 400, "missing_required_parameter"),
        (frame([1, 2]), 400, "invalid_request"),
        (b"\0\0\0\1\xc1", 400, "invalid_msgpack"),
        (b"\0\0\0\0", 400, "invalid_msgpack"),
        (b"\0\x20\0\0", 413, "request_too_large"),
        (b"GET / HTTP/1.1\r\n\r\n", 413, "request_too_large"),
        (frame({"path": "/v1/chat/completions", "body": {"messages": []}}), 400, "invalid_request"),
        (frame({"path": "/v1/chat/completions", "body": [1]}), 400, "invalid_request"),
    ],
)
def test_bad_frames_are_answered_and_the_door_stays_open(data: bytes, status: int, code: str) -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        answer = await say(path, data)
        assert isinstance(answer, Failure)
        assert (answer.status, answer.code) == (status, code)
        assert isinstance(await say(path, frame({"path": "/ready"})), Reply)

    knock_unix(test)


@pytest.mark.parametrize("data", [b"", b"\0\0", frame(CALL)[:-3]])
def test_a_peer_that_leaves_in_its_frame_disturbs_nobody(data: bytes) -> None:
    async def test(engine: FakeEngine, path: Path) -> None:
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(data)
        writer.close()
        assert isinstance(await say(path, frame({"path": "/ready"})), Reply)
        assert not engine.asked

    knock_unix(test)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("accept", [(3600.0,), ()])
def test_closing_cancels(stream: bool, accept: tuple[float, ...]) -> None:
    async def test(engine: FakeEngine, path: Path) -> None:
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(frame({**CALL, "body": {**HI, "stream": stream}}))
        await until(lambda: engine.requests_open == 1)
        writer.close()
        await until(lambda: engine.cancelled == [1])

    knock_unix(test, lambda: FakeEngine(script=[FOREVER], accept=accept).begin())


def test_another_user_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stranger:
        size = unix.PEER.size

        @staticmethod
        def unpack(_raw: bytes) -> tuple[int, int, int]:
            return 1, os.getuid() + 1, 0

    async def test(engine: FakeEngine, path: Path) -> None:
        answer = await say(path, b"")
        assert isinstance(answer, Failure)
        assert answer.status == 403
        assert not engine.asked

    monkeypatch.setattr(unix, "PEER", Stranger)
    knock_unix(test)


def test_the_kernel_says_who_the_peer_is() -> None:
    ours, theirs = socket.socketpair()
    raw = ours.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, unix.PEER.size)
    assert unix.PEER.unpack(raw) == (os.getpid(), os.getuid(), os.getgid())
    assert unix.PEER.size == struct.calcsize("iII")
    ours.close()
    theirs.close()


def test_stop_cancels_what_is_open() -> None:
    async def main(path: Path) -> None:
        engine = FakeEngine(script=[FOREVER]).begin()
        async with unix_door(engine, path):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(frame(CALL))
            await until(lambda: engine.requests_open == 1)
        assert engine.cancelled == [1]
        await asyncio.wait_for(reader.read(), 1.0)
        writer.close()

    with short_folder() as folder:
        asyncio.run(main(folder / "api.sock"))


def test_a_socket_left_behind_is_replaced_and_a_live_one_is_not() -> None:
    with short_folder() as folder:
        path = folder / "api.sock"
        dead, _ = bind_unix(str(path))
        with pytest.raises(StartError, match="Another server"):
            bind_unix(str(path))
        dead.close()
        bind_unix(str(path))[0].close()


def test_the_default_place_is_in_the_runtime_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        sock, path = bind_unix(None)
        assert path == socket_path(os.getpid())
        assert path.parent.stat().st_mode & 0o777 == 0o700
        sock.close()


@pytest.mark.parametrize(
    ("path", "words"), [("/tmp/" + "x" * 120, "longer than"), ("/no/such/folder/s", "cannot be bound")]
)
def test_a_path_that_cannot_be_used_is_said(path: str, words: str) -> None:
    with pytest.raises(StartError, match=words):
        bind_unix(path)
