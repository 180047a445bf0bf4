"""The vocabulary of a model that has none: a folder with config.json alone, for dummy weights.

Such a model's replies mean nothing; what counts is that prompts of any ids, and of text, reach it, and
that its ids cost the detokenizer what real ones do. The first 256 ids are the bytes; every other id
is spelled as its number.

Invariant: there are as many tokens as the model has rows of logits, and no control mark among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from tokenspeed.errors import StartError
from tokenspeed.formats.checkpoint import describe
from tokenspeed.text.byte_level import CHAR_OF_BYTE
from tokenspeed.text.vocabulary import Vocabulary

BYTES = 256
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def lacks_vocabulary(path: Path) -> bool:
    """Return whether `path` is a folder without tokenizer.json."""
    return path.is_dir() and not (path / "tokenizer.json").exists()


def stand_in_vocabulary(folder: Path, overrides: Mapping[str, Any] | None = None) -> Vocabulary:
    """Return as many tokens as config.json in `folder` says; raise `StartError` if bytes do not fit."""
    tokens = describe(folder, dummy=True, overrides=overrides).vocab_tokens
    if tokens < BYTES:
        raise StartError(f"{folder} has no tokenizer.json and vocab_size {tokens}; its stand-in needs {BYTES}.")
    return Vocabulary(
        token_bytes=[bytes([token]) if token < BYTES else b" %d" % token for token in range(tokens)],
        marks={},
        bos=None,
        eos=None,
        add_bos=False,
        ends=(),
        template=TEMPLATE,
    )


def stand_in_backend() -> Backend:
    """Return an encoder of text as its UTF-8 bytes."""
    backend = Backend(models.BPE(vocab={char: byte for byte, char in CHAR_OF_BYTE.items()}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return backend
