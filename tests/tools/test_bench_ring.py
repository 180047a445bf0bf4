"""The benchmark of the rings, in small: both transports carry every byte, and ratios are the right way up."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import uvloop

from tests.ipc.helpers import ring_files

pytest.importorskip("zmq", reason="ZeroMQ is what the rings are compared with")

from tokenspeed_tools.bench_ring.command import TESTS, TRANSPORTS, Round, run_round, summary
from tokenspeed_tools.bench_ring.exchange import Job
from tokenspeed_tools.bench_ring.ports import IN_FLIGHT_BYTES
from tokenspeed_tools.bench_ring.processes import Peer, Rig, Setup


def test_a_small_round_of_everything(tmp_path: Path) -> None:
    paths = (str(tmp_path / "there"), str(tmp_path / "back"))
    with (
        ring_files(IN_FLIGHT_BYTES) as there,
        ring_files(IN_FLIGHT_BYTES) as back,
        closing(Peer(Setup(there.fds(), back.fds(), there.capacity, *paths))) as peer,
    ):
        rig = Rig((there, back), paths)
        for test, size_bytes, _ in TESTS.values():
            for transport in TRANSPORTS:
                result = uvloop.run(run_round(rig, peer, Job(transport, test, size_bytes, messages=50, warmup=5)))
                assert result.messages_per_s > 0
                assert result.cpu_us_per_message > 0
                assert (result.p99_us >= result.p50_us > 0) == (test == "pingpong")


def test_ratios_are_of_medians() -> None:
    ring = [Round(messages, 1.0, 2.0, 3.0) for messages in (300.0, 900.0, 400.0)]
    zmq = [Round(100.0, 10.0, 8.0, 30.0)] * 3
    line = summary({name: {"ring": ring, "zmq": zmq} for name in TESTS})
    assert line["pingpong_p50_ratio_to_zmq"] == 0.25
    assert line["throughput_200b_ratio_to_zmq"] == 4.0
    assert line["throughput_200kb_ratio_to_zmq"] == 4.0
    assert line["zmq_pingpong_200b_p99_us"] == 30.0
    assert line["ring_throughput_200kb_cpu_s_per_million"] == 1.0
    assert line["rounds"] == 3
