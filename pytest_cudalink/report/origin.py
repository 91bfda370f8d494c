"""The origin of a run: the project, its commit and branch, and the page of the CI run; merged for a report."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from ..base.regular_files import read_bounded
from ..base.tables import read_table

if TYPE_CHECKING:
    from .records import OriginRecord, RunRecord

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
#: Asks git for the branch that is checked out, which needs no commit yet.
_UNBORN: Final = ("symbolic-ref", "HEAD")
_GIT_SECONDS: Final = 2.0


class Repository(NamedTuple):
    """The repository that a folder is in."""

    top: Path | None  # its uppermost folder; None outside of a checkout
    branch: str  # its default branch


def repository(root: Path, environment: Mapping[str, str] = os.environ) -> Repository:
    """Return the repository that a folder is in; its branch is ``main`` where git names no other.

    The default branch is that of the remote ``origin`` as the clone found it, else ``main`` or ``master``, which is
    there or will be with the first commit.
    """
    top = _git(_TOP, root, environment)
    if top is None:
        return Repository(None, "main")
    lines = (_git(_BRANCHES, root, environment) or b"").decode("utf-8", "replace").splitlines()
    branches = dict(line.split(" ", 1) for line in lines)
    remote = branches.pop("refs/remotes/origin/HEAD", "").removeprefix("refs/remotes/origin/")
    names = {name.rpartition("/")[2] for name in branches}
    is_master = names == {"master"} or (not names and _git(_UNBORN, root, environment) == b"refs/heads/master\n")
    there = "master" if is_master else "main"
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
    # in a hook of git, its variables describe another state; git does not need a preloaded driver
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


@dataclass(frozen=True)
class Origin:
    """The origin of a run; a field that is not known is None."""

    # the name in `pyproject.toml`, else the one that the CI system gives, else the name of the folder
    project: str | None = None
    commit: str | None = None  # the commit in full
    branch: str | None = None
    ci_url: str | None = None  # the page of the CI run, without credentials
    started: str | None = None  # when the run began, such as "2026-11-22T17:30:05Z"
    dirty: bool | None = None  # whether the checkout had changes that the commit has not

    def record(self) -> OriginRecord:
        """Return what a record has of the origin; the time is that of the event."""
        return {name: getattr(self, name) for name in (*_COMMON, "dirty")}  # type: ignore[return-value] # (its keys)


_PYPROJECT_SIZE: Final = 1 << 20
#: Fields in which two runs of one matrix agree; they begin at different times, and on machines in different states.
_COMMON: Final = ("project", "commit", "branch", "ci_url")


def run_record(root: Path, environment: Mapping[str, str] = os.environ, **more: Any) -> RunRecord:
    """Return the first record of a run that begins in a folder.

    `more`: the fields that do not follow from folder, environment and machine.
    """
    from .records import RunRecord

    return RunRecord(
        run=uuid.uuid4().hex,
        cell=environment.get("CUDALINK_CELL"),
        platform=f"{sys.platform}-{platform.machine()}",
        origin=find(root, environment).record(),
        **more,
    )


def find(root: Path, environment: Mapping[str, str] = os.environ) -> Origin:
    """Return the origin of a run that begins in a folder: from the CI system's environment, else from git.

    In CI, git is asked only for a commit that the environment does not have.
    """
    project = declared_name(root)
    system = next((row for row in read_table("ci_systems.toml").values() if environment.get(row["marker"])), None)
    if system is None:
        commit, branch = commit_and_branch(root, environment)
        dirty = has_changes(root, environment) if commit else None
        return Origin(project or root.name or None, commit, branch, dirty=dirty)
    commit = commit_or_none(_first(system["commit"], environment))
    branch = _first(system["branch"], environment)
    if commit is None:
        commit, checked_out = commit_and_branch(root, environment)
        branch = branch or checked_out
    return Origin(
        project or (_first(system["project"], environment) or root.name).rpartition("/")[2] or None,
        commit,
        branch and branch.removeprefix(BRANCHES),
        _web_address(_first(system["url"], environment)),
    )


def origin_of_run(run: RunRecord) -> Origin:
    """Return the origin that a record has; its time is that of the event."""
    known = Origin(**run.origin) if run.origin is not None else Origin()
    return shown_origin(replace(known, started=moment(run.time) if run.time else None))


def shown_origin(origin: Origin) -> Origin:
    """Return an origin of a file as reports show it: without empty texts, and with an address of the web or none."""
    known: dict[str, Any] = {name: None if value == "" else value for name, value in vars(origin).items()}
    return Origin(**{**known, "ci_url": _web_address(origin.ci_url)})


def moment(seconds: float) -> str | None:
    """Return a time since 1970 as a date and a time of UTC; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def merged(origins: Iterable[Origin]) -> Origin:
    """Return what several origins have in common, the earliest start, and whether any had changes."""
    every = list(origins)
    common = {name: values[0] if len(values := _values(every, name)) == 1 else None for name in _COMMON}
    starts = [origin.started for origin in every if origin.started is not None]
    states = {origin.dirty for origin in every}
    dirty = True if True in states else None if None in states or not states else False
    return Origin(**common, started=min(starts, default=None), dirty=dirty)


def differing(origins: Iterable[Origin]) -> tuple[str, ...]:
    """Return the fields in which origins differ, of those that one matrix has in common."""
    every = list(origins)
    return tuple(name for name in _COMMON if len(_values(every, name)) > 1)


def _values(origins: Iterable[Origin], name: str) -> list[str]:
    """Return the known values of a field, each once."""
    return list(dict.fromkeys(value for origin in origins if (value := getattr(origin, name)) is not None))


def _first(places: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Return the first of several formats whose variables are all set."""
    known = {name: value for name, value in environment.items() if value}
    for place in places:
        with suppress(KeyError):
            return place.format_map(known)
    return None


def _web_address(text: str | None) -> str | None:
    """Return an address of the web without credentials; None for anything else."""
    try:
        parts = urlsplit(str(text))
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def declared_name(root: Path) -> str | None:
    """Return the project's name in ``pyproject.toml``."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        text = read_bounded(root / "pyproject.toml", _PYPROJECT_SIZE).decode("utf-8")
        import tomllib  # pytest has imported it where there is such a file

        name = tomllib.loads(text)["project"]["name"]
        return name if isinstance(name, str) else None
    return None
