"""The sampling defaults that come with a checkpoint.

Owns the reading of generation_config.json and of GGUF's keys of the same meaning. Of the file's many
settings those are read that a request can set; `max_new_tokens` is none of them, as a reply may be as
long as the context allows, and `do_sample` neither: a request that wants greedy ids says temperature 0.

Invariant: values returned are in the ranges that a request's must be in.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tokenspeed.errors import StartError, UserError
from tokenspeed.formats.gguf import GgufFile, read_gguf
from tokenspeed.formats.location import weights_path
from tokenspeed.generation import GenerationDefaults

NAME = "generation_config.json"
AUTO, NONE = "auto", "vllm"  # the second by the name that it has there

_GGUF = {
    "temperature": ("temp", float),
    "top_k": ("top_k", int),
    "top_p": ("top_p", float),
    "min_p": ("min_p", float),
    "repetition_penalty": ("penalty_repeat", float),
}


def read_generation_defaults(path: str | Path, choice: str = AUTO, *, dummy: bool = False) -> GenerationDefaults:
    """Return the defaults of the checkpoint at `path`; raises `StartError`.

    `choice` "auto" takes those that lie with it, if there are any, "vllm" none; anything else is a
    folder with a generation_config.json.
    """
    if choice == NONE:
        return GenerationDefaults()
    if choice != AUTO:
        return _of_folder(Path(choice).expanduser(), needed=True)
    weights = weights_path(path, dummy=dummy)
    return _of_folder(weights, needed=False) if weights.is_dir() else _of_gguf(read_gguf(weights))


def _of_folder(folder: Path, *, needed: bool) -> GenerationDefaults:
    path = folder / NAME
    if not path.is_file():
        if needed:
            raise StartError(f"generation_config is {folder}, which has no {NAME}; give a folder, {AUTO} or {NONE}.")
        return GenerationDefaults()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=GenerationDefaults)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise StartError(f"{path} is damaged ({error}): mend it, or start with generation_config {NONE}.") from error
    return _checked(path, found, NAME)


def _of_gguf(file: GgufFile) -> GenerationDefaults:
    found = {name: file.get(f"general.sampling.{key}", kind) for name, (key, kind) in _GGUF.items()}
    return _checked(file.path, GenerationDefaults(**found), "GGUF general.sampling")  # type: ignore[arg-type]


def _checked(path: Path, found: GenerationDefaults, source: str) -> GenerationDefaults:
    try:
        found.sampling().check()
    except UserError as error:
        raise StartError(f"{path}: {error.message} Mend it, or start with generation_config {NONE}.") from error
    return msgspec.structs.replace(found, source=source if found.values() else "")
