"""What a model's maker recommends where a request leaves a sampling field open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokenspeed.sampling import SamplingParams


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Values for requests that leave the field out; None leaves it at that of `SamplingParams`.

    `source` tells where they come from, "" that there are none.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    source: str = ""

    def values(self) -> dict[str, Any]:
        """Return the values that are set, by field of `SamplingParams`."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    def fill(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is `asked`, without nulls, on top of these values."""
        return {**self.values(), **{name: value for name, value in asked.items() if value is not None}}

    def sampling(self) -> SamplingParams:
        """Return the settings of a request that asks for nothing."""
        return SamplingParams(**self.values())


FIELDS = tuple(name for name in GenerationDefaults.__struct_fields__ if name != "source")
