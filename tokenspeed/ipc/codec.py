"""Messages to bytes and back, in MessagePack.

Owns the reused buffer of an encoder and the view types of a decoder. It does not know any message:
types come from `messages/`. A decoder gives every `bytes` field as a memoryview of the record it
came from, not as a copy, so such a message must not outlive the record: who needs bytes longer
copies them.

Invariant: decoding never copies an array, and a decoded message is an instance of the type that was
sent (of a subclass made here, whose `bytes` fields are views).
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

BUFFER_BYTES = 64 << 10


class Encoder:
    """Encodes one message after the other into the same memory."""

    __slots__ = ("_buffer", "_encode_into")

    def __init__(self) -> None:
        self._buffer = bytearray(BUFFER_BYTES)
        self._encode_into = msgspec.msgpack.Encoder().encode_into

    def encode(self, message: msgspec.Struct) -> bytearray:
        """Return the bytes of `message`: the same bytearray each time, valid until the next call."""
        self._encode_into(message, self._buffer)
        return self._buffer


class Decoder(Generic[T]):
    """Decodes messages of `kind`, a struct type or a union of struct types.

    `decode` raises `msgspec.DecodeError` for bytes that are no such message. With `views=False`
    bytes fields are copies: for a receiver that keeps its messages.
    """

    __slots__ = ("decode",)

    decode: Callable[[bytes | bytearray | memoryview], T]

    def __init__(self, kind: type[T] | types.UnionType, *, views: bool = True) -> None:
        self.decode = msgspec.msgpack.Decoder(view_type(kind) if views else kind).decode


def view_type(kind: Any) -> Any:
    """Return `kind` with `memoryview` in place of `bytes`, inside structs and containers too.

    A struct type that holds bytes becomes a subclass of itself, so `isinstance` and `match` see no
    difference; any other type is returned as it is.
    """
    if kind is bytes:
        return memoryview
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _view_struct(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is None or not arguments:
        return kind
    viewed = tuple(view_type(argument) for argument in arguments)
    if viewed == arguments:
        return kind
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, viewed)
    return origin[viewed]


@functools.cache
def _view_struct(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    hints = get_type_hints(kind)
    viewed = {name: view_type(hints[name]) for name in kind.__struct_fields__}
    if all(viewed[name] == hints[name] for name in viewed):
        return kind
    config = kind.__struct_config__
    # All fields again, in their order: one that is redefined alone would move to the end.
    fields = [_field(field, viewed[field.name]) for field in msgspec.structs.fields(kind)]
    return msgspec.defstruct(
        kind.__name__,
        fields,
        bases=(kind,),
        module=kind.__module__,
        tag=config.tag,
        tag_field=config.tag_field,
    )


def _field(field: msgspec.structs.FieldInfo, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.required:
        return (field.name, kind)
    if field.default is not msgspec.NODEFAULT:
        return (field.name, kind, field.default)
    return (field.name, kind, msgspec.field(default_factory=field.default_factory))
