"""The raw file of a benchmark: JSON lines, one for each request, from which every figure follows.

Owns the form of the lines, and their writing and reading. It computes nothing. A file holds one run
or several, one after the other: a line belongs to the last `run` line before it. All times are
seconds since the start of the run on the client's monotonic clock.

Invariant: a finished request is a whole line on disk before the next one is written, so a run that is
cut short keeps what it had; a line cut in the middle can only be the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

SCHEMA = 1
INTERRUPTED = "interrupted"  # `error` of a request that the user's Ctrl-C cut short

Mode = Literal["serve", "agentic", "latency"]
Api = Literal["chat", "completions"]


class Warmup(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests were sent first and do not count, and how they were made."""

    requests: int
    how: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The server: `server` is a name and version or "unknown"; `server_info` whatever it tells of itself."""

    url: str
    api: Api
    model: str
    server: str
    server_info: dict[str, Any]


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The side that measured: version of this program, Python, machine, cores it may use, commit."""

    version: str
    python: str
    machine: str
    cores: int
    commit: str


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """The head of a run.

    `workload` has every parameter, defaults included; `notes` the settings that the user named, and what the
    client found out about the server (keys beginning with "client."). `started_at` is ISO 8601 in UTC and
    `started_monotonic_ns` the same moment on the machine's CLOCK_MONOTONIC, which an engine's trace shares.
    `gpus` is 0 for a server on CPU.
    """

    schema: int = SCHEMA
    label: str
    started_at: str
    started_monotonic_ns: int
    command: list[str]
    mode: Mode
    workload: dict[str, Any]
    warmup: Warmup
    target: Target
    client: ClientInfo
    gpus: int
    notes: dict[str, str]


class Request(msgspec.Struct, frozen=True, kw_only=True, tag="request", tag_field="kind"):
    """One request that ended, well or not; `error` is null for a good one.

    `scheduled_s` is when the load wanted it sent, `sent_s` when its bytes were given to the socket, `headers_s`
    when the status line came. `chunks` are (arrival in seconds, tokens) of every piece of output. `tokens_from`
    says where those tokens were counted: "usage" (the server's count, told with each piece, or in the end and
    spread over the pieces), "ids" (of each piece), or "chunks" (nothing told: one for each piece).
    `client_lag_s` is the longest that the client's own event loop was late meanwhile, `client_busy` the share of
    the time (0 to 1) that the client's thread spent computing.
    """

    index: int
    session: int
    turn: int
    warmup: bool
    scheduled_s: float
    sent_s: float
    headers_s: float | None
    first_token_s: float | None
    end_s: float
    chunks: list[tuple[float, int]]
    tokens_from: Literal["usage", "chunks", "ids"]
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int
    finish: str
    status: int
    error: str | None
    request_id: str | None
    prompt_tokens_asked: int | None = None
    output_tokens_asked: int | None = None
    client_lag_s: float = 0.0
    client_busy: float = 0.0


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """`count` values: quantiles, mean and largest."""

    count: int
    p50: float
    p90: float
    p99: float
    mean: float
    max: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests; those of the warm-up are in `warmup` alone, whatever became of them."""

    ok: int
    failed: int
    interrupted: int
    warmup: int


class PerGpu(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per minute divided by the number of GPUs."""

    tpm_output: float
    tpm_output_and_uncached: float
    tpm_all: float


class Summary(msgspec.Struct, frozen=True, kw_only=True, tag="summary", tag_field="kind"):
    """The figures of a run; `summary.py` has the formulas. A spread without values is null.

    `ttft_ms_by_turn` begins with turn 0 and `errors` counts failures by their text. `warnings` says in words
    what makes the figures doubtful: a client that could not keep up, tokens that were not told, failures.
    """

    requests: Counts
    errors: dict[str, int]
    duration_s: float
    ttft_ms: Spread | None
    ttft_ms_by_turn: list[Spread | None]
    itl_ms: Spread | None
    gap_ms: Spread | None
    tpot_ms: Spread | None
    e2e_ms: Spread | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prompt_tokens_asked: int | None
    output_tokens_asked: int | None
    tokens_per_s: float
    tpm_output: float
    tpm_output_and_uncached: float
    tpm_all: float
    tps_per_user: float | None
    per_gpu: PerGpu | None
    concurrency_mean: float
    late_ms: Spread | None
    client_lag_ms: Spread | None
    client_busy: float
    tokens_from: list[str]
    warnings: list[str]


Line = Run | Request | Summary


class Recorded(msgspec.Struct, kw_only=True):
    """One run of a file. `summary` is null where the run was killed before its end."""

    run: Run
    requests: list[Request]
    summary: Summary | None = None


class RawFileError(ValueError):
    """A file that is not the raw file of a benchmark, with the line and what is wrong with it."""


class Writer:
    """Appends lines to a new file; a file that exists is refused (`FileExistsError`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("xb")

    def write(self, line: Line) -> None:
        """Write one whole line and hand it to the operating system."""
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> list[Recorded]:
    """Return the runs in `path`; a last line that was cut short is left out. Raise `RawFileError`."""
    runs: list[Recorded] = []
    for number, line in _lines(path):
        match line:
            case Run():
                if line.schema != SCHEMA:
                    raise RawFileError(f"{path}:{number}: schema {line.schema} is not known; this reads {SCHEMA}")
                runs.append(Recorded(run=line, requests=[]))
            case _ if not runs:
                raise RawFileError(f"{path}:{number}: a run line must come first")
            case Request():
                runs[-1].requests.append(line)
            case Summary():
                runs[-1].summary = line
    if not runs:
        raise RawFileError(f"{path} holds no run; `tokenspeed bench` writes such files")
    return runs


def _lines(path: Path) -> Iterator[tuple[int, Line]]:
    decoder = msgspec.json.Decoder(Line)
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return  # the writer was killed inside this line
            try:
                yield number, decoder.decode(text)
            except msgspec.DecodeError as error:
                raise RawFileError(f"{path}:{number}: {error}") from None
