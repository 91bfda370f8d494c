"""The process-wide guard, and routing cuda.pathfinder's public functions through it.

This module owns that state. Functions that were imported by name before are exchanged in every module, including
compiled ones. Other references to them (a default argument, a closure, a container) cannot be exchanged, and are
reported.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from .. import probes
from ..loader.imports import start_postponed
from . import _pathfinder, attribution
from .guard import CompatibilityGuardRails
from .items import CompatibilityCheckError, Item
from .pipelines import ARTIFACT_KINDS

if TYPE_CHECKING:
    from ..artifacts import Artifact
    from ..versions import CudaVersion


@dataclass(frozen=True)
class Routing:
    """The result of `install`."""

    guard: CompatibilityGuardRails  # the guard that answers the look-ups
    routed: tuple[str, ...]  # "module.name" of every exchanged function
    # references that still call cuda.pathfinder directly, such as "a default argument of f in m"
    not_routed: tuple[str, ...]


_installed: list[Routing] = []  # one or none
#: What free-threaded Python adds to the number of references to most functions.
_DEFERRED: Final = sys.maxsize // 8


@cache
def process_wide_guard_rails() -> CompatibilityGuardRails:
    """The guard that the process shares; the environment decides its mode."""
    return CompatibilityGuardRails(mode=None)


def installed() -> Routing | None:
    """The current routing; None if nothing is installed. Installs first what a run has postponed."""
    start_postponed()
    return present()


def present() -> Routing | None:
    """The current routing as it is now; None if nothing is installed."""
    return _installed[0] if _installed else None


def install(guard: CompatibilityGuardRails | None = None) -> Routing:
    """Route the public look-ups of cuda.pathfinder through a guard, which also checks the bundled linker's inputs.

    A guard that was installed before is replaced.

    `guard`: default: `process_wide_guard_rails`.
    Returns the exchanged references, and those that cannot be exchanged.
    """
    start_postponed()
    return route(guard or process_wide_guard_rails())


def route(guard: CompatibilityGuardRails) -> Routing:
    """Install a guard as `install` does, without the one that a run has postponed."""
    from ..linker.objectcode import added_checks

    plain, before = _plain(), present()
    old = _functions(before.guard) if before else plain
    try:
        if _check_linker_input not in added_checks:
            added_checks.append(_check_linker_input)
        routed = _exchange(old, _functions(guard))
        _installed[:] = [Routing(guard, routed, _left(plain))]
    except BaseException:
        _exchange(_functions(guard), old)
        _installed[:] = [before] if before else []
        raise
    return _installed[0]


def uninstall() -> None:
    """Call cuda.pathfinder directly again; does nothing if nothing is installed.

    Functions are restored in the globals of modules, where `install` exchanges them. A default argument, a closure or a
    container that took a function of the guard in the meantime keeps it.
    """
    start_postponed()
    unroute()


def unroute() -> None:
    """Uninstall as `uninstall` does; what a run has postponed stays postponed."""
    before = present()
    if before is not None:
        try:
            _restore(before)
        except BaseException:
            _restore(before)  # what an exception left of it
            raise


def _restore(routing: Routing) -> None:
    _exchange(_functions(routing.guard), _plain())
    _installed.clear()


def declare_pipeline(producer: str, consumer: str, artifact_kind: str) -> None:
    """Declare a pipeline on the installed guard, or on the one of the process if none is installed.

    Parameters and errors as in `CompatibilityGuardRails.declare_pipeline`.
    """
    current = installed()
    guard = current.guard if current else process_wide_guard_rails()
    guard.declare_pipeline(producer, consumer, artifact_kind)


def check_input(
    guard: CompatibilityGuardRails, name: str, artifact: Artifact, nvjitlink: CudaVersion
) -> CompatibilityCheckError | None:
    """Check one input of a link, and declare the pipeline that made it.

    The artifact's header says which release made it. The pipeline is declared only if the process's NVRTC is of that
    release: an artifact from elsewhere says nothing about this process's NVRTC.

    `name`: name of the input.
    `artifact`: a leaf, not a container.
    `nvjitlink`: release of the nvJitLink that is to link.
    Returns the error if nvJitLink's release may not read the artifact, or if NVRTC and nvJitLink in this process do not
    fit for artifacts of this kind.
    """
    made = artifact.producer
    if made is None or artifact.kind not in ARTIFACT_KINDS:
        return None
    faked = probes.fakes().fakes_nvjitlink
    path = "?" if faked else probes.nvjitlink().path or "?"
    wheel, witness = attribution.owner(path), "faked" if faked else "nvJitLinkVersion"
    owner = wheel.name if wheel else ""
    consumer = Item("dynamic-libs", "nvJitLink", path, "pytest_cudalink.probes", "ctk", nvjitlink, witness, owner)
    producer = Item("artifacts", name, "memory", "the linker's inputs", "ctk", made, "its own header")
    try:
        guard.check_artifact(artifact.kind, producer, consumer)
        here = {item.version for item in guard.present() if item.kind == "dynamic-libs" and item.name == "nvrtc"}
        if here == {made}:
            guard.declare_pipeline("nvrtc", "nvJitLink", artifact.kind)
    except CompatibilityCheckError as error:
        return error
    return None


def _check_linker_input(name: str, artifact: Artifact, nvjitlink: CudaVersion) -> Exception | None:
    current = present()
    return check_input(current.guard, name, artifact, nvjitlink) if current else None


def _plain() -> dict[str, Callable[..., Any]]:
    return {name: _pathfinder.plain(name) for name in _pathfinder.LOOKUPS}


def _functions(guard: CompatibilityGuardRails) -> dict[str, Callable[..., Any]]:
    return {name: getattr(guard, name) for name in _pathfinder.LOOKUPS}


def _keeps_its_own(name: str) -> bool:
    """Whether a module must keep calling cuda.pathfinder directly."""
    return name.startswith(_pathfinder.PRIVATE_PREFIX)


def _plain_modules() -> list[tuple[str, dict[str, Any]]]:
    """Name and globals of every module that is a module and nothing more.

    Whatever else stands in `sys.modules` may run code when it is looked at: modules that are imported lazily, modules
    of a subclass, objects that only claim to be modules, as those of cffi do.
    """
    return [
        (name, vars(module))
        for name, module in list(sys.modules.items())
        if type(module) is types.ModuleType and type(name) is str
    ]


def _exchange(old: dict[str, Callable[..., Any]], new: dict[str, Callable[..., Any]]) -> tuple[str, ...]:
    """Exchange functions in the globals of every plain module; returns ``"module.name"`` of each."""
    by_identity = {id(function): new[name] for name, function in old.items()}
    exchanged = []
    for module_name, names in _plain_modules():
        if _keeps_its_own(module_name) or by_identity.keys().isdisjoint(map(id, list(names.values()))):
            continue
        for name, value in list(names.items()):
            if id(value) in by_identity:
                names[name] = by_identity[id(value)]
                exchanged.append(f"{module_name}.{name}")
    return tuple(sorted(exchanged))


def _left(functions: dict[str, Callable[..., Any]]) -> tuple[str, ...]:
    """The remaining references to the functions."""
    places = [names for name, names in _plain_modules() if _keeps_its_own(name)]
    places += [functions, _pathfinder.originals]
    known = Counter(id(value) for place in places for value in list(place.values()))
    # most processes hold no other reference: to count them takes no walk over all objects
    if all(count == known[id(functions[name])] for name, count in _reference_counts(functions).items()):
        return ()
    own = set(map(id, places))
    left: set[str] = set()
    for name in functions:  # noqa: PLC0206 (a pair would refer to the function)
        for referrer in gc.get_referrers(functions[name]):
            if id(referrer) not in own and (words := _describe(name, referrer)):
                left.add(words)
    return tuple(sorted(left))


def _reference_counts(values: Mapping[str, object]) -> dict[str, int]:
    """Return how many references there are to each value, without those of this function."""
    samples = ("", object()), ("function", types.FunctionType(_plain.__code__, {}))
    counts = {name: sys.getrefcount(value) for name, value in (*values.items(), *samples)}
    # which Python makes of them differs by version; free-threaded Python does not count those of a frame to functions
    ours, of_function = counts.pop(""), counts.pop("function")
    return {name: count - (of_function if count > _DEFERRED else ours) for name, count in counts.items()}


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a type; `isinstance` would ask the value itself, too, which may run code."""
    return issubclass(type(value), kind)


def _describe(name: str, referrer: object) -> str:
    """Describe a reference to a function; empty for one that does not call it."""
    if _is(referrer, types.FrameType):
        return ""
    if _is(referrer, types.CellType):
        owners = [user for cells in gc.get_referrers(referrer) if _is(cells, tuple) for user in _users(cells)]
        return f"{name}: a closure of {owners[0] if owners else 'some function'}"
    if _is(referrer, tuple):
        owners = _users(referrer)
        return f"{name}: a default argument of {owners[0]}" if owners else f"{name}: a tuple"
    if _is(referrer, dict):
        users = gc.get_referrers(referrer)
        classes = [user for user in users if _is(user, type)]
        if classes:
            return f"{name}: an attribute of the class {classes[0].__module__}.{classes[0].__qualname__}"
        modules = [user for user in users if _is(user, types.ModuleType)]
        return f"{name}: {_described_module(modules[0]) if modules else 'a dictionary'}"
    return f"{name}: an instance of {type(referrer).__module__}.{type(referrer).__qualname__}"


def _described_module(module: types.ModuleType) -> str:
    """Describe a module whose function was not exchanged."""
    names = vars(types.ModuleType)["__dict__"].__get__(module)  # of a subclass, too, without its code
    kind = type(module)
    why = "which is not in sys.modules" if kind is types.ModuleType else f"of the class {kind.__qualname__}"
    return f"the module {names.get('__name__')}, {why}"


def _users(values: object) -> list[str]:
    """Functions with these defaults or this closure."""
    users = [user for user in gc.get_referrers(values) if _is(user, types.FunctionType)]
    return [f"{user.__qualname__} in {user.__module__}" for user in users]
