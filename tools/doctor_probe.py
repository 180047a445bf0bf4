"""What `tools/doctor` asks of a Python: prints one `FACT value` line for each thing amiss.

Runs on any Python 3, since its first task is to tell that one is too old, so nothing newer than
3.6 is used here. Knows nothing of how a miss is mended; that is the shell script's part.
"""

import errno
import os
import socket
import sys
import sysconfig


def holder(port):
    """Return "python3 (pid 42)" for the process that listens on `port`, or "" if it is not visible."""
    inodes = set()
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
            links = [os.readlink("/proc/%s/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%s/fd" % pid)]
            if any("socket:[%s]" % inode in links for inode in inodes):
                with open("/proc/%s/comm" % pid) as comm:
                    return "%s (pid %s)" % (comm.read().strip(), pid)
        except OSError:
            continue
    return ""


def port_miss(host, port):
    """Return what is wrong with listening on `host`:`port`, or ""."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError) as error:
        return "cannot be resolved (%s)" % error
    with socket.socket(family, kind, proto) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(address)
            trial.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return "cannot be opened (%s)" % error.strerror
            name = holder(port)
            return "is in use by %s" % name if name else "is in use"
        except OverflowError:
            return "is not a port number (1 to 65535)"
    return ""


def main(host, port):
    """Print the facts."""
    version = "%d.%d.%d" % sys.version_info[:3]
    if sys.version_info < (3, 11):
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
        amiss = port_miss(host, int(port)) if port.isdigit() else "is not a port number (1 to 65535)"
        if amiss:
            print("port", amiss)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
