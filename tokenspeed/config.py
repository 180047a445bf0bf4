"""Every setting and its default, and the small frozen struct that each part is given.

Only this file reads the environment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tokenspeed.generation import GenerationDefaults

PAGE_TOKENS_CPU = 16
PAGE_TOKENS_CUDA = 64

GPU_MEMORY_UTILIZATION_MIN, GPU_MEMORY_UTILIZATION_MAX = 0.1, 0.98


class DeviceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What depends on the device: `name` is "cpu" or "cuda", `dtype` the type computed in.

    `max_num_seqs_max` is the largest batch that the device's kernels take.
    "int8" keeps matrices as the whole numbers of 4 or 8 bits that the checkpoint has, or rounds them to
    8 bits, and multiplies them with activations of 8 bits; all else is float32, as KV is.
    """

    name: str
    dtype: str
    page_tokens: int
    max_num_seqs: int
    max_num_seqs_max: int
    chunked_prefill_size: int
    mixed_prefill_size: int


DEVICE_DEFAULTS = {
    "cpu": DeviceSettings(
        name="cpu",
        dtype="int8",
        page_tokens=PAGE_TOKENS_CPU,
        max_num_seqs=32,
        max_num_seqs_max=4096,
        chunked_prefill_size=256,
        mixed_prefill_size=128,
    ),
    "cuda": DeviceSettings(
        name="cuda",
        dtype="bfloat16",
        page_tokens=PAGE_TOKENS_CUDA,
        max_num_seqs=128,
        max_num_seqs_max=1024,
        chunked_prefill_size=8192,
        mixed_prefill_size=2048,
    ),
}
DTYPES = {"cpu": ("int8", "float32"), "cuda": ("float32", "bfloat16")}
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")

PREFIX = "TOKENSPEED_"
# Variables of the prefix that are no settings: the Makefile's clock, the choice of kernels.
OTHER_VARIABLES = (f"{PREFIX}STARTED_AT", f"{PREFIX}KERNELS")
# What Kubernetes sets in every pod for a Service named tokenspeed or tokenspeed-something.
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?)"
)
_SERVICE_URL = re.compile(r"(tcp|udp|sctp)://")
# Of an activation, a key or a value; and of a weight, at most.
DTYPE_BYTES = {"int8": 4, "float32": 4, "bfloat16": 2}
WEIGHT_BYTES = {"int8": 2, "float32": 4, "bfloat16": 2}
LOAD_FORMATS = ("auto", "safetensors", "gguf", "dummy")
AUTO: Final = "auto"


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which checkpoint is served. `path` is a folder or a .gguf file.

    With `load_format` "dummy" its weights are not read: random ones take their place, and a folder
    needs nothing but config.json. `hf_overrides` are merged into config.json. `defaults` are for
    requests that leave a sampling field out.
    """

    path: str
    served_name: str
    dtype: str = "float32"
    max_model_len: int
    load_format: str = "auto"
    hf_overrides: dict[str, Any] = {}
    defaults: GenerationDefaults = GenerationDefaults()


class TokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the tokenizer actor.

    `piece_cache_bytes` bounds the ids kept of texts that were encoded, `reply_cache_bytes` those of
    replies as they were sampled.
    """

    model: ModelConfig
    piece_cache_bytes: int = 64 << 20
    reply_cache_bytes: int = 32 << 20
    template_chars_max: int = 4 << 20
    template_ms_max: int = 2_000
    threads: int = 2


class SchedulerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the scheduler actor and its native core."""

    max_model_len: int
    max_num_seqs: int = 32
    chunked_prefill_size: int = 256
    mixed_prefill_size: int = 128
    overlap: int = 1
    width: int = 1
    enable_prefix_caching: bool = True
    admission_growth_tokens: int = 128


class ExecutorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one executor rank. `kv_cache_bytes` bounds all pages of this rank.

    On "cuda", `kv_cache_bytes` 0 takes what weights and the largest step leave of the share
    `gpu_memory_utilization` of the device's memory; `enforce_eager` launches the kernels of a decode
    step one by one, where a graph would.
    `threads` 0 shares the cores among the ranks. With several ranks, `rendezvous` is a file that
    does not exist yet, in a folder of this user's, through which they find each other. `kernels`
    overrides the choice of kernels: "family=solution,family.mode=solution".
    """

    model: ModelConfig
    rank: int = 0
    ranks: int = 1
    device: str = "cpu"
    max_num_seqs: int = 32
    chunked_prefill_size: int = 256
    page_tokens: int = PAGE_TOKENS_CPU
    kv_cache_bytes: int = 1 << 30
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    threads: int = 0
    rendezvous: str = ""
    kernels: str = ""


class DetokenizerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the detokenizer actor."""

    model: ModelConfig


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may set; `None` and "auto" mean that the engine works it out.

    `model` is a folder, a .gguf file, or a name on the Hugging Face Hub, of which `revision` is a
    branch, tag or commit. `max_model_len` None is the model's own context, "auto" what memory has
    room for. `generation_config` is "auto", "vllm" (none) or a folder with a generation_config.json.
    At most `max_queued_requests` requests wait beside the `max_num_seqs` that are computed, and the
    prompts of all of them have at most `max_queued_bytes` bytes; more are refused.
    """

    model: str | None = None
    served_model_name: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    load_format: str = "auto"
    revision: str | None = None
    hf_overrides: dict[str, Any] = {}
    generation_config: str = "auto"
    max_model_len: int | Literal["auto"] | None = None
    max_num_seqs: int | None = None
    chunked_prefill_size: int | None = None
    mixed_prefill_size: int | None = None
    overlap: int = 1
    kv_cache_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    enable_prefix_caching: bool = True
    admission_growth_tokens: int = 128
    max_queued_requests: int = 1024
    max_queued_bytes: int = 512 << 20
    stall_limit_s: float = 5.0
    tensor_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    quantization: str = "auto"
    attention_backend: str = "auto"


# Settings that others know with many values and that have one here, with the reason and what to do.
ONE_VALUE = {
    "tensor_parallel_size": "a model is computed on one device; use 1, and a model that fits it",
    "kv_cache_dtype": "keys and values are kept in the type computed in; use auto, and --dtype to choose that",
    "quantization": "weights are used as the checkpoint has them; use auto, and a checkpoint quantised as wanted",
    "attention_backend": "kernels are chosen by device and shape; use auto",
}


class Secret(msgspec.Struct, frozen=True):
    """A key, "NAME:KEY" or "KEY"; shown as `***` wherever it is printed or logged."""

    value: str

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one HTTP request may take. An item of JSON is a value or a name.

    `header_timeout_s` is from a head's first byte to its last, `body_timeout_s` between two pieces of
    a body, `write_timeout_s` how long a client may take nothing of what is sent to it. `idle_s_max`
    closes a connection that nobody uses: longer than clients and proxies keep theirs.
    """

    request_bytes_max: int
    header_bytes_max: int
    json_depth_max: int
    json_items_max: int
    header_timeout_s: float
    body_timeout_s: float
    write_timeout_s: float
    idle_s_max: int


class AccessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in over HTTP.

    A key is "NAME:KEY" or "KEY"; keys of one name are one tenant. `api_key_file` has one a line and
    is read again on SIGHUP. Without keys, browsers and foreign names are turned away: `allowed_hosts`
    and `allowed_origins` let some in ("*": all). Admin routes exist over HTTP only with `admin_key`;
    with keys, so does `/metrics`, unless `open_metrics`.
    """

    api_keys: tuple[Secret, ...]
    api_key_file: str | None
    admin_key: Secret | None
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    open_metrics: bool


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the doors.

    `socket` is the path of the Unix socket; None puts it into `runtime_dir()`. Without `http` there
    is only that. `metrics` opens `/metrics`, where `vllm_metric_names` tells metrics that vLLM has too
    under its names as well. `otlp_traces_endpoint` is the URL that spans are sent to. `keep_alive_s`
    is the longest silence of an open stream.
    More connections than `connections_max` are turned away (None: what the limit of open files leaves
    room for). `trust_request_chat_template` honours templates that come with requests.
    `stop_with_stdin` ends the server when its standard input closes, so that it cannot outlive the
    one who started it.
    With `log_prompts` the log's line of a request holds the user's text.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    drain_timeout_s: float = 30.0
    http: bool = True
    metrics: bool = True
    vllm_metric_names: bool = False
    otlp_traces_endpoint: str | None = None
    socket: str | None = None
    keep_alive_s: float = 15.0
    stop_with_stdin: bool = False
    log_prompts: bool = False
    connections_max: int | None = None

    request_bytes_max: int = 32 << 20
    header_bytes_max: int = 64 << 10
    json_depth_max: int = 100
    json_items_max: int = 256 << 10
    header_timeout_s: float = 30.0
    body_timeout_s: float = 60.0
    write_timeout_s: float = 60.0
    idle_s_max: int = 120

    api_keys: tuple[Secret, ...] = ()
    api_key_file: str | None = None
    admin_key: Secret | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    open_metrics: bool = False
    trust_request_chat_template: bool = False

    @property
    def limits(self) -> RequestLimits:
        """The part of whoever reads requests."""
        return RequestLimits(**{name: getattr(self, name) for name in RequestLimits.__struct_fields__})

    @property
    def access(self) -> AccessConfig:
        """The part of whoever lets requests in."""
        return AccessConfig(**{name: getattr(self, name) for name in AccessConfig.__struct_fields__})


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever starts the server gets to read on standard error."""

    log_level: str = "info"
    log_format: str = "text"
    quiet: bool = False


def settings_environment() -> dict[str, str]:
    """Return the variables TOKENSPEED_* that are meant as settings; an empty one counts as not set."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PREFIX)
        and name not in OTHER_VARIABLES
        and value
        and not _SERVICE_LINK.fullmatch(name)
        and not (name.endswith("PORT") and _SERVICE_URL.match(value))
    }


def seconds_since_make() -> float | None:
    """Return the seconds since `make serve` began, which the Makefile notes; None without it."""
    try:
        return time.time() - float(os.environ.get("TOKENSPEED_STARTED_AT", ""))
    except ValueError:
        return None


class ServiceManager(msgspec.Struct, frozen=True):
    """systemd, if it started this process: where it listens, and the longest silence that it allows."""

    address: str = ""
    watchdog_s: float | None = None


SERVICE_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def service_manager() -> ServiceManager:
    """Return what systemd's variables say to this very process."""
    limit_us = os.environ.get("WATCHDOG_USEC", "")
    meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    watched = meant and limit_us.isdecimal() and int(limit_us) > 0
    return ServiceManager(os.environ.get("NOTIFY_SOCKET", ""), int(limit_us) / 1e6 if watched else None)


KEY_VARIABLES = (f"{PREFIX}API_KEY", f"{PREFIX}ADMIN_KEY")


def gpus_hidden() -> bool:
    """Return whether the environment hides every GPU from CUDA programs."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles")


def first_gpu() -> str:
    """Return the index or UUID of the GPU that CUDA programs see first."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()


def runtime_dir() -> Path:
    """Return the folder of control sockets: `$XDG_RUNTIME_DIR/tokenspeed`, else one in the temporary folder."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "tokenspeed" if base else Path(f"/tmp/tokenspeed-{os.getuid()}")


def child_environment(search_path: Sequence[str]) -> dict[str, str]:
    """Return this process's environment with `search_path` for a child's imports; "" stands for here.

    Keys stay behind, and what systemd says: no child needs them.
    Unless the user chose otherwise, OpenMP threads sleep between two pieces of work: on a machine
    whose cores are shared with other processes, spinning ones wait for each other's time slices.
    """
    return {
        "OMP_WAIT_POLICY": "passive",
        **{name: value for name, value in os.environ.items() if name not in (*KEY_VARIABLES, *SERVICE_VARIABLES)},
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in search_path),
    }
