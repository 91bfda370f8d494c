"""The checkout of git that a folder is in, as git reports it: commit, branch, and whether there are changes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

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
#: Asks git for the folder of the checkout.
_TOP: Final = ("rev-parse", "--show-toplevel")
#: Asks git which branches there are, the likeliest default first; ``origin/HEAD`` names the one of the remote.
_BRANCHES: Final = (
    *("for-each-ref", "--format=%(refname) %(symref)", "refs/remotes/origin/HEAD"),
    *(f"{where}/{name}" for where in ("refs/remotes/origin", "refs/heads") for name in ("main", "master")),
)
_GIT_SECONDS: Final = 2.0


class Repository(NamedTuple):
    """The repository that a folder is in."""

    top: Path | None  # its uppermost folder; None outside of a checkout
    branch: str  # its default branch


def repository(root: Path, environment: Mapping[str, str] = os.environ) -> Repository:
    """Return the repository that a folder is in; its branch is ``main`` where git names no other.

    The default branch is that of the remote ``origin`` as the clone found it, else ``main`` or ``master``, which is
    there.
    """
    top = _git(_TOP, root, environment)
    if top is None:
        return Repository(None, "main")
    lines = (_git(_BRANCHES, root, environment) or b"").decode("utf-8", "replace").splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    remote = found.pop("refs/remotes/origin/HEAD", "").removeprefix("refs/remotes/origin/")
    names = {name.rpartition("/")[2] for name in found}
    there = "master" if names == {"master"} else "main"
    return Repository(Path(os.fsdecode(top.removesuffix(b"\n"))).resolve(), remote or there)


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
