"""The engine as a Python object: `Engine` for synchronous callers, `AsyncEngine` for asyncio."""

from tokenspeed.engine.aio import AsyncEngine, EngineHealth
from tokenspeed.engine.batch import Batch
from tokenspeed.engine.reply import Output, Reply
from tokenspeed.engine.stream import Stream
from tokenspeed.engine.sync import Engine
from tokenspeed.observe.logs import set_up_logging

__all__ = ["AsyncEngine", "Batch", "Engine", "EngineHealth", "Output", "Reply", "Stream", "set_up_logging"]
