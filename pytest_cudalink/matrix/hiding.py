"""Hides folders and files, such as a toolkit of the system, from a program without being root.

In a mount namespace of the process an empty folder lies over each of them. Where the kernel refuses that, variables of
the environment that lead there are removed; `Hidden` says which of the two happened, and what can still be opened.
"""

import ctypes
import errno
import fnmatch
import glob
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, Self

from ..base.words import listed
from ..environment.loader_search import loader_cache

#: The variable in which a run finds what was hidden, as JSON.
HIDDEN_VARIABLE: Final = "CUDALINK_HIDDEN"
#: Libraries of a toolkit, as far as the names of their files tell.
_LIBRARIES: Final = (
    *("libcudart", "libnvrtc", "libnvJitLink", "libnvvm", "libnvfatbin", "libcublas", "libcublasLt", "libcusolver"),
    *("libcusparse", "libcufft", "libcurand", "libcufile"),
)
#: Where toolkits are installed: NVIDIA's installers, Arch Linux, and the packages of distributions.
USUAL_PLACES: Final = (
    "/usr/local/cuda*",
    "/opt/cuda*",
    "/usr/lib/cuda",
    "/usr/lib/nvidia-cuda-toolkit",
    *(f"/usr/lib/*-linux-gnu/{name}.so*" for name in _LIBRARIES),
    *(f"/usr/lib64/{name}.so*" for name in _LIBRARIES),
)
_SHOWN: Final = 3

# linux/sched.h, sys/mount.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x1, 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MNT_DETACH: Final = 2
#: Folders over which a file system may lie for a moment while files are hidden.
_WORKPLACES: Final = ("/mnt", "/srv", "/opt", "/var", "/tmp")  # noqa: S108 (nothing is written to its disk)


class HidingError(ValueError):
    """What a cell hides cannot be hidden; the message says why."""


@dataclass(frozen=True)
class Hidden:
    """What was hidden from a process, and how."""

    # "namespace"; "environment" where the kernel refuses a mount namespace; "nothing" if there was nothing to hide
    how: Literal["namespace", "environment", "nothing"]
    places: tuple[str, ...] = ()  # the folders and files, without symbolic links
    reachable: tuple[str, ...] = ()  # what can still be opened, in words
    reason: str = ""  # why there is no mount namespace

    @property
    def axis(self) -> str:
        """The value of the axis ``hidden`` in the report."""
        values = {"namespace": "mount namespace", "environment": "environment only", "nothing": "nothing to hide"}
        return values[self.how]

    def __str__(self) -> str:
        left = f"; {', '.join(self.reachable)}" if self.reachable else ""
        if self.how == "nothing":
            return f"nothing to hide: no file has such a name{left}"
        where = listed(self.places, _SHOWN)
        if self.how == "namespace":
            return f"hidden by a mount namespace: {where}{left}"
        verb = "opens by its path" if len(self.places) == 1 else "open by their paths"
        return f"hidden by environment only ({self.reason}): {where} still {verb}{left}"

    def as_json(self) -> str:
        """Return the text of `HIDDEN_VARIABLE`."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what `as_json` wrote.

        Raises ValueError if the text is another.
        """
        try:
            content = json.loads(text)
            return cls(content["how"], tuple(content["places"]), tuple(content["reachable"]), str(content["reason"]))
        except (LookupError, TypeError) as error:
            raise ValueError(text) from error


def is_hidden_by(path: str, pattern: str) -> bool:
    """Return whether a path, or a folder that it lies in, has a name that a pattern hides."""
    parts = path.rstrip("/").split("/")
    wanted = pattern.rstrip("/").split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def hide(patterns: Iterable[str], environment: MutableMapping[str, str] = os.environ) -> Hidden:
    """Hide folders and files from this process and its children, and remove what leads there from its environment.

    `patterns`: absolute paths, with ``*`` and the other wildcards of a shell.
    `environment`: the environment of the children.
    Raises HidingError if a pattern hides what the process itself needs, such as its Python.
    """
    places = _places(patterns)
    cache = loader_cache()
    without_places(environment, places)
    if not places:
        return Hidden("nothing", reachable=_left(cache, environment))
    reason = _try(places)
    if not reason:
        _enter(places)
        elsewhere = [(name, path) for name, path in cache if not _within(path, places)]
        return Hidden("namespace", places, _left(elsewhere, environment))
    return Hidden("environment", places, _left(cache, environment), reason)


def _places(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return what the patterns match, without symbolic links, and without what lies in another of them.

    Raises HidingError if the process needs something in one of them.
    """
    pattern_of: dict[str, str] = {}
    for pattern in patterns:
        for path in glob.glob(pattern):  # noqa: PTH207 (an absolute pattern)
            pattern_of.setdefault(os.path.realpath(path), pattern)
    needed = {"Python": sys.executable, "the environment": sys.prefix, "the working folder": str(Path.cwd())}
    needed |= {"pytest-cudalink": __file__, "the standard library": os.__file__}
    for place, pattern in pattern_of.items():
        for what, path in needed.items():
            if _within(path, [place]):
                raise HidingError(f"hidden = {pattern!r} hides {what} ({path}); name the folder of the toolkit")
    return tuple(place for place in sorted(pattern_of) if not _within(str(Path(place).parent), pattern_of))


def _within(path: str, places: Iterable[str]) -> bool:
    """Return whether a path is one of some places or lies in it, also by a symbolic link."""
    real = os.path.realpath(path)
    return any(real == place or real.startswith(f"{place}/") for place in places)


def without_places(environment: MutableMapping[str, str], places: Sequence[str]) -> None:
    """Remove from each variable the paths that lie in some places, and a variable of which nothing is left."""
    for name, value in list(environment.items()):
        if name.startswith("CUDALINK_"):
            continue
        parts = value.split(os.pathsep)
        left = [part for part in parts if not (part.startswith("/") and _within(part, places))]
        if any(left):
            environment[name] = os.pathsep.join(left)
        elif any(parts):
            del environment[name]


def _left(cache: Iterable[tuple[str, str]], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return in words what of a toolkit a program still finds by name: libraries of the loader's cache, and nvcc."""
    libraries = sorted({f"{name} ({path})" for name, path in cache if name.partition(".")[0] in _LIBRARIES})
    nvcc = shutil.which("nvcc", path=environment.get("PATH", ""))
    words = [f"still found by the loader: {listed(libraries, _SHOWN)}"] if libraries else []
    return (*words, *([f"still found on the PATH: {nvcc}"] if nvcc else []))


def _try(places: Sequence[str]) -> str:
    """Return why a process cannot enter a mount namespace that hides the places; empty if a child could."""
    if not sys.platform.startswith("linux"):
        return "there are no mount namespaces on this system"
    child = os.fork()
    if child == 0:
        code = 255
        with suppress(BaseException):
            try:
                _enter(places)
                code = 0
            except OSError as error:
                code = error.errno or 255
        os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return ""
    return f"no mount namespace: {os.strerror(code) if code in errno.errorcode else f'the attempt ended with {code}'}"


def _enter(places: Sequence[str]) -> None:
    """Enter a mount namespace in which an empty folder lies over each folder, and no file of the places opens.

    Raises OSError if the kernel refuses a step.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        words = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
        check(libc.mount(*words, flags, None if data is None else data.encode()))

    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_CLONE_NEWNS) != 0:  # only root may do this without a namespace of users
        check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    folders = [place for place in places if Path(place).is_dir()]
    files = [place for place in places if place not in folders]
    for folder in folders:
        mount("none", folder, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, "mode=755,size=4k")
    if not files:
        return
    # a device on a file system without devices: opening it is refused to everyone, and the loader goes on searching
    above = {str(folder) for file in files for folder in Path(file).parents}
    workplace = next(place for place in _WORKPLACES if Path(place).is_dir() and os.path.realpath(place) not in above)
    mount("none", workplace, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=4k")
    nothing = f"{workplace}/nothing"
    os.mknod(nothing, stat.S_IFCHR | 0o600, os.makedev(0, 0))
    for file in files:
        mount(nothing, file, None, _MS_BIND)
    check(libc.umount2(os.fsencode(workplace), _MNT_DETACH))


def start(program: Sequence[str], patterns: Iterable[str], environment: MutableMapping[str, str] = os.environ) -> int:
    """Start a program in place of this one, with what the patterns match hidden; return only if that fails.

    `program`: the program and its arguments.
    `patterns`, `environment`: as for `hide`. The program finds the result in `HIDDEN_VARIABLE`.
    """
    try:
        hidden = hide(patterns, environment)
    except HidingError as error:
        sys.stderr.write(f"cudalink: {error}\n")
        return 2
    environment[HIDDEN_VARIABLE] = hidden.as_json()
    sys.stderr.write(f"cudalink: {hidden}\n")
    try:
        os.execvpe(program[0], list(program), dict(environment))  # noqa: S606 (the user's program)
    except OSError as error:
        sys.stderr.write(f"cudalink: {program[0]} cannot be run: {error.strerror}\n")
    return 127
