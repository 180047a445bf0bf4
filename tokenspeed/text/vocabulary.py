"""What a checkpoint says of its tokens, without the machine that encodes text.

Owns the table from token id to bytes, the control marks, the ids that end a reply, and the chat
template's source. Loads in a fraction of a second; enough for turning ids back into text.

Invariant: a control mark has no bytes, so that it can never be seen in an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import read_gguf
from tokenspeed.formats.location import weights_path


class Mark(msgspec.Struct, frozen=True):
    """A control token: its id, and whether it swallows the white space beside it."""

    id: int
    lstrip: bool = False
    rstrip: bool = False


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a model. `token_bytes[id]` is empty for control marks and unused ids.

    `marks` are the control tokens by their text. `ends` are the ids that the checkpoint
    declares to end a reply, each with the file and key that says so. `add_bos` tells whether
    plain text begins with `bos`.
    """

    token_bytes: list[bytes]
    marks: dict[str, Mark]
    bos: int | None
    eos: int | None
    add_bos: bool
    ends: tuple[tuple[int, str], ...]
    template: str | None

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids in `ends`."""
        return frozenset(token for token, _ in self.ends)

    def mark_text(self, token: int | None) -> str:
        """Return the text of the control token `token`, "" if it is none."""
        return next((text for text, mark in self.marks.items() if mark.id == token), "")


def read_template(path: Path) -> str | None:
    """Return the chat template in the file at `path`, None if there is no such file."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{path} cannot be read ({error}): download it again.") from error


def load_vocabulary(path: str | Path, *, dummy: bool = False, overrides: Mapping[str, Any] | None = None) -> Vocabulary:
    """Return the vocabulary of the checkpoint at `path`; raise `StartError` if it has none that can be read.

    With `dummy` a folder without a tokenizer gets a stand-in. `overrides` are merged into config.json.
    """
    # Imported here, since all build on this file's structs.
    from tokenspeed.text.stand_in import lacks_vocabulary, stand_in_vocabulary
    from tokenspeed.text.vocabulary_gguf import gguf_vocabulary
    from tokenspeed.text.vocabulary_hf import hf_vocabulary

    weights = weights_path(path, dummy=dummy)
    if dummy and lacks_vocabulary(weights):
        return stand_in_vocabulary(weights, overrides)
    vocabulary = hf_vocabulary(weights, overrides) if weights.is_dir() else gguf_vocabulary(read_gguf(weights))
    _check_ids(weights, vocabulary)
    return vocabulary


def _check_ids(path: Path, vocabulary: Vocabulary) -> None:
    tokens = len(vocabulary.token_bytes)
    for token in (vocabulary.bos, vocabulary.eos, *sorted(vocabulary.end_ids)):
        if token is not None and not 0 <= token < tokens:
            raise StartError(
                f"{path} names token {token} as one that begins or ends a text; it has 0 to {tokens - 1}: "
                "download it again."
            )
