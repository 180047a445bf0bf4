"""The encoder in a folder's tokenizer.json, read by the `tokenizers` library.

The file says itself how text is cut; this only takes away what the library would do beyond that:
truncation, padding, and the matching of control marks in text.

Invariant: the tokenizers are complete when returned and never changed again, which is what makes
them safe to share between threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from tokenizers import Tokenizer, pre_tokenizers

from tokenspeed.errors import StartError
from tokenspeed.text.vocabulary import Vocabulary


def hf_backends(folder: Path, vocabulary: Vocabulary) -> tuple[Tokenizer, Tokenizer]:
    """Return the tokenizer for the beginning of a prompt and the one for what follows a control mark.

    They are one object, except for vocabularies that put a space before the first word only.
    """
    data = (folder / "tokenizer.json").read_bytes()
    first = _load(folder, data, vocabulary)
    if not _prefixes_first_only(first):
        return first, first
    rest = _load(folder, data, vocabulary)
    _never_prefix(rest)
    return first, rest


def _load(folder: Path, data: bytes, vocabulary: Vocabulary) -> Tokenizer:
    try:
        backend = Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises plain Exception
        raise StartError(f"{folder / 'tokenizer.json'} cannot be read ({error}): download it again.") from error
    backend.no_truncation()
    backend.no_padding()
    # Known as special, a token is left alone in text.
    backend.add_special_tokens([text for text in vocabulary.marks if backend.token_to_id(text) is not None])
    backend.encode_special_tokens = True
    return backend


def _metaspaces(backend: Tokenizer) -> list[pre_tokenizers.Metaspace]:
    part = backend.pre_tokenizer
    parts = [part]
    if isinstance(part, pre_tokenizers.Sequence):
        # It can be iterated, though its type hints do not say so.
        parts = list(cast("Iterable[pre_tokenizers.PreTokenizer]", part))
    return [part for part in parts if isinstance(part, pre_tokenizers.Metaspace)]


def _prefixes_first_only(backend: Tokenizer) -> bool:
    return any(part.prepend_scheme == "first" for part in _metaspaces(backend))


def _never_prefix(backend: Tokenizer) -> None:
    for part in _metaspaces(backend):
        part.prepend_scheme = "never"  # a part is a view: this changes the tokenizer
