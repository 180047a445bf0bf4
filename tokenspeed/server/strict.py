"""What a request's head may look like, beyond what the parser sees to.

The parser (llhttp, strict) refuses a length given twice or beside chunks, folded headers, lines that
end without CR, blanks before a colon, control characters and chunk sizes that are no number. Here is
what it lets through and what a proxy in front may read differently. Knows one head, no connection.

Invariant: of a head without fault, everybody reads the same host, the same target and the same end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Header = tuple[bytes, bytes]

VERSIONS = ("1.0", "1.1")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def head_fault(target: bytes, version: str, headers: Iterable[Header]) -> str | None:
    """Return what is wrong with a head, in a sentence without its end; None if nothing is.

    Names of `headers` are in lower case.
    """
    if version not in VERSIONS:
        return f"The request speaks HTTP/{version}; send HTTP/1.1"
    if not target.startswith(b"/") or b"#" in target:
        return "The target of the request must be a path that begins with '/' and has no '#'"
    hosts, codings = [], []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
    return _hosts_fault(hosts, version) or _codings_fault(codings, version)


def _hosts_fault(hosts: list[bytes], version: str) -> str | None:
    if len(hosts) > 1 or (not hosts and version != "1.0"):
        return f"The request has {len(hosts)} Host headers; send one"
    if hosts and not _HOST.fullmatch(hosts[0]):
        return "The Host header is no name or address with an optional port"
    return None


def _codings_fault(codings: list[bytes], version: str) -> str | None:
    if not codings:
        return None
    if version == "1.0":
        return "HTTP/1.0 has no Transfer-Encoding; send Content-Length"
    if len(codings) > 1 or codings[0].lower() != b"chunked":
        return "The only Transfer-Encoding allowed is 'chunked', once"
    return None
