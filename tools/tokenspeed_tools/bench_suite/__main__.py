"""`python -m tokenspeed_tools.bench_suite`."""

import sys

from tokenspeed_tools.bench_suite.command import main

if __name__ == "__main__":  # each part runs in a process of its own, which reads this file too
    sys.exit(main())
