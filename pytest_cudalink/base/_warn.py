"""Warnings that point at the code that led to them."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # noqa: PTH118, PTH120 (compared with names of files)


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the line outside of this package that led here.

    Python shows a DeprecationWarning by default only where it points into the user's own program, and counts "once per
    place" by that line. (``skip_file_prefixes`` of `warnings.warn` does this from Python 3.12 on.)
    """
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 (what inspect itself uses, without its import)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
