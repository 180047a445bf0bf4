"""Requests, a track each: the parts of its life one behind the other, and the tokens as they left.

Owns what queries ask for most: a slice `request` from the first sign of it to the last byte of its answer,
and on its track the instants `first_token` and `token`. Parts are those that `trace explain` tells of.

Invariant: `first_token` is there only if the request's begin was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tokenspeed_tools.trace.flows import Flows, flow
from tokenspeed_tools.trace.life import Doing, Life, LifePart
from tokenspeed_tools.trace.perfetto import Argument, Order, Picture, Slice
from tokenspeed_tools.trace.tokens import Token, tokens_of

# Parts that lie inside a slice of their own.
PHASES = {
    Doing.PROMPT: "prefill",
    Doing.PROMPT_GAP: "prefill",
    Doing.DECODE: "decode",
    Doing.DECODE_GAP: "decode",
}


def draw_requests(picture: Picture, lives: Sequence[Life], flows: Flows) -> None:
    """Draw requests, in the order of their numbers."""
    group = picture.track("requests", order=Order.RANK, rank=2)
    for rank, life in enumerate(lives):
        track = picture.track(f"request {life.request}", group, rank=rank)
        inside = list(_phases(life, flows))
        picture.slices(track, [Slice("request", life.begin_ns, life.end_ns, _arguments(life), inside)])
        for number, token in enumerate(tokens_of(life.points)):
            name = "first_token" if number == 0 and life.is_whole else "token"
            arrows = flow(flows, life.request, token.step)
            picture.instant(track, token.time_ns, name, _token_arguments(life.request, token), *arrows)


def _arguments(life: Life) -> dict[str, Argument]:
    known: dict[str, Argument] = {
        "request": life.request,
        "prompt_tokens": life.prompt_tokens,
        "cached_tokens": life.cached_tokens,
        "output_tokens": life.output_tokens,
    }
    return known if life.finish is None else {**known, "finish": life.finish.name.lower()}


def _phases(life: Life, flows: Flows) -> Iterator[Slice]:
    for phase, group in groupby(life.parts, key=lambda part: PHASES.get(part.doing, "")):
        inside = [_part(life.request, part, flows) for part in group]
        if phase:
            yield Slice(phase, inside[0].begin_ns, inside[-1].end_ns, {"request": life.request}, inside)
        else:
            yield from inside


def _part(request: int, part: LifePart, flows: Flows) -> Slice:
    arguments: dict[str, Argument] = {"request": request}
    arrows: tuple[int, ...] = ()
    if part.wait is not None:
        arguments["cause"] = part.wait.name.lower()
    if part.step is not None:
        arguments["step"] = part.step.number
        arrows = flow(flows, request, part.step.number)
        if request in part.step.chunks:
            arguments["tokens"] = part.step.chunks[request]
    return Slice(part.doing.value, part.begin_ns, part.end_ns, arguments, flows=arrows)


def _token_arguments(request: int, token: Token) -> dict[str, Argument]:
    known: dict[str, Argument] = {"request": request, "tokens": token.ids, "bytes": token.bytes}
    return {**known, "step": token.step} if token.step else known
