"""``python -m pytest_cudalink.cli``."""

import sys

from . import main

sys.exit(main())
