"""From a checked request to open streams, and what must be known of the prompt to tell the answer.

Owns the order: look the prompt up if ids or echo are wanted, open every choice, wait until all were
found valid. It knows no transport and no API.

Invariant: when `open_ask` raises or is cancelled, nothing of the request is open in the engine.
"""

from __future__ import annotations

from functools import partial

import msgspec

from tokenspeed.engine.batch import Batch
from tokenspeed.engine.reply import OutputLike
from tokenspeed.errors import TokenSpeedError
from tokenspeed.messages.base import unpack_ids
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text
from tokenspeed.server.ask import Ask
from tokenspeed.server.ports import EngineLike


class Known(msgspec.Struct, frozen=True):
    """What is known of one prompt: its `ids` if they are told, its text if it is echoed, its first piece."""

    ids: list[int] | None = None
    echo: str = ""
    first_piece: bytes = b""


async def open_ask(engine: EngineLike, ask: Ask) -> tuple[Batch[OutputLike], list[Known]]:
    """Return the open choices, all found valid, and what is known of each prompt; or raise the first error."""
    try:
        known = [await _known(engine, ask, prompt) for prompt in ask.prompts]
        open_one = partial(engine.generate, namespace=ask.namespace, session=ask.session)
        batch = Batch[OutputLike].opened(partial(open_one, part.prompt, part.sampling) for part in ask.parts)
        for _ in ask.prompts:
            engine.meter.asked(ask.n)
        await batch.accepted()
        return batch, known
    except TokenSpeedError as error:
        raise ask.renamed(error) from None


async def _known(engine: EngineLike, ask: Ask, prompt: Prompt) -> Known:
    scored = ask.logprobs is not None and ask.echo and not isinstance(prompt, Chat)
    ids = await _ids(engine, ask, prompt) if ask.token_ids or scored else None
    skip = ask.parts[0].sampling.skip_special_tokens
    first = await engine.detokenize(ids[:1], skip_special=skip) if scored and ids else [b""]
    return Known(ids if ask.token_ids else None, await _echo(engine, ask, prompt), first[0])


async def _ids(engine: EngineLike, ask: Ask, prompt: Prompt) -> list[int]:
    if isinstance(prompt, Ids):
        return unpack_ids(prompt.ids)
    return await engine.tokenize(prompt, namespace=ask.namespace)


async def _echo(engine: EngineLike, ask: Ask, prompt: Prompt) -> str:
    if not ask.echo:
        return ""
    if isinstance(prompt, Text):
        return prompt.text
    if isinstance(prompt, Ids):
        skip = ask.parts[0].sampling.skip_special_tokens
        pieces = await engine.detokenize(unpack_ids(prompt.ids), skip_special=skip)
        return b"".join(pieces).decode(errors="replace")
    return ask.echo_text
