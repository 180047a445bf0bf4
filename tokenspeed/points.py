"""Trace points: what every part of the engine notes while it works, and what each note means.

Owns the vocabulary. A point is a time, a kind, and up to three numbers: the request, the step and a
value whose meaning the kind fixes. Who wrote it is known by the buffer that it lies in (one per
actor). The numbers are those of the C header, which a test compares.

A request's life, in this order:

    engine       RECEIVED, OPENED
    tokenizer    TOKENIZE_BEGIN, ENCODE_BEGIN, TOKENIZED
    scheduler    SUBMITTED, (WAITS)*, ADMITTED, CHUNK*, RESULT*, (RETRACTED, ADMITTED, CHUNK*)*, ENDED
    detokenizer  TEXT*
    engine       (DELTA, WRITTEN)*, FINISHED, WRITTEN

A step's life:

    scheduler    PLAN_BEGIN, PLANNED, PLAN_SENT
    executor     PLAN_RECEIVED, LAUNCH_BEGIN, UPLOADED, LAUNCHED, COMPUTE_BEGIN, STAGE*, COMPUTE_END,
                 IDS_DOWN, RESULT_SENT
    scheduler    RESULT_RECEIVED, APPLIED, BATCH_SENT

Invariant: a kind's number and meaning never change; a new meaning is a new kind.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What happened. In brackets: which of request and step are given, and what the value is."""

    # A request's life.
    RECEIVED = 1  # its head came to a door; its body may follow [request]
    OPENED = 2  # the engine took it [request; requests open now]
    TOKENIZE_BEGIN = 3  # [request]
    TOKENIZED = 4  # [request; prompt tokens]
    SUBMITTED = 5  # it waits for its turn [request; prompt tokens]
    WAITS = 6  # it could not begin, for a reason that it did not have before [request; a `Wait`]
    ADMITTED = 7  # it has a slot [request; tokens found in the cache]
    CHUNK = 8  # a part of its prompt is in a step's plan [request, step; tokens]
    RESULT = 9  # ids of a step were its own [request, step; ids]
    RETRACTED = 10  # it gave its pages up and will be computed again [request; tokens computed so far]
    ENDED = 11  # the scheduler let go of it [request; output tokens kept]
    CANCELLED = 12  # [request]
    REFUSED = 13  # [request]
    TEXT = 14  # ids became text [request, step; characters]
    DELTA = 15  # the engine has the text [request; ids delivered so far]
    WRITTEN = 16  # a door sent bytes of its answer; the last may follow FINISHED [request; bytes]
    FINISHED = 17  # the engine let go of it [request; a `Finish`]
    ENCODE_BEGIN = 18  # a thread takes its prompt up, perhaps for the second time [request]

    # A step's life.
    PLAN_BEGIN = 32  # the scheduler begins to plan [step]
    PLANNED = 33  # [step; rows * 2**32 + prompt tokens]
    PLAN_SENT = 34  # [step]
    PLAN_RECEIVED = 35  # [step]
    LAUNCH_BEGIN = 36  # the executor begins to check and apply the plan [step]
    UPLOADED = 37  # the copy up is queued on the GPU [step]
    LAUNCHED = 38  # all of the step is queued [step]
    COMPUTE_BEGIN = 39  # the device begins [step]
    STAGE = 40  # the next part of the step begins [step; a `Stage`]
    COMPUTE_END = 41  # the device has the ids [step]
    IDS_DOWN = 42  # the executor's loop has the ids [step]
    RESULT_SENT = 43  # [step]
    RESULT_RECEIVED = 44  # [step]
    APPLIED = 45  # the scheduler knows the new ids [step]
    BATCH_SENT = 46  # they are on their way to the detokenizer [step; requests in the batch]

    # Rings: `step` is the edge's index in the topology.
    RING_SENT = 64  # [edge; bytes]
    RING_RECEIVED = 65  # [edge; bytes]
    RING_FULL = 66  # a record waits for room [edge; bytes]

    # Actors.
    TURN_BEGIN = 80  # an actor's loop begins to handle records
    TURN_END = 81  # [records handled]
    GC_BEGIN = 82  # Python's cycle collector stops the process [generation]
    GC_END = 83
    STARTED = 84  # a new life of the actor begins to load what it needs


class Wait(IntEnum):
    """Why a request has to wait. The scheduler's reasons, most telling first."""

    SLOTS = 1  # as many run as may
    PAGES = 2  # too few pages for it, beside what runs is expected to grow
    PREFIX = 3  # another request is computing what it begins with
    RETRACTED = 4  # a request that gave its pages up goes first
    TURN = 5  # the step's prompt tokens went to others


class Stage(IntEnum):
    """A part of a step on its device."""

    APPLY = 1  # the plan is written to slots and page tables
    FORWARD = 2  # all layers
    LOGITS = 3
    SAMPLE = 4
    SCORE = 5  # log-probabilities of prompt tokens


class Finish(IntEnum):
    """How a request ended."""

    STOP = 1
    LENGTH = 2
    ABORT = 3
    ERROR = 4


class Point(NamedTuple):
    """One note. `time_ns` is CLOCK_MONOTONIC, `request`, `step` and `value` are 0 where there is none."""

    time_ns: int
    kind: Kind
    request: int
    step: int
    value: int


ROWS_SHIFT = 32


def rows_and_tokens(value: int) -> tuple[int, int]:
    """Return the rows and the prompt tokens of a PLANNED point's value."""
    return value >> ROWS_SHIFT, value & ((1 << ROWS_SHIFT) - 1)
