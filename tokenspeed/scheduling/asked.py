"""Who asked for the log-probabilities that a step brings.

Owns, for the steps in flight, which rows asked, and cuts the packed entries of a result apart again.
It does not know what a request does with them. A step whose rows ask for nothing leaves no trace.

Invariant: the entries of a row are found by what its plan said of it, never by its slot, which may
have gone to another request meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenspeed.messages.base import unpack_ids, view_ids
from tokenspeed.messages.executor import ROW_INTS, ROW_SAMPLE, ROW_SCORE, SlotOpening
from tokenspeed.messages.logprobs import entry_bytes
from tokenspeed.messages.scheduler import ROW_FAILED, StepResult


class _Slot(NamedTuple):
    request: int
    logprobs: int
    prompt_logprobs: int
    prompt_tokens: int


class Scores(NamedTuple):
    """Packed entries of a request's prompt, the first for the token at `position`."""

    request: int
    position: int
    entries: bytes


class _Rows(NamedTuple):
    """Of one step: entry bytes by sampled row, and (request, first position, bytes) in row order."""

    sampled: dict[int, int]
    scored: list[tuple[int, int, int]]


class Asked:
    """The slots that ask, and the steps in flight that name them."""

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._steps: dict[int, _Rows] = {}

    def open(self, opening: SlotOpening) -> None:
        """Note whether the request that takes a slot asks for anything."""
        self._slots.pop(opening.slot, None)
        if max(opening.logprobs, opening.prompt_logprobs) >= 0:
            self._slots[opening.slot] = _Slot(
                opening.request, opening.logprobs, opening.prompt_logprobs, opening.prompt_tokens
            )

    def plan(self, step: int, rows: bytes) -> None:
        """Note the rows of `step` that ask; its openings were noted before."""
        if not self._slots:
            return
        noted = _Rows({}, [])
        sampled = 0
        numbers = iter(unpack_ids(rows))
        for slot, tokens, context, flags in zip(*[numbers] * ROW_INTS, strict=True):
            asking = self._slots.get(slot)
            if asking is not None and flags & ROW_SCORE:
                scored = max(0, min(context + tokens, asking.prompt_tokens - 1) - context)
                noted.scored.append((asking.request, context + 1, scored * entry_bytes(asking.prompt_logprobs)))
            if asking is not None and flags & ROW_SAMPLE and asking.logprobs >= 0:
                noted.sampled[sampled] = entry_bytes(asking.logprobs)
            sampled += bool(flags & ROW_SAMPLE)
        if noted.sampled or noted.scored:
            self._steps[step] = noted

    def result(self, result: StepResult) -> tuple[dict[int, bytes], list[Scores]]:
        """Return entries by the offset of their ids in the result, and the scores; the step is over."""
        noted = self._steps.pop(result.step, None)
        if noted is None:
            return {}, []
        return self._drawn(noted, result), self._scores(noted, result)

    def forget(self, step: int) -> None:
        """`step` failed: nothing comes of it."""
        self._steps.pop(step, None)

    def clear(self) -> None:
        """The executor is gone, with its slots and its steps."""
        self._slots.clear()
        self._steps.clear()

    @staticmethod
    def _drawn(noted: _Rows, result: StepResult) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        begin = offset = 0
        for row, count in enumerate(view_ids(result.counts)):
            if count == ROW_FAILED:
                continue
            if (size := noted.sampled.get(row, 0) * count) > 0:
                found[offset] = bytes(result.logprobs[begin : begin + size])
                begin += size
            offset += count
        return found

    @staticmethod
    def _scores(noted: _Rows, result: StepResult) -> list[Scores]:
        found = []
        begin = 0
        for request, position, size in noted.scored:
            found.append(Scores(request, position, bytes(result.scores[begin : begin + size])))
            begin += size
        return found
