"""Names on the Hugging Face Hub, and which files of a repository are needed.

Owns the grammar of a name (`owner/name`, `owner/name:QUANT`, `owner/name/file.gguf`) and the choice
among the files that a repository lists. It opens nothing and reaches no network: see `formats.hub`.

Invariant: files chosen are one safetensors checkpoint with its companions, or one whole GGUF file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from tokenspeed.errors import StartError
from tokenspeed.formats.location import CONFIG_NAME, PICKLED_SUFFIXES
from tokenspeed.formats.safetensors import INDEX_NAME

COMPANIONS = (
    CONFIG_NAME,
    INDEX_NAME,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
_NAME = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?P<file>.+\.gguf)|:(?P<quant>\w[\w.-]*))?")
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_OTHER_GGUF = ("mmproj", "imatrix")  # what lies beside a model's own files
_LOCAL = (".gguf", ".safetensors", *PICKLED_SUFFIXES)


class HubName(msgspec.Struct, frozen=True):
    """A repository, and at most one of a GGUF `file` in it or the quantisation that a file's name tells."""

    repo: str
    file: str = ""
    quant: str = ""


def hub_name(text: str) -> HubName | None:
    """Return what `text` names on the Hub, None if it can only be a path."""
    found = _NAME.fullmatch(text)
    if found is None or found["repo"].endswith(_LOCAL):
        return None
    return HubName(found["repo"], found["file"] or "", found["quant"] or "")


def needed_files(name: HubName, files: Sequence[str], load_format: str) -> list[str]:
    """Return which of the repository's `files` are needed; raises `StartError` that names what there is."""
    safetensors = _safetensors(files)
    if name.file or name.quant or load_format == "gguf" or not (safetensors or load_format == "dummy"):
        return [_gguf(name, files)]
    return [*(file for file in COMPANIONS if file in files), *(() if load_format == "dummy" else safetensors)]


def _safetensors(files: Sequence[str]) -> list[str]:
    """Return the weights at the top: those named "model" where there are some, as other sets may lie beside them."""
    top = [file for file in files if file.endswith(".safetensors") and "/" not in file]
    if "model.safetensors" in top:
        return ["model.safetensors"]
    return [file for file in top if file.startswith("model")] or top


def _gguf(name: HubName, files: Sequence[str]) -> str:
    models = [
        file
        for file in files
        if file.endswith(".gguf") and not PurePosixPath(file).name.lower().startswith(_OTHER_GGUF)
    ]
    found = [file for file in models if _fits(name, file)]
    if len(found) == 1 and not _PART.search(found[0]):
        return found[0]
    if found and all(_PART.search(file) for file in found):
        raise StartError(
            f"{name.repo} keeps {found[0]} in {len(found)} parts; download and join them: "
            "`llama-gguf-split --merge FIRST WHOLE.gguf`, then give the whole file."
        )
    raise StartError(_which(name, files, models))


def _fits(name: HubName, file: str) -> bool:
    if name.file:
        return file == name.file
    stem = file.removesuffix(".gguf")
    return not name.quant or bool(re.search(rf"(?:^|[-._/]){re.escape(name.quant)}(?:$|[-./])", stem, re.IGNORECASE))


def _which(name: HubName, files: Sequence[str], models: Sequence[str]) -> str:
    asked = name.file or name.quant
    if models:
        seen = f"has no one file for {asked}" if asked else f"holds {len(models)} .gguf files"
        return f"{name.repo} {seen}; give one of them: {', '.join(f'{name.repo}/{file}' for file in models)}."
    if not asked and any(file.endswith(PICKLED_SUFFIXES) for file in files):
        return f"{name.repo} holds only pickled weights, which can run code when read and are refused."
    return (
        f"{name.repo} holds no {'.gguf file' if asked else 'weights that can be read'} (seen: {', '.join(files[:10])})."
    )
