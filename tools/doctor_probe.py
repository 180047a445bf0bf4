"""What `tools/doctor` asks of a Python: prints one `FACT value` line for each thing amiss.

Runs on any Python 3, since its first task is to tell that one is too old, so nothing newer than
3.6 is used here. Knows nothing of how a miss is mended; that is the shell script's part.
"""

import errno
import os
import socket
import sys
import sysconfig


def holder(port: int) -> str:
    """Return "python3 (pid 42)" for the process that listens on `port`, or "" if it is not visible."""
    inodes = set()  # type: set[str]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        # Columns: 1 is local address:port in hexadecimal, 3 the state (0A: listening), 9 the inode.
        inodes.update(row[9] for row in rows if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if any(f"socket:[{inode}]" in links for inode in inodes):
                with open(f"/proc/{pid}/comm") as comm:
                    return f"{comm.read().strip()} (pid {pid})"
        except OSError:
            continue
    return ""


def port_miss(host: str, port: str) -> str:
    """Return what is wrong with listening on `host`:`port` (a string), or ""."""
    if not port.isdigit() or not 0 < int(port) < 65536:
        return "is not a port number (1 to 65535)"
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return f"cannot be resolved ({error})"
    with socket.socket(family, kind, proto) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
            trial.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"cannot be opened ({error.strerror})"
            name = holder(int(port))
            return f"is in use by {name}" if name else "is in use"
    return ""


def main(host: str, port: str) -> None:
    """Print the facts."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < (3, 11):  # noqa: UP036
        print("old", version)
        return
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        print("novenv", version)
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        print("noheaders", header)
    if port:
        amiss = port_miss(host, port)
        if amiss:
            print("port", amiss)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
