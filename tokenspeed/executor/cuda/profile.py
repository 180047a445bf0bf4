"""Which kernels the GPU runs, and when: torch's profiler for some seconds, on the engine's own clock.

Owns one run of the profiler. It slows the engine while it lasts, and starting it takes a second or
two the first time in a process. It does not know steps; the times tell which kernel belongs to which.

The profiler's clock is its own guess of the host's, off by 0.1 ms or so. Probes tell by how much: small
kernels on a stream of their own, whose ends the host has seen as soon as it could.

Invariant: times of kernels are those of the steps' own points to within some microseconds.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tokenspeed.kernel_slices import KernelSlice

# torch has no types for these.
_cuda: Any = torch.cuda
_device_types: Any = torch.autograd.DeviceType  # type: ignore[attr-defined]  # torch does not say that it exports it

PROBES = 24
PROBE = "tril"  # in the name of a kernel that no model runs
QUERY_US = 8  # from the end of a kernel to a host that asks all the time, by the profiler's stamps; at best


class KernelProfile:
    """The profiler from its construction to `stop`. One at a time in a process."""

    def __init__(self) -> None:
        """Begin to observe."""
        self._profile: Any = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
        self._profile.start()

    def stop(self) -> list[KernelSlice]:
        """End; return what the GPU ran meanwhile, in the order of its begin."""
        known_ns = _probe()
        torch.cuda.synchronize()
        self._profile.stop()
        seen = sorted(self._seen(), key=lambda each: each.begin_ns)
        probes = [each for each in seen if PROBE in each.name]
        late_ns = min(known - each.end_ns for known, each in zip(known_ns, probes, strict=True)) - QUERY_US * 1000
        return [_shifted(each, late_ns) for each in seen if PROBE not in each.name]

    def _seen(self) -> list[KernelSlice]:
        """Return what was observed, on the profiler's clock."""
        events = self._profile.profiler.kineto_results.events()
        return [
            KernelSlice(
                event.name(), event.start_ns(), event.start_ns() + event.duration_ns(), event.device_resource_id()
            )
            for event in events
            if event.device_type() == _device_types.CUDA and event.duration_ns() > 0
        ]


def _probe() -> list[int]:
    """Run `PROBES` small kernels on a new stream; return when the host knew of the end of each, monotonic."""
    stream, event, known_ns = _cuda.Stream(priority=-1), _cuda.Event(), []
    with _cuda.stream(stream):
        target = torch.ones(8, 8, device="cuda")
        stream.synchronize()
        for _ in range(PROBES):
            target.tril_()
            event.record()
            while not event.query():
                pass
            known_ns.append(time.monotonic_ns())
    return known_ns


def _shifted(each: KernelSlice, by_ns: int) -> KernelSlice:
    return KernelSlice(each.name, each.begin_ns + by_ns, each.end_ns + by_ns, each.stream)
