"""Which of the ids that were sampled stand for the text that was shown.

A stop string may be cut from the text in the middle of a token, and characters may be held back; then
the ids go up to the last one that is whole in the text, and what follows is encoded. What is shown
for ids is decided elsewhere (`output_stream`); here it is only checked.

Invariant: the ids returned spell the text, and begin with ids that were sampled.
"""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Sequence

from tokenspeed.text.tokenizer import Tokenizer


def kept_ids(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> array[int] | None:
    """Return the ids to use for `text`, which was shown for `ids`; None if they do not fit together."""
    table = tokenizer.vocabulary.token_bytes
    # A model's vocabulary may be padded beyond its tokenizer's; such ids show nothing.
    spelled = [table[token] if 0 <= token < len(table) else b"" for token in ids]
    if b"".join(spelled).decode("utf-8", "replace") == text:
        return array("i", ids)
    tokens, chars = _whole(spelled, text)
    if not tokens or chars == len(text):
        return array("i", ids[:tokens]) if tokens else None
    (rest,) = tokenizer.encode_pieces([text[chars:]])
    if tokenizer.spell(rest) != text[chars:].encode():
        return None
    return array("i", ids[:tokens]) + rest


def _whole(spelled: Sequence[bytes], text: str) -> tuple[int, int]:
    """Return how many of the first tokens are whole in `text`, and how many characters they show."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    tokens = chars = place = 0
    for index, data in enumerate(spelled):
        shown = decoder.decode(data)
        if not text.startswith(shown, place):
            break
        place += len(shown)
        if not decoder.getstate()[0]:
            tokens, chars = index + 1, place
    return tokens, chars
