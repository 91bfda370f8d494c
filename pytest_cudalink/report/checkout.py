"""The checkout of git that a folder is in: commit and branch from git's files, and whether there are changes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..regular_files import read_bounded

#: How the name of a branch begins in git's files.
BRANCHES: Final = "refs/heads/"
_FILE_SIZE: Final = 1 << 20
_REFS_SIZE: Final = 64 << 20
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: Asks git for changes, and how many seconds it may take.
_STATUS: Final = (
    *("git", "-c", "core.fsmonitor=false", "status"),
    *("--porcelain", "--untracked-files=no", "--ignore-submodules=all"),
)
_GIT_SECONDS: Final = 2.0


def commit_or_none(text: str | None) -> str | None:
    """Return a commit; None for a word such as HEAD, which Buildkite has until its checkout."""
    return text if text is not None and _COMMIT.fullmatch(text) else None


def commit_and_branch(root: Path) -> tuple[str | None, str | None]:
    """Return commit and branch of the checkout that a folder is in, from the files of git."""
    with suppress(OSError, ValueError):
        top = next((one for one in (root, *root.parents) if (one / ".git").exists()), None)
        if top is None:
            return None, None
        place = top / ".git"
        if place.is_file():  # a worktree or a submodule
            place = place.parent / _text(place).removeprefix("gitdir:").strip()
        head = _text(place / "HEAD")
        if not head.startswith("ref:"):
            return commit_or_none(head), None
        name = head.removeprefix("ref:").strip()
        branch = name.removeprefix(BRANCHES) if name.startswith(BRANCHES) else None
        # a repository whose references are a table has this name for each
        return commit_or_none(_reference(place, name)), branch if branch != ".invalid" else None
    return None, None


def _reference(place: Path, name: str) -> str | None:
    """Return the commit of a reference in the folder of a worktree, or in the one that all worktrees share."""
    common = place
    with suppress(OSError):
        common = place / _text(place / "commondir")
    for folder in dict.fromkeys((place, common)):
        with suppress(OSError):
            return _text(folder / name)
    with suppress(OSError):
        for line in read_bounded(common / "packed-refs", _REFS_SIZE).splitlines():
            commit, _, found = line.decode("utf-8", errors="replace").partition(" ")
            if found == name:
                return commit
    return None


def _text(path: Path) -> str:
    return read_bounded(path, _FILE_SIZE).decode("utf-8").strip()


def has_changes(root: Path, environment: Mapping[str, str]) -> bool | None:
    """Return whether a file that git knows is changed; None if git does not answer soon."""
    # in a hook of git, its variables describe another state; a preloaded driver is no business of git
    own = {name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "LD_PRELOAD"}
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # noqa: S603 (the user's git)
            _STATUS,
            cwd=root,
            env={**own, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
        return bool(done.stdout)
    return None
