"""Sphinx configuration. Built with warnings as errors by ``nox -s docs``."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.append(str(ROOT))  # tools

REPOSITORY = "https://github.com/pytest-cudalink/pytest-cudalink"


@cache
def commit() -> str:
    """The commit that is described: source links must show the lines that the page was built from."""
    given = os.environ.get("READTHEDOCS_GIT_COMMIT_HASH")
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return given or subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "main"


project = "pytest-cudalink"
author = "The pytest-cudalink developers"
copyright = f"2026, {author}"  # noqa: A001 (the name that Sphinx reads)
release = metadata.version("pytest-cudalink")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "cudalink_tables",
    "cudalink_exports",
    "cudalink_atlas",
    "cudalink_docstrings",
    "cudalink_reference",
]
html_theme = "furo"
html_title = f"pytest-cudalink {release.partition('+')[0]}"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "https://pytest-cudalink.readthedocs.io/en/latest/")
html_static_path = ["_static"]
html_css_files = ["cudalink.css"]
html_theme_options = {
    # "view this page" and "edit this page" at the top of each
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
exclude_patterns = ["_build", "examples"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
default_role = "py:obj"
smartquotes = False  # they would make a dash of each "--" and other quotes of a value's
nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"

# of a session only the commands are copied
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
copybutton_copy_empty_lines = False
copybutton_exclude = ".linenos, .gp, .go"

# `nox -s links`, every week. These do not answer a program, or do not exist before the first release.
linkcheck_ignore = [rf"{REPOSITORY}.*", r"https://pytest-cudalink\.readthedocs\.io/.*"]
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # GitHub makes its anchors in the browser
linkcheck_retries = 3


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """The address of an object's source, with its lines, at the commit that is described."""
    if domain != "py":
        return None
    made: object = sys.modules.get(info["module"])
    for name in info["fullname"].split("."):
        made = getattr(made, name, None)
    made = inspect.unwrap(made.fget if isinstance(made, property) else made) if made is not None else None
    try:
        path = Path(inspect.getsourcefile(made) or "").resolve().relative_to(ROOT)
        lines, first = inspect.getsourcelines(made)
    except (TypeError, ValueError, OSError):  # a value, or a member that a class inherits from elsewhere
        return None
    return f"{REPOSITORY}/blob/{commit()}/{path.as_posix()}#L{first}-L{first + len(lines) - 1}"
