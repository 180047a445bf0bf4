"""A client of the Unix socket, for one's own server on the same machine.

Owns the connections. Each call has one of its own, so that ending a stream early is closing it:
the server cancels the reply at once. There is a plain and an asynchronous form with the same
methods.

Invariant: an answer that tells of an error is raised as `UserError` or `EngineError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.errors import EngineError, ErrorInfo, UserError
from tokenspeed.server.frames import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    Answer,
    Chunk,
    End,
    Failure,
    Reply,
    call_frame,
    running_sockets,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GENERATE = "/generate"
Messages = Sequence[Mapping[str, Any]]

_decode = msgspec.msgpack.Decoder(Answer).decode


def find_server() -> Path:
    """Return the socket of this user's newest running server; raise `UserError` if there is none."""
    found = running_sockets()
    if not found:
        raise UserError("No server of yours is running; start one with `tokenspeed serve`.", code="no_server")
    return found[0]


class Client:
    """Calls the server at `path`, by default the newest one of this user.

    `timeout_s` bounds the wait for each frame; None waits as long as the server works.
    """

    def __init__(self, path: str | Path | None = None, *, timeout_s: float | None = None) -> None:
        self.path = Path(path) if path is not None else find_server()
        self._timeout_s = timeout_s

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and body of a whole answer; raise `UserError` or `EngineError`."""
        with self._connected(path, body) as sock:
            answer = _receive(sock)
        if isinstance(answer, Reply):
            return answer.status, answer.body
        raise _error(answer)

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Yield the chunks of a streamed answer; closing the generator cancels the reply."""
        with self._connected(path, {**body, "stream": True}) as sock:
            while isinstance(answer := _receive(sock), Chunk):
                yield answer.body
        if not isinstance(answer, End):
            raise _error(answer)

    def chat(self, messages: Messages, **settings: Any) -> Generator[str, None, None]:
        """Yield the text of the reply to `messages` as it comes; `settings` are those of the HTTP API."""
        chunks = self.stream(CHAT, {"messages": messages, **settings})
        with contextlib.closing(chunks):
            for chunk in chunks:
                if text := _text(chunk):
                    yield text

    def completions(self, prompt: str | Sequence[int], **settings: Any) -> Generator[str, None, None]:
        """Yield the text that goes on with `prompt` as it comes; `settings` are those of the HTTP API."""
        chunks = self.stream(COMPLETIONS, {"prompt": prompt, **settings})
        with contextlib.closing(chunks):
            for chunk in chunks:
                if text := _text(chunk):
                    yield text

    def generate(self, **body: Any) -> Any:
        """Return the whole answer to a request of `/generate`: an object, or a list of them for several replies."""
        return self.call(GENERATE, body)[1]

    def tokenize(self, prompt: str | None = None, *, messages: Messages | None = None, **more: Any) -> list[int]:
        """Return the ids of a text or a conversation."""
        return list(self.call("/tokenize", {"prompt": prompt, "messages": messages, **more})[1]["tokens"])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of ids."""
        return str(self.call("/detokenize", {"tokens": tokens})[1]["prompt"])

    def models(self) -> list[dict[str, Any]]:
        """Return the catalogue's entries."""
        return list(self.call("/v1/models")[1]["data"])

    def health(self) -> dict[str, Any]:
        """Return the state of the engine and of each of its processes."""
        return dict(self.call("/health")[1])

    def stats(self) -> dict[str, int]:
        """Return the scheduler's counters."""
        return dict(self.call("/stats")[1])

    def requests(self, ident: str) -> list[int]:
        """Return the engine's numbers of the requests of one call, by its x-request-id or the id in its answer."""
        return list(self.call("/requests", {"id": ident})[1]["requests"])

    def ready(self) -> bool:
        """Tell whether the server takes requests."""
        return self.call("/ready")[0] == 200

    def flush_cache(self) -> int:
        """Forget all cached pages that no request holds; return how many were freed."""
        return int(self.call("/flush_cache")[1]["pages_freed"])

    @contextlib.contextmanager
    def _connected(self, path: str, body: Mapping[str, Any] | None) -> Generator[socket.socket, None, None]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(self._timeout_s)
            try:
                sock.connect(str(self.path))
                sock.sendall(call_frame(path, body))
                yield sock
            except OSError as error:
                raise _unreachable(self.path, error) from error


class AsyncClient:
    """The same for asyncio."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else find_server()

    async def call(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Return status and body of a whole answer; raise `UserError` or `EngineError`."""
        async with self._connected(path, body) as reader:
            answer = await _receive_async(reader)
        if isinstance(answer, Reply):
            return answer.status, answer.body
        raise _error(answer)

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Yield the chunks of a streamed answer; closing the generator cancels the reply."""
        async with self._connected(path, {**body, "stream": True}) as reader:
            while isinstance(answer := await _receive_async(reader), Chunk):
                yield answer.body
        if not isinstance(answer, End):
            raise _error(answer)

    async def chat(self, messages: Messages, **settings: Any) -> AsyncGenerator[str, None]:
        """Yield the text of the reply to `messages` as it comes; `settings` are those of the HTTP API."""
        chunks = self.stream(CHAT, {"messages": messages, **settings})
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if text := _text(chunk):
                    yield text

    async def completions(self, prompt: str | Sequence[int], **settings: Any) -> AsyncGenerator[str, None]:
        """Yield the text that goes on with `prompt` as it comes; `settings` are those of the HTTP API."""
        chunks = self.stream(COMPLETIONS, {"prompt": prompt, **settings})
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                if text := _text(chunk):
                    yield text

    async def generate(self, **body: Any) -> Any:
        """Return the whole answer to a request of `/generate`: an object, or a list of them for several replies."""
        return (await self.call(GENERATE, body))[1]

    async def tokenize(self, prompt: str | None = None, *, messages: Messages | None = None, **more: Any) -> list[int]:
        """Return the ids of a text or a conversation."""
        return list((await self.call("/tokenize", {"prompt": prompt, "messages": messages, **more}))[1]["tokens"])

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of ids."""
        return str((await self.call("/detokenize", {"tokens": tokens}))[1]["prompt"])

    async def models(self) -> list[dict[str, Any]]:
        """Return the catalogue's entries."""
        return list((await self.call("/v1/models"))[1]["data"])

    async def health(self) -> dict[str, Any]:
        """Return the state of the engine and of each of its processes."""
        return dict((await self.call("/health"))[1])

    async def stats(self) -> dict[str, int]:
        """Return the scheduler's counters."""
        return dict((await self.call("/stats"))[1])

    async def requests(self, ident: str) -> list[int]:
        """Return the engine's numbers of the requests of one call, by its x-request-id or the id in its answer."""
        return list((await self.call("/requests", {"id": ident}))[1]["requests"])

    async def ready(self) -> bool:
        """Tell whether the server takes requests."""
        return (await self.call("/ready"))[0] == 200

    async def flush_cache(self) -> int:
        """Forget all cached pages that no request holds; return how many were freed."""
        return int((await self.call("/flush_cache"))[1]["pages_freed"])

    @contextlib.asynccontextmanager
    async def _connected(self, path: str, body: Mapping[str, Any] | None) -> AsyncGenerator[asyncio.StreamReader, None]:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.path))
        except OSError as error:
            raise _unreachable(self.path, error) from error
        try:
            writer.write(call_frame(path, body))
            await writer.drain()
            yield reader
        except (OSError, EOFError) as error:
            raise _unreachable(self.path, error) from error
        finally:
            writer.close()


def _receive(sock: socket.socket) -> Answer:
    return _decode(_exactly(sock, _size(_exactly(sock, LENGTH_BYTES))))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        data += piece
    return bytes(data)


async def _receive_async(reader: asyncio.StreamReader) -> Answer:
    return _decode(await reader.readexactly(_size(await reader.readexactly(LENGTH_BYTES))))


def _size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    if size > FRAME_BYTES_MAX:
        raise EngineError(f"A frame of {size} bytes came; at most {FRAME_BYTES_MAX} are read. Is this our server?")
    return size


def _text(chunk: Any) -> str:
    """Return what a chunk of either API adds to the first choice."""
    first = (choice for choice in chunk["choices"] if choice["index"] == 0)
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"] for choice in first)


def _error(answer: Answer) -> Exception:
    if isinstance(answer, Failure):
        return ErrorInfo(answer.status, answer.code, answer.message, answer.param).exception()
    return EngineError(f"The server sent a {type(answer).__name__} that does not belong here; versions may differ.")


def _unreachable(path: Path, error: Exception) -> EngineError:
    return EngineError(
        f"The server at {path} cannot be reached or has gone ({error}); is it still running?", code="unreachable"
    )
