"""`python -m tokenspeed_tools.bench_cpu`."""

import sys

from tokenspeed_tools.bench_cpu.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
