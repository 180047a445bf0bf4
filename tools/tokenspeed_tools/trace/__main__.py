"""`python -m tokenspeed_tools.trace`."""

import sys

from tokenspeed_tools.trace.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
