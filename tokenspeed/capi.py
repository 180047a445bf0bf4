"""The border to the native library: status codes become exceptions.

Owns the version check and the table from `ts_status` to exception class. It does not know what
rings or schedulers are: their faces in Python call `lib` themselves and hand each status to `check`.

Invariant: a negative status never gets lost; it ends in the exception of its kind.
"""

from __future__ import annotations

from typing import NoReturn

from tokenspeed.errors import EngineError, StartError

try:
    from tokenspeed._native import ffi, lib
except ImportError as error:
    raise StartError(
        f"the native library cannot be loaded ({error}): build it with `python setup.py build_ext --inplace`"
        " in a source tree, or reinstall the package"
    ) from error


__all__ = [
    "ABI_VERSION",
    "ArgumentError",
    "CapacityError",
    "CorruptMemoryError",
    "DuplicateIdError",
    "HandleClosedError",
    "IllegalEventError",
    "InvariantError",
    "NativeError",
    "NeverFitsError",
    "OutOfMemoryError",
    "UnknownIdError",
    "check",
    "check_version",
    "ffi",
    "lib",
    "raise_status",
]

ABI_VERSION = 5


class NativeError(EngineError):
    """A call into the native library failed."""

    code = "native_error"


class ArgumentError(NativeError):
    """An argument is out of its range."""


class IllegalEventError(NativeError):
    """The call is not allowed in this state; nothing has changed."""


class UnknownIdError(NativeError):
    """There is no such request, step or ticket."""


class DuplicateIdError(NativeError):
    """That id is in use."""


class NeverFitsError(NativeError):
    """No amount of waiting makes room for this."""


class CapacityError(NativeError):
    """A buffer of the caller is too small, or a ring is full."""


class CorruptMemoryError(NativeError):
    """Shared memory does not hold what it must."""


class HandleClosedError(NativeError):
    """The end that was called is closed."""


class InvariantError(NativeError):
    """An audit failed: a bug in the native library."""


class OutOfMemoryError(NativeError):
    """The allocator refused."""


_KINDS: dict[int, type[NativeError]] = {
    lib.TS_ERR_ARGUMENT: ArgumentError,
    lib.TS_ERR_ILLEGAL: IllegalEventError,
    lib.TS_ERR_UNKNOWN: UnknownIdError,
    lib.TS_ERR_DUPLICATE: DuplicateIdError,
    lib.TS_ERR_NEVER_FITS: NeverFitsError,
    lib.TS_ERR_CAPACITY: CapacityError,
    lib.TS_ERR_CORRUPT: CorruptMemoryError,
    lib.TS_ERR_CLOSED: HandleClosedError,
    lib.TS_ERR_INVARIANT: InvariantError,
    lib.TS_ERR_MEMORY: OutOfMemoryError,
}


def raise_status(status: int) -> NoReturn:
    """Raise the exception of `status`, which the call before on this thread has returned."""
    text = ffi.string(lib.ts_last_error())
    message = text.decode(errors="replace") if isinstance(text, bytes) else text
    raise _KINDS.get(status, NativeError)(message or f"native status {status}")


def check(status: int) -> int:
    """Return `status` unless it is negative: then raise its exception."""
    if status < 0:
        raise_status(status)
    return status


def check_version(found: int) -> None:
    """Refuse a library that was built from another header than this package knows."""
    if found != ABI_VERSION:
        raise StartError(
            f"the native library has ABI version {found}, this package needs {ABI_VERSION}: build it again with"
            " `python setup.py build_ext --inplace`, or reinstall the package"
        )


check_version(lib.ts_abi_version())
