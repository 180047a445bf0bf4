"""Limits of a connection and of a process: one test each."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.server.doors import CHAT, HI, Door, events, knock, request_bytes, until
from tests.server.fake_engine import END, FOREVER, FakeEngine, Output, Step
from tokenspeed.server.descriptors import CONNECTIONS_MAX, connections_max, raise_file_limit

CHATTY: list[Step] = [*[Output("x" * 1000) for _ in range(20_000)], 3600.0]


async def held(door: Door, count: int) -> list[asyncio.StreamWriter]:
    """Open `count` connections and leave them."""
    return [(await door.connect())[1] for _ in range(count)]


def test_one_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode(), "Connection: close"))
        await reader.readuntil(b"first")
        others = await held(door, 3)
        answer = await door.send_raw(request_bytes(json.dumps(HI).encode()))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: " in answer
        assert b'"code":"too_many_connections"' in answer
        others[0].close()
        await asyncio.sleep(0.02)
        assert (await door.send_raw(b"GET /ready HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        go_on.set()
        assert events((await reader.read()).decode())[-1] == "[DONE]"
        for each in others:
            each.close()

    go_on = asyncio.Event()
    first: list[Step] = [Output("first"), go_on, END]
    knock(test, lambda: FakeEngine(script=[first]).begin(), connections_max=4)


@pytest.mark.parametrize(
    "count",
    [500, pytest.param(10_000, marks=pytest.mark.prove(shows="10,000 connections disturb no stream", limit_s=120))],
)
def test_idle_and_slow_connections_disturb_no_stream(count: int) -> None:
    if raise_file_limit() < count + 1000:
        pytest.skip(f"{count + 1000} open files are needed")

    async def test(door: Door) -> None:
        quiet = await door.client.post(CHAT, json={**HI, "stream": True})
        async with crowd(door, count):
            beside = await door.client.post(CHAT, json={**HI, "stream": True})
            assert texts(beside.text) == texts(quiet.text)
            assert (await door.client.get("/ready")).status_code == 200

    knock(test, connections_max=count + 8)


@asynccontextmanager
async def crowd(door: Door, count: int) -> AsyncIterator[None]:
    """Keep `count` connections of another process open, idle ones and those in the midst of a request."""
    begun = [
        b"",
        b"GET /hea",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ",
        request_bytes(json.dumps(HI).encode())[:-5],
    ]
    port = door.url.rpartition(":")[2]
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-c", CROWD, port, str(count), repr(begun))
    holder = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"here\n"
    try:
        yield
    finally:
        holder.kill()
        await holder.wait()


CROWD = """
import ast, resource, socket, sys
port, count, begun = int(sys.argv[1]), int(sys.argv[2]), ast.literal_eval(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
for index, each in enumerate(held):
    each.sendall(begun[index % len(begun)])
print("here", flush=True)
sys.stdin.read()
"""


def texts(stream: str) -> str:
    chunks = [event for event in events(stream) if event != "[DONE]"]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_a_client_that_never_reads_is_cut_and_its_request_ends() -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode()))
        await until(lambda: door.engine.cancelled == [1])
        writer.close()
        del reader

    knock(test, lambda: FakeEngine(script=[CHATTY]).begin(), write_timeout_s=0.2)


def test_a_client_that_closes_its_half_has_left() -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode()))
        await reader.readuntil(b"first")
        writer.write_eof()
        await until(lambda: door.engine.cancelled == [1])
        assert b"[DONE]" not in await reader.read()
        writer.close()

    knock(test, lambda: FakeEngine(script=[FOREVER]).begin())


def test_a_body_that_drips_is_408_however_regular_its_drops() -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        writer.write(request_bytes(b"x" * 1000)[:-999])
        answer = asyncio.create_task(reader.readuntil(b"\r\n"))
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        assert answer.result().startswith(b"HTTP/1.1 408 ")
        writer.close()

    knock(test, body_timeout_s=0.2)


def test_the_limit_of_open_files_is_raised_and_bounds_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    assert raise_file_limit() == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize(
    ("asked", "files", "taken"),
    [
        (None, 1024, 512),
        (None, 1 << 20, CONNECTIONS_MAX),
        (None, -1, CONNECTIONS_MAX),
        (100_000, 1024, 512),
        (100_000, -1, 100_000),
        (7, 1024, 7),
        (None, 100, 1),
    ],
)
def test_connections_leave_files_for_the_rest(asked: int | None, files: int, taken: int) -> None:
    assert connections_max(asked, files) == taken
