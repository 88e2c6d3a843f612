"""Run the command line as ``python -m dpstats``."""

import sys

from dpstats.cli import main

sys.exit(main())
