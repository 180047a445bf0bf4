"""The rings against ZeroMQ: `make bench-ring`, `tokenspeed bench-ring`."""

from tokenspeed_tools.bench_ring.command import main

__all__ = ["main"]
