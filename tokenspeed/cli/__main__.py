"""`python -m tokenspeed.cli`, where no script is installed."""

import sys

from tokenspeed.cli import main

sys.exit(main())
