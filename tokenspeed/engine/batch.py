"""Several replies as one: the choices of a prompt, or the prompts of a list.

Owns the streams that belong together. They fail together: the first error ends all, so that nobody
waits for half an answer. It does not know who asked, or how the answer is told.

Invariant: when the iteration ends, for whatever reason, none of the streams is still open.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from tokenspeed.engine.reply import OutputLike, Reply, cut_short

O = TypeVar("O", bound=OutputLike)  # noqa: E741
O_co = TypeVar("O_co", bound=OutputLike, covariant=True)


class StreamLike(Protocol[O_co]):
    """One reply; the engine's `Stream` has this form."""

    async def accepted(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[O_co]: ...
    def written(self, size: int = 0) -> None: ...
    def cancel(self) -> None: ...


class Batch(Generic[O]):
    """An asynchronous iterator over (index of the stream, output), in the order in which outputs come."""

    def __init__(self, streams: Sequence[StreamLike[O]]) -> None:
        self._streams = streams

    @classmethod
    def opened(cls, openers: Iterable[Callable[[], StreamLike[O]]]) -> Batch[O]:
        """Open all or none: what one of `openers` raises cancels those before it."""
        streams: list[StreamLike[O]] = []
        try:
            for opener in openers:
                streams.append(opener())  # noqa: PERF401 - those before a failure are wanted
        except BaseException:
            cls(streams).cancel()
            raise
        return cls(streams)

    async def accepted(self) -> None:
        """Return when all were found valid; raise the first error, with all cancelled."""
        try:
            for stream in self._streams:
                await stream.accepted()
        except BaseException:
            self.cancel()
            raise

    def __aiter__(self) -> AsyncGenerator[tuple[int, O], None]:
        return self._merged() if len(self._streams) > 1 else self._first()

    async def replies(self) -> list[Reply]:
        """Return the whole replies, in the order of the streams."""
        outputs: list[list[O]] = [[] for _ in self._streams]
        async for index, output in self:
            outputs[index].append(output)
        return [Reply.of(each) for each in outputs]

    def written(self, index: int | None = None, size: int = 0) -> None:
        """Note that a door has sent what came last of the stream `index` (None: of all), `size` bytes of it."""
        for stream in self._streams if index is None else self._streams[index : index + 1]:
            stream.written(size)

    def cancel(self) -> None:
        """End all now, in whatever state they are."""
        for stream in self._streams:
            stream.cancel()

    async def _first(self) -> AsyncGenerator[tuple[int, O], None]:
        try:
            for stream in self._streams:
                async for output in _whole(stream):
                    yield 0, output
        finally:
            self.cancel()

    async def _merged(self) -> AsyncGenerator[tuple[int, O], None]:
        news: asyncio.Queue[tuple[int, O] | Exception] = asyncio.Queue()
        readers = [asyncio.ensure_future(_read(*each, news)) for each in enumerate(self._streams)]
        unfinished = len(readers)
        try:
            while unfinished:
                item = await news.get()
                if isinstance(item, Exception):
                    raise item
                unfinished -= bool(item[1].finish)
                yield item
        finally:
            self.cancel()
            for reader in readers:
                reader.cancel()


async def _read(index: int, stream: StreamLike[O], news: asyncio.Queue[tuple[int, O] | Exception]) -> None:
    try:
        async for output in _whole(stream):
            news.put_nowait((index, output))
    except Exception as error:
        news.put_nowait(error)


async def _whole(stream: StreamLike[O]) -> AsyncGenerator[O, None]:
    """Yield the outputs up to the one with the finish; raise if there is none."""
    async for output in stream:
        yield output
        if output.finish:
            return
    raise cut_short()
