"""Entry of an actor's process: `python -m tokenspeed.actors.spawn CHANNEL_FD PARENT_PID EDITION`.

First of all it ties its life to its parent's in the kernel, so that nothing outlives the engine
whatever state either is in. Who it is, it learns from the control channel. The signals of a
terminal or a service manager go to the whole group; they are the parent's to interpret, so this
process ignores them (the parent starts it with them blocked, so that none slips in before).

A restarted actor reads its code anew. If the installation was changed meanwhile, its messages may mean
something else than its parent's: the edition tells, and the actor says so instead of starting.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from tokenspeed import __version__

if TYPE_CHECKING:
    from tokenspeed.actors.control import Channel

CONTROL_PROTOCOL = 2  # goes up with each change of a message between processes
EDITION = f"{__version__}/{CONTROL_PROTOCOL}"
PR_SET_PDEATHSIG = 1
PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def die_with_parent(parent: int) -> None:
    """Be killed when the thread that started this process ends; end now if `parent` has ended already."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        os._exit(1)


def leave_signals_to_parent() -> None:
    """Ignore the signals that the parent decides about."""
    for number in PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)


def main(arguments: list[str]) -> None:
    """Become the actor that the first message on the channel describes."""
    descriptor, parent, edition = int(arguments[0]), int(arguments[1]), arguments[2]
    die_with_parent(parent)
    leave_signals_to_parent()
    faulthandler.enable()
    # Imported only now: loading takes time in which the parent could die unnoticed.
    from tokenspeed.actors.control import Channel

    channel = Channel.adopt(descriptor)
    if edition != EDITION:
        _refuse(channel, edition)
    from tokenspeed.actors.runtime import run

    run(channel)


def _refuse(channel: Channel, edition: str) -> NoReturn:
    from tokenspeed.actors.control import Failed
    from tokenspeed.errors import ErrorInfo

    text = (
        f"the running engine is TokenSpeed {edition} and what is installed now is {EDITION} (version/protocol): the "
        "installation was changed under it; start the server again"
    )
    channel.send(Failed(ErrorInfo(500, "version_mismatch", text)), wait=True)
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
