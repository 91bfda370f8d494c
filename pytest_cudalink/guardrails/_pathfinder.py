"""cuda.pathfinder as the guard rails see it: the one module that touches its private parts.

Public and used as it is: the eight look-ups, and the lists of supported names. Private: the descriptors of dynamic
libraries (file names, dependencies), the search steps that come before the loader's own search, and the caches. Where
a private part is missing, `resolve` asks a child process that calls the public function. Tested against 1.5, 1.7 and
1.9 by ``nox -s pathfinder``.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..process import maps
from .rules import ALREADY_LOADED, ItemKind, PackagedWith, packaged_with

__all__ = [
    "LOOKUPS",
    "PRIVATE_PREFIX",
    "ResolutionError",
    "Resolved",
    "cache_clear",
    "dependencies",
    "first_for_loader",
    "header_file",
    "library_names",
    "packaging",
    "plain",
    "resolve",
    "stems",
    "version",
]

#: The public functions that the guard rails stand in for.
LOOKUPS: Final = (
    "load_nvidia_dynamic_lib",
    "locate_nvidia_header_directory",
    "find_nvidia_header_directory",
    "locate_static_lib",
    "find_static_lib",
    "locate_bitcode_lib",
    "find_bitcode_lib",
    "find_nvidia_binary_utility",
)

#: Modules of cuda.pathfinder that keep calling each other directly.
PRIVATE_PREFIX: Final = "cuda.pathfinder._"

_TIMEOUT = 60.0
_PLAIN: dict[str, Callable[..., Any]] = {}

#: Asks the public function for the whole search, in a process of its own; what it loads goes with it.
_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
try:
    found = load_nvidia_dynamic_lib(sys.argv[1])
    answer = [found.abs_path, found.found_via]
except DynamicLibNotFoundError as error:
    answer = None
print("\\n" + json.dumps(answer))
"""

#: Opens libraries by file name, as a program would that was linked against them, and prints which files these are.
_LOADER_CHILD = """
import ctypes, json, runpy, sys
mapped_files = runpy.run_path(sys.argv[2])["mapped_files"]
answer = {}
for soname in json.loads(sys.argv[1]):
    there = mapped_files()
    try:
        ctypes.CDLL(soname)
    except OSError:
        continue
    stem = soname.partition(".so")[0] + ".so"
    fresh = [path for path in mapped_files() if path.rpartition("/")[2].startswith(stem)]
    new = [path for path in fresh if path not in there] or fresh
    if new:
        answer[soname] = new[0]
print("\\n" + json.dumps(answer))
"""


class ResolutionError(RuntimeError):
    """What a look-up would find could not be told without loading it."""


@dataclass(frozen=True)
class Resolved:
    """What loading a library would give.

    Attributes
    ----------
    path, found_via : str
    in_process : bool
        It is loaded already.
    """

    path: str
    found_via: str
    in_process: bool = False


def _public() -> Any:
    return import_module("cuda.pathfinder")


def version() -> str:
    """Version of cuda.pathfinder."""
    return str(_public().__version__)


def plain(name: str) -> Callable[..., Any]:
    """A public function of cuda.pathfinder as it was before anything was routed."""
    if not _PLAIN:
        public = _public()
        _PLAIN.update({lookup: getattr(public, lookup) for lookup in LOOKUPS})
    return _PLAIN[name]


def library_names() -> frozenset[str]:
    """Dynamic libraries of the toolkit."""
    return frozenset(_public().SUPPORTED_NVIDIA_LIBNAMES)


def packaging(kind: ItemKind, name: str) -> PackagedWith:
    """Whether an item comes with the toolkit, the driver or neither."""
    names = library_names() if kind == "dynamic-libs" else _public().SUPPORTED_HEADERS_CTK
    return packaged_with(kind, name, names)


def header_file(name: str, folder: str) -> str:
    """Path of the header that a search for `name` recognizes `folder` by; the folder where that is not public."""
    basename = _public().SUPPORTED_HEADERS_CTK.get(name)
    return os.path.join(folder, basename) if basename else os.path.join(folder, "")


# -- private from here on


def _private(module: str, name: str) -> Any:
    """A private part, or None where this version has none."""
    try:
        return getattr(import_module(f"{PRIVATE_PREFIX}{module}"), name, None)
    except ImportError:
        return None


def _descriptor(name: str) -> Any:
    return (_private("dynamic_libs.lib_descriptor", "LIB_DESCRIPTORS") or {}).get(name)


def dependencies(name: str) -> Iterator[tuple[str, bool]]:
    """Libraries that are loaded before this one, each with whether it may be missing."""
    descriptor = _descriptor(name)
    for dependency in getattr(descriptor, "dependencies", ()):
        yield dependency, False
    for dependency in getattr(descriptor, "optional_dependencies", ()):
        yield dependency, True


def _sonames(name: str) -> tuple[str, ...]:
    return tuple(getattr(_descriptor(name), "linux_sonames", ()))


@cache
def stems() -> dict[str, str]:
    """Name of each library of the toolkit by the stem of its file: ``{"libnvrtc": "nvrtc"}``."""
    found = {}
    for name in sorted(library_names()):
        for soname in _sonames(name) or (f"lib{name}.so",):
            found[soname.partition(".so")[0]] = name
    return found


def _loaded(name: str) -> Resolved | None:
    """What the loader has under one of the library's file names; it is this that a look-up gives, before any search."""
    if sys.platform != "linux":
        return None
    path_of = _private("dynamic_libs.load_dl_linux", "abs_path_for_dynamic_library")
    for soname in _sonames(name):
        with suppress(OSError):
            handle = ctypes.CDLL(soname, mode=os.RTLD_NOLOAD)
            return Resolved(path_of(name, handle) if path_of else soname, ALREADY_LOADED, in_process=True)
    return None


def _early(name: str) -> Resolved | None:
    """What lies in wheels or in a conda environment: the search before the loader's own."""
    steps = _private("dynamic_libs.search_steps", "EARLY_FIND_STEPS")
    context = _private("dynamic_libs.search_steps", "SearchContext")
    run = _private("dynamic_libs.search_steps", "run_find_steps")
    descriptor = _descriptor(name)
    if not (steps and context and run and descriptor):
        return None
    found = run(context(descriptor), steps)
    return Resolved(found.abs_path, found.found_via) if found else None


def _environment() -> dict[str, str]:
    """The environment for the child; its loader shall search where that of this process does since it started."""
    environment = dict(os.environ)
    with suppress(OSError):
        began = Path("/proc/self/environ").read_bytes().split(b"\0")
        environment.pop("LD_LIBRARY_PATH", None)
        for entry in began:
            if entry.startswith(b"LD_LIBRARY_PATH="):
                environment["LD_LIBRARY_PATH"] = os.fsdecode(entry.partition(b"=")[2])
    return environment


def _child(program: str, what: str, *arguments: str) -> Any:
    """Run a program in a process of its own, and read the JSON of its last line."""
    # -P: else a json.py in the working directory would be taken for the library's
    command = [sys.executable, "-P", "-c", program, *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (this interpreter, and names as its arguments)
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT, env=_environment()
        )
        return json.loads(done.stdout.rstrip().rpartition("\n")[2])
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        said = (getattr(error, "stderr", "") or "").strip().rpartition("\n")[2]
        msg = f"{what} cannot be told: {said or error}"
        raise ResolutionError(msg) from error


def _in_child(name: str) -> Resolved | None:
    answer = _child(_CHILD, f"what a search for {name!r} would load", name, json.dumps(sys.path))
    return None if answer is None else Resolved(*answer)


def first_for_loader(names: Sequence[str]) -> dict[str, str]:
    """The file that the dynamic loader finds first under each file name of some libraries; nothing is loaded here.

    Raises
    ------
    ResolutionError
        If that cannot be told.
    """
    sonames = [soname for name in names for soname in _sonames(name)]
    found: dict[str, str] = _child(_LOADER_CHILD, "what the dynamic loader finds", json.dumps(sonames), maps.__file__)
    return found


def resolve(name: str) -> Resolved | None:
    """What ``load_nvidia_dynamic_lib(name)`` would give, without loading anything into this process.

    Raises
    ------
    ResolutionError
        If that cannot be told.
    """
    return _loaded(name) or _early(name) or _in_child(name)


def cache_clear() -> None:
    """Clear the caches of cuda.pathfinder's look-ups and of what they go by."""
    for lookup in LOOKUPS:
        getattr(plain(lookup), "cache_clear", lambda: None)()
    for module, name in (
        ("utils.env_vars", "get_cuda_path_or_home"),
        ("utils.find_sub_dirs", "find_sub_dirs_cached"),
        ("dynamic_libs.load_nvidia_dynamic_lib", "_resolve_system_loaded_abs_path_in_subprocess"),
    ):
        getattr(_private(module, name), "cache_clear", lambda: None)()
    stems.cache_clear()
