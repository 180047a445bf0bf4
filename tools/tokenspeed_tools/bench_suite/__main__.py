"""`python -m tokenspeed_tools.bench_suite`."""

import sys

from tokenspeed_tools.bench_suite.command import main

sys.exit(main())
