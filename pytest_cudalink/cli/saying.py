"""What the commands say: texts whose parts may come from anywhere, made safe for a terminal and the log of a CI job."""

from __future__ import annotations

import sys
from typing import Final

from ..base.safe_text import block

#: Characters that no text has: nothing is cut.
_ALL: Final = sys.maxsize


def say(text: str, end: str = "\n") -> None:
    """Write lines to stdout."""
    sys.stdout.write(f"{block(text, _ALL)}{end}")


def complain(text: str) -> None:
    """Write lines to stderr."""
    sys.stderr.write(f"{block(text, _ALL)}\n")
