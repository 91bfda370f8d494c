"""Steering one run: which targets there are, what they are forced to, and what they link.

There is one steering at a time; a pytest inside a pytest stands in front of the outer one until it ends. What is
wrapped around a library stays for the life of the process and asks for the steering of the moment, so that nothing has
to be unwrapped while linkers live.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, Literal, cast

from .. import probes
from ..process.imports import ImportWatch
from .base import Backend, ForcedBackendError, StaleRecipeError, Target
from .events import LinkEvent, LinkInput

__all__ = ["Choice", "Steering", "Watch", "current", "linking_for", "on_behalf_of", "watch"]


@dataclass(frozen=True)
class Choice:
    """The backend that targets are to take.

    Attributes
    ----------
    backend : str or None
        None: each library decides.
    source : str
        Who says so.
    """

    backend: Backend | None = None
    source: str = "default"


#: Asked before a target is forced and before it links: (target, choice, inputs) to the choice that counts.
Decide = Callable[[str, Choice, tuple[LinkInput, ...] | None], Choice]

#: The module for which it was done, by target ("" for what is not a target's) and name: one that is imported anew,
#: after it was taken out of sys.modules, is another.
_installed: dict[tuple[str, str], ModuleType] = {}
_stack: list[Steering] = []
#: The target that links through another at present, such as numba-cuda through cuda.core.
_behalf: ContextVar[str | None] = ContextVar("pytest_cudalink_behalf", default=None)


def current() -> Steering | None:
    """The steering of the moment, or None outside a run."""
    return _stack[-1] if _stack else None


@contextmanager
def on_behalf_of(name: str) -> Iterator[None]:
    """Count what another target links inside the block as this one's."""
    token = _behalf.set(name)
    try:
        yield
    finally:
        _behalf.reset(token)


def linking_for(name: str) -> str:
    """The target that a link through `name` counts for."""
    return _behalf.get() or name


def _keep(_target: str, choice: Choice, _inputs: tuple[LinkInput, ...] | None) -> Choice:
    return choice


class Steering:
    """Targets of one run.

    Parameters
    ----------
    targets : sequence of Target
    only : collection of str, optional
        Names of those that may be forced; all are watched. None: all.
    decide : callable, optional
        May change a choice for one target or one link.
    seams : mapping of str to callable, optional
        What else to do with a module of some name, once per process, when it is imported.
    told : callable, optional
        Told of each link.
    left_alone : callable, optional
        Told of a target that cannot be steered, and need not be as long as nothing forces it: its name, and why.
    mismatched : callable, optional
        Told of each `ForcedBackendError`, before it is raised into whatever linked.
    nodeid : callable, optional
        The test of the moment.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        only: frozenset[str] | None = None,
        decide: Decide = _keep,
        seams: Mapping[str, Callable[[ModuleType], None]] | None = None,
        told: Callable[[LinkEvent], None] | None = None,
        left_alone: Callable[[str, str], None] = lambda _target, _why: None,
        mismatched: Callable[[ForcedBackendError], None] = lambda _error: None,
        nodeid: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.targets = {target.name: target for target in targets}
        self.only = only
        self.decide = decide
        self._seams = dict(seams or {})
        self.modules: dict[str, dict[str, ModuleType]] = {target.name: {} for target in targets}
        self._by_module: dict[str, list[Target]] = {}
        for target in targets:
            for name in target.modules:
                self._by_module.setdefault(name, []).append(target)
        self._told = told
        self._left_alone = left_alone
        self._mismatched = mismatched
        self._stale: dict[str, str] = {}
        self._nodeid = nodeid
        self._choice = Choice()
        self._verified: set[tuple[str, Backend]] = set()
        self._imports = ImportWatch(self._imported)

    # -- life

    def start(self, choice: Choice) -> None:
        """Stand in front; steer what is imported already and what will be."""
        self._choice = choice
        _stack.append(self)
        probes.listeners.append(self.refresh)
        self._imports.watch([*self._seams, *self._by_module])

    def stop(self) -> None:
        """Give every choice back to its library, or to the outer run."""
        self._imports.stop()
        if self.refresh in probes.listeners:
            probes.listeners.remove(self.refresh)
        if self in _stack:
            _stack.remove(self)
        outer = current()
        if outer is not None:
            outer.refresh()
        else:
            for target, module in self._loaded():
                target.force(module, None)

    def _imported(self, module: ModuleType) -> None:
        name = module.__name__
        if name in self._seams:
            _install("", module, self._seams[name])
        for target in self._by_module.get(name, []):
            try:
                _install(target.name, module, target.install)
            except StaleRecipeError as error:
                if self.wanted(target.name).backend is not None:
                    raise
                self._stale[target.name] = str(error)
                self._left_alone(target.name, str(error))
                continue
            self.modules[target.name][name] = module
            target.force(module, self.wanted(target.name).backend)

    def _loaded(self) -> Iterable[tuple[Target, ModuleType]]:
        for name, modules in self.modules.items():
            for module in list(modules.values()):
                yield self.targets[name], module

    # -- choices

    @property
    def choice(self) -> Choice:
        """What is forced at present."""
        return self._choice

    def force(self, choice: Choice) -> Choice:
        """Change what is forced; returns what was before.

        Raises
        ------
        StaleRecipeError
            If a library was imported that cannot be steered, and now is to be forced; nothing is changed then.
        """
        before, self._choice = self._choice, choice
        if choice.backend != before.backend or choice.backend is not None:
            for name, why in self._stale.items():
                if self.wanted(name).backend is not None:
                    self._choice = before
                    raise StaleRecipeError(why)
            self.refresh()
        return before

    def refresh(self) -> None:
        """Tell every loaded target what it is forced to; also when a faked version came or went."""
        if current() is not self:
            return
        for target, module in self._loaded():
            target.force(module, self.wanted(target.name).backend)

    def wanted(self, target: str, inputs: tuple[LinkInput, ...] | None = None) -> Choice:
        """What a target is to take: for one link when its inputs are given, else from now on."""
        choice = self._choice
        if self.only is not None and target not in self.only:
            choice = Choice(source="--cudalink-target leaves it out")
        return self.decide(target, choice, inputs)

    # -- links

    def tell(self, event: LinkEvent, choice: Choice) -> None:
        """Pass a link on, and hold each target against what was forced until it has agreed once.

        Raises
        ------
        ForcedBackendError
            If it ran on another backend.
        """
        event = replace(event, nodeid=self._nodeid())
        if self._told is not None:
            self._told(event)
        self._verify(event, choice)

    def _verify(self, event: LinkEvent, wanted: Choice) -> None:
        if wanted.backend is None or event.backend == "unknown":
            return
        key = (event.target, wanted.backend)
        if key in self._verified:
            return
        target = self.targets.get(event.target)
        answers = {"its linker": event.backend}
        # a choice for one link alone is nothing that the library as a whole could confirm
        if target is not None and self.wanted(event.target).backend == wanted.backend:
            for module in self.modules[event.target].values():
                answer = target.which_backend(module)
                if answer is not None:
                    answers["which_backend()"] = answer
        wrong = [f"{who} says {answer}" for who, answer in answers.items() if answer != wanted.backend]
        if wrong:
            version = target.version() if target else None
            named = f"{event.target} {version}" if version else event.target
            msg = (
                f"cudalink: {named} was forced to {wanted.backend} by {wanted.source}, but {' and '.join(wrong)}. "
                "Its recipe no longer steers it: update pytest-cudalink, or leave it out with --cudalink-target"
            )
            mismatch = ForcedBackendError(msg)
            self._mismatched(mismatch)
            raise mismatch from event.error
        self._verified.add(key)


def _install(name: str, module: ModuleType, install: Callable[[ModuleType], None]) -> None:
    """Prepare a module, unless that was done to it already."""
    key = (name, module.__name__)
    if _installed.get(key) is not module:
        install(module)
        _installed[key] = module


_NOWHERE: Final = Choice(source="no run")


class Watch:
    """One link from the making of its linker to its image; see `watch`.

    Attributes
    ----------
    target : str
    choice : Choice
        What is forced for this link.
    backend : str
        The backend that ran, to be set by the target as soon as it is known.
    """

    def __init__(self, target: str, inputs: Iterable[LinkInput] = ()) -> None:
        self.target = linking_for(target)
        self.inputs = tuple(inputs)
        self._run = current()
        self.choice = self._run.wanted(self.target, self.inputs) if self._run else _NOWHERE
        self.backend: str = "unknown"
        self._spent = 0.0
        self._done = False

    @contextmanager
    def step(self, *, last: bool = False) -> Iterator[None]:
        """Time a part of the link; an error in it, or the end of the last part, is told."""
        start = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self._spent += time.perf_counter() - start
            self._tell(error)
            raise
        self._spent += time.perf_counter() - start
        if last:
            self._tell(None)

    def _tell(self, error: BaseException | None) -> None:
        run = self._run
        if self._done or run is None or run is not current() or _reached_no_linker(error):
            return
        self._done = True
        run.tell(
            LinkEvent(
                target=self.target,
                backend=self.backend,
                inputs=self.inputs,
                duration=self._spent,
                error=error,
                forced=self.choice.source if self.choice.backend is not None else None,
                _driver=_driver_version,
                _nvjitlink=_nvjitlink_version,
            ),
            self.choice,
        )

    def chose_itself(self, source: str) -> None:
        """Its backend was told to the linker by somebody else: it is not held against what is forced."""
        self.choice = Choice(source=source)


def _reached_no_linker(error: BaseException | None) -> bool:
    """Whether there was no driver to link with: then there was no link, either."""
    api: Any = sys.modules.get("pytest_cudalink.probes.libcuda")
    return error is not None and api is not None and isinstance(error, api.DriverNotFoundError)


def _driver_version() -> str | None:
    found = probes.driver_version()
    return None if found is None else str(found)


def _nvjitlink_version() -> str | None:
    # without a warning: nobody here is about to link with it
    found = probes.nvjitlink_version() if probes.fakes().fakes_nvjitlink else probes.nvjitlink().usable
    return None if found is None else str(found)


@contextmanager
def watch(target: str, inputs: Iterable[LinkInput] = (), *, backend: str = "unknown") -> Iterator[Watch]:
    """Watch one link of a target: time it, tell of it, and hold it against what is forced.

    Parameters
    ----------
    target : str
        Name of the target.
    inputs : iterable of LinkInput
    backend : str
        The backend, where it is known beforehand; else set `Watch.backend` inside the block.

    Raises
    ------
    ForcedBackendError
        If the link ran on another backend than was forced; not looked at any more once one has run where it was.
    """
    watched = Watch(target, inputs)
    watched.backend = backend
    with watched.step(last=True):
        yield watched


def replace_everywhere(old: object, new: object) -> None:
    """Put a wrapper where modules that were imported earlier hold the original by name."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name, value in list(names.items()):
            if value is old:
                names[name] = new


def as_backend(value: str) -> Backend | None:
    """The backend that a library's own word for it means: ``"nvJitLink"`` and ``"nvjitlink"`` are one."""
    lowered = value.lower()
    return cast("Literal['driver', 'nvjitlink']", lowered) if lowered in ("driver", "nvjitlink") else None
