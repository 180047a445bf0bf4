"""Commands of the tools, for `tokenspeed COMMAND`: each takes its arguments and returns the exit code."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys


def bench_ring(argv: list[str]) -> int:
    """Compare the rings with ZeroMQ; the last line of the output is JSON."""
    argparse.ArgumentParser(prog="tokenspeed bench-ring", description=bench_ring.__doc__).parse_args(argv)
    if importlib.util.find_spec("zmq") is None:
        print("bench-ring: ZeroMQ is what is compared with: pip install pyzmq", file=sys.stderr)
        return 1
    return subprocess.run([sys.executable, "-m", "tokenspeed_tools.bench_ring"], check=False).returncode
