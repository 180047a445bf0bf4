"""Checkpoints from the Hugging Face Hub, downloaded into its cache.

Owns the conversation with the Hub, through its library, which honours HF_TOKEN, HF_HOME,
HF_ENDPOINT and HF_HUB_OFFLINE; and one clear message for each way in which it fails. What the files
mean is not known here.

Invariant: a path returned is complete as far as the Hub told; where the Hub cannot be asked, it is
what the cache has.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

from tokenspeed.errors import StartError
from tokenspeed.formats.hub_name import HubName, needed_files

TIMEOUT_S = 30.0

# Hears how many bytes of how many are here; a total may grow while files are being opened.
Progress = Callable[[int, int], None]

logger = logging.getLogger(__name__)


def fetch(name: HubName, revision: str | None, load_format: str, progress: Progress) -> Path:
    """Return the folder or .gguf file of `name`, downloading what the cache lacks; raises `StartError`.

    `revision` is a branch, tag or commit, None the main branch. With `load_format` "dummy" weights
    are left out, with "gguf" those of other formats.
    """
    # Its import takes a third of a second, and most models lie here.
    import huggingface_hub
    from huggingface_hub import constants

    for client in ("httpx", "httpx2"):  # one line for each request
        logging.getLogger(client).setLevel(logging.WARNING)
    try:
        files = None if constants.HF_HUB_OFFLINE else _listed(name, revision)
        if files is None:
            folder = _cached(name, revision)
            files = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if file.is_file()]
            chosen = needed_files(name, files, load_format)
        else:
            chosen = needed_files(name, files, load_format)
            folder = Path(
                huggingface_hub.snapshot_download(
                    name.repo,
                    revision=revision,
                    allow_patterns=[re.sub(r"([*?\[])", r"[\1]", file) for file in chosen],
                    tqdm_class=_bar(progress),
                )
            )
    except StartError:
        raise
    except Exception as error:  # the library raises its own errors, those of its HTTP client, and OSError
        raise StartError(_reason(name, revision, error)) from error
    return folder / chosen[0] if chosen[0].endswith(".gguf") else folder


def _listed(name: HubName, revision: str | None) -> list[str] | None:
    """Return the files of the repository, None if the Hub cannot be reached."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        info = HfApi().model_info(name.repo, revision=revision, timeout=TIMEOUT_S)
    except (HfHubHTTPError, HFValidationError):
        raise
    except Exception as error:  # no route, no name, no answer in time: each HTTP client has its own
        logger.warning("The Hub does not answer (%s); %s is taken from the cache.", _first_line(error), name.repo)
        return None
    return [file.rfilename for file in info.siblings or []]


def _cached(name: HubName, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name.repo, revision=revision, local_files_only=True, allow_patterns=[]))


def _bar(progress: Progress) -> Any:
    """Return a progress bar that draws nothing and tells `progress`."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **settings: Any) -> None:
            settings |= {"file": StringIO(), "disable": False}
            super().__init__(*args, **settings)  # type: ignore[no-untyped-call]

        def display(self, msg: str | None = None, pos: int | None = None) -> bool:
            if self.unit == "B" and self.total:
                progress(int(self.n), int(self.total))
            return True

    return Bar


def _reason(name: HubName, revision: str | None, error: Exception) -> str:
    from huggingface_hub import constants, errors

    where = constants.ENDPOINT
    match error:
        case errors.GatedRepoError():
            return (
                f"{name.repo} is gated: accept its terms at {where}/{name.repo}, make a token at "
                f"{where}/settings/tokens, and set it as HF_TOKEN."
            )
        case errors.RepositoryNotFoundError():
            return (
                f"{name.repo} is neither a file or folder here nor a model that {where} shows: check its name; "
                "for a private one set HF_TOKEN."
            )
        case errors.RevisionNotFoundError():
            return f"{name.repo} has no revision {revision}: check its name, or leave the revision out."
        case errors.HFValidationError():
            return f"{name.repo} is neither a file or folder here nor a name that the Hub allows."
        case errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return (
                f"{name.repo} is not in the cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set: "
                "unset it, or download the model first."
            )
        case errors.LocalEntryNotFoundError():
            return (
                f"{name.repo} is no file or folder here and not in the cache {constants.HF_HUB_CACHE}, and {where} "
                "cannot be reached: check the path, or the network and its proxy; or copy the model here and give "
                "its folder."
            )
    return f"{name.repo} could not be downloaded from {where} ({_first_line(error)})."


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
