"""What git says of a checkout: the files that have changed since a commit, and files as they were."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .selection import Change

__all__ = ["Checkout", "GitError"]


class GitError(Exception):
    """git is missing, or cannot answer; the message says what to do."""


class Checkout:
    """The checkout that a folder is in.

    Parameters
    ----------
    folder : Path

    Attributes
    ----------
    root : Path

    Raises
    ------
    GitError
        If there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        try:
            self.root = Path(self.run("rev-parse", "--show-toplevel").removesuffix("\n"))
        except GitError as error:
            msg = f"{folder.resolve()} is not in a checkout of git ({error}); run the command in one"
            raise GitError(msg) from error

    def run(self, *arguments: str) -> str:
        """Return what git prints; raise `GitError` if it fails."""
        # in a hook of git, its variables describe another state; a preloaded driver is no business of git
        own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") and key != "LD_PRELOAD"}
        command = ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *arguments]
        try:
            done = subprocess.run(  # noqa: S603
                command, cwd=self.root, env=own, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except OSError as error:
            msg = f"git cannot be run: {error.strerror or error}"
            raise GitError(msg) from error
        if done.returncode != 0:
            msg = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git failed"])[0]
            raise GitError(msg)
        return done.stdout.decode("utf-8", "surrogateescape")

    def commit(self, revision: str) -> str:
        """Return the commit of a revision in full.

        Raises
        ------
        GitError
            If there is no such commit here.
        """
        try:
            return self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()
        except GitError as error:
            msg = f"the revision is {revision!r}; expected a commit of this checkout"
            raise GitError(f"{msg}; fetch it, and more history in a shallow clone") from error

    def fork_point(self, commit: str) -> str:
        """Return the newest commit that HEAD and another commit have in common; the other one if there is none."""
        try:
            return self.run("merge-base", commit, "HEAD").strip() or commit
        except GitError:
            return commit

    def is_ancestor(self, commit: str) -> bool:
        """Return whether HEAD was made from a commit."""
        try:
            self.run("merge-base", "--is-ancestor", commit, "HEAD")
        except GitError:
            return False
        return True

    def changes(self, commit: str) -> tuple[Change, ...]:
        """Return what differs between a commit and the working tree: committed, staged or not, and untracked files."""
        fields = iter(
            self.run("diff", "--name-status", "--no-renames", "--ignore-submodules=none", "-z", commit, "--").split(
                "\0"
            )
        )
        found: dict[str, Change] = {}
        for status in fields:
            path = next(fields, "")
            if path:
                kinds = {"M": "changed", "A": "new", "D": "deleted"}
                found[path] = Change(path, kinds.get(status[:1], "retyped"))  # type: ignore[arg-type] # (one of them)
        for path in self.run("ls-files", "--others", "--exclude-standard", "-z").split("\0"):
            if path:
                found[path] = Change(path, "new")
        return tuple(found.values())

    def content(self, commit: str, path: str) -> str | None:
        """Return the text of a file as a commit has it; None if it has none."""
        try:
            return self.run("show", f"{commit}:{path}")
        except GitError:
            return None
