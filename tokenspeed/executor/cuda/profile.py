"""Which kernels the GPU runs, and when: torch's profiler for some seconds, on the engine's own clock.

Owns one run of the profiler. It slows the engine while it lasts, and starting it takes a second or
two the first time in a process. It does not know steps; the times tell which kernel belongs to which.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tokenspeed.kernel_slices import KernelSlice

_device_types: Any = torch.autograd.DeviceType  # type: ignore[attr-defined]  # torch does not say that it exports it


class KernelProfile:
    """The profiler from its construction to `stop`. One at a time in a process."""

    def __init__(self) -> None:
        """Begin to observe."""
        self._profile: Any = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
        self._profile.start()
        # What was observed is told in seconds of the epoch.
        self._monotonic_of_epoch_ns = time.monotonic_ns() - time.time_ns()

    def stop(self) -> list[KernelSlice]:
        """End; return what the GPU ran meanwhile, in the order of its begin."""
        torch.cuda.synchronize()
        self._profile.stop()
        events = self._profile.profiler.kineto_results.events()
        device = _device_types.CUDA
        slices = [self._slice(event) for event in events if event.device_type() == device and event.duration_ns() > 0]
        return sorted(slices, key=lambda each: each.begin_ns)

    def _slice(self, event: Any) -> KernelSlice:
        begin_ns = event.start_ns() + self._monotonic_of_epoch_ns
        return KernelSlice(event.name(), begin_ns, begin_ns + event.duration_ns(), event.device_resource_id())
