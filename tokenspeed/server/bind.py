"""The listening socket, bound before anything is loaded.

Owns the bind and the words for its failure: who holds the port, as far as /proc shows it, and what
to do. It does not know what will be served.

Invariant: a socket returned listens; a failure is a `StartError` that names address and mend.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from tokenspeed.errors import StartError

BACKLOG = 2048
SILENT_S = 60  # after which a silent peer is asked for a sign of life
PROC = Path("/proc")
LISTEN = "0A"


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    family, address = _resolve(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _notice_the_dead(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise StartError(_why(error, host, port)) from None
    sock.setblocking(False)
    return sock


def _notice_the_dead(sock: socket.socket) -> None:
    """Let the kernel end connections whose peer is gone without a word, or takes nothing for long; they inherit it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, SILENT_S),
        (socket.TCP_KEEPINTVL, SILENT_S // 4),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, 2 * SILENT_S * 1000),
    ):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def url_of(sock: socket.socket) -> str:
    """Return the URL at which this machine reaches `sock`."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def holder(port: int) -> str | None:
    """Return "pid N (command)" of the process that listens on TCP `port`, None if it cannot be seen."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(table, port)}
    pids = (entry.name for entry in PROC.iterdir() if entry.name.isdecimal())
    return next((f"pid {pid} ({_command(pid)})" for pid in pids if _holds(pid, inodes)), None)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return the first address of `host`, an IPv4 one if there is any."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise StartError(f"The host {host!r} cannot be resolved ({error}); use --host 127.0.0.1 or another.") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), port)


def _why(error: OSError, host: str, port: int) -> str:
    where = f"port {port} on {host}"
    if error.errno == errno.EADDRINUSE:
        by = holder(port)
        seen = f"{where} is in use by {by}" if by else f"{where} is in use (its holder is not visible to this user)"
        return f"{seen}; stop that process or choose another port with --port, such as --port {_near(port)}."
    if error.errno == errno.EACCES:
        return f"{where} needs privileges; choose a port above 1023 with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is no address of this machine; use --host 127.0.0.1, or 0.0.0.0 for all."
    return f"{where} cannot be bound: {error.strerror or error}; choose others with --host and --port."


def _near(port: int) -> int:
    return port + 1 if port < 65535 else 8000


def _listening(table: str, port: int) -> list[str]:
    """Return the socket inodes that listen on `port`, from /proc/net/{tcp,tcp6}."""
    try:
        lines = (PROC / "net" / table).read_text().splitlines()[1:]
    except OSError:
        return []
    rows = (line.split() for line in lines)
    return [row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _holds(pid: str, inodes: set[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        entries = list((PROC / pid / "fd").iterdir())
    except OSError:
        return False
    return any(_link(entry) in wanted for entry in entries)


def _link(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:
        return ""  # closed meanwhile


def _command(pid: str) -> str:
    try:
        words = (PROC / pid / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "unknown command"
    text = b" ".join(words).decode(errors="replace")
    return "".join(char if char.isprintable() else "?" for char in text)[:120] or "unknown command"
