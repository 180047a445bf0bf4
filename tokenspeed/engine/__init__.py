"""The engine as a Python object: `Engine` for synchronous callers, `AsyncEngine` for asyncio."""

from tokenspeed.engine.aio import AsyncEngine, EngineHealth
from tokenspeed.engine.stream import Output, Stream
from tokenspeed.engine.sync import Engine, Reply

__all__ = ["AsyncEngine", "Engine", "EngineHealth", "Output", "Reply", "Stream"]
