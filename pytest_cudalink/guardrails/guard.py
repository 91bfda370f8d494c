"""`CompatibilityGuardRails`: the look-ups of cuda.pathfinder, each judged before anything is loaded."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, cast

from packaging.specifiers import SpecifierSet

from ..compat.names import GUARD_RAIL_MODES as MODES
from ..compat.names import GuardRailMode as Mode
from . import _pathfinder, attribution
from .driver import DriverFacts, parse_cuda_version, parse_release
from .errors import CompatibilityWarning, error_of
from .items import ALREADY_LOADED, Item, ItemKind, Verdict
from .pipelines import Pipeline, check_pipeline
from .relations import libraries_by_name
from .rules import judge, parse_constraint

if TYPE_CHECKING:
    from cuda.pathfinder import LoadedDL, LocatedBitcodeLib, LocatedHeaderDir, LocatedStaticLib

__all__ = [
    "DEFAULT_MODE",
    "DRIVER_COMPATIBILITY_VARIABLE",
    "MODES",
    "MODE_VARIABLE",
    "CompatibilityGuardRails",
    "Mode",
    "driver_hint",
    "forward_compatibility_assumed",
    "make_item",
    "mode_from_environment",
]


MODE_VARIABLE: Final = "CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS"
#: Of guard rails that were installed without naming a mode, where the variable is not set either.
DEFAULT_MODE: Final[Mode] = "best_effort"
DRIVER_COMPATIBILITY_VARIABLE: Final = "CUDA_PATHFINDER_DRIVER_COMPATIBILITY"
_FORWARD: Final = "assume_forward_compatibility"


def mode_from_environment() -> Mode:
    """The mode that ``CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS`` names; `DEFAULT_MODE` when it is unset or empty.

    Raises
    ------
    RuntimeError
        If it has another value; lists the values.
    """
    value = os.environ.get(MODE_VARIABLE) or DEFAULT_MODE
    if value not in MODES:
        msg = f"{MODE_VARIABLE}={value!r} is not a mode; it may be {', '.join(MODES)}, or unset"
        raise RuntimeError(msg)
    return cast("Mode", value)


def forward_compatibility_assumed(mode: Mode) -> bool:
    """Whether ``CUDA_PATHFINDER_DRIVER_COMPATIBILITY`` relaxes the driver rule.

    Its value is always checked; that the platform is Linux, which alone has forward compatibility, not when the mode is
    ``off``.

    Raises
    ------
    RuntimeError
        If it has an unknown value, or asks for forward compatibility elsewhere than on Linux.
    """
    value = os.environ.get(DRIVER_COMPATIBILITY_VARIABLE) or "default"
    if value not in ("default", _FORWARD):
        msg = f"{DRIVER_COMPATIBILITY_VARIABLE}={value!r} is not known; it may be default, {_FORWARD}, or unset"
        raise RuntimeError(msg)
    if value == "default" or mode == "off":
        return False
    if sys.platform != "linux":
        msg = f"{DRIVER_COMPATIBILITY_VARIABLE}={_FORWARD} is for Linux only, this is {sys.platform}; unset it"
        raise RuntimeError(msg)
    return True


def driver_hint() -> str:
    """What relaxes a refusal of the driver rule, as the end of its advice; empty where nothing does."""
    if sys.platform != "linux":
        return ""
    return f", or, where the forward-compatibility package is installed, set {DRIVER_COMPATIBILITY_VARIABLE}={_FORWARD}"


class CompatibilityGuardRails:
    """The look-ups of cuda.pathfinder, refused where they do not fit each other, the driver, or what was asked for.

    Items that passed are remembered, and later ones are held against them. Refusals come before a library is loaded.
    A look-up that was answered once is answered from a cache, so that it then costs what cuda.pathfinder itself does.

    Parameters
    ----------
    ctk_version : str or SpecifierSet, optional
        The CUDA releases that are wanted, as a PEP 440 specifier: ``">=13.2,<14"``.
    driver_cuda_version : int, str or tuple of int, optional
        CUDA version of the driver, instead of asking it: 13000, ``"13.0"`` or ``(13, 0)``.
    driver_release_version : str, optional
        Release of the driver, instead of asking NVML: ``"580.65.06"``.
    mode : str or None
        ``"strict"``: whatever is not known to fit is refused. ``"best_effort"``: what is not known passes.
        ``"warning_only"``: as best_effort, but refusals are `CompatibilityWarning`. ``"off"``: no checks. None: what
        the environment says at each first look-up.
    on_verdict : callable, optional
        Gets every verdict, also those that are "compatible".

    Raises
    ------
    ValueError
        If an argument cannot be meant.

    Notes
    -----
    Every look-up takes what the function of cuda.pathfinder of the same name takes, and raises what it raises, and
    `CompatibilityCheckError`, `CompatibilityInsufficientMetadataError` or `DriverCtkCompatibilityError`.
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
            msg = f"mode = {mode!r}: give one of {', '.join(MODES)}, or None for what the environment says"
            raise ValueError(msg)
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

    # -- the look-ups

    def load_nvidia_dynamic_lib(self, libname: str) -> LoadedDL:
        """Load a library, after it and what it depends on was judged."""
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
                self._remembered = before  # what was loaded all the same is found in the process
                raise
            if expected is not None and loaded.abs_path and loaded.abs_path != expected:
                # somebody else was quicker: what is there now is judged as it is
                self._accept(make_item("dynamic-libs", libname, loaded.abs_path, loaded.found_via), mode)
            return loaded

    def locate_nvidia_header_directory(self, libname: str) -> LocatedHeaderDir | None:
        """Locate headers, and judge them."""
        found: LocatedHeaderDir | None = _pathfinder.plain("locate_nvidia_header_directory")(libname)
        if found is not None and found.abs_path:
            self._check_found("headers", libname, found.abs_path, found.found_via)
        return found

    def find_nvidia_header_directory(self, libname: str) -> str | None:
        """Locate headers, judge them, and give the folder alone."""
        found = self._cached["locate_nvidia_header_directory"](libname)
        return found.abs_path if found else None

    def locate_static_lib(self, name: str) -> LocatedStaticLib:
        """Locate a static library, and judge it."""
        found: LocatedStaticLib = _pathfinder.plain("locate_static_lib")(name)
        self._check_found("static-libs", name, found.abs_path, found.found_via)
        return found

    def find_static_lib(self, name: str) -> str:
        """Locate a static library, judge it, and give its path alone."""
        return cast("str", self._cached["locate_static_lib"](name).abs_path)

    def locate_bitcode_lib(self, name: str) -> LocatedBitcodeLib:
        """Locate a bitcode library, and judge it."""
        found: LocatedBitcodeLib = _pathfinder.plain("locate_bitcode_lib")(name)
        self._check_found("bitcode-libs", name, found.abs_path, found.found_via)
        return found

    def find_bitcode_lib(self, name: str) -> str:
        """Locate a bitcode library, judge it, and give its path alone."""
        return cast("str", self._cached["locate_bitcode_lib"](name).abs_path)

    def find_nvidia_binary_utility(self, utility_name: str) -> str | None:
        """Find a program, and judge it."""
        found: str | None = _pathfinder.plain("find_nvidia_binary_utility")(utility_name)
        if found is not None:
            self._check_found("binaries", utility_name, found, "the search for programs")
        return found

    # -- pipelines

    def declare_pipeline(self, producer: str, consumer: str, artifact_kind: str) -> None:
        """Say that what one library makes goes into another; checked when both are known, in either order.

        Parameters
        ----------
        producer, consumer : str
            Names of dynamic libraries: ``"nvrtc"``, ``"nvJitLink"``, ``"nvvm"``.
        artifact_kind : str
            ``"ltoir"``, ``"ptx"``, ``"elf"`` or ``"cubin"``.

        Raises
        ------
        ValueError
            If the kind is another one, or there is no rule for the pair.
        CompatibilityCheckError
            If both are known and do not fit; the declaration is not kept then.
        """
        pipeline = Pipeline(producer, consumer, artifact_kind)
        mode = self._checked_mode()
        if mode == "off":
            return
        with self._lock:
            libraries = libraries_by_name(self._present())
            if producer in libraries and consumer in libraries:
                verdict = check_pipeline(pipeline, libraries[producer], libraries[consumer])
                if not self._passes(verdict, mode):
                    return
            self._pipelines[pipeline] = None

    def check_artifact(self, artifact_kind: str, producer: Item, consumer: Item) -> None:
        """Judge one artifact by the rule of the pipeline from NVRTC, whichever NVRTC this process has.

        Parameters
        ----------
        artifact_kind : str
            ``"ltoir"``, ``"ptx"``, ``"elf"`` or ``"cubin"``.
        producer : Item
            Stands for the artifact: its release is the one that the artifact's own header names.
        consumer : Item
            The library that shall read it.

        Raises
        ------
        CompatibilityCheckError
            If the consumer's release may not read it.
        """
        mode = self._checked_mode()
        if mode != "off":
            with self._lock:
                self._passes(check_pipeline(Pipeline("nvrtc", consumer.name, artifact_kind), producer, consumer), mode)

    def present(self) -> tuple[Item, ...]:
        """What was remembered, and what others loaded into this process and whose release can be told."""
        with self._lock:
            return tuple(self._present())

    # -- facts

    @property
    def mode(self) -> Mode:
        """The mode that counts now.

        Raises
        ------
        RuntimeError
            If the environment decides, and names none.
        """
        return self._mode if self._mode is not None else mode_from_environment()

    @property
    def remembered(self) -> tuple[Item, ...]:
        """The items that passed, in their order."""
        return tuple(self._remembered)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines that were declared."""
        return tuple(self._pipelines)

    def cache_clear(self) -> None:
        """Forget every answer and every item, here and in cuda.pathfinder; pipelines stay declared."""
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
        forward_compatibility_assumed(mode)  # its value is judged in every mode
        return mode

    def _present(self) -> Iterator[Item]:
        """What was remembered, and what others loaded into this process and whose release can be told."""
        yield from self._remembered
        paths = {item.path for item in self._remembered}
        for library in attribution.loaded_libraries(_pathfinder.stems()):
            if library.path not in paths and os.path.realpath(library.path) not in map(os.path.realpath, paths):
                item = make_item("dynamic-libs", library.name, library.path, ALREADY_LOADED)
                if item.version is not None:
                    yield item

    def _check_found(self, kind: ItemKind, name: str, path: str, found_via: str) -> None:
        mode = self._checked_mode()
        if mode != "off":
            with self._lock:
                self._accept(make_item(kind, name, path, found_via), mode)

    def _check_library(self, name: str, mode: Mode, seen: set[str]) -> str | None:
        """Judge what loading a library would bring, dependencies first; the path that is expected."""
        seen.add(name)
        if _pathfinder.packaging("dynamic-libs", name) == "driver":
            return None  # nothing to check, and only the loader knows where it is
        try:
            found = _pathfinder.resolve(name)
        except _pathfinder.ResolutionError as error:
            fault = Item("dynamic-libs", name, "?", "?", "ctk", None, str(error))
            self._accept(fault, mode)
            return None
        if found is None:
            return None  # cuda.pathfinder says so itself
        if not found.in_process:
            for dependency, _ in _pathfinder.dependencies(name):
                if dependency not in seen:
                    self._check_library(dependency, mode, seen)
        self._accept(make_item("dynamic-libs", name, found.path, found.found_via), mode)
        return found.path

    def _accept(self, item: Item, mode: Mode) -> None:
        """Judge an item and remember it, or refuse it as the mode says."""
        itself = item.kind, item.name, item.path
        if any((one.kind, one.name, one.path, one.version) == (*itself, item.version) for one in self._remembered):
            return
        others = [other for other in self._present() if (other.kind, other.name, other.path) != itself]
        verdict = judge(
            item,
            others,
            constraint=self._constraint,
            driver=self._driver,
            pipelines=self.pipelines,
            assume_forward=forward_compatibility_assumed(mode),
            hint=driver_hint(),
            unknown_driver_passes=mode != "strict",
        )
        if self._passes(verdict, mode):
            self._remembered[item] = None

    def _passes(self, verdict: Verdict, mode: Mode) -> bool:
        """Whether the item may be remembered; raises or warns as the mode says."""
        if verdict.status == "insufficient_metadata" and mode == "strict":
            instead = "take the mode best_effort, which lets pass what is not known"
            verdict = replace(verdict, otherwise="; or ".join(filter(None, (verdict.otherwise, instead))))
        if self.on_verdict is not None:
            self.on_verdict(verdict)
        if verdict.status == "compatible":
            return True
        if verdict.status == "insufficient_metadata" and mode != "strict":
            # an unknown driver says nothing against the item itself
            if mode == "warning_only" and verdict.rule != "driver":
                _warn(verdict)
            return verdict.rule == "driver"
        if mode == "warning_only":
            _warn(verdict)
            return False
        raise error_of(verdict)


def make_item(kind: ItemKind, name: str, path: str, found_via: str) -> Item:
    """Say of something that was found which CUDA release it belongs to, and by which wheel it came.

    Parameters
    ----------
    kind, name, path, found_via
        As in `Item`.
    """
    packaged = _pathfinder.packaging(kind, name)
    if packaged != "ctk":
        return Item(kind, name, path, found_via, packaged, None, f"not a part of the toolkit ({packaged})")
    file = _pathfinder.header_file(name, path) if kind == "headers" else path
    fact, wheel = attribution.attribute(file), attribution.owner(file)
    if kind == "binaries" and wheel is not None:
        found_via = "site-packages"
    return Item(kind, name, path, found_via, packaged, fact.value, fact.witness, wheel.name if wheel else "")


def _warn(verdict: Verdict) -> None:
    """Warn at the line that made the look-up."""
    frame, level = sys._getframe(), 1  # noqa: SLF001 (as warnings itself does)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(__package__):
        frame, level = frame.f_back, level + 1
    warnings.warn(verdict.text, CompatibilityWarning, stacklevel=level)
