"""The tokenizer actor: prompts in, ids out.

Owns the prompt builder and the requests it is working on; it does not know pages or steps. Prompts
are built in threads; much new text is encoded in threads of its own, and a giant prompt has one for
all of its way, so that all others overtake them. A request that breaks a limit is answered here and
never reaches the scheduler. Of each conversation it is told how it was answered, so that the reply
has the same ids when it comes back.

Invariant: for the last attempt of each request exactly one of `Submit`, `Refused` or `Dropped` is sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import ClassVar, NamedTuple

from tokenspeed.actors.lookups import Lookups
from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import TokenizerConfig
from tokenspeed.errors import EngineError, TokenSpeedError, UserError
from tokenspeed.messages.base import Message, pack_ids, unpack_ids
from tokenspeed.messages.engine import ModelEnds, Refused
from tokenspeed.messages.scheduler import Dropped, StreamSettings, Submit
from tokenspeed.messages.tokenizer import (
    CancelTokenize,
    Chat,
    Detokenize,
    GenerateRequest,
    Ids,
    Prompt,
    Replied,
    Tokenize,
    TokenizerMessage,
)
from tokenspeed.points import Kind
from tokenspeed.sampling import MAX_PROMPT_LOGPROBS_TOLD, SamplingParams
from tokenspeed.text.prompt import Begun, PromptBuilder, load_prompt_builder
from tokenspeed.text.replies import Place

GIANT_BYTES = 512 << 10  # a prompt of more is built behind the others of its size; it may take seconds
SLOW_CHARS = 32 << 10  # new text of more takes longer to encode than a short prompt should wait
OPEN_MAX = 10_000


class _Open(NamedTuple):
    """A conversation that is being answered: where the reply will stand, and the ids that end it."""

    place: Place
    end_ids: frozenset[int]


class TokenizerActor(Actor):
    """One mailbox around a `PromptBuilder`."""

    name: ClassVar[str] = "tokenizer"
    receives: ClassVar[dict[str, object]] = {"engine": TokenizerMessage}

    def __init__(self, config: TokenizerConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="encode")
        self._slow = ThreadPoolExecutor(config.threads, thread_name_prefix="encode-slow")
        self._giants = ThreadPoolExecutor(1, thread_name_prefix="encode-giant")
        self._builder: PromptBuilder
        self._lookups: Lookups
        self._pending: dict[int, asyncio.Task[None]] = {}
        self._cancelled: set[int] = set()
        self._open: OrderedDict[int, _Open] = OrderedDict()

    async def start(self) -> None:
        """Load the tokenizer and the chat template."""
        self._phase("tokenizer", 30.0)
        loop = asyncio.get_running_loop()
        self._builder = await loop.run_in_executor(self._threads, load_prompt_builder, self._config)
        self._lookups = Lookups(self._builder, self._giants, self._outbox)
        self._outbox.send("engine", ModelEnds(self._builder.ends))

    def receive(self, sender: str, message: Message) -> None:
        """Take one message of the engine."""
        match message:
            case GenerateRequest():
                self._pending[message.request] = asyncio.ensure_future(self._serve(message))
            case CancelTokenize():
                self._cancel(message.request)
            case Replied():
                self._learn(message)
            case Tokenize() | Detokenize():
                self._lookups.take(message)

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Nothing to mend: the engine sends again what a new scheduler has to know."""

    async def stop(self) -> None:
        """Drop what is still being encoded."""
        for task in self._pending.values():
            task.cancel()
        self._lookups.stop()
        for threads in (self._threads, self._slow, self._giants):
            threads.shutdown(wait=False, cancel_futures=True)
        self._builder.close()

    def _cancel(self, request: int) -> None:
        # A request that has left already is the scheduler's, which got its own Cancel before this
        # one; Dropped then only clears a tombstone.
        if request in self._pending:
            self._cancelled.add(request)
        else:
            self._outbox.send("scheduler", Dropped(request))

    def _learn(self, replied: Replied) -> None:
        # Here and not in a thread: the next turn may be the very next message.
        asked = self._open.pop(replied.request, None)
        if asked is None:
            return
        ids = unpack_ids(replied.ids)
        if ids and ids[-1] in asked.end_ids:
            ids.pop()  # what ends a reply is the template's to write
        self._builder.learn(asked.place, replied.text, ids)

    async def _serve(self, request: GenerateRequest) -> None:
        self.trace.point(Kind.TOKENIZE_BEGIN, request.request)
        answer = await self._answer(request)
        if self._pending.get(request.request) is not asyncio.current_task():
            return  # the engine has sent it again meanwhile, for a scheduler that has restarted
        del self._pending[request.request]
        if request.request in self._cancelled:
            self._cancelled.discard(request.request)
            self._outbox.send("scheduler", Dropped(request.request))
        elif isinstance(answer, Refused):
            self.trace.point(Kind.REFUSED, request.request)
            self._outbox.send("engine", answer)
        else:
            submit, place = answer
            self.trace.point(Kind.TOKENIZED, request.request, value=submit.stream.prompt_tokens)
            self._expect_reply(submit, place)
            self._outbox.send("scheduler", submit)

    def _expect_reply(self, submit: Submit, place: Place | None) -> None:
        if place is not None:
            self._open[submit.request] = _Open(place, frozenset(submit.end_ids))
        if len(self._open) > OPEN_MAX:
            self._open.popitem(last=False)  # of a request that failed, most likely

    async def _answer(self, request: GenerateRequest) -> tuple[Submit, Place | None] | Refused:
        try:
            return await self._built(request)
        except TokenSpeedError as error:
            return Refused(request.request, error.info())
        except Exception as error:
            fault = EngineError(f"The prompt could not be built ({type(error).__name__}: {error}).")
            return Refused(request.request, fault.info())

    async def _built(self, request: GenerateRequest) -> tuple[Submit, Place | None]:
        loop = asyncio.get_running_loop()
        giant = _may_take_long(request.prompt)
        threads, chars_max = (self._giants, sys.maxsize) if giant else (self._threads, SLOW_CHARS)
        begun, submit = await loop.run_in_executor(threads, self._begin, request, chars_max)
        if submit is None:
            submit = await loop.run_in_executor(self._slow, self._submit_long, request, begun)
        return submit, begun.place

    def _begin(self, request: GenerateRequest, chars_max: int) -> tuple[Begun, Submit | None]:
        """Look up what is known of the prompt, and encode the rest unless that is more than `chars_max`."""
        self._check_wanted(request)
        self.trace.point(Kind.ENCODE_BEGIN, request.request)
        self._check_ids(request.sampling)
        begun = self._builder.begin(request.prompt, request.namespace)
        return begun, self._submit(request, begun) if begun.draft.chars_missing <= chars_max else None

    def _submit_long(self, request: GenerateRequest, begun: Begun) -> Submit:
        self.trace.point(Kind.ENCODE_BEGIN, request.request)
        return self._submit(request, begun)

    def _submit(self, request: GenerateRequest, begun: Begun) -> Submit:
        self._check_wanted(request)
        sampling = request.sampling
        bad_words = self._builder.bad_words(sampling.bad_words)
        ids = self._builder.finish(begun)
        _check_scores(sampling, len(ids))
        room = self._config.model.max_model_len - len(ids)
        end_ids = () if sampling.ignore_eos else self._builder.end_ids
        max_tokens = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
        return Submit(
            request=request.request,
            attempt=request.attempt,
            ids=ids.tobytes(),
            resume=request.resume,
            max_tokens=max_tokens,
            min_tokens=min(sampling.min_tokens, max_tokens),
            end_ids=tuple(sorted({*end_ids, *sampling.stop_token_ids})),
            sampling=sampling,
            namespace=request.namespace,
            session=request.session,
            stream=_stream_settings(sampling, len(ids)),
            bad_word_ids=pack_ids(token for word in bad_words for token in word),
            bad_word_ends=pack_ids(accumulate(map(len, bad_words))),
        )

    def _check_wanted(self, request: GenerateRequest) -> None:
        if request.request in self._cancelled:
            raise EngineError("The request was cancelled.", code="cancelled")  # nobody reads it

    def _check_ids(self, sampling: SamplingParams) -> None:
        vocab_tokens = self._builder.vocab_tokens
        for name, ids in (
            ("stop_token_ids", sampling.stop_token_ids),
            ("logit_bias", [token for token, _ in sampling.logit_bias]),
            ("allowed_token_ids", sampling.allowed_token_ids),
        ):
            wrong = next((token for token in ids if not 0 <= token < vocab_tokens), None)
            if wrong is not None:
                raise UserError(f"{name} has the token {wrong}; 0 to {vocab_tokens - 1} are allowed.", param=name)


def _check_scores(sampling: SamplingParams, prompt_tokens: int) -> None:
    told = prompt_tokens * (1 + (sampling.prompt_logprobs or 0))
    if sampling.prompt_logprobs is not None and told > MAX_PROMPT_LOGPROBS_TOLD:
        raise UserError(
            f"prompt_logprobs is {sampling.prompt_logprobs} for a prompt of {prompt_tokens} tokens, {told} "
            f"log-probabilities; at most {MAX_PROMPT_LOGPROBS_TOLD} are allowed: ask for fewer or shorten the prompt.",
            param="prompt_logprobs",
        )


def _stream_settings(sampling: SamplingParams, prompt_tokens: int) -> StreamSettings:
    return StreamSettings(
        sampling.stop,
        prompt_tokens,
        stop_ids=sampling.stop_token_ids,
        include_stop=sampling.include_stop_str_in_output,
        skip_special=sampling.skip_special_tokens,
        logprobs=-1 if sampling.logprobs is None else sampling.logprobs,
        prompt_logprobs=-1 if sampling.prompt_logprobs is None else sampling.prompt_logprobs,
    )


def _may_take_long(prompt: Prompt) -> bool:
    return _prompt_bytes(prompt) > GIANT_BYTES or (isinstance(prompt, Chat) and prompt.template != "")


def _prompt_bytes(prompt: Prompt) -> int:
    match prompt:
        case Chat():
            return len(prompt.messages)
        case Ids():
            return 0  # nothing is left to encode
        case _:
            return len(prompt.text)
