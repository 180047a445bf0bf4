"""`AsyncEngine`: the whole engine behind one object on an asyncio loop.

Owns the table of open requests and the supervisor of the actors. It knows which request is open and
what was delivered of it, not which pages or steps it uses. After a restart of an actor it sends again
what the new one must know:

    tokenizer    every request that the scheduler has not accepted
    scheduler    every open request with the ids delivered so far, once the detokenizer has said that
                 nothing of the old life follows (a fence)
    executor, detokenizer    nothing: the scheduler has it all

Invariant: an open request is either known to the scheduler or will be sent to the tokenizer again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from tokenspeed.actors.health import ActorHealth
from tokenspeed.actors.supervisor import Supervisor
from tokenspeed.caller import Trail
from tokenspeed.config import EngineConfig
from tokenspeed.engine.admission import Admission
from tokenspeed.engine.batch import Batch
from tokenspeed.engine.launch import EDGES, HOME, actor_specs, resolve
from tokenspeed.engine.meter import Meter
from tokenspeed.engine.recent import RecentCallers
from tokenspeed.engine.reply import Output
from tokenspeed.engine.stream import Stream
from tokenspeed.engine.totals import Totals
from tokenspeed.errors import DEATHS_MAX, EngineError, StartError, TokenSpeedError, UserError, fatal_request
from tokenspeed.ipc.trace import Trace
from tokenspeed.messages.base import Message, pack_ids, unpack_ids
from tokenspeed.messages.engine import (
    Accepted,
    CacheFlushed,
    CallFailed,
    Detokenized,
    EndId,
    EngineMessage,
    ModelEnds,
    OutputDelta,
    Refused,
    SchedulerStats,
    StreamsFenced,
    Tokenized,
)
from tokenspeed.messages.scheduler import AskStats, Cancel, FlushCache
from tokenspeed.messages.tokenizer import (
    CancelTokenize,
    Chat,
    Detokenize,
    GenerateRequest,
    Prompt,
    Replied,
    Text,
    Tokenize,
)
from tokenspeed.points import Kind
from tokenspeed.sampling import UINT64_MAX, SamplingParams

CALL_LIMIT_S = 10.0
PROFILE_S_MAX = 60.0
FIRST_TOKEN_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0


class EngineHealth(msgspec.Struct, frozen=True):
    """`state` is starting, ready, degraded (an actor is down), draining or lost; `ok` unless lost or degraded."""

    ok: bool
    state: str
    actors: dict[str, ActorHealth]


class Load(msgspec.Struct, frozen=True):
    """Open requests: those that are computed and those that wait; at most `limit` are taken in all."""

    running: int
    waiting: int
    limit: int


class AsyncEngine:
    """Serves one model. `AsyncEngine(config)`, then `await start()`, then `generate`; at last `close`.

    The constructor downloads a model of the Hugging Face Hub that is not here yet, and blocks meanwhile.
    """

    def __init__(self, config: EngineConfig, *, on_event: Callable[[str], None] | None = None) -> None:
        self.config = config
        self._on_event = on_event or (lambda text: None)
        self.meter = Meter()
        self.checkpoint, self.model, self.device = resolve(config, self._on_event)
        self.ends: tuple[EndId, ...] = ()  # known once it has started
        self._streams: dict[int, Stream] = {}
        self._admission = Admission(self.device.max_num_seqs + config.max_queued_requests, config.max_queued_bytes)
        self._totals = Totals()
        self._recent = RecentCallers()
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._next_request = 1
        self._fence_epoch: int | None = None
        self._started = False
        self._draining = False
        self._lost = ""
        self._idle = asyncio.Event()
        self._idle.set()
        self._supervisor = Supervisor(
            actors=actor_specs(config, self.checkpoint, self.model, self.device),
            edges=EDGES,
            home=HOME,
            stall_limit_s=config.stall_limit_s,
            on_message=self._receive,
            on_restart=self._actor_restarted,
            on_event=self._event,
            receives=dict.fromkeys(("tokenizer", "scheduler", "detokenizer"), EngineMessage),
        )

    async def start(self) -> None:
        """Start the actors and draw one real token. Raises `StartError`; nothing is left running then."""
        try:
            await self._supervisor.start()
            await asyncio.wait_for(self._first_token(), FIRST_TOKEN_LIMIT_S)
        except TokenSpeedError as error:
            await self.close()
            raise error if isinstance(error, StartError) else StartError(error.message) from error
        except TimeoutError as error:
            await self.close()
            raise StartError(f"No token came within {FIRST_TOKEN_LIMIT_S:.0f} s of loading the model.") from error
        self.meter = Meter()
        self._started = True

    @property
    def ready(self) -> bool:
        """Whether a request sent now would be served: a real token came, and every actor is up."""
        return self._started and self.health().state == "ready"

    @property
    def trace(self) -> Trace:
        """The engine's own trace, for it and its doors; there is one from `start` on."""
        return self._supervisor.trace

    @property
    def requests_open(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def health(self) -> EngineHealth:
        """Return the state of the engine and of each actor."""
        actors = self._supervisor.health()
        if self._lost:
            state = "lost"
        elif not self._started:
            state = "starting"
        elif any(actor.state != "ready" for actor in actors.values()):
            state = "degraded"
        else:
            state = "draining" if self._draining else "ready"
        return EngineHealth(state not in ("lost", "degraded"), state, actors)

    def generate(
        self, prompt: Prompt, sampling: SamplingParams | None = None, *, namespace: str = "", session: str = ""
    ) -> Stream:
        """Open a request and return its stream. Raises `UserError` or `EngineError` (429, 503) at once.

        Without `sampling` the model's own defaults apply.
        """
        if self._draining:
            raise EngineError("The engine is shutting down.", status=503, code="draining")
        self._check_started()
        return self._open(prompt, sampling or self.model.defaults.sampling(), namespace, session)

    def generate_all(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        n: int = 1,
        namespace: str = "",
        session: str = "",
    ) -> Batch[Output]:
        """Open `n` requests for each of `prompts`, all or none; reply c of prompt p has the index p * n + c.

        `sampling` is one for all or one for each prompt.
        """
        each = sampling if isinstance(sampling, Sequence) else [sampling] * len(prompts)
        if len(each) != len(prompts):
            raise UserError(f"{len(each)} sampling settings came for {len(prompts)} prompts; give one for each.")
        if n < 1:
            raise UserError(f"n is {n}; it must be at least 1.", param="n")
        for _ in prompts:
            self.meter.asked(n)
        return Batch.opened(
            partial(
                self.generate,
                prompt,
                (settings or self.model.defaults.sampling()).for_choice(index),
                namespace=namespace,
                session=session,
            )
            for prompt, settings in zip(prompts, each, strict=True)
            for index in range(n)
        )

    def load(self) -> Load:
        """Return how many requests are open, whatever the scheduler does; `stats` told how many of them run."""
        count = len(self._streams)
        coming = sum(not stream.is_accepted for stream in self._streams.values())
        waiting = min(count, coming + self._totals.last.requests_waiting)
        return Load(count - waiting, waiting, self._admission.requests_max)

    def find_caller(self, ident: str) -> Trail | None:
        """Return the requests of one of the newest callers, by its id or that of its answer."""
        return self._recent.find(ident)

    def ring_fill(self) -> dict[str, int]:
        """Return the bytes that wait in each ring, by "writer to reader"."""
        return self._supervisor.ring_fill()

    async def flush_cache(self) -> int:
        """Forget every cached page that no request holds; return how many pages that freed."""
        answer = await self._call("scheduler", FlushCache)
        assert isinstance(answer, CacheFlushed)
        return answer.pages_freed

    async def stats(self) -> SchedulerStats:
        """Return the scheduler's numbers; counters go on where an earlier life of it ended."""
        answer = await self._call("scheduler", AskStats)
        assert isinstance(answer, SchedulerStats)
        return self._totals.told(answer)

    async def profile(self, seconds: float) -> Path:
        """Observe the GPU's kernels for `seconds`; return the file with them (`kernel_slices`), which is the caller's.

        Raises `UserError` where there is no GPU, or for a time that is out of bounds, `EngineError` (409) while
        another profile is made. A caller that is cancelled does not end the profile, and gets no file.
        """
        self._check_started()
        if not 0 < seconds <= PROFILE_S_MAX:
            raise UserError(f"seconds is {seconds:g}; allowed are up to {PROFILE_S_MAX:g}.", param="seconds")
        return await self._supervisor.profile("executor", seconds)

    async def tokenize(self, prompt: Prompt, *, namespace: str = "") -> list[int]:
        """Return the ids that `prompt` has in `namespace`, however long; raise `UserError` as `generate` would."""
        answer = await self._call("tokenizer", partial(Tokenize, prompt=prompt, namespace=namespace))
        assert isinstance(answer, Tokenized)
        return unpack_ids(answer.ids)

    async def detokenize(self, ids: Sequence[int], *, skip_special: bool = False) -> list[bytes]:
        """Return the bytes that each of `ids` adds to a text; control tokens add their marks, or nothing."""
        question = partial(Detokenize, ids=pack_ids(ids), skip_special=skip_special)
        answer = await self._call("tokenizer", question)
        assert isinstance(answer, Detokenized)
        return answer.pieces

    async def drain(self, timeout_s: float) -> None:
        """Take no more requests, wait for the open ones, and end what is left after `timeout_s`."""
        self._draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            error = EngineError("The engine shut down before the reply was complete.", status=503, code="draining")
            self._fail_all(error)

    async def close(self, *, at_once: bool = False) -> None:
        """Stop every actor and release everything. Open requests end with an error.

        With `at_once` the actors are killed instead of asked.
        """
        self._draining = True
        self._fail_all(EngineError("The engine was closed.", status=503, code="closed"))
        await self._supervisor.stop(0.0 if at_once else STOP_LIMIT_S)

    # Requests.

    def _check_started(self) -> None:
        if not self._started:
            raise EngineError("The model is still loading.", status=503, code="not_ready")

    def _check_not_lost(self) -> None:
        if self._lost:
            raise self._lost_error()

    def _lost_error(self) -> EngineError:
        # A new one each time: an exception keeps the frames of every place that raised it.
        return EngineError(f"The engine is lost: {self._lost}", status=503, code="engine_lost")

    def _open(self, prompt: Prompt, sampling: SamplingParams, namespace: str, session: str) -> Stream:
        self._check_not_lost()
        sampling.check()
        self._admission.enter(prompt)
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed & UINT64_MAX
        sampling = msgspec.structs.replace(sampling, seed=seed)
        number, self._next_request = self._next_request, self._next_request + 1
        message = GenerateRequest(number, 0, prompt, sampling, namespace, session)
        stream = self._streams[number] = Stream(message, self._ended, self.trace)
        self._recent.note(number)
        self.meter.opened(number, sampling.max_tokens)
        self.trace.point(Kind.OPENED, number, value=len(self._streams))
        self._idle.clear()
        if self._fence_epoch is None:
            self._supervisor.outbox.send("tokenizer", message)
        return stream

    def _ended(self, stream: Stream) -> None:
        if self._streams.pop(stream.request, None) is None:
            return
        self.meter.ended(stream.request, cancelled=stream.is_cancelled, error=stream.error_code)
        self._admission.leave(stream.message.prompt)
        if not self._streams:
            self._idle.set()
        if stream.is_cancelled:
            self._cancel(stream.request)
        if isinstance(stream.message.prompt, Chat) and not stream.is_failed:
            replied = Replied(stream.request, stream.text, stream.delivered.tobytes())
            self._supervisor.outbox.send("tokenizer", replied)

    def _cancel(self, request: int) -> None:
        self._supervisor.outbox.send("scheduler", Cancel(request))
        self._supervisor.outbox.send("tokenizer", CancelTokenize(request))

    def _fail_all(self, error: EngineError) -> None:
        for stream in list(self._streams.values()):
            stream.fail(error)
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)

    async def _first_token(self) -> None:
        async with self._open(Text("Hello"), SamplingParams(temperature=0.0, max_tokens=1), "", "") as stream:
            async for _ in stream:
                pass

    async def _call(self, actor: str, question: Callable[[int], Message]) -> Message:
        self._check_started()
        self._check_not_lost()
        number, self._next_request = self._next_request, self._next_request + 1
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        self._supervisor.outbox.send(actor, question(number))
        try:
            return await asyncio.wait_for(future, CALL_LIMIT_S)
        except TimeoutError:
            raise EngineError(f"The {actor} did not answer in time.", status=503, code="timeout") from None
        finally:
            del self._calls[number]

    # What the actors say.

    def _receive(self, sender: str, message: Message) -> None:
        match message:
            case OutputDelta():
                if (stream := self._streams.get(message.request)) is not None:
                    known = max(message.first, len(stream.delivered))
                    self.meter.output(message, max(0, message.first + len(message.ids) // 4 - known))
                    stream.push(message)
            case Accepted():
                if (stream := self._streams.get(message.request)) is not None:
                    stream.accept(message.prompt_tokens)
                else:
                    self._cancel(message.request)  # the first Cancel may have died with an older scheduler
            case Refused():
                if (stream := self._streams.get(message.request)) is not None:
                    stream.fail(message.error.exception())
            case ModelEnds():
                self.ends = message.ends
            case StreamsFenced():
                if message.scheduler_epoch == self._fence_epoch:
                    self._resume_all()
            case CallFailed():
                if (call := self._calls.get(message.call)) is not None and not call.done():
                    call.set_exception(message.error.exception())
            case CacheFlushed() | SchedulerStats() | Tokenized() | Detokenized():
                if (call := self._calls.get(message.call)) is not None and not call.done():
                    call.set_result(message)

    def _actor_restarted(self, actor: str, epoch: int) -> None:
        match actor:
            case "scheduler":
                self._totals.begin_life()
                self._fence_epoch = epoch
            case "detokenizer" if self._fence_epoch is not None:
                self._resume_all()  # the old detokenizer is gone: nothing of it can follow
            case "tokenizer" if self._fence_epoch is None:
                for stream in [each for each in self._streams.values() if not each.is_accepted]:
                    self._send_again(stream)

    def _resume_all(self) -> None:
        self._fence_epoch = None
        for stream in list(self._streams.values()):
            stream.is_accepted = False
            if stream.delivered:
                self.meter.resume(stream.prompt_tokens + len(stream.delivered))
            self._send_again(stream)

    def _send_again(self, stream: Stream) -> None:
        stream.deaths += 1
        if stream.deaths >= DEATHS_MAX:  # it may be what they die of
            stream.fail(fatal_request(stream.deaths))
            return
        resume = stream.delivered.tobytes()
        stream.message = msgspec.structs.replace(stream.message, attempt=stream.message.attempt + 1, resume=resume)
        self._supervisor.outbox.send("tokenizer", stream.message)

    def _event(self, text: str) -> None:
        self._on_event(text)
        if self._supervisor.lost is not None and not self._lost:
            self._lost = self._supervisor.lost
            self._fail_all(self._lost_error())
