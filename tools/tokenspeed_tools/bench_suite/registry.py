"""All parts of the suite, in the order in which they run: cheap ones first."""

from __future__ import annotations

from tokenspeed_tools.bench_suite.part import Part
from tokenspeed_tools.bench_suite.parts import demo, kernels, messages, plan, ring, start, text

PARTS: tuple[Part, ...] = (ring.PART, plan.PART, text.PART, messages.PART, kernels.PART, start.PART, demo.PART)


def chosen(names: str) -> list[Part]:
    """Return the parts that `names` lists with commas, all if it is empty.

    Raises `ValueError` for a name that is not known.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [part.name for part in PARTS]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ValueError(f"no part is named {', '.join(unknown)}; there are {', '.join(known)}")
    return [part for part in PARTS if not wanted or part.name in wanted]
