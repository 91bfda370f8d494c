"""The checkout of git that a folder is in, as git reports it: commit, branch, and whether there are changes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

#: How the name of a branch begins in git.
BRANCHES: Final = "refs/heads/"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: Asks git for the commit, and for the full name of the branch.
_HEAD: Final = ("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
#: Asks git for changes.
_STATUS: Final = (
    *("-c", "core.fsmonitor=false", "status"),
    *("--porcelain", "--untracked-files=no", "--ignore-submodules=all"),
)
_GIT_SECONDS: Final = 2.0


def commit_or_none(text: str | None) -> str | None:
    """Return a commit; None for a word such as HEAD, which Buildkite has until its checkout."""
    return text if text is not None and _COMMIT.fullmatch(text) else None


def commit_and_branch(root: Path, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """Return commit and branch of the checkout that a folder is in; None for what git does not answer."""
    answer = _git(_HEAD, root, environment)
    if answer is None:
        return None, None
    commit, name, _ = answer.decode("utf-8", "replace").split("\n")
    return commit_or_none(commit), name.removeprefix(BRANCHES) if name.startswith(BRANCHES) else None


def has_changes(root: Path, environment: Mapping[str, str]) -> bool | None:
    """Return whether a file that git knows is changed; None if git does not answer soon."""
    answer = _git(_STATUS, root, environment)
    return None if answer is None else bool(answer)


def _git(arguments: tuple[str, ...], root: Path, environment: Mapping[str, str]) -> bytes | None:
    """Return what git prints; None without git, outside of a checkout, or in one of another user, which git refuses."""
    # in a hook of git, its variables describe another state; a preloaded driver is no business of git
    own = {name: value for name, value in environment.items() if not name.startswith("GIT_") and name != "LD_PRELOAD"}
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(  # noqa: S603 (the user's git)
            ["git", *arguments],  # noqa: S607
            cwd=root,
            env={**own, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
        ).stdout
    return None
