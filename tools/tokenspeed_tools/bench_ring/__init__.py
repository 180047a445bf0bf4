"""The ring against ZeroMQ: `python -m tokenspeed_tools.bench_ring`."""
