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

from tokenspeed.cli.arguments import hide_argument
from tokenspeed.cli.parser import Parser, fraction, names, seconds, size, whole
from tokenspeed.cli.screen import Screen
from tokenspeed.config import (
    DEVICE_DEFAULTS,
    GPU_MEMORY_UTILIZATION_MAX,
    GPU_MEMORY_UTILIZATION_MIN,
    LOAD_FORMATS,
    EngineConfig,
    Secret,
    ServerConfig,
    key_from_environment,
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
    for secret in (*options.api_keys, options.admin_key):
        if secret is not None:
            hide_argument(secret.value)
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
        "model", nargs="?", metavar="MODEL", help="folder with safetensors, or .gguf file (default: the demo model)"
    )
    _add_engine_options(reader.add_argument_group("engine"))
    _add_server_options(reader.add_argument_group("server"))
    _add_access_options(reader.add_argument_group("access"))
    _add_limit_options(reader.add_argument_group("limits"))
    return reader


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Return what `options` ask of the engine."""
    return EngineConfig(**{name: getattr(options, name) for name in EngineConfig.__struct_fields__})


def server_config(options: argparse.Namespace) -> ServerConfig:
    """Return what `options` ask of the doors."""
    named = {name: getattr(options, name) for name in ServerConfig.__struct_fields__ if hasattr(options, name)}
    named["api_keys"] = tuple(options.api_keys) or _from_environment("TOKENSPEED_API_KEY")
    named["admin_key"] = options.admin_key or key_from_environment("TOKENSPEED_ADMIN_KEY")
    return ServerConfig(**named)


def _from_environment(variable: str) -> tuple[Secret, ...]:
    key = key_from_environment(variable)
    return (key,) if key else ()


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
        help="type computed in (auto: float32 on the CPU, bfloat16 on a GPU)",
    )
    add.add_argument(
        "--load-format",
        choices=LOAD_FORMATS,
        default=default.load_format,
        help="dummy: random weights of the sizes in MODEL's config.json, for speed runs",
    )
    add.add_argument(
        "--max-model-len", type=whole(1, 2**31 - 1), metavar="TOKENS", help="longest context (default: the model's)"
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
        "--max-queued-requests",
        type=whole(0, 1 << 20),
        default=default.max_queued_requests,
        metavar="N",
        help="requests that wait beside those computed; more get 503 (%(default)s)",
    )
    add.add_argument(
        "--max-queued-bytes",
        type=size,
        default=default.max_queued_bytes,
        metavar="SIZE",
        help="bytes of prompts of all open requests; more get 503 (512M)",
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


def _add_access_options(add: argparse._ArgumentGroup) -> None:
    default = ServerConfig()
    add.add_argument(
        "--api-key",
        dest="api_keys",
        type=Secret,
        action="append",
        default=[],
        metavar="KEY",
        help="key that requests need, may be repeated; others may see it: prefer --api-key-file or TOKENSPEED_API_KEY",
    )
    add.add_argument(
        "--api-key-file", metavar="PATH", help="file with keys, KEY or NAME:KEY on a line; SIGHUP rereads it"
    )
    add.add_argument(
        "--admin-key", type=Secret, metavar="KEY", help="key for /flush_cache, /stats and, with keys, /metrics"
    )
    add.add_argument(
        "--open-metrics",
        action="store_true",
        default=default.open_metrics,
        help="/metrics without a key, for everybody",
    )
    add.add_argument(
        "--allowed-hosts",
        type=names,
        default=default.allowed_hosts,
        metavar="NAME,...",
        help="names under which a server without keys may be asked, beside its address; * for all",
    )
    add.add_argument(
        "--allowed-origins",
        type=names,
        default=default.allowed_origins,
        metavar="ORIGIN,...",
        help="web pages that may ask, such as https://chat.example; * for all",
    )
    add.add_argument(
        "--trust-request-chat-template",
        action="store_true",
        default=default.trust_request_chat_template,
        help="honour templates that come with requests; they run in a process of their own",
    )


def _add_limit_options(add: argparse._ArgumentGroup) -> None:
    default = ServerConfig()
    add.add_argument(
        "--max-request-bytes",
        dest="request_bytes_max",
        type=size,
        default=default.request_bytes_max,
        metavar="SIZE",
        help="largest request body (32M)",
    )
    add.add_argument(
        "--max-header-bytes",
        dest="header_bytes_max",
        type=size,
        default=default.header_bytes_max,
        metavar="SIZE",
        help="all headers of a request (64K)",
    )
    add.add_argument(
        "--max-json-depth",
        dest="json_depth_max",
        type=whole(8, 500),
        default=default.json_depth_max,
        metavar="N",
        help="levels of nesting in a body (%(default)s)",
    )
    add.add_argument(
        "--max-json-items",
        dest="json_items_max",
        type=whole(1, 1 << 30),
        default=default.json_items_max,
        metavar="N",
        help="values and names in a body (%(default)s)",
    )
    for flag, dest, what in (
        ("--header-timeout", "header_timeout_s", "for a request's headers"),
        ("--body-timeout", "body_timeout_s", "between two pieces of a body"),
        ("--write-timeout", "write_timeout_s", "in which a client may take nothing of its answer"),
    ):
        add.add_argument(
            flag,
            dest=dest,
            type=seconds,
            default=getattr(default, dest),
            metavar="S",
            help=f"seconds {what} (%(default)s)",
        )
    add.add_argument(
        "--idle-timeout",
        dest="idle_s_max",
        type=whole(1, 1 << 20),
        default=default.idle_s_max,
        metavar="S",
        help="seconds after which a connection that nobody uses is closed (%(default)s)",
    )
    add.add_argument(
        "--max-connections",
        dest="connections_max",
        type=whole(1, 1 << 20),
        metavar="N",
        help="open connections (default: what the limit of open files leaves room for, at most 16384)",
    )


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
