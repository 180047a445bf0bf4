"""What other users see of this process's command line.

Owns the bytes that the kernel shows as /proc/PID/cmdline and `ps` prints. Between the start of the
process and the call, a key can be seen: a file or the environment have no such gap.

Invariant: after `hide_argument`, the text given does not stand in the command line, if the kernel let
it be overwritten.
"""

from __future__ import annotations

from pathlib import Path

# Fields of /proc/PID/stat, counted after the command's name: where the arguments begin and end.
_ARG_START, _ARG_END = 45, 46


def hide_argument(text: str) -> bool:
    """Overwrite the word `text`, or `--option=text`, in this process's command line; tell whether it could be."""
    wanted = text.encode("utf-8", "surrogateescape")
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            words = memory.read(end - start).split(b"\0")
            memory.seek(start)
            memory.write(b"\0".join(_hidden(word, wanted) for word in words))
        return True
    except (OSError, ValueError, IndexError):
        return False


def _hidden(word: bytes, wanted: bytes) -> bytes:
    if word != wanted and not word.endswith(b"=" + wanted):
        return word
    return word.removesuffix(wanted) + b"*" * len(wanted)
