"""Every id that ends a reply, and who says so.

Owns the union: what a checkpoint's files declare, and what the chat template writes behind a turn.
It does not know how a template is rendered. A model that is never told where its turn ends goes on
talking to itself, so no source overrules another.

Invariant: each id stands once, and has at least one source.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenspeed.messages.engine import EndId
from tokenspeed.text.vocabulary import Vocabulary

TEMPLATE = "chat template"
# By which models end a turn, for a template that cannot be tried out.
TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "</s>",
)


def gather_ends(vocabulary: Vocabulary, of_template: Iterable[int]) -> tuple[EndId, ...]:
    """Return the ids that `vocabulary` declares and those `of_template`, ascending, with text and sources."""
    sources: dict[int, dict[str, None]] = {}
    for token, source in (*vocabulary.ends, *((token, TEMPLATE) for token in of_template)):
        sources.setdefault(token, {})[source] = None
    return tuple(EndId(token, _text(vocabulary, token), tuple(sources[token])) for token in sorted(sources))


def turn_ends_named(vocabulary: Vocabulary) -> set[int]:
    """Return the control tokens that end a turn elsewhere and stand in this model's template."""
    template = vocabulary.template or ""
    return {vocabulary.marks[text].id for text in TURN_ENDS if text in template and text in vocabulary.marks}


def _text(vocabulary: Vocabulary, token: int) -> str:
    return vocabulary.mark_text(token) or vocabulary.token_bytes[token].decode("utf-8", "replace")
