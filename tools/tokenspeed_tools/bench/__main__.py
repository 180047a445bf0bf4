"""`python -m tokenspeed_tools.bench` is `tokenspeed bench`."""

import sys

from tokenspeed_tools.bench.command import main

sys.exit(main(sys.argv[1:]))
