"""The kernels that a step on the CPU spends its time in, with the demo model's shapes and all cores.

Weights are read once for all rows of a step, so a step of one row is as fast as memory, and one of
many rows as fast as arithmetic: the first is told in GB/s beside what a copy reaches, the other in
GMAC/s. Keys and values go the same way: read for each row when it decodes, shared by the queries of
a prompt's chunk. The fastest of a few repetitions counts: other work on the machine makes them
longer and never shorter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tokenspeed_tools.bench_suite.part import Kind, Measure, Part, Sizes, Values, rate_of


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Make weights and pages."""
    from tokenspeed_tools.bench_suite.step_kernels import StepKernels

    made = StepKernels(sizes)

    def measure(number: int) -> Values:
        return made.values(sizes["repeats"])

    yield measure


PART = Part(
    name="kernels",
    shows="products and attention of a step: GB/s where memory limits, GMAC/s where arithmetic does",
    about_s=25,
    rounds=7,
    sizes={"layers": 30, "context": 2048, "rows": 16, "chunk": 256, "repeats": 9},
    figures={
        "products_1_row_gb_s": rate_of("GB/s", "copy"),
        "products_1_row_of_copy": Kind("x of copy", "higher", "none"),
        "products_16_rows_gmac_s": rate_of("GMAC/s", "gemm"),
        "products_256_rows_gmac_s": rate_of("GMAC/s", "gemm"),
        "attention_16_rows_gb_s": rate_of("GB/s", "copy"),
        "attention_16_rows_of_copy": Kind("x of copy", "higher", "none"),
        "attention_chunk_gmac_s": rate_of("GMAC/s", "gemm"),
    },
    prepare=prepare,
)
