"""Names that a search finds in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ()

PACKAGE = Path(__file__).parents[1] / "pytest_cudalink"
#: Not mended yet: part 16, after part 15. The list may only shrink.
CLASSES_LEFT: Final[set[str]] = set()
MODULES_LEFT: Final = {"build", "driver"}
#: More modules of one name than this are too many; a command and its part have the same, as cli/audit.py and audit/.
_MOST_MODULES: Final = 3


def modules() -> Iterator[Path]:
    """The modules of the package; templates are no code of ours."""
    return (path for path in sorted(PACKAGE.rglob("*.py")) if "templates" not in path.parts)


def test_no_two_public_classes_have_one_name() -> None:
    """A name in a message, a page or a traceback leads to one class."""
    places = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert several.keys() == CLASSES_LEFT, several


def test_few_modules_have_one_name() -> None:
    """A file that an editor opens by its name is the right one, or one of three."""
    places = defaultdict(list)
    for path in modules():
        if not path.stem.startswith("__"):
            places[path.stem].append(path.relative_to(PACKAGE).as_posix())
    several = {name: found for name, found in places.items() if len(found) > _MOST_MODULES}
    assert several.keys() == MODULES_LEFT, several
