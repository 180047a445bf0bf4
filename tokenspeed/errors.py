"""What can go wrong, and whose fault it is.

`UserError` is the caller's: it carries the HTTP status, a stable code and the name of the parameter.
`EngineError` is ours: the request may be sent again. A message says what was seen, what is allowed
and what to do. Both cross process borders as `ErrorInfo`.
"""

from __future__ import annotations

import msgspec


class ErrorInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An error on the wire. `status` below 500 means the caller's fault."""

    status: int
    code: str
    message: str
    param: str | None = None

    def exception(self) -> TokenSpeedError:
        """Return the exception that this describes."""
        kind = UserError if self.status < 500 else EngineError
        return kind(self.message, status=self.status, code=self.code, param=self.param)


class TokenSpeedError(Exception):
    """Base of every error that this package raises on purpose."""

    status = 500
    code = "internal_error"

    def __init__(
        self, message: str, *, status: int | None = None, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status if status is not None else type(self).status
        self.code = code if code is not None else type(self).code
        self.param = param

    def info(self) -> ErrorInfo:
        """Return the form that travels between processes."""
        return ErrorInfo(self.status, self.code, self.message, self.param)


class UserError(TokenSpeedError):
    """The request or the configuration is wrong; sending it again gives the same answer."""

    status = 400
    code = "invalid_request"


class EngineError(TokenSpeedError):
    """The engine failed a request that may be right."""


class StartError(TokenSpeedError):
    """The engine cannot start: the message names the cause and the mend."""

    code = "start_failed"


DEATHS_MAX = 3


def fatal_request(deaths: int) -> EngineError:
    """Return the end of a request that an actor had in hand each of `deaths` times that one died in a row."""
    text = (
        f"The engine's processes died {deaths} times in a row while they worked on this request; it is not tried again."
    )
    return EngineError(text, code="fatal_request")
