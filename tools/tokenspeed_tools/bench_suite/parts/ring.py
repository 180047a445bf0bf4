"""The ring between two processes, and ZeroMQ doing the same in the same rounds.

The measuring is that of `bench_ring`; what is added here is the form of a part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tokenspeed_tools.bench_suite.part import Kind, Measure, Part, Sizes, Values, rate_of, time_of

LARGE_BYTES = 200_000
OF_ZMQ = Kind("x of ZeroMQ", "higher", "none")


@contextlib.contextmanager
def prepare(sizes: Sizes) -> Iterator[Measure]:
    """Start the other process."""
    from tokenspeed_tools.bench_ring.command import rigged, run_tests

    with rigged() as (rig, peer):

        def measure(number: int) -> Values:
            found = {(name, kind): one for name, kind, one in run_tests(rig, peer, sizes["divisor"])}
            turn, turn_zmq = found["pingpong_200b", "ring"], found["pingpong_200b", "zmq"]
            small, small_zmq = (found["throughput_200b", kind].messages_per_s for kind in ("ring", "zmq"))
            large, large_zmq = (found["throughput_200kb", kind].messages_per_s for kind in ("ring", "zmq"))
            return {
                "round_trip_200b_us_p50": turn.p50_us,
                "round_trip_200b_us_p99": turn.p99_us,
                "round_trip_200b_cpu_us": turn.cpu_us_per_message,
                "one_way_200b_per_s": small,
                "one_way_200kb_gb_s": large * LARGE_BYTES / 1e9,
                "round_trip_200b_of_zmq": turn.p50_us / turn_zmq.p50_us,
                "one_way_200b_of_zmq": small / small_zmq,
                "one_way_200kb_of_zmq": large / large_zmq,
            }

        yield measure


PART = Part(
    name="ring",
    shows="a ring between two processes: round trip, rate, bandwidth, against ZeroMQ",
    about_s=20,
    rounds=7,
    sizes={"divisor": 1},
    figures={
        "round_trip_200b_us_p50": time_of("us", "wake"),
        "round_trip_200b_us_p99": time_of("us", "wake"),
        "round_trip_200b_cpu_us": time_of("us", "wake"),
        "one_way_200b_per_s": rate_of("messages/s", "work"),
        "one_way_200kb_gb_s": rate_of("GB/s", "work"),
        "round_trip_200b_of_zmq": OF_ZMQ._replace(better="lower"),
        "one_way_200b_of_zmq": OF_ZMQ,
        "one_way_200kb_of_zmq": OF_ZMQ,
    },
    prepare=prepare,
)
