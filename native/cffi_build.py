"""Builds `tokenspeed._native` from the C ABI in `include/tokenspeed.h` and the sources listed here."""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

NATIVE = Path(__file__).resolve().parent
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
    "native/src/waiter.cpp",
    "native/src/waiter_abi.cpp",
    "native/src/waiter_driver.cpp",
]
HEADERS = sorted(str(path.relative_to(NATIVE.parent)) for path in NATIVE.glob("**/*.h"))
FLAGS = ["-std=c++20", "-O2", "-g1", "-fvisibility=hidden", "-Wall", "-Wextra"]
if os.environ.get("TS_WERROR") == "1":  # in `make check` only: another compiler may warn of something new
    FLAGS.append("-Werror")


def abi_text() -> str:
    """Return the declarations between the two markers of the header."""
    header = (NATIVE / "include" / "tokenspeed.h").read_text()
    return header.split("/* cffi: begin */")[1].split("/* cffi: end */")[0]


ffibuilder = FFI()
ffibuilder.cdef(abi_text())
ffibuilder.set_source(
    "tokenspeed._native",
    '#include "tokenspeed.h"',
    sources=SOURCES,
    depends=HEADERS,
    include_dirs=["native/include", "native/src"],
    extra_compile_args=FLAGS,
    libraries=["dl"],  # before glibc 2.34 dlopen is not part of libc
    source_extension=".cpp",
    py_limited_api=True,
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
)
