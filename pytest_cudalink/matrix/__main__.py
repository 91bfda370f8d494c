"""Starts what a cell runs, with what the cell hides hidden: ``python -m pytest_cudalink.matrix PROGRAM ARGUMENTS…``.

The keys of the cell come from the environment.
"""

import os
import sys

from . import hiding
from .cells import RunKeys

if __name__ == "__main__":
    sys.exit(hiding.start(sys.argv[1:], RunKeys.read(os.environ).hidden))
