"""The settings of `tokenspeed serve`: one table, from which everything that names them comes.

Owns each setting's name, form, words and place in the help. The parser, the variables TOKENSPEED_*,
the keys of `--config` files, `--print-config` and docs/flags.md are made of it. Types and defaults are
those of the field of the config struct. It does not know where a value comes from (`sources.py`).

To add a setting: a field with its default in a struct of `config.py`, and one `Setting` in `GROUPS`.

Invariant: a flag, a variable and a key of the same name mean the same and are read alike.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from tokenspeed.cli.parser import UNITS, context, endpoint, fraction, json_object, seconds, size, whole
from tokenspeed.config import (
    DEVICE_DEFAULTS,
    GPU_MEMORY_UTILIZATION_MAX,
    GPU_MEMORY_UTILIZATION_MIN,
    LOAD_FORMATS,
    LOG_FORMATS,
    LOG_LEVELS,
    ONE_VALUE,
    PREFIX,
    CommandConfig,
    EngineConfig,
    Secret,
    ServerConfig,
)


class Setting(NamedTuple):
    """One setting: the field `field` of its group's struct.

    `name` is the flag without dashes, where it is not the field's. `read` turns the text of a flag or
    variable into the value and raises `argparse.ArgumentTypeError` with what was seen and what is
    allowed; a field that is a bool needs none, one that is a tuple is read piece by piece. `spelled`:
    a number that a file may spell as text ("1.5G"). `unset` says what None, "" or auto comes to.
    A `secret` is never printed.
    """

    field: str
    help: str
    metavar: str = "TEXT"
    read: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    name: str = ""
    unset: str = ""
    spelled: bool = False
    secret: bool = False
    positional: bool = False


class Group(NamedTuple):
    """Settings of one struct under one heading; groups of the same title follow each other."""

    title: str
    config: type[msgspec.Struct]
    settings: tuple[Setting, ...]


def only(field: str) -> Callable[[str], object]:
    """Return a reader that takes the default of `field` alone and says why."""
    default = getattr(EngineConfig(), field)

    def read(text: str) -> object:
        if text != str(default):
            raise argparse.ArgumentTypeError(f"{text!r} is not supported: {ONE_VALUE[field]}")
        return default

    return read


def _by_device(name: str) -> str:
    return ", ".join(f"{getattr(defaults, name)} on {device}" for device, defaults in DEVICE_DEFAULTS.items())


MODEL = Group(
    "model",
    EngineConfig,
    (
        Setting(
            "model",
            "folder with safetensors, .gguf file, or name on the Hugging Face Hub: owner/name, owner/name:QUANT, "
            "owner/name/file.gguf",
            "MODEL",
            unset="the demo model",
            positional=True,
        ),
        Setting("served_model_name", "name in the API", "NAME", unset="from the path"),
        Setting(
            "device", "what computes", choices=("auto", *DEVICE_DEFAULTS), unset="auto: a GPU if there is one, else cpu"
        ),
        Setting(
            "dtype",
            "type computed in: auto, int8 (cpu), float32, bfloat16 (cuda)",
            "TYPE",
            unset=f"auto: {_by_device('dtype')}",
        ),
        Setting(
            "load_format",
            "what MODEL must be; dummy: random weights of the sizes in its config.json, for speed runs",
            choices=LOAD_FORMATS,
        ),
        Setting(
            "max_model_len",
            "longest context, prompt and reply together, such as 32768 or 32K; auto: what memory has room for",
            "TOKENS",
            context,
            unset="the model's",
            spelled=True,
        ),
        Setting("revision", "branch, tag or commit of MODEL on the Hub", "REVISION", unset="main"),
        Setting(
            "hf_overrides",
            "settings merged into MODEL's config.json, such as "
            """{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}""",
            "JSON",
            json_object,
            unset="none",
        ),
        Setting(
            "generation_config",
            "sampling of requests that leave it open: as MODEL recommends, neutral, or as generation_config.json "
            "in DIR says",
            "auto|vllm|DIR",
        ),
    ),
)

MEMORY = Group(
    "memory and scheduling",
    EngineConfig,
    (
        Setting("max_num_seqs", "requests computed at once", "N", whole(1, 4096), unset=_by_device("max_num_seqs")),
        Setting(
            "chunked_prefill_size",
            "prompt tokens per step",
            "TOKENS",
            whole(1, 1 << 20),
            unset=_by_device("chunked_prefill_size"),
        ),
        Setting(
            "mixed_prefill_size",
            "prompt tokens per step while replies are being decoded; bounds their pauses",
            "TOKENS",
            whole(1, 1 << 20),
            unset=_by_device("mixed_prefill_size"),
        ),
        Setting("overlap", "steps planned before the last one's result is back", "0|1", whole(0, 1)),
        Setting(
            "kv_cache_bytes",
            "memory of the KV cache, such as 512M or 2G",
            "SIZE",
            size,
            name="kv-cache-memory-bytes",
            unset="worked out",
            spelled=True,
        ),
        Setting(
            "gpu_memory_utilization",
            "share of a GPU's memory for weights, work and KV cache",
            "SHARE",
            fraction(GPU_MEMORY_UTILIZATION_MIN, GPU_MEMORY_UTILIZATION_MAX),
        ),
        Setting("enable_prefix_caching", "keep and share the KV of prompts"),
        Setting(
            "admission_growth_tokens",
            "tokens by which a running request is expected to grow when another wants in",
            "TOKENS",
            whole(0, 1 << 20),
        ),
    ),
)

HTTP = Group(
    "HTTP and Unix socket",
    ServerConfig,
    (
        Setting("host", "address to listen on, 0.0.0.0 for all", "ADDRESS"),
        Setting("port", "TCP port, 0 for a free one", "PORT", whole(0, 65535)),
        Setting("http", "open the HTTP port as well"),
        Setting("metrics", "answer /metrics for Prometheus"),
        Setting("vllm_metric_names", "tell metrics that vLLM has too under their vllm: names as well"),
        Setting(
            "otlp_traces_endpoint",
            "collector that a span of each request is sent to, http://HOST:4318/v1/traces; needs the extra otel",
            "URL",
            endpoint,
        ),
        Setting("socket", "path of the Unix socket", "PATH", unset="in the runtime folder"),
        Setting(
            "trust_request_chat_template",
            "honour chat templates that come with requests; they run in a process of their own",
        ),
    ),
)

ACCESS = Group(
    "access",
    ServerConfig,
    (
        Setting(
            "api_keys",
            "key that requests need, KEY or NAME:KEY; may be repeated; other users may see it for a moment: prefer "
            "--api-key-file or the variable",
            "KEY",
            Secret,
            name="api-key",
            secret=True,
        ),
        Setting("api_key_file", "file with keys, one on a line; read again on SIGHUP", "PATH"),
        Setting(
            "admin_key", "key for /flush_cache, /stats, /requests and, with keys, /metrics", "KEY", Secret, secret=True
        ),
        Setting("open_metrics", "/metrics without a key, for everybody"),
        Setting(
            "allowed_hosts",
            "name under which a server without keys may be asked too, * for all; may be repeated",
            "NAME",
        ),
        Setting(
            "allowed_origins", "web pages that may ask, https://chat.example, * for all; may be repeated", "ORIGIN"
        ),
    ),
)

LIMITS = (
    Group(
        "limits",
        ServerConfig,
        (
            Setting("request_bytes_max", "largest request body", "SIZE", size, name="max-request-bytes", spelled=True),
            Setting(
                "header_bytes_max", "all headers of a request", "SIZE", size, name="max-header-bytes", spelled=True
            ),
            Setting("json_depth_max", "levels of nesting in a body", "N", whole(8, 500), name="max-json-depth"),
            Setting("json_items_max", "values and names in a body", "N", whole(1, 1 << 30), name="max-json-items"),
            Setting("header_timeout_s", "seconds for a request's headers", "S", seconds, name="header-timeout"),
            Setting("body_timeout_s", "seconds between two pieces of a body", "S", seconds, name="body-timeout"),
            Setting(
                "write_timeout_s",
                "seconds in which a client may take nothing of its answer",
                "S",
                seconds,
                name="write-timeout",
            ),
            Setting(
                "idle_s_max",
                "seconds after which a connection that nobody uses is closed",
                "S",
                whole(1, 1 << 20),
                name="idle-timeout",
            ),
            Setting(
                "connections_max",
                "open connections",
                "N",
                whole(1, 1 << 20),
                name="max-connections",
                unset="what the limit of open files leaves room for, at most 16384",
            ),
        ),
    ),
    Group(
        "limits",
        EngineConfig,
        (
            Setting(
                "max_queued_requests", "requests that wait beside those computed; more get 503", "N", whole(0, 1 << 20)
            ),
            Setting("max_queued_bytes", "prompts of all open requests; more get 503", "SIZE", size, spelled=True),
        ),
    ),
)

OPERATION = (
    Group(
        "start and stop",
        ServerConfig,
        (
            Setting(
                "drain_timeout_s", "seconds that open requests have after SIGTERM", "S", seconds, name="drain-timeout"
            ),
            Setting("stop_with_stdin", "stop when standard input closes"),
        ),
    ),
    Group(
        "start and stop",
        EngineConfig,
        (
            Setting(
                "stall_limit_s",
                "seconds without a turn of its loop after which an actor is frozen",
                "S",
                seconds,
                name="stall-limit",
            ),
        ),
    ),
)

LOGGING = (
    Group(
        "logging",
        ServerConfig,
        (Setting("log_prompts", "log what users ask and what they are answered; else no text of theirs is logged"),),
    ),
    Group(
        "logging",
        CommandConfig,
        (
            Setting("log_level", "least level that is logged", choices=LOG_LEVELS),
            Setting("log_format", "text: a line for people; json: an object for programs", choices=LOG_FORMATS),
            Setting("quiet", "no banner, and progress on a terminal alone"),
        ),
    ),
)

COMPATIBLE = Group(
    "names that others know, with the one value that they have here",
    EngineConfig,
    (
        Setting("tensor_parallel_size", "devices that share a model", "1", only("tensor_parallel_size")),
        Setting("kv_cache_dtype", "type of keys and values", "auto", only("kv_cache_dtype")),
        Setting("quantization", "how weights are quantised", "auto", only("quantization")),
        Setting("attention_backend", "kernels for attention", "auto", only("attention_backend")),
    ),
)

GROUPS = (MODEL, MEMORY, HTTP, ACCESS, *LIMITS, *OPERATION, *LOGGING, COMPATIBLE)

# Names that others know and this server has not, with what to do instead.
_NO_EXPERTS = "no model with experts is supported; leave it out, docs/models.md lists what is known"
_NO_TOOLS = "tool calls are not parsed, and requests with tools are refused; leave it out"
REFUSED = {
    "model": "MODEL is given without a flag: tokenspeed serve MODEL",
    "trust-remote-code": "code of a checkpoint is never run; leave it out, docs/models.md lists what is known",
    "enable-expert-parallel": _NO_EXPERTS,
    "moe-backend": _NO_EXPERTS,
    "reasoning-parser": "a reply is given as the model writes it, thoughts included; leave it out",
    "tool-call-parser": _NO_TOOLS,
    "enable-auto-tool-choice": _NO_TOOLS,
}


class Option(NamedTuple):
    """A setting where it stands: with the names that its sources give it, its type and its default."""

    setting: Setting
    group: Group
    kind: type
    kinds_toml: tuple[type, ...]
    default: object

    @property
    def name(self) -> str:
        """The key in a file: `max-model-len`."""
        return self.setting.name or self.setting.field.replace("_", "-")

    @property
    def flag(self) -> str:
        """What stands on the command line."""
        return self.setting.metavar if self.setting.positional else f"--{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable: `TOKENSPEED_MAX_MODEL_LEN`."""
        return PREFIX + self.name.replace("-", "_").upper()

    @property
    def told_default(self) -> str:
        """The default in words: "auto: a GPU if there is one", "32M", "on"."""
        value = self.default
        if self.setting.unset:
            return self.setting.unset
        if isinstance(value, bool):
            return "on" if value else "off"
        if self.setting.spelled and isinstance(value, int):
            return next((f"{value // size}{unit}" for size, unit in _SIZES if value % size == 0), str(value))
        return "none" if value in (None, "", (), {}) else str(value)


_SIZES = tuple((size, unit) for unit, size in reversed(UNITS.items()) if unit)


def options() -> Iterator[Option]:
    """Yield every setting, in the order of the help."""
    for group in GROUPS:
        hints = get_type_hints(group.config)
        default = msgspec.structs.fields(group.config)
        defaults = {field.name: field for field in default}
        for setting in group.settings:
            kind, toml = _types(hints[setting.field], setting.spelled)
            field = defaults[setting.field]
            value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield Option(setting, group, kind, toml, value)


_TOML: dict[type, tuple[type, ...]] = {float: (int, float), tuple: (list,)}


def _types(hint: object, spelled: bool) -> tuple[type, tuple[type, ...]]:
    """Return the type of a field that is not None, and the types of TOML that stand for it."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not types.NoneType]
        found = [_types(part, spelled) for part in parts]
        return found[0][0], tuple(dict.fromkeys(kind for _, kinds in found for kind in kinds))
    kind = str if get_origin(hint) is Literal else get_origin(hint) or hint
    assert isinstance(kind, type)
    toml = _TOML.get(kind, (kind if kind in (bool, int, str, dict) else str,))
    return kind, (*toml, str) if spelled else toml
