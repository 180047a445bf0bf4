"""What the scheduler receives."""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message
from tokenspeed.sampling import SamplingParams

ROW_FAILED = -1


class StreamSettings(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the detokenizer needs to know of a request; the scheduler only carries it.

    `stop_ids` are the caller's. `logprobs` and `prompt_logprobs` are -1, or how many of the likeliest
    ids each entry brings along.
    """

    stop: tuple[str, ...] = ()
    prompt_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    include_stop: bool = False
    skip_special: bool = True
    logprobs: int = -1
    prompt_logprobs: int = -1


class Submit(Message, frozen=True):
    """A tokenised request.

    `ids` are the prompt's int32 bytes, `resume` the output ids delivered in an earlier scheduler
    life. `max_tokens` counts output tokens, resumed ones included; `end_ids` end the reply
    (end-of-sequence ids and the caller's stop ids; empty with `ignore_eos` and no stop ids).
    `sampling.seed` is set. `bad_word_ids` and `bad_word_ends` are as in `SlotOpening`.
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
    bad_word_ids: bytes = b""
    bad_word_ends: bytes = b""


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
    """The ids of one step: `counts` per sampled row in row order, then `ids`; both int32 bytes.

    A count of `ROW_FAILED` ends its request with an error and brings no id: the row's logits are not
    finite, or its settings leave no id to draw.

    `logprobs` has an entry for each of `ids` whose slot asks for them, in the same order; `scores`
    one for each token that a `ROW_SCORE` row scores, row after row in the order of positions. An
    entry with the k of its slot is 3 + 2k words of 4 bytes (`messages/logprobs.py`): id (int32), rank
    (int32; 1 + how many logits are strictly greater), log-probability (float32), then the k likeliest
    ids (int32) and their log-probabilities (float32), equal ones by the lower id. All are those of
    softmax(logits) in float32 before anything changed the logits.
    """

    step: int
    step_us: int
    counts: bytes
    ids: bytes
    logprobs: bytes = b""
    scores: bytes = b""


class StepFailed(Message, frozen=True):
    """The step could not be computed; its rows are to end with `message`."""

    step: int
    message: str


SchedulerMessage = Submit | Dropped | Cancel | Verdict | FlushCache | AskStats | ExecutorReady | StepResult | StepFailed
