"""The engine's private folder."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenspeed.actors.rundir import RunFolder, sweep
from tokenspeed.errors import StartError

DEAD_PID = 4_194_305  # above the kernel's largest


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of an engine that answers, whose process id cannot be seen from here."""
    folder = tmp_path / "base" / str(DEAD_PID)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.bind(str(folder / "control.sock"))
        end.listen(1)
        yield folder


def test_the_folder_is_private_and_goes_away(tmp_path: Path) -> None:
    base = tmp_path / "deep" / "base"
    folder = RunFolder.create(base)
    assert folder.path == base / str(os.getpid())
    assert [stat.S_IMODE(path.stat().st_mode) for path in (base, folder.path)] == [0o700, 0o700]
    folder.socket_path.touch()
    folder.remove()
    assert list(base.iterdir()) == []


def test_engines_of_one_process_get_folders_of_their_own(tmp_path: Path) -> None:
    def listen(folder: RunFolder) -> socket.socket:
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        end.bind(str(folder.socket_path))
        end.listen(1)
        return end

    one = RunFolder.create(tmp_path)
    with listen(one):
        other = RunFolder.create(tmp_path)
        assert other.path.name == f"{os.getpid()}.1"
    other.remove()
    one.remove()


def test_a_base_open_to_others_is_closed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o755)
    RunFolder.create(base).remove()
    assert stat.S_IMODE(base.stat().st_mode) == 0o700


def test_a_base_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "target")
    with pytest.raises(StartError, match="is not a folder of user"):
        RunFolder.create(tmp_path / "base")


def test_a_base_that_cannot_be_made_names_the_mend(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match="set XDG_RUNTIME_DIR to a folder of your own"):
        RunFolder.create(tmp_path / "file" / "base")


def test_a_path_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="too long for a socket"):
        RunFolder.create(tmp_path / ("long" * 30))


def test_sweep_takes_what_the_dead_left_and_nothing_else(listener: Path) -> None:
    base = listener.parent
    for name in (str(DEAD_PID + 1), f"{DEAD_PID + 2}.1", str(os.getppid()), "not-a-pid"):
        (base / name).mkdir()
    (base / "4194399").touch()
    assert sorted(path.name for path in sweep(base)) == [str(DEAD_PID + 1), f"{DEAD_PID + 2}.1"]
    left = {str(DEAD_PID), str(os.getppid()), "not-a-pid", "4194399"}
    assert {path.name for path in base.iterdir()} == left
