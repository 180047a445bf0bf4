"""What a request says of the chat template: variables for it, or one of its own.

Owns the refusals. A template is a program, so a caller's is refused unless the server was started to
take them; variables are data, and always allowed. How either is rendered is not known here.

Invariant: no variable replaces what the engine itself gives a template.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokenspeed.errors import UserError
from tokenspeed.server.errors import shown

TAKEN = ("messages", "add_generation_prompt", "tools", "documents", "bos_token", "eos_token")
VARIABLES_MAX = 64
_KWARGS = "chat_template_kwargs"


def template_variables(given: Mapping[str, Any] | None) -> bytes:
    """Return `chat_template_kwargs` as JSON, b"" for none; raise `UserError` for a name that cannot be."""
    if not given:
        return b""
    if len(given) > VARIABLES_MAX:
        raise UserError(f"{_KWARGS} has {len(given)} entries; at most {VARIABLES_MAX} are allowed.", param=_KWARGS)
    for name in given:
        if not name.isidentifier():
            raise UserError(f"{_KWARGS} has the name {shown(name)!r}, which no template can read.", param=_KWARGS)
        if name in TAKEN:
            raise UserError(f"{_KWARGS}.{name} is given by the engine; leave it out.", param=f"{_KWARGS}.{name}")
    try:
        return msgspec.json.encode(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{_KWARGS} has a value that JSON cannot hold ({error}).", param=_KWARGS) from None


def request_template(given: str | None, trusted: bool) -> str:
    """Return the request's own template, "" for none; raise `UserError` if such are not taken."""
    if given and not trusted:
        raise UserError(
            "chat_template is a program, which this server does not take from requests; leave it out, or start the "
            "server with --trust-request-chat-template.",
            code="unsupported_parameter",
            param="chat_template",
        )
    return given or ""
