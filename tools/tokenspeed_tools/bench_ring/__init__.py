"""The rings against ZeroMQ: `make bench-ring`."""
