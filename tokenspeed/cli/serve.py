"""`tokenspeed serve [MODEL]`: serve a model until a signal ends it.

Owns the options, the order of start (port, engine, banner, load) and the exit codes: 0 drained,
1 start failed, 2 wrong usage, 3 engine lost, 128 + N cut by a second signal N.

Invariant: the port is bound before a byte of weights is read, and no socket file stays behind.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenspeed.cli.parser import Parser, context, fraction, json_object, seconds, size, whole
from tokenspeed.cli.screen import Screen
from tokenspeed.config import (
    DEVICE_DEFAULTS,
    GPU_MEMORY_UTILIZATION_MAX,
    GPU_MEMORY_UTILIZATION_MIN,
    LOAD_FORMATS,
    EngineConfig,
    ServerConfig,
    seconds_since_make,
)
from tokenspeed.demo import ABSENT, find_demo
from tokenspeed.errors import StartError

if TYPE_CHECKING:
    from tokenspeed.server.ports import EngineLike

START_FAILED = 1
LEVELS = ("debug", "info", "warning", "error")

# What makes an engine: `tokenspeed.engine.AsyncEngine` has this face.
MakeEngine = Callable[..., "EngineLike"]


def main(argv: list[str], make_engine: MakeEngine | None = None) -> int:
    """Run the command and return its exit code; `make_engine` stands in for `AsyncEngine`."""
    begun_s = time.monotonic()
    options = parser().read(argv)
    screen = Screen(sys.stderr, options.quiet)
    if options.model is None and make_engine is None and find_demo() is None:
        screen.complain(ABSENT)
        return START_FAILED
    from tokenspeed.engine import set_up_logging

    set_up_logging("serve", logging.getLevelNamesMapping()[options.log_level.upper()])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        return _serve(options, screen, begun_s, make_engine)
    except StartError as error:
        screen.complain(f"tokenspeed serve: {error}")
        return START_FAILED


def parser() -> Parser:
    """Return the parser of the command's options."""
    reader = Parser("tokenspeed serve", "Serve a model over HTTP and a Unix socket.", "[MODEL]")
    reader.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder with safetensors, .gguf file, or name on the Hugging Face Hub: "
        "owner/name, owner/name:QUANT, owner/name/file.gguf (default: the demo model)",
    )
    _add_engine_options(reader.add_argument_group("engine"))
    _add_server_options(reader.add_argument_group("server"))
    return reader


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Return what `options` ask of the engine."""
    return EngineConfig(**{name: getattr(options, name) for name in EngineConfig.__struct_fields__})


def server_config(options: argparse.Namespace) -> ServerConfig:
    """Return what `options` ask of the doors."""
    named = {name: getattr(options, name) for name in ServerConfig.__struct_fields__ if hasattr(options, name)}
    return ServerConfig(**named)


def _add_engine_options(add: argparse._ArgumentGroup) -> None:
    default = EngineConfig()
    add.add_argument("--served-model-name", metavar="NAME", help="name in the API (default: from the path)")
    add.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default=default.device, help="(auto: a GPU if there is one)"
    )
    add.add_argument(
        "--dtype",
        default=default.dtype,
        metavar="TYPE",
        help="type computed in: auto, float32, bfloat16 (auto: float32 on the CPU, bfloat16 on a GPU)",
    )
    add.add_argument("--revision", metavar="REVISION", help="branch, tag or commit of MODEL on the Hub (default: main)")
    add.add_argument(
        "--hf-overrides",
        type=json_object,
        default=default.hf_overrides,
        metavar="JSON",
        help="settings merged into MODEL's config.json, such as "
        """'{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}'""",
    )
    add.add_argument(
        "--generation-config",
        default=default.generation_config,
        metavar="auto|vllm|DIR",
        help="sampling of requests that leave it open: as MODEL recommends, neutral, or as generation_config.json "
        "in DIR says (%(default)s)",
    )
    add.add_argument(
        "--load-format",
        choices=LOAD_FORMATS,
        default=default.load_format,
        help="what MODEL must be; dummy: random weights of the sizes in its config.json, for speed runs",
    )
    add.add_argument(
        "--max-model-len",
        type=context,
        metavar="TOKENS",
        help="longest context, such as 32768 or 32K; auto: what memory has room for (default: the model's)",
    )
    add.add_argument(
        "--max-num-seqs",
        type=whole(1, 4096),
        metavar="N",
        help=f"requests computed at once ({_by_device('max_num_seqs')})",
    )
    add.add_argument(
        "--chunked-prefill-size",
        type=whole(1, 1 << 20),
        metavar="TOKENS",
        help=f"prompt tokens per step ({_by_device('chunked_prefill_size')})",
    )
    add.add_argument(
        "--mixed-prefill-size",
        type=whole(1, 1 << 20),
        metavar="TOKENS",
        help="prompt tokens per step while replies are being decoded; bounds their pauses "
        f"({_by_device('mixed_prefill_size')})",
    )
    add.add_argument(
        "--overlap",
        type=whole(0, 1),
        default=default.overlap,
        metavar="0|1",
        help="steps planned before the last one's result is back (%(default)s)",
    )
    add.add_argument(
        "--kv-cache-memory-bytes",
        dest="kv_cache_bytes",
        type=size,
        metavar="SIZE",
        help="memory of the KV cache, such as 512M or 2G (default: worked out)",
    )
    add.add_argument(
        "--gpu-memory-utilization",
        type=fraction(GPU_MEMORY_UTILIZATION_MIN, GPU_MEMORY_UTILIZATION_MAX),
        default=default.gpu_memory_utilization,
        metavar="SHARE",
        help="share of a GPU's memory for weights, work and KV cache (%(default)s)",
    )
    add.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=default.enable_prefix_caching,
        help="keep and share the KV of prompts (on)",
    )
    add.add_argument(
        "--admission-growth-tokens",
        type=whole(0, 1 << 20),
        default=default.admission_growth_tokens,
        metavar="TOKENS",
        help="tokens by which a running request is expected to grow when another wants in",
    )
    add.add_argument(
        "--stall-limit",
        dest="stall_limit_s",
        type=seconds,
        default=default.stall_limit_s,
        metavar="S",
        help="seconds without a turn of its loop after which an actor is frozen (%(default)s)",
    )


def _by_device(name: str) -> str:
    return ", ".join(f"{getattr(defaults, name)} on {device}" for device, defaults in DEVICE_DEFAULTS.items())


def _add_server_options(add: argparse._ArgumentGroup) -> None:
    default = ServerConfig()
    add.add_argument("--host", default=default.host, help="address to listen on, 0.0.0.0 for all (%(default)s)")
    add.add_argument(
        "--port", type=whole(0, 65535), default=default.port, help="TCP port, 0 for a free one (%(default)s)"
    )
    add.add_argument(
        "--drain-timeout",
        dest="drain_timeout_s",
        type=seconds,
        default=default.drain_timeout_s,
        metavar="S",
        help="seconds that open requests have after SIGTERM (%(default)s)",
    )
    add.add_argument(
        "--max-request-bytes",
        dest="request_bytes_max",
        type=size,
        default=default.request_bytes_max,
        metavar="SIZE",
        help="largest request body (32M)",
    )
    add.add_argument(
        "--http", action=argparse.BooleanOptionalAction, default=default.http, help="open the HTTP port as well (on)"
    )
    add.add_argument("--socket", metavar="PATH", help="path of the Unix socket (default: in the runtime folder)")
    add.add_argument(
        "--stop-with-stdin",
        action="store_true",
        default=default.stop_with_stdin,
        help="stop when standard input closes",
    )
    add.add_argument("--log-level", choices=LEVELS, default="info", help="least level that is logged (%(default)s)")
    add.add_argument("--quiet", action="store_true", help="no banner, and progress on a terminal alone")


def _serve(options: argparse.Namespace, screen: Screen, begun_s: float, make_engine: MakeEngine | None) -> int:
    config = server_config(options)
    with contextlib.ExitStack() as kept:
        http = None
        if config.http:
            from tokenspeed.server.bind import bind

            http = kept.enter_context(bind(config.host, config.port))
        return _serve_on(http, config, options, screen, begun_s, make_engine)


def _serve_on(
    http: socket.socket | None,
    config: ServerConfig,
    options: argparse.Namespace,
    screen: Screen,
    begun_s: float,
    make_engine: MakeEngine | None,
) -> int:
    if make_engine is None:
        from tokenspeed.engine import AsyncEngine

        make_engine = AsyncEngine
    engine = make_engine(engine_config(options), on_event=screen.progress)
    from tokenspeed.cli.banner import greet, tell_ready
    from tokenspeed.server.service import Service, Sockets, run_service
    from tokenspeed.server.unix import bind_unix

    sockets = Sockets(http, *bind_unix(config.socket))
    greet(screen, engine, config, sockets)

    async def on_ready() -> None:
        await tell_ready(screen, engine, sockets, time.monotonic() - begun_s)
        if (make_s := seconds_since_make()) is not None:
            screen.say(f"first token {make_s:.1f} s after make began")

    return run_service(lambda: Service(engine, config, sockets, on_ready))
