"""Which keys are valid, and whose they are.

Owns digests of the keys; a key itself is not kept beyond the configuration. A key belongs to a
tenant: its name in "NAME:KEY", else one of its own. It does not know requests or routes.

Invariant: the time of `tenant` does not depend on which key came near, and no error shows a key.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from pathlib import Path

from tokenspeed.config import Secret
from tokenspeed.errors import StartError

_FORM = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]{1,64}):)?(?P<key>[!-9;-~]{1,512})")

log = logging.getLogger("tokenspeed.server")


class Keyring:
    """The keys of a server: `given` ones and those in `path`, one a line; `#` begins a comment."""

    def __init__(self, given: tuple[Secret, ...] = (), path: str | None = None) -> None:
        """Raise `StartError` if a key is malformed or the file cannot be read."""
        self._given = [_entry(secret.value, "a key that was given") for secret in given]
        self._path = path
        self._entries = self._given + self._read()
        if path is not None and not self._entries:
            raise StartError(f"{path} has no key; write one a line, or start without --api-key-file.")

    def __bool__(self) -> bool:
        return bool(self._entries)

    def reload(self) -> None:
        """Read the file again; if that fails, the old keys stay and the log says why."""
        try:
            entries = self._given + self._read()
        except StartError as error:
            log.error("the keys stay as they are: %s", error)
            return
        if not entries:
            log.error("the keys stay as they are: %s has none", self._path)
            return
        self._entries = entries
        log.info("%d keys are valid", len(entries))

    def tenant(self, key: bytes) -> str | None:
        """Return the tenant of `key`, None if it is not valid. Every key is compared."""
        digest = hashlib.sha256(key).digest()
        found = None
        for known, tenant in self._entries:
            if hmac.compare_digest(known, digest):
                found = tenant
        return found

    def _read(self) -> list[tuple[bytes, str]]:
        if self._path is None:
            return []
        try:
            lines = Path(self._path).read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not plain ASCII"
            raise StartError(f"The keys in {self._path} cannot be read: {why}.") from None
        return [
            _entry(line.strip(), f"line {number} of {self._path}")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]


def _entry(text: str, where: str) -> tuple[bytes, str]:
    """Return the digest of a key and its tenant; `where` stands for the key in an error."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise StartError(
            f"{where} is no key: a key is 1 to 512 printable ASCII characters without blank and colon, and may have a "
            "name before it, as in NAME:KEY."
        )
    digest = hashlib.sha256(found["key"].encode()).digest()
    return digest, f"name:{found['name']}" if found["name"] else f"key:{digest.hex()}"
