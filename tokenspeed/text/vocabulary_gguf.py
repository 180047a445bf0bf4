"""The vocabulary in the metadata of a GGUF file.

Knows the key names and token types of the format, and nothing about encoding.
"""

from __future__ import annotations

from enum import IntEnum

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import GgufFile
from tokenspeed.text.byte_level import byte_level_bytes, sentencepiece_bytes
from tokenspeed.text.vocabulary import Mark, Vocabulary, read_template

MODELS = ("gpt2", "llama")
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SILENT = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.UNUSED)


def gguf_vocabulary(file: GgufFile) -> Vocabulary:
    """Return the vocabulary of `file`; raise `StartError` if it has none, or one of an unknown kind."""
    model = file.need("tokenizer.ggml.model", str)
    if model not in MODELS:
        raise StartError(f"{file.path} has a tokenizer of kind {model}; {' and '.join(MODELS)} can be read.")
    template = _template(file)
    texts, types = gguf_tokens(file)
    spell = byte_level_bytes if model == "gpt2" else sentencepiece_bytes
    marks = {text: Mark(i) for i, text in enumerate(texts) if _is_mark(text, types[i], template)}
    bos, eos = _id(file, "bos_token_id"), _id(file, "eos_token_id")
    add_bos = file.get("tokenizer.ggml.add_bos_token", bool)
    return Vocabulary(
        token_bytes=[
            b"" if kind in _SILENT or text in marks else spell(text) for text, kind in zip(texts, types, strict=True)
        ],
        marks=marks,
        bos=bos,
        eos=eos,
        # Older files do not say; sentencepiece models were trained with BOS.
        add_bos=bos is not None and (add_bos if add_bos is not None else model == "llama"),
        ends=tuple((token, f"GGUF {key}") for key in _END_KEYS if (token := _id(file, key)) is not None),
        template=template,
    )


def gguf_tokens(file: GgufFile) -> tuple[list[str], list[int]]:
    """Return text and `TokenType` of every token."""
    texts = file.strings("tokenizer.ggml.tokens")
    types = file.ints("tokenizer.ggml.token_type") or [TokenType.NORMAL] * len(texts)
    if not texts or len(types) != len(texts):
        raise StartError(f"{file.path} has {len(texts)} tokens and {len(types)} token types: convert it again.")
    return texts, types


def _is_mark(text: str, kind: int, template: str | None) -> bool:
    # A user-defined token that the template writes has a meaning, such as <think>; others, such as
    # runs of spaces, are ordinary text.
    if kind == TokenType.USER_DEFINED:
        return template is not None and bool(text.strip()) and text in template
    return bool(text) and kind == TokenType.CONTROL


def _id(file: GgufFile, key: str) -> int | None:
    return file.get(f"tokenizer.ggml.{key}", int)


def _template(file: GgufFile) -> str | None:
    template = file.get("tokenizer.chat_template", str)
    return template if template is not None else read_template(file.path.parent / "chat_template.jinja")
