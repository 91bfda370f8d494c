"""Sphinx configuration. Built with warnings as errors by ``nox -s docs``."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "pytest-cudalink"
author = "The pytest-cudalink developers"
release = metadata.version("pytest-cudalink")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "cudalink_tables", "cudalink_exports"]
html_theme = "furo"
html_title = "pytest-cudalink"
exclude_patterns = ["_build", "examples"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
default_role = "py:obj"
smartquotes = False  # they would make a dash of each "--" and other quotes of a value's
nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
