"""What the scheduler receives."""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message
from tokenspeed.sampling import SamplingParams


class StreamSettings(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the detokenizer needs to know of a request; the scheduler only carries it."""

    stop: tuple[str, ...] = ()
    prompt_tokens: int = 0


class Submit(Message, frozen=True):
    """A tokenised request.

    `ids` are the prompt's int32 bytes, `resume` the output ids delivered in an earlier scheduler
    life. `max_tokens` counts output tokens, resumed ones included; `end_ids` end the reply
    (end-of-sequence ids and the caller's stop ids; empty with `ignore_eos` and no stop ids).
    `sampling.seed` is set.
    """

    request: int
    attempt: int
    ids: bytes
    resume: bytes
    max_tokens: int
    min_tokens: int
    end_ids: tuple[int, ...]
    sampling: SamplingParams
    namespace: str
    session: str
    stream: StreamSettings


class Dropped(Message, frozen=True):
    """The tokenizer will never submit `request`: a tombstone left by its `Cancel` may go."""

    request: int


class Cancel(Message, frozen=True):
    """End `request` now, in whatever state it is; an unknown id leaves a tombstone."""

    request: int


class Verdict(Message, frozen=True):
    """The detokenizer has fixed the end of `request`: `tokens_kept` output tokens count."""

    request: int
    tokens_kept: int
    reason: str
    ended_in_tool_call: bool = False


class FlushCache(Message, frozen=True):
    """Forget every cached page that no request holds; answered by `CacheFlushed`."""

    call: int


class AskStats(Message, frozen=True):
    """Report `SchedulerStats` now."""

    call: int


class ExecutorReady(Message, frozen=True):
    """The executor holds its weights and pages: `pages_total` per cache group, page 0 included."""

    page_tokens: int
    pages_total: tuple[int, ...]
    slots: int
    vocab_tokens: int


class StepResult(Message, frozen=True):
    """The ids of one step: `counts` per sampled row in row order, then `ids`; both int32 bytes."""

    step: int
    step_us: int
    counts: bytes
    ids: bytes


class StepFailed(Message, frozen=True):
    """The step could not be computed; its rows are to end with `message`."""

    step: int
    message: str


SchedulerMessage = Submit | Dropped | Cancel | Verdict | FlushCache | AskStats | ExecutorReady | StepResult | StepFailed
