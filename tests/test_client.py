from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest
import uvloop

from tests.server.doors import HI, until
from tests.server.fake_engine import FOREVER, HELLO, FakeEngine
from tests.server.sockets import background_door, knock_unix, short_folder
from tokenspeed.client import CHAT, AsyncClient, Client, find_server
from tokenspeed.errors import EngineError, UserError
from tokenspeed.server.frames import Reply, frame

MESSAGES = HI["messages"]


def test_the_plain_client() -> None:
    with background_door() as (engine, path):
        client = Client(path, timeout_s=5.0)
        assert "".join(client.chat(MESSAGES, max_tokens=5)) == "Hello wörld\n"
        assert engine.asked[0][1].max_tokens == 5
        assert client.call(CHAT, HI)[1]["choices"][0]["message"]["content"] == "Hello wörld\n"
        assert client.models()[0]["id"] == "fake-model"
        assert client.ready()
        assert client.flush_cache() == 5
        assert "".join(client.completions("Once", max_tokens=5)) == "Hello wörld\n"
        assert "".join(client.chat(MESSAGES, n=2)) == "Hello wörld\n"
        assert client.generate(text=["a", "b"], sampling_params={"max_new_tokens": 3})[1]["text"] == "Hello wörld\n"
        assert client.detokenize(client.tokenize("Hö", add_special_tokens=False)) == "Hö"
        assert bytes(client.tokenize(messages=MESSAGES)).startswith(b"[")
        assert client.health()["status"] == "ready"
        assert client.stats()["pages_total"] == 4096
        with pytest.raises(UserError) as refused:
            list(client.chat([]))
        assert refused.value.param == "messages"


def test_ending_a_stream_early_cancels_the_reply() -> None:
    with background_door(lambda: FakeEngine(script=[FOREVER, HELLO]).begin()) as (engine, path):
        client = Client(path, timeout_s=5.0)
        with contextlib.closing(client.chat(MESSAGES)) as reply:
            assert next(reply) == "first"
        end_s = time.monotonic() + 2.0
        while engine.cancelled != [1]:
            assert time.monotonic() < end_s
            time.sleep(0.005)
        assert "".join(client.chat(MESSAGES)) == "Hello wörld\n"


def test_the_asynchronous_client_and_its_cancellation() -> None:
    async def test(engine: FakeEngine, path: Path) -> None:
        client = AsyncClient(path)
        async with contextlib.aclosing(client.chat(MESSAGES)) as reply:
            assert await anext(reply) == "first"
        await until(lambda: engine.cancelled == [1])
        assert [text async for text in client.chat(MESSAGES)] == ["Hel", "lo", " wörld\n"]
        assert [text async for text in client.completions([1, 2])] == ["Hel", "lo", " wörld\n"]
        assert (await client.generate(input_ids=[1]))["text"] == "Hello wörld\n"
        assert await client.detokenize(await client.tokenize("Hi")) == "<s>Hi"
        assert (await client.health())["status"] == "ready"
        assert (await client.stats())["pages_total"] == 4096

    knock_unix(test, lambda: FakeEngine(script=[FOREVER, HELLO]).begin())


def test_no_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        with pytest.raises(UserError, match="tokenspeed serve"):
            find_server()
        with pytest.raises(EngineError) as gone:
            Client(folder / "none.sock").ready()
        assert gone.value.code == "unreachable"

        async def main() -> None:
            with pytest.raises(EngineError, match="cannot be reached"):
                await AsyncClient(folder / "none.sock").ready()

        uvloop.run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [(b"", "gone"), (b"\0\0", "gone"), (b"\xff\xff\xff\xff", "bytes came"), (frame(Reply(200, {})), "does not belong")],
)
def test_a_server_that_breaks_off_or_speaks_otherwise_is_an_engine_error(answer: bytes, words: str) -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = folder / "s"
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for _ in range(2):
                peer, _address = listener.accept()
                with peer:
                    peer.recv(1 << 16)
                    peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(EngineError, match=words):
            list(Client(path, timeout_s=5.0).stream(CHAT, HI))

        async def main() -> None:
            with pytest.raises(EngineError, match=words):
                async for _ in AsyncClient(path).stream(CHAT, HI):
                    pass

        uvloop.run(main())
        thread.join(5.0)


def test_a_silent_server_meets_the_timeout() -> None:
    with background_door(lambda: FakeEngine(script=[FOREVER]).begin()) as (_engine, path):
        reply = Client(path, timeout_s=0.1).chat(MESSAGES)
        assert next(reply) == "first"
        with pytest.raises(EngineError, match="timed out"):
            next(reply)
