"""Random text of a wanted number of tokens.

Owns the vocabulary, drawn from a seed: common English words, each of which nearly every tokenizer
makes one token of. How many tokens a word and the chat template really take is measured once, by the
server's own count of a few probes.

Invariant: the same seed gives the same words, and two seeds share no prefix worth a cached page.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import msgspec

from tokenspeed_tools.bench.plan import Message, user

TEXT = (
    "the of and to in is that for it with was on be at by this from have or one had not but what all were when "
    "we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my "
    "made over did down only way find use may water long little very after words called just where most know "
    "get through back much before go good new write our used me man too any day same right look think also "
    "around another came come work three word must because does part even place well such here take why things "
    "help put years different away again off went old number great tell men say small every found still between "
    "name should home big give air line set own under read last never us left end along while might next sound "
    "below saw something thought both few those always looked show large often together asked house world going "
    "want school important until form food keep children feet land side without boy once animals life enough "
    "took sometimes four head above kind began almost live page got earth need far hand high year mother light"
)
WORDS = TEXT.split()
PROBE = 16

Count = Callable[[list[Message]], Awaitable[int | None]]


class Calibration(msgspec.Struct, frozen=True):
    """Tokens of a word, of the template around a first prompt, and around one more turn; `seen`: measured."""

    word: float = 1.0
    first: int = 0
    turn: int = 0
    seen: bool = False

    def words(self, tokens: int) -> int:
        """Return how many words make `tokens`, at least one."""
        return max(1, round(tokens / self.word))


def draw(rng: random.Random, count: int) -> str:
    """Return `count` words."""
    return " ".join(rng.choices(WORDS, k=count))


async def calibrate(count: Count, *, system: bool, chat: bool) -> Calibration:
    """Measure with `count`, which returns the server's count of a prompt; `system`: a system message goes first."""
    few, many = " ".join(WORDS[:PROBE]), " ".join([*WORDS[:PROBE], *WORDS])
    head = [{"role": "system", "content": few}] if system else []
    short = await count([*head, user(few)])
    long = await count([*head, user(many)])
    if short is None or long is None or long <= short:
        return Calibration()  # not told, or not counted
    word = (long - short) / len(WORDS)
    first = short - round(word * PROBE * (1 + system))
    more = await count([*head, user(few), {"role": "assistant", "content": few}, user(few)]) if chat else None
    turn = more - short - round(word * PROBE * 2) if more is not None else 0
    return Calibration(word, first, turn, seen=True)
