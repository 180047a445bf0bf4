"""The one line that the log gets of each call, whichever door it came through, and its span.

Owns the words of that line, and what is not worth one: the probes of health and the scrapes of metrics.
What a call took is counted by the engine, in the account of the caller.

Invariant: no text of a user is in it, unless prompts are logged by wish.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from tokenspeed.caller import Caller

QUIET_PATHS = ("/health", "/ready", "/metrics")
STATUS_CLIENT_GONE = 499

log = logging.getLogger("tokenspeed.server")

FINGERPRINT_CHARS = 8


def key_name(tenant: str) -> str:
    """Return what the log calls the key of `tenant`: its name, else the beginning of its digest; never the key."""
    kind, _, name = tenant.partition(":")
    return name if kind == "name" else name[:FINGERPRINT_CHARS]


class SpansLike(Protocol):
    """Who makes spans of calls; `tokenspeed.server.spans.Spans` has this form."""

    def ended(self, what: str, status: int, begun_s: float, caller: Caller) -> None: ...


def tell(what: str, status: int, begun_s: float, caller: Caller, spans: SpansLike | None = None) -> None:
    """Log that the call `what` ("POST /v1/..."), begun at `begun_s` of the monotonic clock, was answered."""
    if spans is not None:
        spans.ended(what, status, begun_s, caller)
    duration_s = round(time.monotonic() - begun_s, 3)
    log.info("%s %d", what, status, extra={"fields": {**caller.fields(), "duration_s": duration_s}})
