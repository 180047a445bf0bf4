"""`python -m tokenspeed_tools.prove`."""

import sys

from tokenspeed_tools.prove.command import main

sys.exit(main())
