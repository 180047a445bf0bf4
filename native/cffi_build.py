"""Builds the two native modules from their C ABIs in `include/` and the sources listed here.

`tokenspeed._native` (rings, scheduler, waiter) and `tokenspeed_kernels._native` (products on the CPU).
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).resolve().parent
KERNEL_SOURCES = [
    "native/src/cpu/matmul.cpp",
    "native/src/cpu/ops_avx2.cpp",
    "native/src/cpu/ops_avx512.cpp",
    "native/src/cpu/ops_portable.cpp",
    "native/src/cpu/pool.cpp",
    "native/src/cpu/rows.cpp",
    "native/src/cpu/step.cpp",
    "native/src/cpu/tile_avx2.cpp",
    "native/src/cpu/tile_avx512.cpp",
    "native/src/cpu/tile_scalar.cpp",
]
SOURCES = [
    "native/src/error.cpp",
    "native/src/ring_abi.cpp",
    "native/src/ring_reader.cpp",
    "native/src/ring_segment.cpp",
    "native/src/ring_writer.cpp",
    "native/src/scheduler/admission.cpp",
    "native/src/scheduler/api.cpp",
    "native/src/scheduler/audit.cpp",
    "native/src/scheduler/board.cpp",
    "native/src/scheduler/config.cpp",
    "native/src/scheduler/fair_queue.cpp",
    "native/src/scheduler/pages.cpp",
    "native/src/scheduler/planner.cpp",
    "native/src/scheduler/prefix_index.cpp",
    "native/src/scheduler/prefix_index_audit.cpp",
    "native/src/scheduler/recorder.cpp",
    "native/src/scheduler/replay.cpp",
    "native/src/scheduler/residency.cpp",
    "native/src/scheduler/room.cpp",
    "native/src/scheduler/scheduler.cpp",
    "native/src/scheduler/states.cpp",
    "native/src/trace.cpp",
    "native/src/trace_abi.cpp",
    "native/src/waiter.cpp",
    "native/src/waiter_abi.cpp",
    "native/src/waiter_driver.cpp",
]
HEADERS = sorted(str(path.relative_to(NATIVE.parent)) for path in NATIVE.glob("**/*.h"))
FLAGS = ["-std=c++20", "-O2", "-g1", "-fvisibility=hidden", "-Wall", "-Wextra"]
if os.environ.get("TS_WERROR") == "1":  # in `make check` only: another compiler may warn of something new
    FLAGS.append("-Werror")


def abi_text(header: str = "tokenspeed.h") -> str:
    """Return the declarations between the two markers of `header`."""
    text = (NATIVE / "include" / header).read_text()
    return text.split("/* cffi: begin */")[1].split("/* cffi: end */")[0]


def builder(module: str, header: str, sources: list[str], flags: list[str]) -> FFI:
    """Return the builder of one module."""
    made = FFI()
    made.cdef(abi_text(header))
    made.set_source(
        module,
        f'#include "{header}"',
        sources=sources,
        depends=HEADERS,
        include_dirs=["native/include", "native/src"],
        extra_compile_args=flags,
        extra_link_args=["-pthread"],
        libraries=["dl"],  # before glibc 2.34 dlopen is not part of libc
        source_extension=".cpp",
        py_limited_api=True,
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
    )
    return made


ffibuilder = builder("tokenspeed._native", "tokenspeed.h", SOURCES, FLAGS)
# Only what is written as a fused multiply-add is one: the instruction sets must come to the same bits.
kernel_flags = [*FLAGS, "-ffp-contract=off"]
kernels_ffibuilder = builder("tokenspeed_kernels._native", "tokenspeed_kernels.h", KERNEL_SOURCES, kernel_flags)
