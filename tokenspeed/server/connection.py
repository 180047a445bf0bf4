"""One HTTP connection: uvicorn's protocol with limits of size and time, and nothing to smuggle with.

Owns what neither the parser nor uvicorn bounds: the size of a head, the time for it, a client that
takes nothing of its answer, the number of connections. What a head may say is `strict`'s business.
Malformed HTTP gets an error body like any other error.

Invariant: after an answer that ends the connection, nothing that came on it is looked at.
"""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tokenspeed.config import RequestLimits
from tokenspeed.errors import EngineError, TokenSpeedError, UserError
from tokenspeed.server.errors import RETRY_AFTER_S, error_body
from tokenspeed.server.identity import request_id
from tokenspeed.server.strict import head_fault

HEADER_EXTRA_BYTES = 4  # ": " and the line's end
TURNED_AWAY_MAX = 256  # connections beyond the limit that are told so, at once
TURNED_AWAY_S_MAX = 2.0
LINGER_S = 1.0
REST_S_MAX = 2.0  # for the rest of a body that nobody reads
BODY_HEADERS = {b"content-length", b"transfer-encoding"}
_UPGRADE = (
    "The request asks for another protocol with its Upgrade header, which cannot be done with a body; send it as "
    "plain HTTP/1.1 (in Java: HttpClient.Builder.version(HTTP_1_1))"
)


class Connection(HttpToolsProtocol):
    """One connection. Subclasses set `limits` and `connections_max`."""

    limits: RequestLimits
    connections_max: int

    _fault: TokenSpeedError | None = None
    _is_too_many = False
    _is_last = False  # no further request is read
    _is_in_body = False
    _header_bytes = 0
    _unread_bytes = 0  # that the parser holds without having said anything of them
    _head_timer: asyncio.TimerHandle | None = None
    _stuck_timer: asyncio.TimerHandle | None = None

    # The transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; uvicorn's own limit begins with the first answer."""
        super().connection_made(transport)
        over = len(self.connections) - self.connections_max
        self._is_too_many = over > 0
        if over > TURNED_AWAY_MAX:
            transport.abort()
        # Who is one too many is told so when the first byte has come: before that, it may miss it.
        self._expect(TURNED_AWAY_S_MAX if over > 0 else self.limits.idle_s_max)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._head_timer, self._stuck_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; the parser keeps a header until its end, however long."""
        if self._is_last:
            return
        if self._is_too_many:
            self._refuse(_too_many(self.connections_max))
            return
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > self.limits.header_bytes_max and not self._is_last:
            self._refuse(self._too_long())

    def pause_writing(self) -> None:
        """The client does not take what is sent: it has a while to go on."""
        super().pause_writing()
        self._stuck_timer = self.loop.call_later(self.limits.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has gone on."""
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
        super().resume_writing()

    # The parser. What is raised in here makes it stop and call `send_400_response`.

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self.cycle is not None and not (self.cycle.keep_alive or self._is_last):
            self._is_last = True  # it said that it would send no more
            raise ValueError("a request after the last")
        self._header_bytes = self._unread_bytes = 0
        self._expect(self.limits.header_timeout_s)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self._count(len(name) + len(value) + HEADER_EXTRA_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer. The parser drops the body of a request that asks for another protocol."""
        self._unread_bytes = 0
        self._stop_expecting()
        fault = head_fault(self.url, self.parser.get_http_version(), self.headers)
        if fault is None and self.parser.should_upgrade() and self._has_body_or_tunnel():
            fault = _UPGRADE
        if fault is not None:
            self._give_up(_invalid(fault))
        self._is_in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread_bytes = 0
        self._is_in_body = False
        super().on_message_complete()
        if self.cycle.response_complete:
            self._expect(self.limits.idle_s_max)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close."""
        if not self._is_last:
            self._refuse(self._fault or _invalid(msg))

    def on_response_complete(self) -> None:
        """End an answer; if it came before all of its request, the rest has a moment to come."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._is_last = True
        elif self._is_in_body and self.cycle.response_complete:
            self._stop_expecting()
            self._head_timer = self.loop.call_later(REST_S_MAX, self._linger)
        elif not self.pipeline:
            self._expect(self.limits.idle_s_max)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a server may ignore the wish."""

    # Ours.

    def _refuse(self, error: TokenSpeedError) -> None:
        """Answer with `error` and end the connection; an answer on its way is finished instead."""
        self._is_last = True
        cycle = self.cycle
        if self.pipeline:
            self.transport.close()
        elif cycle is not None and cycle.response_started and not cycle.response_complete:
            cycle.keep_alive = False
        else:
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
            self.transport.write(_answer(error, self._ident()))
            self._linger()

    def _linger(self) -> None:
        """End the connection, but for a moment take what still comes, or the answer would be lost to a reset."""
        self._is_last = True
        self._stop_expecting()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def _ident(self) -> str:
        """Return the id of the request that is being read, the client's if it has told it already."""
        headers = self.headers or ()  # None before the first head, whatever uvicorn's types say
        told = dict(headers).get(b"x-request-id", b"")
        return request_id(told.decode("latin-1"))

    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and (bool(self.pipeline) or (cycle.response_started and not cycle.response_complete))

    def _has_body_or_tunnel(self) -> bool:
        return self.parser.get_method() == b"CONNECT" or not BODY_HEADERS.isdisjoint(name for name, _ in self.headers)

    def _give_up(self, error: TokenSpeedError) -> None:
        self._fault = error
        raise ValueError(error.message)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes_max:
            self._give_up(self._too_long())

    def _too_long(self) -> UserError:
        return UserError(
            f"The headers are longer than {self.limits.header_bytes_max} bytes (--max-header-bytes); send fewer or "
            "shorter ones.",
            status=431,
            code="headers_too_large",
        )

    def _expect(self, limit_s: float) -> None:
        """Wait at most `limit_s` for the end of a head."""
        self._stop_expecting()
        self._head_timer = self.loop.call_later(limit_s, self._head_overdue, limit_s)

    def _head_overdue(self, limit_s: float) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._expect(limit_s)  # an answer is still on its way; the next request was begun early
        elif self._header_bytes or self._unread_bytes:
            self._refuse(_too_slow(limit_s))
        else:
            self.transport.close()

    def _stop_expecting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()


def _answer(error: TokenSpeedError, ident: str) -> bytes:
    body = msgspec.json.encode(error_body(error, ident))
    head: dict[str, object] = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
    if error.status == 503:
        head["retry-after"] = RETRY_AFTER_S
    head["x-request-id"] = ident
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return STATUS_LINE[error.status] + f"{lines}\r\n".encode() + body


def _invalid(fault: str) -> UserError:
    return UserError(f"{fault.rstrip('.')}.", code="invalid_http")


def _too_slow(limit_s: float) -> UserError:
    return UserError(
        f"The headers did not come within {limit_s:g} s (--header-timeout); send them at once.",
        status=408,
        code="timeout",
    )


def _too_many(most: int) -> EngineError:
    return EngineError(
        f"The server has {most} open connections, as many as it takes (--max-connections); come back later.",
        status=503,
        code="too_many_connections",
    )
