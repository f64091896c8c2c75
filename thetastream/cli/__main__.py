"""Runs the command line as ``python -m thetastream.cli``."""

import sys

from thetastream.cli import main

sys.exit(main())
