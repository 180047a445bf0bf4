"""Chat templates that came with a request, rendered where they can do no harm.

A template is a program of the caller's. The sandbox keeps it from everything around it, but not from
taking time and memory in ways that no check of its words foresees (a list that holds itself twice,
sixty times over). So it runs in a process of its own, which the kernel bounds: `template_child`.

Invariant: `render` returns or raises within about the limit of a render, whatever the template.
"""

from __future__ import annotations

import subprocess
import sys
from threading import Lock
from typing import IO

import msgspec

from tokenspeed.config import child_environment
from tokenspeed.errors import UserError
from tokenspeed.text.trusted import Trusted

LENGTH_BYTES = 4
SOURCE_CHARS_MAX = 256 << 10
COMMAND = (sys.executable, "-m", "tokenspeed.text.template_child")


class Job(msgspec.Struct, frozen=True):
    """A conversation to render: `messages` and `variables` are JSON, as the caller sent them."""

    source: str
    messages: bytes
    variables: bytes
    bos: str
    eos: str
    chars_max: int
    ms_max: int


class Rendered(msgspec.Struct, frozen=True, tag=True):
    """The text, and the spans of it that the template wrote."""

    text: str
    spans: tuple[tuple[int, int], ...]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """What the caller did wrong."""

    message: str
    param: str | None


class RequestedTemplates:
    """Renders one template at a time, in a child that starts with the first. Safe to share between threads."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = Lock()

    def render(self, job: Job) -> str:
        """Return the prompt, a string with `trusted` spans; raise `UserError` (param "chat_template")."""
        if len(job.source) > SOURCE_CHARS_MAX:
            raise _fault(f"has {len(job.source)} characters; at most {SOURCE_CHARS_MAX} are allowed")
        with self._lock:
            answer = self._ask(msgspec.msgpack.encode(job))
        if answer is None:
            raise _fault(f"took longer than {job.ms_max} ms, or too much memory")
        outcome = msgspec.msgpack.decode(answer, type=Rendered | Failed)
        if isinstance(outcome, Failed):
            raise UserError(outcome.message, param=outcome.param)
        return Trusted(outcome.text, outcome.spans)

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.communicate()

    def _ask(self, job: bytes) -> bytes | None:
        """Return the child's answer, None if it died of the job."""
        if self._child is None:
            self._child = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(sys.path),
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            write_frame(self._child.stdin, job)
            answer = read_frame(self._child.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self.close()
        return answer


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Write `body` with its length before it."""
    stream.write(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next body, None at the stream's end."""
    head = stream.read(LENGTH_BYTES)
    size = int.from_bytes(head, "big")
    body = stream.read(size) if len(head) == LENGTH_BYTES else b""
    return body if len(head) == LENGTH_BYTES and len(body) == size else None


def _fault(what: str) -> UserError:
    return UserError(f"chat_template {what}.", param="chat_template")
