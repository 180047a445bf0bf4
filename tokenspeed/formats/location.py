"""Where the weights are that a path means.

Owns the refusals that need no look into the weights: a path that is absent or empty, pickled
weights, a choice between several files. It reads no metadata. A model of random weights ("dummy")
needs no weights: its folder is described by config.json alone.

Invariant: a path returned exists, and is a .gguf file or a folder with a safetensors checkpoint (or
with config.json, where dummy weights were asked for).
"""

from __future__ import annotations

from pathlib import Path

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import MAGIC

CONFIG_NAME = "config.json"
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_FORMATS = "a folder with config.json and .safetensors files, or a .gguf file"


def weights_path(path: str | Path, *, dummy: bool = False) -> Path:
    """Return the .gguf file or the safetensors folder that `path` means, else raise `StartError`.

    With `dummy` a folder that has config.json needs no weights.
    """
    path = Path(path).expanduser()
    if dummy and (path / CONFIG_NAME).is_file():
        return path
    if not _exists(path):
        raise StartError(f"{path} does not exist; give {_FORMATS}, or the name of a model on the Hugging Face Hub.")
    if path.is_dir():
        return _weights_in(path)
    if not path.is_file():  # opening a pipe would wait for its writer
        raise StartError(f"{path} is neither a file nor a folder; give {_FORMATS}.")
    if path.suffix == ".gguf" or _begins_with_magic(path):
        return path
    if path.suffix == ".safetensors":
        raise StartError(f"{path} is one file of a checkpoint; give the folder that holds it: {path.parent}.")
    if path.suffix in PICKLED_SUFFIXES:
        raise StartError(_pickled(path, [path.name]))
    raise StartError(f"{path} is no checkpoint that can be read; give {_FORMATS}.")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error


def _weights_in(folder: Path) -> Path:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise StartError(f"{folder} cannot be read: {error.strerror}.") from error
    if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        return folder
    ggufs = [name for name in names if name.endswith(".gguf")]
    if len(ggufs) == 1:
        return folder / ggufs[0]
    if ggufs:
        raise StartError(f"{folder} holds {len(ggufs)} .gguf files; give one of them: {', '.join(ggufs)}.")
    if pickled := [name for name in names if name.endswith(PICKLED_SUFFIXES)]:
        raise StartError(_pickled(folder, pickled))
    seen = f"holds no weights (seen: {', '.join(names[:10])})" if names else "is empty"
    raise StartError(f"{folder} {seen}; give {_FORMATS}.")


def _pickled(path: Path, names: list[str]) -> str:
    return (
        f"{path} holds only pickled weights ({', '.join(names[:3])}), which can run code when read and are refused. "
        "Convert them where you trust them: AutoModelForCausalLM.from_pretrained(FOLDER)"
        ".save_pretrained(NEW, safe_serialization=True), and give the new folder."
    )


def _begins_with_magic(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}.") from error
