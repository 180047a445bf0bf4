"""The messages of a conversation: checked, and brought into the form that chat templates expect.

Knows the shapes that clients send (null content, content in parts, arguments as a JSON string, the
developer role) and nothing of any template. Fields it does not know pass through, in order.

Invariant: every message returned has a known `role`, which is trusted, and a string as `content`.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from tokenspeed.errors import UserError
from tokenspeed.text.trusted import trust

ROLES = ("system", "developer", "user", "assistant", "tool")
_ROLE = {role: trust(role) for role in ROLES}
PARTS_BETWEEN = "\n"


def read_messages(data: bytes, *, knows_developer: bool = False) -> list[dict[str, Any]]:
    """Return the messages in the JSON list `data`.

    Raises `UserError` whose `param` is the path of what is wrong, such as "messages[2].content".
    Without `knows_developer`, a developer's message is a system message.
    """
    try:
        messages = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _fail("messages", f"is not valid JSON: {error}")
    if not isinstance(messages, list):
        _fail("messages", f"is {_kind(messages)}; a list is needed")
    if not messages:
        _fail("messages", "is empty; at least one message is needed")
    return [_message(message, f"messages[{index}]", knows_developer) for index, message in enumerate(messages)]


def _message(message: object, path: str, knows_developer: bool) -> dict[str, Any]:
    if not isinstance(message, dict):
        _fail(path, f"is {_kind(message)}; an object with role and content is needed")
    role = message.get("role")
    if role not in ROLES:
        seen = "is missing" if role is None else f"is {msgspec.json.encode(role).decode()}"
        _fail(f"{path}.role", f"{seen}; allowed are {', '.join(ROLES)}")
    if "content" not in message and role != "assistant":
        _fail(f"{path}.content", "is missing; a string is needed")
    known: dict[str, Any] = {
        "role": _ROLE["system" if role == "developer" and not knows_developer else role],
        "content": _content(message.get("content"), f"{path}.content"),
    }
    if message.get("tool_calls") is not None:
        known["tool_calls"] = _tool_calls(message["tool_calls"], f"{path}.tool_calls")
    return {**message, **known}


def _content(content: object, path: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        _fail(path, f"is {_kind(content)}; a string, null or a list of text parts is needed")
    return PARTS_BETWEEN.join(_part(part, f"{path}[{index}]") for index, part in enumerate(content))


def _part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        _fail(path, f'is {_kind(part)}; an object such as {{"type": "text", "text": "..."}} is needed')
    if part.get("type") != "text":
        _fail(f"{path}.type", f'is {msgspec.json.encode(part.get("type")).decode()}; only "text" is supported')
    text = part.get("text")
    if not isinstance(text, str):
        _fail(f"{path}.text", f"is {_kind(text)}; a string is needed")
    return text


def _tool_calls(calls: object, path: str) -> list[object]:
    if not isinstance(calls, list):
        _fail(path, f"is {_kind(calls)}; a list is needed")
    return [_tool_call(call, f"{path}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: object, path: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        _fail(path, f"is {_kind(call)}; an object is needed")
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(arguments: object) -> object:
    """Return arguments as the object that templates walk through; what is no object stays as it is.

    A model's malformed call in the history must not end the session, so nothing is refused here.
    """
    if not isinstance(arguments, str):
        return arguments
    try:
        found = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _fail(path: str, what: str) -> NoReturn:
    raise UserError(f"{path} {what}.", param=path)
