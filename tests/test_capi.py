"""The border to the native library."""

from __future__ import annotations

import pytest

from tokenspeed import capi
from tokenspeed.errors import EngineError, StartError


def test_every_status_has_its_exception() -> None:
    names = [name for name in dir(capi.lib) if name.startswith("TS_ERR_")]
    assert len(names) == 10
    kinds = set()
    for name in names:
        with pytest.raises(capi.NativeError) as raised:
            capi.check(getattr(capi.lib, name))
        kinds.add(type(raised.value))
    assert len(kinds) == 10
    assert capi.NativeError not in kinds
    assert issubclass(capi.NativeError, EngineError)


def test_check_passes_what_is_no_error() -> None:
    assert capi.check(0) == 0
    assert capi.check(7) == 7


def test_the_message_is_that_of_the_library() -> None:
    with pytest.raises(capi.ArgumentError, match="ring capacity 5000: a power of two from 4096 to 1073741824"):
        capi.check(capi.lib.ts_ring_segment_bytes(5000))


def test_an_unknown_status_is_an_error_too() -> None:
    with pytest.raises(capi.NativeError):
        capi.check(-99)


def test_another_abi_version_is_refused() -> None:
    capi.check_version(capi.ABI_VERSION)
    with pytest.raises(StartError, match=r"ABI version 99, this package needs 5.*build_ext"):
        capi.check_version(99)
