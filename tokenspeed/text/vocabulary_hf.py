"""The vocabulary in a folder with tokenizer.json and its companions.

Knows which of the companion files says what; the later file in each list below fills what the
earlier one leaves open, except for end ids, which are joined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.config_json import read_object
from tokenspeed.formats.location import CONFIG_NAME
from tokenspeed.text.byte_level import byte_level_bytes, sentencepiece_bytes
from tokenspeed.text.vocabulary import Mark, Vocabulary, read_template

TOKENS_MAX = 1 << 24


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerJson(msgspec.Struct):
    """The part of tokenizer.json that is read here; merges and rules are the encoder's."""

    model: _Model
    added_tokens: list[_AddedToken] = []
    decoder: dict[str, Any] | None = None
    post_processor: dict[str, Any] | None = None


def hf_vocabulary(folder: Path, overrides: Mapping[str, Any] | None = None) -> Vocabulary:
    """Return the vocabulary in `folder`; raise `StartError` if tokenizer.json is missing or of an unknown kind.

    `overrides` are merged into config.json.
    """
    source = _tokenizer_json(folder)
    settings = _json(folder / "tokenizer_config.json")
    template = _template(folder, settings)
    added = {token.content: token for token in source.added_tokens}
    ids = _ids(source.model) | {token.content: token.id for token in source.added_tokens}
    marks = {
        text: Mark(token.id, token.lstrip, token.rstrip) for text, token in added.items() if _is_mark(token, template)
    }
    bos, eos = (ids.get(_content(settings.get(name))) for name in ("bos_token", "eos_token"))
    first = _first_special(source.post_processor)
    return Vocabulary(
        token_bytes=_token_bytes(folder, source, ids, marks),
        marks=marks,
        bos=bos if bos is not None else first,
        eos=eos,
        add_bos=bool(settings.get("add_bos_token", first is not None)) and (bos is not None or first is not None),
        ends=(*_declared_ends(folder, overrides), *(((eos, "tokenizer_config.json"),) if eos is not None else ())),
        template=template,
    )


def _tokenizer_json(folder: Path) -> _TokenizerJson:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise StartError(
            f"{folder} has no tokenizer.json. Download it too, or make it from the older files: "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
        )
    try:
        return msgspec.json.decode(path.read_bytes(), type=_TokenizerJson)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartError(f"{path} is damaged ({error}): download it again.") from error


def _json(path: Path) -> dict[str, Any]:
    """Return the object in the file at `path`, empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StartError(f"{path} is damaged ({error}): download it again.") from error


def _ids(model: _Model) -> dict[str, int]:
    if isinstance(model.vocab, dict):
        return model.vocab
    return {text: index for index, (text, _) in enumerate(model.vocab)}


def _is_mark(token: _AddedToken, template: str | None) -> bool:
    # As in GGUF files: a token that the template writes has a meaning, even if it is not special.
    if token.special:
        return bool(token.content)
    return template is not None and bool(token.content.strip()) and token.content in template


def _token_bytes(folder: Path, source: _TokenizerJson, ids: dict[str, int], marks: dict[str, Mark]) -> list[bytes]:
    kinds = set(_types(source.decoder))
    if not kinds & {"ByteLevel", "ByteFallback", "Metaspace"}:
        seen = ", ".join(sorted(kinds)) or "none"
        raise StartError(f"{folder} has a tokenizer with the decoder {seen}; byte-level and sentencepiece can be read.")
    spell = byte_level_bytes if "ByteLevel" in kinds else sentencepiece_bytes
    if ids and not 0 <= min(ids.values()) <= max(ids.values()) < TOKENS_MAX:
        raise StartError(f"{folder} has a tokenizer with ids outside 0 to {TOKENS_MAX - 1}: download it again.")
    added = {token.content for token in source.added_tokens}
    table = [b""] * (max(ids.values(), default=-1) + 1)
    for text, token in ids.items():
        if text not in marks:
            table[token] = text.encode("utf-8") if text in added else spell(text)
    return table


def _types(part: object) -> list[str]:
    """Return the type names in a decoder or processor, those of a sequence included."""
    if isinstance(part, dict):
        inner = [name for value in part.values() if isinstance(value, list) for item in value for name in _types(item)]
        return [str(part["type"]), *inner] if "type" in part else inner
    return []


def _first_special(part: dict[str, Any] | None) -> int | None:
    """Return the id that a post-processor puts before a text, if it does."""
    if part is None:
        return None
    if part.get("type") == "Sequence":
        found = (_first_special(inner) for inner in part.get("processors", []))
        return next((token for token in found if token is not None), None)
    first = (part.get("single") or [{}])[0] if part.get("type") == "TemplateProcessing" else {}
    name = first.get("SpecialToken", {}).get("id")
    ids = part.get("special_tokens", {}).get(name, {}).get("ids") or [None]
    return ids[0] if isinstance(ids[0], int) else None


def _declared_ends(folder: Path, overrides: Mapping[str, Any] | None) -> Iterator[tuple[int, str]]:
    has_config = (folder / CONFIG_NAME).is_file()
    objects = {
        "generation_config.json": _json(folder / "generation_config.json"),
        CONFIG_NAME: read_object(folder, overrides) if has_config else {},
    }
    for name, declared in objects.items():
        value = declared.get("eos_token_id")
        yield from ((token, name) for token in (value if isinstance(value, list) else [value]) if type(token) is int)


def _content(token: object) -> str:
    """Return the text of a token in tokenizer_config.json: a string, or an object with `content`."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _template(folder: Path, settings: dict[str, Any]) -> str | None:
    beside = read_template(folder / "chat_template.jinja")
    if beside is not None:
        return beside
    found = settings.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
    if isinstance(found, list):
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None
