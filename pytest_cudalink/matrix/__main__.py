"""Starts what a cell runs: ``python -m pytest_cudalink.matrix [PROGRAM ARGUMENTS…]``.

The runners call it where a cell hides something or is bare. A program starts with what the cell hides hidden; without
a program, the steps of a bare cell run. The keys of the cell come from the environment.
"""

from __future__ import annotations

import json
import os
import sys

from . import bare, hiding
from .cells import KEYS_VARIABLE

__all__: list[str] = []

if __name__ == "__main__":
    _keys = json.loads(os.environ.get(KEYS_VARIABLE, "{}"))
    sys.exit(hiding.start(sys.argv[1:], _keys.get("hidden", ())) if sys.argv[1:] else bare.run(_keys))
