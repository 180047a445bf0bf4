"""The process in which templates of requests run: `python -m tokenspeed.text.template_child`.

Owns its own limits: memory by the kernel, time by an alarm that nothing in it can catch, no files
and no core dump. It reads jobs from standard input and ends with it; it knows no other process.

Invariant: every job is answered, or the process is gone.
"""

from __future__ import annotations

import resource
import signal
import sys

import msgspec

from tokenspeed.errors import StartError, UserError
from tokenspeed.text.conversation import read_messages
from tokenspeed.text.requested import Failed, Job, Rendered, read_frame, write_frame
from tokenspeed.text.template import ChatTemplate
from tokenspeed.text.trusted import plain, spans_of

MEMORY_BYTES_MAX = 1 << 30
GRACE_S = 0.5  # for the sandbox to say itself that time is up


def main() -> None:
    """Answer jobs until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        job = msgspec.msgpack.decode(frame, type=Job)
        signal.setitimer(signal.ITIMER_REAL, job.ms_max / 1000 + GRACE_S)  # SIGALRM ends the process
        answer = outcome_of(job)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        write_frame(sys.stdout.buffer, msgspec.msgpack.encode(answer))


def outcome_of(job: Job) -> Rendered | Failed:
    """Return the outcome of `job`."""
    try:
        template = ChatTemplate(job.source, bos=job.bos, eos=job.eos, chars_max=job.chars_max, ms_max=job.ms_max)
        messages = read_messages(job.messages, knows_developer=template.knows_developer)
        text = template.render(messages, msgspec.json.decode(job.variables))
        return Rendered(plain(text), tuple(spans_of(text)))
    except UserError as error:
        return _failed(error.message, error.param)
    except StartError as error:
        return _failed(f"chat_template does not compile: {error.__cause__}.", "chat_template")
    except Exception as error:  # a template's words may break the compiler in any way
        return _failed(f"chat_template does not compile: {type(error).__name__}.", "chat_template")


def _failed(message: str, param: str | None) -> Failed:
    if "model's chat template" in message:
        return Failed(message.replace("the model's chat template", "chat_template"), "chat_template")
    return Failed(message, param)


if __name__ == "__main__":
    main()
