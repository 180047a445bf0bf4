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
from itertools import repeat
from typing import ClassVar

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import DetokenizerConfig
from tokenspeed.messages.base import Message, pack_ids, view_ids
from tokenspeed.messages.detokenizer import DetokenizerMessage, DropStream, StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.engine import OutputDelta, PositionLogprobs, StreamsFenced
from tokenspeed.messages.logprobs import entry_bytes
from tokenspeed.messages.scheduler import StreamSettings, Verdict
from tokenspeed.points import Kind
from tokenspeed.text.output_stream import OutputStream
from tokenspeed.text.pieces import Pieces
from tokenspeed.text.vocabulary import load_vocabulary

TEXT = int(Kind.TEXT)


class _Reply:
    """The stream of one request: what came in and what went out."""

    __slots__ = ("cached_tokens", "entries", "held", "prompt_logprobs", "sent", "settings", "stream", "times", "tokens")

    def __init__(self, opening: StreamOpening, token_bytes: Sequence[bytes]) -> None:
        self.settings = settings = opening.settings
        self.stream = OutputStream(
            token_bytes, settings.stop, include_stop=settings.include_stop, placed=settings.logprobs >= 0
        )
        self.cached_tokens = opening.cached_tokens
        self.prompt_logprobs = bytes(opening.prompt_logprobs)
        self.times = opening.times
        self.tokens = 0  # ids that came
        self.sent = 0  # ids that went out
        self.held: list[int] = []  # ids between these, if their log-probabilities are asked for
        self.entries = b""  # and theirs, packed


class DetokenizerActor(Actor):
    """One mailbox around a table of output streams."""

    name: ClassVar[str] = "detokenizer"
    in_place: ClassVar[bool] = True
    receives: ClassVar[dict[str, object]] = {"scheduler": DetokenizerMessage}

    def __init__(self, config: DetokenizerConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        # By whether control tokens are skipped.
        self._token_bytes: dict[bool, Sequence[bytes]] = {}
        self._shown_pieces: dict[bool, Pieces] = {}
        self._replies: dict[int, _Reply] = {}

    async def start(self) -> None:
        """Load the bytes of every token."""
        self._phase("vocabulary", 30.0)
        loop = asyncio.get_running_loop()
        model = self._config.model
        dummy = model.load_format == "dummy"
        load = partial(load_vocabulary, model.path, dummy=dummy, overrides=model.hf_overrides)
        vocabulary = await loop.run_in_executor(None, load)
        self._token_bytes = {True: vocabulary.token_bytes, False: vocabulary.all_bytes()}
        self._shown_pieces = {skip: Pieces(table) for skip, table in self._token_bytes.items()}

    def receive(self, sender: str, message: Message) -> None:
        """Take one message of the scheduler."""
        match message:
            case TokenBatch():
                for entry in message.entries:
                    self._take(entry, message.step)
            case DropStream():
                self._replies.pop(message.request, None)

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Forget the old scheduler's streams and tell the engine that no text of them follows.

        Those that go on are sent whole by the new one; of the others nobody would say that they ended.
        """
        if peer == "scheduler":
            self._replies.clear()
            self._outbox.send("engine", StreamsFenced(epoch))

    def _take(self, entry: TokenEntry, step: int) -> None:
        reply = self._replies.get(entry.request)
        if reply is None:
            if entry.opening is None:
                return  # ended here already; the scheduler has not read the verdict yet
            reply = self._replies[entry.request] = _Reply(
                entry.opening, self._token_bytes[entry.opening.settings.skip_special]
            )
        known = max(0, reply.tokens - entry.first)
        ids = view_ids(entry.ids)[known:].tolist()
        if reply.settings.logprobs >= 0:
            reply.held += ids
            reply.entries += bytes(entry.logprobs[known * entry_bytes(reply.settings.logprobs) :])
        if ids or entry.finish:
            self._emit(entry, reply, ids, step)

    def _emit(self, entry: TokenEntry, reply: _Reply, ids: list[int], step: int) -> None:
        stream, settings = reply.stream, reply.settings
        text_offset = stream.chars
        text = stream.push(ids, hide_last=entry.finish == "stop")
        if entry.finish or stream.stopped is not None:
            text += stream.finish()
        finish = "stop" if stream.stopped is not None else entry.finish
        reply.tokens += len(ids)
        ids, logprobs = self._shown(reply, ids)
        first, reply.sent = reply.sent, reply.sent + len(ids)
        if not (ids or text or finish):
            return
        delta = OutputDelta(
            request=entry.request,
            first=first,
            ids=pack_ids(ids),
            text_offset=text_offset,
            text=text,
            finish=finish,
            stop_reason=stream.stopped if stream.stopped is not None else _stop_id(entry, settings),
            prompt_tokens=settings.prompt_tokens,
            cached_tokens=reply.cached_tokens,
            completion_tokens=stream.tokens_kept,
            logprobs=logprobs,
            prompt_logprobs=self._of_prompt(reply) if first == text_offset == 0 else None,
            times=reply.times if first == text_offset == 0 else None,
        )
        self.trace.point(TEXT, entry.request, step, len(text))
        self._outbox.send("engine", delta)
        if finish:
            del self._replies[entry.request]
            self._outbox.send("scheduler", Verdict(entry.request, stream.tokens_kept, finish))

    def _shown(self, reply: _Reply, ids: list[int]) -> tuple[list[int], list[PositionLogprobs] | None]:
        """Return the ids that go out now, and their log-probabilities if they are asked for."""
        stream, top = reply.stream, reply.settings.logprobs
        if top < 0:
            return ids[: stream.tokens_kept - reply.sent], None
        count = len(stream.offsets) - reply.sent
        ids, reply.held = reply.held[:count], reply.held[count:]
        size = count * entry_bytes(top)
        packed, reply.entries = reply.entries[:size], reply.entries[size:]
        return ids, self._pieces(reply).positions(packed, top, stream.offsets[reply.sent :])

    def _of_prompt(self, reply: _Reply) -> list[PositionLogprobs | None] | None:
        """Return those of the prompt; None if they are not asked for, or went out before a restart."""
        top, tokens = reply.settings.prompt_logprobs, reply.settings.prompt_tokens
        packed, reply.prompt_logprobs = reply.prompt_logprobs, b""
        if top < 0 or len(packed) != (tokens - 1) * entry_bytes(top):
            return None
        return [None, *self._pieces(reply).positions(packed, top, repeat(0))]

    def _pieces(self, reply: _Reply) -> Pieces:
        return self._shown_pieces[reply.settings.skip_special]


def _stop_id(entry: TokenEntry, settings: StreamSettings) -> int | None:
    """Return the caller's stop id that ended the reply, None if it was another one or none."""
    last: int | None = view_ids(entry.ids)[-1] if entry.finish == "stop" and len(entry.ids) else None
    return last if last in settings.stop_ids else None
