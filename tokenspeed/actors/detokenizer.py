"""The detokenizer actor: ids in, text out.

Owns one output stream per open request and is the authority for text: it fixes where a reply ends,
how many tokens count, and tells the scheduler by `Verdict`. It does not know why a token was drawn.

Invariant: the text sent for a request depends on its ids alone, not on how they were cut into
batches; so a new detokenizer that is sent all ids again repeats the same text from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import DetokenizerConfig
from tokenspeed.messages.base import Message, pack_ids, view_ids
from tokenspeed.messages.detokenizer import DetokenizerMessage, DropStream, StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.engine import OutputDelta, StreamsFenced
from tokenspeed.messages.scheduler import Verdict
from tokenspeed.text.output_stream import OutputStream
from tokenspeed.text.vocabulary import load_vocabulary


class _Reply:
    """The stream of one request: what came in and what went out."""

    __slots__ = ("cached_tokens", "prompt_tokens", "stream", "tokens")

    def __init__(self, opening: StreamOpening, token_bytes: Sequence[bytes]) -> None:
        self.stream = OutputStream(token_bytes, opening.settings.stop)
        self.prompt_tokens = opening.settings.prompt_tokens
        self.cached_tokens = opening.cached_tokens
        self.tokens = 0


class DetokenizerActor(Actor):
    """One mailbox around a table of output streams."""

    name: ClassVar[str] = "detokenizer"
    in_place: ClassVar[bool] = True
    receives: ClassVar[dict[str, object]] = {"scheduler": DetokenizerMessage}

    def __init__(self, config: DetokenizerConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        self._token_bytes: Sequence[bytes] = ()
        self._replies: dict[int, _Reply] = {}

    async def start(self) -> None:
        """Load the bytes of every token."""
        self._phase("vocabulary", 30.0)
        loop = asyncio.get_running_loop()
        model = self._config.model
        dummy = model.load_format == "dummy"
        load = partial(load_vocabulary, model.path, dummy=dummy, overrides=model.hf_overrides)
        vocabulary = await loop.run_in_executor(None, load)
        self._token_bytes = vocabulary.token_bytes

    def receive(self, sender: str, message: Message) -> None:
        """Take one message of the scheduler."""
        match message:
            case TokenBatch():
                for entry in message.entries:
                    self._take(entry)
            case DropStream():
                self._replies.pop(message.request, None)

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Forget the old scheduler's streams and tell the engine that no text of them follows.

        Those that go on are sent whole by the new one; of the others nobody would say that they ended.
        """
        if peer == "scheduler":
            self._replies.clear()
            self._outbox.send("engine", StreamsFenced(epoch))

    def _take(self, entry: TokenEntry) -> None:
        reply = self._replies.get(entry.request)
        if reply is None:
            if entry.opening is None:
                return  # ended here already; the scheduler has not read the verdict yet
            reply = self._replies[entry.request] = _Reply(entry.opening, self._token_bytes)
        ids = view_ids(entry.ids)[max(0, reply.tokens - entry.first) :].tolist()
        if ids or entry.finish:
            self._emit(entry, reply, ids)

    def _emit(self, entry: TokenEntry, reply: _Reply, ids: list[int]) -> None:
        stream = reply.stream
        text_offset = stream.chars
        text = stream.push(ids, hide_last=entry.finish == "stop")
        if entry.finish or stream.stopped is not None:
            text += stream.finish()
        finish = "stop" if stream.stopped is not None else entry.finish
        first, reply.tokens = reply.tokens, reply.tokens + len(ids)
        delta = OutputDelta(
            request=entry.request,
            first=first,
            ids=pack_ids(ids[: stream.tokens_kept - first]),
            text_offset=text_offset,
            text=text,
            finish=finish,
            stop_reason=stream.stopped,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            completion_tokens=stream.tokens_kept,
        )
        self._outbox.send("engine", delta)
        if finish:
            del self._replies[entry.request]
            self._outbox.send("scheduler", Verdict(entry.request, stream.tokens_kept, finish))
