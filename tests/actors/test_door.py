"""The control socket, as a tool sees it."""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import stat
import threading
from pathlib import Path

import pytest

from tests.actors.toys import Item, ToyConfig
from tests.actors.world import World, run, to_and_from_home
from tokenspeed.actors import door
from tokenspeed.errors import UserError
from tokenspeed.observe.attach import attach
from tokenspeed.observe.page import Word

ONE = {"a": ToyConfig()}


def test_a_tool_sees_topology_and_live_numbers() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            path = world.supervisor.folder.socket_path
            assert [stat.S_IMODE(p.stat().st_mode) for p in (path.parent, path)] == [0o700, 0o600]
            attachment = await asyncio.to_thread(attach, path)
            topology = attachment.topology
            assert topology.pid == os.getpid()
            assert [(actor.name, actor.pid) for actor in topology.actors] == [
                ("a", world.pid("a")),
                ("home", os.getpid()),
            ]
            assert [(e.writer, e.readers, e.epoch) for e in topology.edges] == [
                ("home", ("a",), 1),
                ("a", ("home",), 1),
            ]
            line = attachment.page.line(topology.actors[0].line)
            before = line[Word.RECORDS_IN]
            for number in range(10):
                world.send("a", Item(number))
            await world.until(lambda: len(world.items("a")) == 10)
            await asyncio.sleep(0.1)
            assert line[Word.RECORDS_IN] == before + 10
            assert line[Word.RECORDS_OUT] == 10
            attachment.close()

    run(main())


def test_an_engine_of_another_protocol_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as engine:
        engine.bind(str(tmp_path / "s"))
        engine.listen()

        def answer() -> None:
            with engine.accept()[0] as end:
                end.send(b'{"protocol": 9, "version": "7.0", "new": []}')

        speaker = threading.Thread(target=answer)
        speaker.start()
        with pytest.raises(UserError, match=r"TokenSpeed 7.0, speaks protocol 9 and this tool protocol 2"):
            attach(tmp_path / "s")
        speaker.join()


def test_a_restart_shows() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            world.signal("a", signal.SIGKILL)
            await world.until_ready("a", restarts=1)
            attachment = await asyncio.to_thread(attach, world.supervisor.folder.socket_path)
            assert attachment.topology.actors[0].pid == world.pid("a")
            assert {each.epoch for each in attachment.topology.edges} == {2}
            attachment.close()

    run(main())


def test_the_descriptor_cannot_be_written() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            attachment = await asyncio.to_thread(attach, world.supervisor.folder.socket_path)
            descriptor = attachment.page.fileno()
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.pwrite(descriptor, b"x", 0)
            with pytest.raises(PermissionError):
                mmap.mmap(descriptor, len(attachment.page) * 64, mmap.MAP_SHARED, mmap.PROT_WRITE)
            with pytest.raises(TypeError, match="read-only"):
                attachment.page.line(0).turned(0)
            attachment.close()

    run(main())


def test_another_user_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "peer_user", lambda peer: os.geteuid() + 1)

    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            with pytest.raises(UserError, match="belongs to another user"):
                await asyncio.to_thread(attach, world.supervisor.folder.socket_path)

    run(main())


def test_nobody_at_home(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is it running"):
        attach(tmp_path / "control.sock")


def test_a_crowd_of_callers_that_say_nothing_does_no_harm() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            for _ in range(50):
                attachment = await asyncio.to_thread(attach, world.supervisor.folder.socket_path)
                attachment.close()
            world.send("a", Item(1))
            await world.until(lambda: world.items("a") == [1])

    run(main())
