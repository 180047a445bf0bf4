"""One life of one actor: a process from its start until it has been reaped.

Owns the process, its pidfd and the supervisor's end of its control channel. It does not know why
it is started or ended. Only the process that it started is ever signalled, through the pidfd, so
that a recycled process id cannot be hit.

Invariant: `on_exit` is called once, after the last message of the process has been read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

from tokenspeed.actors.control import (
    Channel,
    Failed,
    Launch,
    Open,
    Phase,
    Profile,
    Profiled,
    Ready,
    Stop,
    Swap,
    Swapped,
    ToActor,
    channel_pair,
)
from tokenspeed.actors.spawn import EDITION, PARENTS_SIGNALS
from tokenspeed.config import child_environment
from tokenspeed.errors import ErrorInfo

STDERR = 2


class Keeper(Protocol):
    """Who is told what happens in a life."""

    def on_phase(self, life: Life, text: str) -> None:
        """A phase began."""

    def on_ready(self, life: Life) -> None:
        """The actor has started and waits for `open`."""

    def on_exit(self, life: Life) -> None:
        """The process has ended."""


class Life:
    """A running process; made by `begin`."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], channel: Channel, keeper: Keeper) -> None:
        self.name = name
        self.pid = process.pid
        self.opened = False
        self.launched = False
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.error: ErrorInfo | None = None
        self._process = process
        self._channel = channel
        self._keeper = keeper
        self._swaps: dict[int, asyncio.Future[None]] = {}
        self._profiles: dict[int, asyncio.Future[None]] = {}
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)
        self._loop.add_reader(channel.fileno(), self._on_control)

    @classmethod
    def begin(cls, name: str, keeper: Keeper) -> Life:
        """Start a process that waits for `launch`. OSError if the system gives none.

        The child dies with the calling thread, which is the one of the event loop.
        """
        channel, theirs = channel_pair()
        command = [sys.executable, "-P", "-m", "tokenspeed.actors.spawn", str(theirs), str(os.getpid()), EDITION]
        held = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=STDERR,  # what a library prints there is no part of what the parent prints
                pass_fds=[theirs],
                env=child_environment(sys.path),
            )
        except OSError:
            channel.close()
            raise
        finally:
            os.close(theirs)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return cls(name, process, channel, keeper)

    @property
    def running(self) -> bool:
        """Return whether the process is there."""
        return not self.exited.done()

    def launch(self, launch: Launch, descriptors: Sequence[int]) -> None:
        """Say who the process is."""
        self.launched = True
        self._send(launch, descriptors)

    def open(self) -> None:
        """Let a ready actor read its inboxes."""
        self.opened = True
        self._send(Open())

    def swap(self, swap: Swap, descriptors: Sequence[int]) -> asyncio.Future[None]:
        """Hand over fresh edges; the future is done when they are in use or the process has ended."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._swaps[swap.serial] = done
        self._send(swap, descriptors)
        return done

    def profile(self, wanted: Profile) -> asyncio.Future[None]:
        """Have the process profiled; the future tells that it was, or why not."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._profiles[wanted.serial] = done
        self._send(wanted)
        return done

    def stop(self) -> None:
        """Ask an open actor to end in good order, and kill one that cannot hear yet."""
        if self.opened:
            self._send(Stop())
        else:
            self.kill()

    def kill(self, error: ErrorInfo | None = None) -> None:
        """End the process at once, because of `error`."""
        self.error = self.error or error
        if self.running:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def why(self) -> ErrorInfo:
        """Return why the process ended, in its own words if it left any."""
        return self.error or ErrorInfo(500, "actor_died", _describe_exit(self.exited.result()))

    def _send(self, message: ToActor, descriptors: Sequence[int] = ()) -> None:
        try:
            self._channel.send(message, descriptors)
        except BlockingIOError:
            self.kill(ErrorInfo(500, "actor_frozen", "frozen, it does not read its control channel"))
        except OSError:
            return  # the process is ending: its exit is about to be seen

    def _on_control(self) -> None:
        try:
            received = self._channel.receive()
        except EOFError:
            self._loop.remove_reader(self._channel.fileno())
            return
        if received is not None:
            self._note(received[0])

    def _note(self, message: object) -> None:
        match message:
            case Phase():
                self._keeper.on_phase(self, message.text)
            case Ready():
                self._keeper.on_ready(self)
            case Swapped():
                self._swaps.pop(message.serial).set_result(None)
            case Profiled():
                _settle(self._profiles.pop(message.serial), message.error)
            case Failed():
                self.error = self.error or message.error

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._channel.fileno())
        status = self._process.wait()
        self._read_last_words()
        self._channel.close()
        os.close(self._pidfd)
        self.exited.set_result(status)
        for done in self._swaps.values():
            done.set_result(None)
        self._swaps.clear()
        for asked in self._profiles.values():
            _settle(asked, self.why())
        self._profiles.clear()
        self._keeper.on_exit(self)

    def _read_last_words(self) -> None:
        with contextlib.suppress(EOFError):
            while (received := self._channel.receive()) is not None:
                if isinstance(received[0], Failed):
                    self._note(received[0])


def _settle(asked: asyncio.Future[None], error: ErrorInfo | None) -> None:
    if error is None:
        asked.set_result(None)
    else:
        asked.set_exception(error.exception())


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with exit status {status}"
    name = signal.Signals(-status).name
    hint = " (by hand, or by the kernel because memory ran out)" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
