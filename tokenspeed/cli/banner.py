"""The words at a server's start: what is served, how, and what to type next.

Owns the wording. It reads the engine's description and its statistics, nothing else.

Invariant: the command line shown works as it is pasted.
"""

from __future__ import annotations

import msgspec

from tokenspeed import __version__
from tokenspeed.cli.screen import Screen, amount
from tokenspeed.config import ServerConfig
from tokenspeed.demo import ABOUT, find_demo
from tokenspeed.errors import TokenSpeedError
from tokenspeed.server.bind import url_of
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.service import Sockets

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def greet(screen: Screen, engine: EngineLike, config: ServerConfig, sockets: Sockets) -> None:
    """Tell what is about to be loaded, and where it will be served."""
    model, weights = engine.model, engine.checkpoint
    screen.say(f"TokenSpeed {__version__} serves {model.served_name}")
    if (demo := find_demo()) is not None and str(demo) == str(weights.path):
        for line in ABOUT:
            screen.say(f"  {line}")
    if model.load_format == "dummy":
        screen.say(f"  {weights.architecture}, random weights of the sizes in {weights.path}: its replies mean nothing")
    else:
        screen.say(
            f"  {weights.architecture}, {amount(weights.parameters)} parameters, "
            f"{amount(weights.weights_bytes, 'B')} of weights ({', '.join(weights.types)}) in {weights.path}"
        )
    device = "GPU" if engine.device.name == "cuda" else "CPU"
    screen.say(f"  computed on the {device} in {model.dtype}, context {model.max_model_len:,} tokens")
    if defaults := model.defaults.values():
        told = ", ".join(f"{name} {value:g}" for name, value in defaults.items())
        screen.say(f"  where a request does not say: {told} ({model.defaults.source})")
    if sockets.http is not None:
        screen.say(f"  {url_of(sockets.http)} (loading; /ready tells when)")
        if config.host not in LOOPBACK and not has_keys(config):
            screen.say(
                f"  warning: {config.host} can be reached from elsewhere, and no key protects it: --api-key-file"
            )
    screen.say(f"  {sockets.unix_path}")


def has_keys(config: ServerConfig) -> bool:
    """Return whether requests over HTTP need a key."""
    return bool(config.api_keys or config.api_key_file)


async def tell_ready(screen: Screen, engine: EngineLike, config: ServerConfig, sockets: Sockets, took_s: float) -> None:
    """Tell that requests are taken, how much the KV cache holds, and how to ask."""
    try:
        pages = (await engine.stats()).pages_total
        page_tokens = engine.device.page_tokens
        screen.say(f"KV cache: {pages:,} pages of {page_tokens} tokens, {pages * page_tokens:,} tokens in all")
    except TokenSpeedError as error:
        screen.say(f"KV cache: not known ({error})")
    for end in engine.ends:
        screen.say(f"replies end at {end.text} (id {end.id}: {', '.join(end.sources)})")
    screen.say(f"ready in {took_s:.1f} s")
    if sockets.http is not None:
        screen.say(f"\n{curl(url_of(sockets.http), engine.model.served_name, has_keys(config))}\n")


def curl(url: str, model: str, keyed: bool = False) -> str:
    """Return a command that asks the server at `url` something, if `keyed` with the key of the shell's variable."""
    message = {"role": "user", "content": "Say hello in one sentence."}
    body = msgspec.json.encode({"model": model, "messages": [message], "max_tokens": 64}).decode()
    quoted = body.replace("'", "'\\''")
    key = ' -H "Authorization: Bearer $TOKENSPEED_API_KEY"' if keyed else ""
    return f"curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{quoted}'"
