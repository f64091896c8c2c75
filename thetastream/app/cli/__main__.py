"""Runs the command line as ``python -m thetastream.app.cli``."""

import sys

from thetastream.app.cli import main

sys.exit(main())
