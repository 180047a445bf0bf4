"""How many files this process may open, and how many connections that leaves room for.

Owns the limit of the process. The children inherit what it was raised to.

Invariant: connections up to `connections_max` never use up the descriptors of everything else.
"""

from __future__ import annotations

import logging
import resource

RESERVED = 256  # for rings, pipes, sockets and files of the supervisor, and connections being turned away
CONNECTIONS_MAX = 16_384

log = logging.getLogger("tokenspeed.server")


def raise_file_limit() -> int:
    """Raise this process's limit of open files as far as it may go; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard


def connections_max(asked: int | None, files: int) -> int:
    """Return how many connections are taken when `files` may be open (-1: no limit)."""
    room = CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, files - 2 * RESERVED)
    if asked is not None and asked > room and files != resource.RLIM_INFINITY:
        log.warning("--max-connections %d is more than %d open files leave room for; %d are taken", asked, files, room)
    if files == resource.RLIM_INFINITY and asked is not None:
        return asked
    return min(room, asked if asked is not None else CONNECTIONS_MAX)
