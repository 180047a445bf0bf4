"""`python -m tokenspeed_tools.bench_ring`."""

import sys

from tokenspeed_tools.bench_ring.command import main

sys.exit(main())
