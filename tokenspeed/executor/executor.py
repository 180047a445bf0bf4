"""Which executor computes on which device.

Owns the choice. It does not know what an executor is made of; the parts of a device that is not
used are never imported.
"""

from __future__ import annotations

from importlib import import_module

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import StartError
from tokenspeed.executor.cpu import CpuExecutor
from tokenspeed.executor.face import Executor
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.model.loader import Progress


def load_executor(config: ExecutorConfig, progress: Progress, trace: Trace = NOWHERE) -> Executor:
    """Read the model and reserve everything on `config.device`; `progress` hears (phase, share done).

    What a step does is noted in `trace`.

    Blocks, and may run in another thread than the one that will use the executor. Raises
    `StartError` if the model cannot be read, is not supported or does not fit.
    """
    executor: Executor
    match config.device:
        case "cpu":
            executor = CpuExecutor.load(config, progress, trace)
        case "cuda":
            executor = import_module("tokenspeed.executor.cuda.executor").CudaExecutor.load(config, progress, trace)
        case device:
            raise StartError(f"The device is {device}; cpu and cuda are supported.")
    return executor
