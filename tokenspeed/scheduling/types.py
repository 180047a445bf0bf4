"""What goes into the native scheduler and what comes out of it.

Plain values without behaviour. Arrays are the bytes of int32 in native byte order; a plan's rows,
ids and pages are laid out as `messages/executor.py` says.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from tokenspeed.errors import EngineError, UserError


class NeverFitsError(UserError):
    """The request is larger than the context or than the whole KV cache."""

    status = 400
    code = "context_length_exceeded"


class DuplicateRequestError(EngineError):
    """That request id is in use."""

    code = "duplicate_request"


class CoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the core is made of.

    `pages_total` counts page 0 (padding) of each cache group; `windows` has 0 for a group whose
    queries look back at everything, else the tokens they see. `step_tokens` bounds the prefill
    tokens of a step, `step_tokens_mixed` those of a step while something decodes. `overlap` steps
    are planned before the result of an earlier one is back; `width` is the query width of a decode
    row. `slots` leaves slot 0 out. Admission keeps pages free for `growth_tokens` output tokens of
    each running request.
    """

    page_tokens: int
    pages_total: tuple[int, ...]
    windows: tuple[int, ...]
    slots: int
    step_tokens: int
    step_tokens_mixed: int
    max_model_len: int
    overlap: int = 1
    width: int = 1
    prefix_caching: bool = True
    growth_tokens: int = 128


class Opening(NamedTuple):
    """A request takes a slot."""

    slot: int
    request: int


class Plan(NamedTuple):
    """One step of `tokens` tokens; `rows`, `ids` and `pages` as `messages/executor.py` lays them out."""

    step: int
    openings: list[Opening]
    rows: bytes
    ids: bytes
    pages: bytes
    sample_rows: int
    tokens: int


class Outcome(NamedTuple):
    """Output ids (int32 bytes) that a step added to a live request, the first at index `first`.

    `offset` is where they begin in the ids of the step's result. `finish` is "" while the request
    goes on; "stop" after an end id, which is the last of `ids`; "length" after `max_tokens`; "failed"
    if the row could not be computed.
    """

    request: int
    first: int
    ids: bytes
    finish: str
    offset: int = 0


class Stats(NamedTuple):
    """Where everything is. Pages are summed over groups; their classes sum to `pages_total`.

    `tokens_retracted` had been computed when a retraction made them to be computed again; `losses` and
    `tokens_lost` are the same for requests that ran when the executor was lost.
    """

    requests_waiting: int
    requests_running: int
    steps_in_flight: int
    tombstones: int
    pages_total: int
    pages_free: int
    pages_owned: int
    pages_cached_idle: int
    pages_cached_leased: int
    pages_zombie: int
    slots_free: int
    slots_zombie: int
    steps: int
    step_us: int
    retractions: int
    tokens_prefilled: int
    tokens_decoded: int
    tokens_cached: int
    tokens_retracted: int
    losses: int
    tokens_lost: int
