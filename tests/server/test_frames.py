from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tokenspeed.errors import StartError
from tokenspeed.server.frames import (
    Answer,
    Chunk,
    End,
    Failure,
    Reply,
    answers,
    check_private,
    frame,
    private_folder,
    running_sockets,
    socket_path,
    sweep,
)

DEAD_PID = 2**22 + 1  # above the kernel's largest


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ts-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def listen(path: Path) -> socket.socket:
    private_folder(path.parent)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


def test_a_frame_is_its_length_and_messagepack() -> None:
    data = frame({"a": 1})
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert msgspec.msgpack.decode(data[4:]) == {"a": 1}


@pytest.mark.parametrize("answer", [Reply(200, {"a": 1}), Chunk({"b": [2]}), End(), Failure(400, "c", "m", "p")])
def test_answers_come_back_as_they_went(answer: Answer) -> None:
    assert msgspec.msgpack.decode(frame(answer)[4:], type=Answer) == answer


def test_running_servers_are_found_newest_first(runtime: Path) -> None:
    assert running_sockets() == []
    with listen(socket_path(11)), listen(socket_path(12)):
        os.utime(socket_path(11), (1, 1))
        assert running_sockets() == [socket_path(12), socket_path(11)]
    assert running_sockets() == []


def test_sweep_removes_what_is_dead_for_sure(runtime: Path) -> None:
    with listen(socket_path(DEAD_PID)):
        sweep(socket_path(DEAD_PID).parent)
        assert answers(socket_path(DEAD_PID))  # a process of another container
    mine = socket_path(os.getpid())
    mine.touch()  # bound, and not listening yet
    sweep(mine.parent)
    assert mine.exists()
    assert not socket_path(DEAD_PID).exists()


def test_folders_are_made_for_their_owner_alone(runtime: Path) -> None:
    folder = private_folder(runtime / "tokenspeed" / "api")
    for part in (folder, folder.parent):
        assert part.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert private_folder(folder).stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_is_not_used(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "there").mkdir()
    (runtime / "tokenspeed").symlink_to(runtime / "there")
    with pytest.raises(StartError, match="mode 700"):
        private_folder(runtime / "tokenspeed" / "api")
    (runtime / "tokenspeed").unlink()
    folder = private_folder(runtime / "tokenspeed" / "api")
    with listen(socket_path(os.getpid())):
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(StartError, match="12345"):
            check_private(folder)
        assert running_sockets() == []


def test_a_folder_that_cannot_be_made_is_said(runtime: Path) -> None:
    (runtime / "file").touch()
    with pytest.raises(StartError, match="XDG_RUNTIME_DIR"):
        private_folder(runtime / "file" / "api")
