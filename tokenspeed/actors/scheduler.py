"""The scheduler actor: requests in, plans out, ids on to the detokenizer.

Owns the native core and, per open request, what has to be said again when another actor restarts:
its submission and its output ids. It does not know text. Decisions are the core's; this file feeds
it events and carries its plans.

Invariant: a request is remembered from its `Submit` until its `Verdict`, `Cancel` or refusal.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from hashlib import blake2b
from typing import ClassVar

from msgspec import structs

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import SchedulerConfig
from tokenspeed.errors import DEATHS_MAX, EngineError, TokenSpeedError, fatal_request
from tokenspeed.messages.base import Message, unpack_ids
from tokenspeed.messages.detokenizer import DropStream, PromptTimes, StreamOpening, TokenBatch, TokenEntry
from tokenspeed.messages.engine import Accepted, CacheFlushed, Refused, SchedulerStats
from tokenspeed.messages.executor import SlotOpening, StepPlan
from tokenspeed.messages.logprobs import entry_bytes
from tokenspeed.messages.scheduler import (
    AskStats,
    Cancel,
    Dropped,
    ExecutorReady,
    FlushCache,
    SchedulerMessage,
    StepFailed,
    StepResult,
    Submit,
    Verdict,
)
from tokenspeed.points import Kind
from tokenspeed.scheduling.asked import Asked, Scores
from tokenspeed.scheduling.opening import check_ids, slot_opening
from tokenspeed.scheduling.scheduler import CoreConfig, Outcome, Plan, Scheduler
from tokenspeed.scheduling.steps import StepCounts

PEERS = ("engine", "tokenizer", "executor", "detokenizer")
ENDED_REMEMBERED = 4096
ROW_FAILURE = (
    "This reply cannot go on: the model's logits are not finite, or the request's settings (allowed_token_ids, "
    "bad_words, min_tokens) leave no token. Loosen them, or report the prompt."
)
PLAN_SENT, RESULT_RECEIVED, APPLIED = int(Kind.PLAN_SENT), int(Kind.RESULT_RECEIVED), int(Kind.APPLIED)
BATCH_SENT, REFUSED = int(Kind.BATCH_SENT), int(Kind.REFUSED)
IN_STEPS = ("Prefilling", "PrefillDone", "Decoding")


class _Request:
    """What the scheduler's side of a request must be able to say again."""

    __slots__ = (
        "admitted_us",
        "cached_tokens",
        "deaths",
        "finish",
        "first_us",
        "logprobs",
        "opened",
        "outputs",
        "prompt_logprobs",
        "submit",
        "submitted_us",
    )

    def __init__(self, submit: Submit, now_us: int) -> None:
        self.submit = submit
        self.submitted_us = now_us
        self.admitted_us = 0
        self.first_us = 0
        self.cached_tokens = 0
        self.outputs = array("i", unpack_ids(submit.resume))
        # Packed entries. Those of resumed ids are gone with the life that drew them, and were delivered.
        self.logprobs = bytearray(self.logprobs_bytes(len(self.outputs)))
        self.prompt_logprobs = bytearray()
        self.opened = False
        self.finish = ""
        self.deaths = 0  # of executors that had it in hand, since its last output

    def logprobs_bytes(self, outputs: int) -> int:
        """Return the bytes of the entries of so many output ids, 0 if none are asked for."""
        asked = self.submit.stream.logprobs
        return outputs * entry_bytes(asked) if asked >= 0 else 0

    def score(self, scores: Scores) -> None:
        """Take entries of the prompt; what a retract makes come again is there already."""
        begin = (scores.position - 1) * entry_bytes(self.submit.stream.prompt_logprobs)
        self.prompt_logprobs += scores.entries[len(self.prompt_logprobs) - begin :]


class SchedulerActor(Actor):
    """One mailbox around the native core."""

    name: ClassVar[str] = "scheduler"
    receives: ClassVar[dict[str, object]] = dict.fromkeys(
        ("engine", "tokenizer", "executor", "detokenizer"), SchedulerMessage
    )

    def __init__(self, config: SchedulerConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._core: Scheduler | None = None
        self._pages_planned: tuple[int, ...] = ()
        self._executor_up = False
        self._audited = False
        self._requests: dict[int, _Request] = {}
        self._waiting_for_core: list[Submit | Cancel | Dropped] = []
        self._ended: OrderedDict[int, None] = OrderedDict()
        self._asked = Asked()
        self._steps = StepCounts()
        self._vocab_tokens = 0

    async def start(self) -> None:
        """Nothing to load: the core is made when the executor has said how many pages there are."""

    def receive(self, sender: str, message: Message) -> None:
        """Take one message and feed the core."""
        match message:
            case StepResult():
                self._apply(message)
            case Submit() | Cancel() | Dropped() if self._core is None:
                self._waiting_for_core.append(message)
            case Submit():
                self._submit(message)
            case Verdict():
                self._end(message.request, message.tokens_kept)
            case Cancel():
                self._cancel(message.request)
            case Dropped():
                self._living.dropped(message.request)
            case StepFailed():
                self._fail(message)
            case ExecutorReady():
                self._executor_ready(message)
            case FlushCache():
                freed = self._core.flush() if self._core is not None else 0
                self._outbox.send("engine", CacheFlushed(message.call, freed))
            case AskStats():
                self._outbox.send("engine", self._stats(message.call))

    def drained(self) -> None:
        """Plan as many steps as the overlap allows; once nothing is left to do, audit the core."""
        if self._core is None or not self._executor_up:
            return
        while (plan := self._core.plan(_now_us())) is not None:
            self._audited = False
            self._outbox.send("executor", self._step_plan(plan))
            self.trace.point(PLAN_SENT, 0, plan.step)
        if not self._requests and not self._audited:
            self._core.check()
            self._audited = True

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Say again what the new peer has to know; drop what only the old one had."""
        if peer == "executor":
            self._executor_up = False
            if self._core is not None:
                self._asked.clear()
                self._count_deaths(self._core)
                self._core.executor_lost(_now_us())
        elif peer == "detokenizer":
            self._replay()

    async def stop(self) -> None:
        """Release the core."""
        if self._core is not None:
            self._core.close()

    @property
    def _living(self) -> Scheduler:
        """Return the core; what concerns it comes only while there is one."""
        assert self._core is not None
        return self._core

    # Events of a request, in the order in which it meets them.

    def _submit(self, submit: Submit) -> None:
        if submit.request in self._ended:
            return
        if submit.request not in self._requests:
            now_us = _now_us()
            try:
                check_ids(submit, self._vocab_tokens)
                taken = self._living.submit(
                    now_us,
                    submit.request,
                    submit.ids,
                    resume=submit.resume,
                    max_tokens=submit.max_tokens,
                    end_ids=submit.end_ids,
                    namespace=_digest(submit.namespace, 16),
                    session=int.from_bytes(_digest(submit.session, 8)) if submit.session else submit.request,
                    score=submit.stream.prompt_logprobs >= 0,
                )
            except TokenSpeedError as error:
                self.trace.point(REFUSED, submit.request)
                self._outbox.send("engine", Refused(submit.request, error.info()))
                return
            if not taken:
                return  # cancelled before it came
            self._requests[submit.request] = _Request(submit, now_us)
        self._outbox.send("engine", Accepted(submit.request, submit.stream.prompt_tokens))

    def _apply(self, result: StepResult) -> None:
        self.trace.point(RESULT_RECEIVED, 0, result.step)
        now_us = _now_us()
        outcomes = self._living.result(now_us, result.step, result.step_us, result.counts, result.ids)
        self._steps.done(result.step_us)
        drawn, scores = self._asked.result(result)
        for each in scores:
            if each.request in self._requests:
                self._requests[each.request].score(each)
        entries = [
            entry
            for outcome in outcomes
            if (entry := self._entry(outcome, drawn.get(outcome.offset, b""), now_us)) is not None
        ]
        self.trace.point(APPLIED, 0, result.step)
        if entries:
            self._outbox.send("detokenizer", TokenBatch(result.step, entries))
            self.trace.point(BATCH_SENT, 0, result.step, len(entries))

    def _entry(self, outcome: Outcome, logprobs: bytes, now_us: int) -> TokenEntry | None:
        request = self._requests.get(outcome.request)
        if request is None:
            return None
        if outcome.finish == "failed":
            self._refuse(outcome.request, EngineError(ROW_FAILURE, code="row_failed"))
            return None
        logprobs = logprobs[: request.logprobs_bytes(len(outcome.ids) // 4)]
        request.logprobs += logprobs
        request.outputs.frombytes(outcome.ids)
        request.finish = outcome.finish
        request.deaths = 0
        if not request.opened:
            request.first_us = now_us
            return _whole_entry(outcome.request, request)
        return TokenEntry(outcome.request, outcome.first, outcome.ids, outcome.finish, logprobs=logprobs)

    def _end(self, number: int, tokens_kept: int) -> None:
        if self._requests.pop(number, None) is None:
            return
        self._living.verdict(_now_us(), number, tokens_kept)
        self._remember_ended(number)

    def _cancel(self, number: int) -> None:
        self._living.cancel(_now_us(), number)
        if self._requests.pop(number, None) is not None:
            self._remember_ended(number)
        self._outbox.send("detokenizer", DropStream(number))

    def _remember_ended(self, number: int) -> None:
        # A tokenizer that restarts may send a Submit twice; an ended request must not run again.
        self._ended[number] = None
        if len(self._ended) > ENDED_REMEMBERED:
            self._ended.popitem(last=False)

    # The executor.

    def _executor_ready(self, ready: ExecutorReady) -> None:
        if self._core is None:
            self._core, self._pages_planned = Scheduler(self._core_config(ready)), ready.pages_total
            self._core.trace_to(self.trace)
        elif any(have < planned for have, planned in zip(ready.pages_total, self._pages_planned, strict=True)):
            # Something else has taken memory of the device meanwhile. A scheduler that starts anew makes a
            # core of the new size, and takes every open request again.
            raise EngineError(
                f"The executor came back with {ready.pages_total} pages; {self._pages_planned} were planned with.",
                code="executor_changed",
            )
        self._executor_up = True
        self._vocab_tokens = ready.vocab_tokens
        waiting, self._waiting_for_core = self._waiting_for_core, []
        for message in waiting:
            self.receive("", message)

    def _core_config(self, ready: ExecutorReady) -> CoreConfig:
        config = self._config
        return CoreConfig(
            page_tokens=ready.page_tokens,
            pages_total=ready.pages_total,
            windows=(0,) * len(ready.pages_total),
            slots=min(ready.slots, config.max_num_seqs),
            step_tokens=config.chunked_prefill_size,
            step_tokens_mixed=min(config.mixed_prefill_size, config.chunked_prefill_size),
            max_model_len=config.max_model_len,
            overlap=config.overlap,
            width=config.width,
            prefix_caching=config.enable_prefix_caching,
            growth_tokens=config.admission_growth_tokens,
        )

    def _step_plan(self, plan: Plan) -> StepPlan:
        openings = [self._opening(slot, request) for slot, request in plan.openings]
        self._asked.plan(plan.step, plan.rows)
        self._steps.planned(plan.tokens)
        return StepPlan(plan.step, openings, plan.pages, plan.rows, plan.ids)

    def _opening(self, slot: int, number: int) -> SlotOpening:
        request = self._requests[number]
        if not request.opened:
            # With `resume`, output ids may have been found there too.
            prompt_tokens = request.submit.stream.prompt_tokens
            request.cached_tokens = min(self._living.cached_tokens(number), prompt_tokens)
            request.admitted_us = request.admitted_us or _now_us()
        opening = slot_opening(slot, request.submit, request.outputs)
        self._asked.open(opening)
        return opening

    def _fail(self, failure: StepFailed) -> None:
        self._asked.forget(failure.step)
        error = EngineError(f"The step that computed this request failed: {failure.message}", code="step_failed")
        for number in self._living.step_failed(_now_us(), failure.step):
            self._refuse(number, error)

    def _count_deaths(self, core: Scheduler) -> None:
        """End what was in a step each time that an executor died: it may be what they die of."""
        for number, request in list(self._requests.items()):
            if core.state(number) in IN_STEPS:
                request.deaths += 1
            if request.deaths >= DEATHS_MAX:
                core.cancel(_now_us(), number)
                self._refuse(number, fatal_request(request.deaths))

    def _refuse(self, number: int, error: EngineError) -> None:
        if self._requests.pop(number, None) is not None:
            self.trace.point(REFUSED, number)
            self._remember_ended(number)
            self._outbox.send("detokenizer", DropStream(number))
            self._outbox.send("engine", Refused(number, error.info()))

    def _replay(self) -> None:
        entries = [_whole_entry(number, request) for number, request in self._requests.items() if request.opened]
        if entries:
            self._outbox.send("detokenizer", TokenBatch(0, entries))

    def _stats(self, call: int) -> SchedulerStats:
        if self._core is None:
            waiting = sum(isinstance(message, Submit) for message in self._waiting_for_core)
            return structs.replace(SchedulerStats.nothing(), call=call, requests_waiting=waiting)
        stats = self._core.stats()
        return SchedulerStats(
            call=call,
            requests_waiting=stats.requests_waiting,
            requests_running=stats.requests_running,
            pages_total=stats.pages_total,
            pages_free=stats.pages_free,
            pages_owned=stats.pages_owned,
            pages_cached_idle=stats.pages_cached_idle,
            pages_cached_leased=stats.pages_cached_leased,
            pages_zombie=stats.pages_zombie,
            steps=stats.steps,
            retractions=stats.retractions,
            tokens_prefilled=stats.tokens_prefilled,
            tokens_decoded=stats.tokens_decoded,
            step_us=stats.step_us,
            tokens_retracted=stats.tokens_retracted,
            losses=stats.losses,
            tokens_lost=stats.tokens_lost,
            step_times=tuple(self._steps.times),
            step_tokens=tuple(self._steps.tokens),
        )


def _whole_entry(number: int, request: _Request) -> TokenEntry:
    request.opened = True
    times = PromptTimes(request.submitted_us, request.admitted_us, request.first_us)
    opening = StreamOpening(request.submit.stream, request.cached_tokens, bytes(request.prompt_logprobs), times)
    return TokenEntry(number, 0, request.outputs.tobytes(), request.finish, opening, logprobs=bytes(request.logprobs))


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode(), digest_size=size).digest()
