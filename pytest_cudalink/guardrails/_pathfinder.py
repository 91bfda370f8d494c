"""The guard rails' access to cuda.pathfinder: no other module touches its private parts.

Public parts: the eight look-ups, and the lists of supported names. Private parts: the descriptors of dynamic libraries
(file names, dependencies), the search steps that precede the loader's search, and the caches. Where a private part is
missing, `resolve` asks a child process that calls the public function. ``nox -s pathfinder`` tests this module against
1.5, 1.7 and 1.9.
"""

import ctypes
import json
import os
import site
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..loader import loads
from .items import ALREADY_LOADED, ItemKind, PackagedWith, packaged_with

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

#: The public functions by name, as they were before any was routed; filled by `plain`. Tests replace entries.
originals: dict[str, Callable[..., Any]] = {}

#: Asks the public function for the whole search of each name. What is loaded for one would be found for the next: each
#: has a process, which begins where cuda.pathfinder is imported; where there is no fork, all have one.
_CHILD = """
import json, os, site, sys
sys.path[:], folders = json.loads(sys.argv[2])
site.getsitepackages = lambda: folders
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
def search(name):
    try:
        found = load_nvidia_dynamic_lib(name)
        return [found.abs_path, found.found_via]
    except DynamicLibNotFoundError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
def apart(name):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(search(name)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    code = os.waitstatus_to_exitcode(os.wait()[1])
    return json.loads(text) if text else f"the process that loads it ends with {code}"
ask = apart if hasattr(os, "fork") else search
print("\\n" + json.dumps({name: ask(name) for name in json.loads(sys.argv[1])}))
"""

#: Opens libraries by file name, as a program linked against them would, and prints which files these are.
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

#: Loads a library, and says whether the loader finds a file then that the library opens by name.
_OPENING_CHILD = """
import ctypes, json, site, sys
sys.path[:], folders = json.loads(sys.argv[1])
site.getsitepackages = lambda: folders
from cuda.pathfinder import load_nvidia_dynamic_lib
load_nvidia_dynamic_lib(sys.argv[2])
try:
    found = bool(ctypes.CDLL(sys.argv[3]))
except OSError:
    found = False
print("\\n" + json.dumps(found))
"""


class ResolutionError(RuntimeError):
    """Only loading a library would show what a look-up finds."""


@dataclass(frozen=True)
class Resolved:
    """The library that a look-up would load."""

    path: str
    found_via: str
    in_process: bool = False  # whether it is loaded already


def _public() -> Any:
    return import_module("cuda.pathfinder")


def plain(name: str) -> Callable[..., Any]:
    """A public function of cuda.pathfinder, as it was before any was routed."""
    public = _public()
    if not originals:  # else a guard that waited for the import has filled it, and routed the functions
        originals.update({lookup: getattr(public, lookup) for lookup in LOOKUPS})
    return originals[name]


def library_names() -> frozenset[str]:
    """Names of the toolkit's dynamic libraries."""
    return frozenset(_public().SUPPORTED_NVIDIA_LIBNAMES)


def program_names() -> frozenset[str]:
    """Programs of the toolkit that this release can look for; it raises for any other."""
    return frozenset(_public().SUPPORTED_BINARY_UTILITIES)


def packaging(kind: ItemKind, name: str) -> PackagedWith:
    """Whether an item comes with the toolkit, the driver or neither."""
    names = library_names() if kind == "dynamic-libs" else _public().SUPPORTED_HEADERS_CTK
    return packaged_with(kind, name, names)


def header_file(name: str, folder: str) -> str:
    """Path of the header by which a search for `name` recognizes `folder`; the folder where it is not public."""
    basename = _public().SUPPORTED_HEADERS_CTK.get(name)
    return os.path.join(folder, basename) if basename else os.path.join(folder, "")


# -- private from here on


def private_part(module: str, name: str) -> Any:
    """A private part of cuda.pathfinder; None where the installed version has none."""
    try:
        return getattr(import_module(f"{PRIVATE_PREFIX}{module}"), name, None)
    except ImportError:
        return None


def _descriptor(name: str) -> Any:
    return (private_part("dynamic_libs.lib_descriptor", "LIB_DESCRIPTORS") or {}).get(name)


def dependencies(name: str) -> tuple[str, ...]:
    """Libraries that are loaded before a library, those last that may be missing."""
    descriptor = _descriptor(name)
    return (*getattr(descriptor, "dependencies", ()), *getattr(descriptor, "optional_dependencies", ()))


def sonames(name: str) -> tuple[str, ...]:
    """File names under which the loader knows a library; empty where this version does not say."""
    return tuple(getattr(_descriptor(name), "linux_sonames", ()))


@cache
def stems() -> dict[str, str]:
    """Name of each library of the toolkit by the stem of its file: ``{"libnvrtc": "nvrtc"}``."""
    names = {}
    for name in sorted(library_names()):
        for soname in sonames(name) or (f"lib{name}.so",):
            names[soname.partition(".so")[0]] = name
    return names


def _loaded(name: str) -> Resolved | None:
    """The loaded library with one of a library's file names: a look-up returns it before any search."""
    if sys.platform != "linux":
        return None
    path_of = private_part("dynamic_libs.load_dl_linux", "abs_path_for_dynamic_library")
    for soname in sonames(name):
        with suppress(OSError):
            handle = ctypes.CDLL(soname, mode=os.RTLD_NOLOAD)
            return Resolved(path_of(name, handle) if path_of else soname, ALREADY_LOADED, in_process=True)
    return None


def find_early(name: str) -> Resolved | None:
    """The library in wheels or in a conda environment: the search that precedes the loader's."""
    steps = private_part("dynamic_libs.search_steps", "EARLY_FIND_STEPS")
    context = private_part("dynamic_libs.search_steps", "SearchContext")
    run = private_part("dynamic_libs.search_steps", "run_find_steps")
    descriptor = _descriptor(name)
    if not (steps and context and run and descriptor):
        return None
    library = run(context(descriptor), steps)
    return Resolved(library.abs_path, library.found_via) if library else None


def _environment() -> dict[str, str]:
    """The child's environment, with the LD_LIBRARY_PATH that this process started with: its loader still uses that."""
    environment = dict(os.environ)
    with suppress(OSError):
        began = Path("/proc/self/environ").read_bytes().split(b"\0")
        environment.pop("LD_LIBRARY_PATH", None)
        for entry in began:
            if entry.startswith(b"LD_LIBRARY_PATH="):
                environment["LD_LIBRARY_PATH"] = os.fsdecode(entry.partition(b"=")[2])
    return environment


def run_child(program: str, purpose: str, *arguments: str) -> Any:
    """Run a program in a child process, and parse the JSON on the last line of its output.

    `program`: Python source.
    `purpose`: names the question in the error.
    `arguments`: for ``sys.argv``.
    Raises ResolutionError if the child fails or prints no JSON.
    """
    # -P: otherwise a json.py in the working directory would hide the standard library's
    command = [sys.executable, "-P", "-c", program, *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (this interpreter, and names as its arguments)
            command, capture_output=True, text=True, check=True, timeout=_TIMEOUT, env=_environment()
        )
        return json.loads(done.stdout.rstrip().rpartition("\n")[2])
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        last = (getattr(error, "stderr", "") or "").strip().rpartition("\n")[2]
        raise ResolutionError(f"{purpose} cannot be determined: {last or error}") from error


def _folders() -> str:
    """The folders in which a child process searches for modules and for wheels."""
    return json.dumps([sys.path, site.getsitepackages()])


def is_opened(name: str, file: str) -> bool:
    """Whether the loader finds a file that a library opens by name, where the public function has loaded that one.

    Raises ResolutionError if the child process fails.
    """
    return bool(run_child(_OPENING_CHILD, f"what {name} opens", _folders(), name, file))


def find_in_child(names: Sequence[str]) -> dict[str, Resolved | ResolutionError | None]:
    """The library that the public function loads for each name, in one child process; an error where it fails."""
    texts = {name: f"what a search for {name!r} would load" for name in names}
    try:
        answers = run_child(_CHILD, " and ".join(texts.values()), json.dumps([*names]), _folders())
    except ResolutionError as error:
        return dict.fromkeys(names, error)
    return {
        name: ResolutionError(f"{texts[name]} cannot be determined: {answer}")
        if isinstance(answer, str)
        else answer and Resolved(*answer)
        for name, answer in answers.items()
    }


def first_for_loader(names: Sequence[str]) -> dict[str, str]:
    """The file that the dynamic loader finds first for each file name of some libraries; a child process loads them.

    Raises ResolutionError if the child process fails.
    """
    wanted = json.dumps([soname for name in names for soname in sonames(name)])
    files: dict[str, str] = run_child(_LOADER_CHILD, "what the dynamic loader finds", wanted, loads.__file__)
    return files


@contextmanager
def looking_in(sites: Iterable[Path], prefix: Path) -> Iterator[None]:
    """Let look-ups search the packages of another environment, and its conda prefix, instead of this one's."""
    folders, kept = [str(place) for place in sites], (site.getsitepackages, site.ENABLE_USER_SITE)
    conda = os.environ.pop("CONDA_PREFIX", None)
    if (prefix / "conda-meta").is_dir():
        os.environ["CONDA_PREFIX"] = str(prefix)
    site.getsitepackages, site.ENABLE_USER_SITE = lambda prefixes=None: folders, False  # noqa: ARG005 (its signature)
    cache_clear()
    try:
        yield
    finally:
        site.getsitepackages, site.ENABLE_USER_SITE = kept
        os.environ.pop("CONDA_PREFIX", None)
        if conda is not None:
            os.environ["CONDA_PREFIX"] = conda
        cache_clear()


def program_of_wheels(name: str) -> str | None:
    """A program that a wheel brings, where users run it; cuda.pathfinder 1.5 does not look for those of CUDA 13."""
    folders = map(Path, site.getsitepackages())
    return next((str(file) for folder in folders for file in sorted(folder.glob(f"nvidia/cu*/bin/{name}"))), None)


def resolve(name: str) -> Resolved | None:
    """The library that ``load_nvidia_dynamic_lib(name)`` would load, without loading anything into this process.

    Raises ResolutionError if only loading it would show.
    """
    library = resolve_all([name])[name]
    if isinstance(library, ResolutionError):
        raise library
    return library


def resolve_all(names: Iterable[str]) -> dict[str, Resolved | ResolutionError | None]:
    """Return what `resolve` does for each library, as if it were the first; an error where `resolve` would raise it."""
    libraries: dict[str, Any] = {name: _loaded(name) or find_early(name) for name in names}
    unknown = [name for name, place in libraries.items() if place is None]
    return libraries | (find_in_child(unknown) if unknown else {})


def cache_clear() -> None:
    """Clear the caches of cuda.pathfinder's look-ups and of the searches below them."""
    for lookup in LOOKUPS:
        getattr(plain(lookup), "cache_clear", lambda: None)()
    for module, name in (
        ("utils.env_vars", "get_cuda_path_or_home"),
        ("utils.find_sub_dirs", "find_sub_dirs_cached"),
        ("dynamic_libs.load_nvidia_dynamic_lib", "_resolve_system_loaded_abs_path_in_subprocess"),
    ):
        getattr(private_part(module, name), "cache_clear", lambda: None)()
    stems.cache_clear()
