"""Lets installed packages find modules in a checkout that their wheels lack, such as helpers of their tests.

pytest loads this by ``-p``, in the process of a suite: it belongs to no package.
"""

from __future__ import annotations

import importlib
import os

__all__: list[str] = []

for _entry in filter(None, os.environ.get("CUDALINK_SUITE_SOURCES", "").split(os.pathsep)):
    _package, _, _folder = _entry.partition("=")
    importlib.import_module(_package).__path__.append(_folder)  # last: what is installed comes first
