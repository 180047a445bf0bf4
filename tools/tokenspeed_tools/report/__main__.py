"""`python -m tokenspeed_tools.report`."""

import sys

from tokenspeed_tools.report.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
