"""Which device an engine computes on, and what follows from it.

Owns the look for a GPU, by the driver's files alone: torch is not imported here, and no CUDA
context is made, which would hold memory in a process that computes nothing. How much memory the
device has is the executor's to find out.

Invariant: settings returned name a device that is there and a type that it computes in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenspeed.config import AUTO, DEVICE_DEFAULTS, DTYPES, DeviceSettings, EngineConfig, gpus_hidden
from tokenspeed.errors import StartError

# Containers show the nodes of the GPUs that they were given, and the control node with any of them.
NODES = (Path("/dev/nvidiactl"), Path("/dev/nvidia0"))
LIBRARY = "libcuda.so.1"


def device_settings(config: EngineConfig) -> DeviceSettings:
    """Return the device that `config` means and its settings; raises `StartError`."""
    defaults = DEVICE_DEFAULTS[_device(config.device)]
    asked = {
        "max_num_seqs": config.max_num_seqs,
        "chunked_prefill_size": config.chunked_prefill_size,
        "mixed_prefill_size": config.mixed_prefill_size,
        "dtype": None if config.dtype == AUTO else _dtype(config.dtype, defaults.name),
    }
    return msgspec.structs.replace(defaults, **{name: value for name, value in asked.items() if value is not None})


def gpu_fault(nodes: Sequence[Path] = NODES, library: str = LIBRARY) -> str:
    """Return why no NVIDIA GPU can be used from here, "" if one can."""
    if gpus_hidden():
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    if not any(node.exists() for node in nodes):
        return f"there is no {' and no '.join(map(str, nodes))}"
    try:
        ctypes.CDLL(library)
    except OSError:
        return f"{library} cannot be loaded"
    return ""


def _device(asked: str) -> str:
    if asked not in (AUTO, *DEVICE_DEFAULTS):
        raise StartError(f"device is {asked!r}; {AUTO}, {' and '.join(DEVICE_DEFAULTS)} are allowed.")
    if asked == "cpu":
        return asked
    fault = gpu_fault()
    if asked == "cuda" and fault:
        raise StartError(
            f"device is 'cuda', and this machine offers no NVIDIA GPU: {fault}. "
            "Install NVIDIA's driver (in a container: start it with access to the GPU), or choose device 'cpu'."
        )
    return "cpu" if fault else "cuda"


def _dtype(asked: str, device: str) -> str:
    asked = _OTHER_NAMES.get(asked, asked)
    if asked == "float16":
        raise StartError(
            "dtype is 'float16', whose numbers end at 65504: activations of current models pass that. Models stored "
            "in it are read and computed in another type: choose auto."
        )
    if asked not in DTYPES[device]:
        allowed = " and ".join(map(repr, DTYPES[device]))
        raise StartError(f"dtype is {asked!r}; the {_NAMES[device]} executor computes in {allowed} only.")
    return asked


_OTHER_NAMES = {"half": "float16", "float": "float32"}
_NAMES = {"cpu": "CPU", "cuda": "GPU"}
