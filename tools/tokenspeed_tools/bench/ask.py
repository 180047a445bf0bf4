"""One request: sent, read to its end, and told as a line of the raw file.

Owns the way from a conversation to a `Request`. It does not know why it is sent now.

Invariant: times are those of the exchange, and an error never hides the pieces that came before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tokenspeed_tools.bench.asking import Asking
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench.http import Exchange, LostError, now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import Message
from tokenspeed_tools.bench.raw import Request
from tokenspeed_tools.bench.reply import Reply, message
from tokenspeed_tools.bench.sse import Cutter

NOTHING_CAME = "the answer was empty"
BROKEN_OFF = "the stream ended before its end was told"
NOT_SENT = "not sent: a turn before it failed"


class Place(msgspec.Struct, frozen=True):
    """Which request of the run it is, and when it was due (seconds of `now`)."""

    index: int
    session: int
    turn: int
    warmup: bool
    scheduled_s: float


class Ask:
    """One request. `begin_s` is the run's start; times of the record count from there."""

    def __init__(self, place: Place, begin_s: float, watch: LoopWatch) -> None:
        self.reply = Reply()
        self._place = place
        self._begin_s = begin_s
        self._watch = watch
        self._marks = watch.marks()
        self._cutter = Cutter()
        self._exchange = Exchange(self._sink)

    @property
    def status(self) -> int:
        """The status of the answer, 0 before it came."""
        return self._exchange.status

    async def run(
        self, client: Client, asking: Asking, conversation: Sequence[Message], output_tokens: int | None, limit_s: float
    ) -> str | None:
        """Send and read; return what went wrong, None if nothing did."""
        body = asking.body(conversation, output_tokens)
        session = f"x-session-id: bench-{self._place.warmup:d}-{self._place.session}\r\n"
        try:
            async with asyncio.timeout(limit_s or None):
                await client.post(asking.path, body, self._exchange, session)
        except LostError as error:
            return self.reply.error or str(error)
        except TimeoutError:
            return f"no whole answer within {limit_s:g} s"
        return self._verdict()

    def record(self, error: str | None, prompt_asked: int | None, output_asked: int | None) -> Request:
        """Return the line; `error` is what went wrong, and the others how many tokens were asked for."""
        exchange, reply = self._exchange, self.reply
        ended_s = exchange.end_s or now()
        chunks, tokens_from = reply.chunks()
        usage = reply.usage
        return Request(
            **msgspec.structs.asdict(self._place) | {"scheduled_s": self._since(self._place.scheduled_s)},
            sent_s=self._since(exchange.sent_s or ended_s),
            headers_s=None if exchange.headers_s is None else self._since(exchange.headers_s),
            first_token_s=self._since(chunks[0][0]) if chunks else None,
            end_s=self._since(ended_s),
            chunks=[(self._since(at_s), tokens) for at_s, tokens in chunks],
            tokens_from=tokens_from,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None,
            output_tokens=sum(tokens for _, tokens in chunks),
            finish=reply.finish,
            status=exchange.status,
            error=error,
            request_id=exchange.headers.get("x-request-id") or reply.id,
            prompt_tokens_asked=prompt_asked,
            output_tokens_asked=output_asked,
            client_lag_s=round(self._watch.worst_s(self._marks[0]), 6),
            client_busy=self._watch.busy(self._marks),
        )

    def _sink(self, at_s: float, data: bytes) -> None:
        for event in self._cutter.feed(data):
            self.reply.take(at_s, event)

    def _verdict(self) -> str | None:
        exchange, reply = self._exchange, self.reply
        if exchange.status != 200:
            return f"{exchange.status}: {_told(b''.join(exchange.body))}"
        if reply.error:
            return reply.error
        if not reply.done and not reply.finish:
            return BROKEN_OFF
        return None if reply.chunks()[0] else NOTHING_CAME

    def _since(self, at_s: float) -> float:
        return round(at_s - self._begin_s, 6)


def not_sent(place: Place, begin_s: float) -> Request:
    """Return the line of a turn that could not be sent since one before it failed."""
    at_s = round(place.scheduled_s - begin_s, 6)
    return Request(
        **msgspec.structs.asdict(place) | {"scheduled_s": at_s},
        sent_s=at_s,
        headers_s=None,
        first_token_s=None,
        end_s=at_s,
        chunks=[],
        tokens_from="chunks",
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens=0,
        finish="",
        status=0,
        error=NOT_SENT,
        request_id=None,
    )


def _told(body: bytes) -> str:
    """Return the text of an error's body: its message, else its beginning."""
    try:
        read = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body[:300].decode(errors="replace").strip()
    return message(read.get("error") or read.get("detail") or read) if isinstance(read, dict) else message(read)
