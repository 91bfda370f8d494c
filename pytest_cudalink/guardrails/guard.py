"""`CompatibilityGuardRails`: the look-ups of cuda.pathfinder, judged before a library is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, cast

from packaging.specifiers import SpecifierSet

from ..base.safe_text import warn
from ..compat.names import GUARD_RAIL_MODES, GuardRailMode
from . import _pathfinder, attribution
from .driver import DriverFacts, parse_cuda_version, parse_release
from .items import ALREADY_LOADED, CompatibilityWarning, Item, ItemKind, Verdict, error_of, libraries_by_name
from .pipelines import Pipeline, check_pipeline
from .rules import judge, parse_constraint

if TYPE_CHECKING:
    from cuda.pathfinder import LoadedDL, LocatedBitcodeLib, LocatedHeaderDir, LocatedStaticLib


Mode = GuardRailMode
MODES: Final = GUARD_RAIL_MODES
MODE_VARIABLE: Final = "CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS"
#: The mode if neither an argument nor the variable names one.
DEFAULT_MODE: Final[Mode] = "best_effort"
DRIVER_COMPATIBILITY_VARIABLE: Final = "CUDA_PATHFINDER_DRIVER_COMPATIBILITY"
_FORWARD: Final = "assume_forward_compatibility"


def mode_from_environment() -> Mode:
    """The mode in ``CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS``; `DEFAULT_MODE` if it is unset or empty.

    Raises RuntimeError if it has another value; lists the modes.
    """
    value = os.environ.get(MODE_VARIABLE) or DEFAULT_MODE
    if value not in MODES:
        raise RuntimeError(f"{MODE_VARIABLE}={value!r} is not a mode; expected {', '.join(MODES)}, or unset")
    return cast("Mode", value)


def forward_compatibility_assumed(mode: Mode) -> bool:
    """Whether ``CUDA_PATHFINDER_DRIVER_COMPATIBILITY`` relaxes the driver rule.

    Its value is always checked. Only Linux has forward compatibility; the platform is not checked in mode ``off``.

    Raises RuntimeError if it has an unknown value, or assumes forward compatibility on another platform than Linux.
    """
    value = os.environ.get(DRIVER_COMPATIBILITY_VARIABLE) or "default"
    if value not in ("default", _FORWARD):
        msg = f"{DRIVER_COMPATIBILITY_VARIABLE}={value!r} is not known; expected default, {_FORWARD}, or unset"
        raise RuntimeError(msg)
    if value == "default" or mode == "off":
        return False
    if sys.platform != "linux":
        msg = f"{DRIVER_COMPATIBILITY_VARIABLE}={_FORWARD} is for Linux only, this is {sys.platform}; unset it"
        raise RuntimeError(msg)
    return True


def driver_hint() -> str:
    """Return how to relax the driver rule, as the end of its advice; empty on platforms where nothing relaxes it."""
    if sys.platform != "linux":
        return ""
    return f", or, where the forward-compatibility package is installed, set {DRIVER_COMPATIBILITY_VARIABLE}={_FORWARD}"


class CompatibilityGuardRails:
    """The look-ups of cuda.pathfinder, refused if they do not fit each other, the driver, or the requested release.

    The guard remembers the items that passed, and compares later ones with them. It refuses before a library is loaded.
    Repeated look-ups are answered from a cache, as fast as cuda.pathfinder's own.

    Every look-up has the arguments and errors of the function of cuda.pathfinder with the same name. In addition, it
    raises `CompatibilityCheckError`, `CompatibilityInsufficientMetadataError` or `DriverCtkCompatibilityError`.

    `ctk_version`: the CUDA releases that are wanted, as a PEP 440 specifier: ``">=13.2,<14"``.
    `driver_cuda_version`: CUDA version of the driver: 13000, ``"13.0"`` or ``(13, 0)``. Default: the driver is asked.
    `driver_release_version`: release of the driver: ``"580.65.06"``. Default: NVML is asked.
    `mode`: ``"strict"``: refuse items that are not known to fit. ``"best_effort"``: let items pass about which too
    little is known. ``"warning_only"``: as best_effort, but warn with `CompatibilityWarning` instead of refusing.
    ``"off"``: no checks. None: read the environment at each first look-up.
    `on_verdict`: called with every verdict, including "compatible".
    Raises ValueError if an argument is invalid.
    """

    def __init__(
        self,
        *,
        ctk_version: str | SpecifierSet | None = None,
        driver_cuda_version: Any = None,
        driver_release_version: Any = None,
        mode: Mode | None = "strict",
        on_verdict: Callable[[Verdict], object] | None = None,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise ValueError(f"mode = {mode!r}; expected one of {', '.join(MODES)}, or None to read the environment")
        self._constraint = parse_constraint(ctk_version)
        self._driver = DriverFacts(parse_cuda_version(driver_cuda_version), parse_release(driver_release_version))
        self._mode = mode
        self.on_verdict = on_verdict
        self._lock = RLock()
        self._remembered: dict[Item, None] = {}
        self._pipelines: dict[Pipeline, None] = {}
        # the methods, each behind a cache that answers without entering Python
        self._cached = {name: cache(getattr(self, name)) for name in _pathfinder.LOOKUPS}
        self.__dict__.update(self._cached)

    def ask_elsewhere(self) -> None:
        """Let another process ask the driver: in this one the first call must be the program's own."""
        self._driver.asks_elsewhere = True

    # -- the look-ups

    def load_nvidia_dynamic_lib(self, libname: str) -> LoadedDL:
        """Load a library, after judging it and its dependencies."""
        load = _pathfinder.plain("load_nvidia_dynamic_lib")
        mode = self._checked_mode()
        if mode == "off":
            return cast("LoadedDL", load(libname))
        with self._lock:
            before = dict(self._remembered)
            try:
                expected = self._check_library(libname, mode, set())
                loaded: LoadedDL = load(libname)
            except BaseException:
                self._remembered = before  # libraries loaded nevertheless are found in the process
                raise
            if expected is not None and loaded.abs_path and loaded.abs_path != expected:
                # other code loaded one in the meantime: judge that one
                self._accept(make_item("dynamic-libs", libname, loaded.abs_path, loaded.found_via), mode)
            return loaded

    def locate_nvidia_header_directory(self, libname: str) -> LocatedHeaderDir | None:
        """Locate headers, and judge them."""
        headers: LocatedHeaderDir | None = _pathfinder.plain("locate_nvidia_header_directory")(libname)
        if headers is not None and headers.abs_path:
            self._check_found("headers", libname, headers.abs_path, headers.found_via)
        return headers

    def find_nvidia_header_directory(self, libname: str) -> str | None:
        """Locate headers, judge them, and return the folder."""
        headers = self._cached["locate_nvidia_header_directory"](libname)
        return headers.abs_path if headers else None

    def locate_static_lib(self, name: str) -> LocatedStaticLib:
        """Locate a static library, and judge it."""
        library: LocatedStaticLib = _pathfinder.plain("locate_static_lib")(name)
        self._check_found("static-libs", name, library.abs_path, library.found_via)
        return library

    def find_static_lib(self, name: str) -> str:
        """Locate a static library, judge it, and return its path."""
        return cast("str", self._cached["locate_static_lib"](name).abs_path)

    def locate_bitcode_lib(self, name: str) -> LocatedBitcodeLib:
        """Locate a bitcode library, and judge it."""
        library: LocatedBitcodeLib = _pathfinder.plain("locate_bitcode_lib")(name)
        self._check_found("bitcode-libs", name, library.abs_path, library.found_via)
        return library

    def find_bitcode_lib(self, name: str) -> str:
        """Locate a bitcode library, judge it, and return its path."""
        return cast("str", self._cached["locate_bitcode_lib"](name).abs_path)

    def find_nvidia_binary_utility(self, utility_name: str) -> str | None:
        """Find a program, and judge it."""
        program: str | None = _pathfinder.plain("find_nvidia_binary_utility")(utility_name)
        if program is not None:
            self._check_found("binaries", utility_name, program, "the search for programs")
        return program

    # -- pipelines

    def declare_pipeline(self, producer: str, consumer: str, artifact_kind: str) -> None:
        """Declare that one library reads what another one writes; checked once both are known, in either order.

        `producer`, `consumer`: names of dynamic libraries: ``"nvrtc"``, ``"nvJitLink"``, ``"nvvm"``.
        `artifact_kind`: ``"ltoir"``, ``"ptx"``, ``"elf"`` or ``"cubin"``.
        Raises ValueError if the kind is unknown, or there is no rule for the pair.
        Raises CompatibilityCheckError if both are known and do not fit; the declaration is then dropped.
        """
        pipeline = Pipeline(producer, consumer, artifact_kind)
        mode = self._checked_mode()
        if mode == "off":
            return
        with self._lock:
            libraries = libraries_by_name(self._present())
            if producer in libraries and consumer in libraries:
                verdict = check_pipeline(pipeline, libraries[producer], libraries[consumer])
                if not self._passes(verdict, mode, libraries.values()):
                    return
            self._pipelines[pipeline] = None

    def check_artifact(self, artifact_kind: str, producer: Item, consumer: Item) -> None:
        """Judge one artifact by the rule of the pipeline from NVRTC, whichever NVRTC this process has.

        `artifact_kind`: ``"ltoir"``, ``"ptx"``, ``"elf"`` or ``"cubin"``.
        `producer`: represents the artifact, with the release in the artifact's header.
        `consumer`: the library that must read it.
        Raises CompatibilityCheckError if the consumer's release may not read it.
        """
        mode = self._checked_mode()
        if mode != "off":
            with self._lock:
                verdict = check_pipeline(Pipeline("nvrtc", consumer.name, artifact_kind), producer, consumer)
                self._passes(verdict, mode, (producer, consumer))

    def present(self) -> tuple[Item, ...]:
        """The remembered items, and other libraries loaded in this process whose release is known."""
        with self._lock:
            return tuple(self._present())

    # -- facts

    @property
    def mode(self) -> Mode:
        """The current mode.

        Raises RuntimeError if the environment decides, and has an invalid value.
        """
        return self._mode if self._mode is not None else mode_from_environment()

    @property
    def remembered(self) -> tuple[Item, ...]:
        """The items that passed, in order."""
        return tuple(self._remembered)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The declared pipelines."""
        return tuple(self._pipelines)

    def cache_clear(self) -> None:
        """Forget all answers and items, here and in cuda.pathfinder; pipelines stay declared."""
        with self._lock:
            for cached in self._cached.values():
                cached.cache_clear()
            self._remembered.clear()
            self._driver.cache_clear()
            attribution.cache_clear()
            _pathfinder.cache_clear()

    def __repr__(self) -> str:
        wanted = f", ctk_version '{self._constraint}'" if self._constraint is not None else ""
        return f"<CompatibilityGuardRails: {self._mode or 'by environment'}{wanted}, {len(self._remembered)} items>"

    # -- how

    def _checked_mode(self) -> Mode:
        mode = self.mode
        forward_compatibility_assumed(mode)  # checks the variable in every mode
        return mode

    def _present(self) -> Iterator[Item]:
        """The remembered items, and other libraries loaded in this process whose release is known."""
        yield from self._remembered
        paths = {item.path for item in self._remembered}
        for name, path in attribution.loaded_libraries(_pathfinder.stems()):
            if path not in paths and os.path.realpath(path) not in map(os.path.realpath, paths):
                item = make_item("dynamic-libs", name, path, ALREADY_LOADED)
                if item.version is not None:
                    yield item

    def _check_found(self, kind: ItemKind, name: str, path: str, found_via: str) -> None:
        mode = self._checked_mode()
        if mode != "off":
            with self._lock:
                self._accept(make_item(kind, name, path, found_via), mode)

    def _check_library(self, name: str, mode: Mode, judged: set[str]) -> str | None:
        """Judge a library before it is loaded, dependencies first; returns the path to expect."""
        judged.add(name)
        if _pathfinder.packaging("dynamic-libs", name) == "driver":
            return None  # nothing to check, and only the loader knows its path
        try:
            library = _pathfinder.resolve(name)
        except _pathfinder.ResolutionError as error:
            self._accept(Item("dynamic-libs", name, "?", "?", "ctk", None, str(error)), mode)
            return None
        if library is None:
            return None  # cuda.pathfinder raises its own error
        if not library.in_process:
            for dependency in _pathfinder.dependencies(name):
                if dependency not in judged:
                    self._check_library(dependency, mode, judged)
        self._accept(make_item("dynamic-libs", name, library.path, library.found_via), mode)
        return library.path

    def _accept(self, item: Item, mode: Mode) -> None:
        """Judge an item, and remember or refuse it, depending on the mode."""
        itself = item.kind, item.name, item.path
        if any((old.kind, old.name, old.path, old.version) == (*itself, item.version) for old in self._remembered):
            return
        others = [other for other in self._present() if (other.kind, other.name, other.path) != itself]
        self._driver.assume_forward, self._driver.hint = forward_compatibility_assumed(mode), driver_hint()
        verdict = judge(
            item,
            others,
            constraint=self._constraint,
            driver=self._driver,
            pipelines=self.pipelines,
            unknown_driver_passes=mode != "strict",
        )
        if self._passes(verdict, mode, (item, *others)):
            self._remembered[item] = None

    def _passes(self, verdict: Verdict, mode: Mode, items: Iterable[Item]) -> bool:
        """Whether the item may be remembered; raises or warns, depending on the mode.

        `items`: what was compared; if wheels are among them, conda cannot repair it, as they precede its libraries.
        """
        if verdict.severity == "unknown" and mode == "strict":
            instead = "use the mode best_effort, which lets pass what is not known"
            verdict = replace(verdict, otherwise="; or ".join(filter(None, (verdict.otherwise, instead))))
        if verdict.fix:
            from ..base.install_command import installer_here

            installer = installer_here(by_conda=not any(item.wheel for item in items))
            verdict = replace(verdict, fix=verdict.fix.by(installer))
        if self.on_verdict is not None:
            self.on_verdict(verdict)
        if verdict.severity == "note":
            return True
        if verdict.severity == "unknown" and mode != "strict":
            # an unknown driver is not a fault of the item
            if mode == "warning_only" and verdict.kind != "driver":
                warn(verdict.text, CompatibilityWarning)
            return verdict.kind == "driver"
        if mode == "warning_only":
            warn(verdict.text, CompatibilityWarning)
            return False
        raise error_of(verdict)


def make_item(kind: ItemKind, name: str, path: str, found_via: str) -> Item:
    """Make the item for a path, with its CUDA release and its wheel.

    `kind`, `name`, `path`, `found_via`: as in `Item`.
    """
    packaged = _pathfinder.packaging(kind, name)
    if packaged != "ctk":
        return Item(kind, name, path, found_via, packaged, None, f"not a part of the toolkit ({packaged})")
    file = _pathfinder.header_file(name, path) if kind == "headers" else path
    fact, wheel = attribution.attribute(file), attribution.owner(file)
    if kind == "binaries" and wheel is not None:
        found_via = "site-packages"
    return Item(kind, name, path, found_via, packaged, fact.value, fact.witness, wheel.name if wheel else "")
