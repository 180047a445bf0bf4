"""The engine's process is killed: nothing outlives it, and the next start sweeps what it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.world import gone, wait_gone
from tokenspeed.actors.control import Failed, channel_pair
from tokenspeed.actors.rundir import RunFolder
from tokenspeed.actors.spawn import EDITION


@pytest.mark.parametrize("mode", ["ready", "loading"])
def test_actors_die_with_the_engine(mode: str, runtime_base: Path) -> None:
    segments = set(os.listdir("/dev/shm"))
    with subprocess.Popen([sys.executable, "-m", "tests.actors.parent", mode], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        actors = [int(word) for word in parent.stdout.readline().split()]
        assert len(actors) == 2
        os.kill(actors[0], signal.SIGSTOP)  # one that could not notice by itself
        assert not any(gone(pid) for pid in actors)
        assert [path.name for path in runtime_base.iterdir()] == [str(parent.pid)]
        parent.kill()
        parent.wait()
        wait_gone(actors, timeout_s=2.0)
    assert {name for name in os.listdir("/dev/shm") if name.startswith("tokenspeed")} <= segments
    folder = RunFolder.create(runtime_base)
    assert list(runtime_base.iterdir()) == [folder.path]
    folder.remove()


def test_an_actor_whose_parent_is_gone_already_ends() -> None:
    read, write = os.pipe()
    command = [sys.executable, "-m", "tokenspeed.actors.spawn", str(read), str(os.getppid()), EDITION]
    with subprocess.Popen(command, pass_fds=[read]) as orphan:
        assert orphan.wait(timeout=5) == 1
    os.close(read)
    os.close(write)


def test_an_actor_of_another_edition_says_so() -> None:
    ours, theirs = channel_pair()
    command = [sys.executable, "-m", "tokenspeed.actors.spawn", str(theirs), str(os.getpid()), "0.0.1/0"]
    with subprocess.Popen(command, pass_fds=[theirs]) as actor:
        os.close(theirs)
        received = ours.receive(wait=True)
        assert actor.wait(timeout=5) == 1
    ours.close()
    assert received is not None
    assert isinstance(received[0], Failed)
    assert received[0].error.code == "version_mismatch"
    assert "TokenSpeed 0.0.1/0" in received[0].error.message
    assert EDITION in received[0].error.message
