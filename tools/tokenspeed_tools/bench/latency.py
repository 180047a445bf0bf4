"""`bench latency`: one request at a time, all of one length.

Owns the options of this load. Each prompt is new, so that no cache shortens it.
"""

from __future__ import annotations

import argparse
from typing import Any

from tokenspeed.cli.parser import Parser, whole
from tokenspeed_tools.bench import serve
from tokenspeed_tools.bench.plan import Plan, Session
from tokenspeed_tools.bench.spans import Span
from tokenspeed_tools.bench.words import Calibration


def add_pace(reader: Parser) -> None:
    """Add how often."""
    add = reader.add_argument_group("pace").add_argument
    add("--repetitions", type=whole(1, 1 << 20), metavar="N", default=10, help="requests, one at a time (%(default)s)")


def add_options(reader: Parser) -> None:
    """Add what is sent."""
    serve.add_lengths(reader, Span(512, 512), Span(64, 64))
    reader.set_defaults(concurrency=1, prefix_tokens=0)


def plan(options: argparse.Namespace, calibration: Calibration) -> Plan:
    """Return the plan."""
    turns = serve.randoms(options, calibration, options.repetitions)
    return Plan([Session(index, [turn]) for index, turn in enumerate(turns)], 1)


def defaults(_options: argparse.Namespace) -> dict[str, Any]:
    """Return what stands for an option that was not given: nothing."""
    return {}
