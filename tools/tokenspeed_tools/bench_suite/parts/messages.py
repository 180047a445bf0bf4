"""What messages cost on their way between actors: to bytes and back, as the rings carry them.

Codecs are those of the actors. A step's messages have 64 rows; prompts have 50,000 tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from tokenspeed.ipc.codec import Decoder, Encoder
from tokenspeed.messages.base import Message, pack_ids
from tokenspeed.messages.detokenizer import DetokenizerMessage, TokenBatch, TokenEntry
from tokenspeed.messages.engine import OutputDelta
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, ExecutorMessage, StepPlan
from tokenspeed.messages.scheduler import SchedulerMessage, StepResult, StreamSettings, Submit
from tokenspeed.messages.tokenizer import Chat, GenerateRequest
from tokenspeed.sampling import SamplingParams
from tokenspeed_tools.bench_suite import written
from tokenspeed_tools.bench_suite.part import Measure, Part, Sizes, Values, time_of
from tokenspeed_tools.bench_suite.timing import each_us

ROWS = 64
PROMPT_TOKENS = 50_000
PROMPT_CHARS = 200_000
#: To encode these is to copy them.
LARGE = ("submit_50k", "request_200kb")


def samples() -> dict[str, tuple[Message, Any]]:
    """Return a message of each kind that matters, with what its receiver decodes."""
    rows = [number for slot in range(1, ROWS + 1) for number in (slot, 1, 3_000 + slot, ROW_SAMPLE | ROW_DECODE)]
    drawn = pack_ids(range(1_000, 1_000 + ROWS))
    entries = [TokenEntry(request, 40, pack_ids([1_000 + request])) for request in range(ROWS)]
    sampling = SamplingParams(seed=1, max_tokens=512)
    prompt = pack_ids(range(PROMPT_TOKENS))
    said = b'[{"role": "user", "content": "' + written.text(1, PROMPT_CHARS).encode("unicode_escape") + b'"}]'
    return {
        "step_plan": (StepPlan(7, [], pack_ids([1, 0, 3, 9]), pack_ids(rows), b""), ExecutorMessage),
        "step_result": (StepResult(7, 9_000, pack_ids([1] * ROWS), drawn), SchedulerMessage),
        "token_batch": (TokenBatch(7, entries), DetokenizerMessage),
        "output_delta": (
            OutputDelta(
                request=7,
                first=40,
                ids=pack_ids([1_000]),
                text_offset=160,
                text=" name",
                finish="",
                stop_reason=None,
                prompt_tokens=3_000,
                cached_tokens=2_900,
                completion_tokens=41,
            ),
            OutputDelta,
        ),
        "submit_50k": (
            Submit(7, 0, prompt, b"", 512, 0, (2,), sampling, "", "", StreamSettings((), PROMPT_TOKENS)),
            SchedulerMessage,
        ),
        "request_200kb": (GenerateRequest(7, 0, Chat(said), sampling), GenerateRequest),
    }


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Make the decoders."""
    decoders = {name: Decoder(kind).decode for name, (_, kind) in samples().items()}

    def measure(number: int) -> Values:
        values = {}
        # All anew in each round: where large messages and buffers lie in memory is worth a factor of two.
        encoder = Encoder()
        for name, (message, _) in samples().items():
            values[f"{name}_encode_us"] = each_us(partial(encoder.encode, message), sizes["budget_ms"])
            record = bytes(encoder.encode(message))
            values[f"{name}_decode_us"] = each_us(partial(decoders[name], record), sizes["budget_ms"])
        return values

    yield measure


PART = Part(
    name="messages",
    shows="messages between actors to bytes and back: steps of 64 rows, prompts of 50K tokens",
    about_s=10,
    rounds=7,
    sizes={"budget_ms": 60},
    figures={
        f"{name}_{way}_us": time_of("us", "copy" if name in LARGE and way == "encode" else "objects")
        for name in samples()
        for way in ("encode", "decode")
    },
    prepare=prepare,
)
