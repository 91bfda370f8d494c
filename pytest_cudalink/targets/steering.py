"""Steering one run: which targets there are, what they are forced to, and what they link.

One steering is active at a time: that of a pytest inside a pytest hides the outer one until it ends. Wrappers around a
library stay for the life of the process and ask for the active steering, so that nothing has to be unwrapped while
linkers live.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from traceback import walk_stack
from types import ModuleType
from typing import Any, Final, Literal, NoReturn, cast

from .. import probes
from ..base.tables import grouped
from ..loader.imports import ImportWatch, start_postponed
from ..loader.jitlink import jitlink_calls
from ..probes import libcuda
from .base import Backend, BackendChoice, ForcedBackendError, LinkEvent, LinkInput, StaleRecipeError, Target, outcome

#: Asked before a target is forced and before it links: (target, choice, inputs) to the choice that counts.
Decide = Callable[[str, BackendChoice, tuple[LinkInput, ...] | None], BackendChoice]

#: The module object that was prepared, by target ("" for a seam) and module name: a module that is imported again,
#: after it was taken out of sys.modules, is another object.
_installed: dict[tuple[str, str], ModuleType] = {}
_stack: list[Steering] = []


class _Thread(threading.local):
    """What one thread does. No context variable: free-threaded Python hands those down to new threads."""

    behalf: str | None = None  # the target that is linking through another one, such as numba-cuda through cuda.core
    covered = False  # whether a target or a seam is linking, and reports the link itself


_thread: Final = _Thread()


#: Packages whose frames are not the user's code.
_NOT_THE_USERS: Final = ("pytest_cudalink", "cuda", "ctypes", "contextlib", "numba", "numba_cuda")


@dataclass(frozen=True)
class UnsteeredLink:
    """One link, finished or refused, that no target steers."""

    via: str  # the module or library that linked: "cuda.bindings.nvjitlink", "libnvJitLink in libcccl.c.parallel.so"
    call: str  # the function that completed the link: "nvJitLinkComplete", "cuLinkComplete"
    where: str = ""  # file and line of the code that called it: "helper.py:12"; empty where that is unknown
    backend: str = "unknown"  # "driver" or "nvjitlink"; "unknown" where that cannot be seen
    result: str = "ok"  # "ok", or the error's type and code
    nodeid: str | None = None  # the test; None outside tests. The run sets it.
    # the backend that the run, or the test, forced at that moment; None if it forced none. The run sets it.
    forced: str | None = None

    @property
    def follows(self) -> bool:
        """Whether the link ran as forced, as far as that can be seen, or nothing was forced."""
        return self.forced is None or self.backend in (self.forced, "unknown")

    def __str__(self) -> str:
        """Return the call and the code that made it: ``"cuLinkComplete of cuda.bindings.driver, in helper.py:12"``."""
        return f"{self.call} of {self.via}" + (f", in {self.where}" if self.where else "")


def report(link: UnsteeredLink) -> None:
    """Count a link for the active run, which may fail the current test for it; does nothing outside a run.

    Never raises into the code that linked. Call it once for each link, from the thread that linked.
    """
    if (run := current()) is not None:
        run.report_unsteered(link)


def is_covered() -> bool:
    """Whether the link that this thread is making is reported elsewhere: by a target, or by an outer seam."""
    return _thread.covered


@contextmanager
def covered() -> Iterator[None]:
    """Leave out the links that are made inside the block: the code around it reports them."""
    before = _thread.covered
    try:
        _cover(on=True)  # inside: an interrupt must not leave it set, and hide every later link
        yield
        _cover(on=before)
    except BaseException:
        _cover(on=before)  # (again, if an exception kept the line above from doing so)
        raise


def _cover(*, on: bool) -> None:
    _thread.covered = on
    jitlink_calls.cover(on=on)


@contextmanager
def reported_link(via: str, call: str, backend: str, *, refusals: type[BaseException] = Exception) -> Iterator[None]:
    """Report the link that the block makes, unless the block raises another error than a refusal of the linker.

    `via`, `call`, `backend`: as in `UnsteeredLink`.
    `refusals`: the errors with which the linker refuses a link.
    """
    result = "ok"
    try:
        with covered():
            yield
    except BaseException as error:
        result = outcome(error) if isinstance(error, refusals) else ""
        raise
    finally:
        if result:
            report(UnsteeredLink(via, call, caller(), backend, result))


def caller() -> str:
    """Return file and line of the nearest frame that is not the plugin's, NVIDIA's or numba's, or an empty text."""
    for frame, line in walk_stack(sys._getframe(1)):  # noqa: SLF001
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _NOT_THE_USERS and not frame.f_code.co_filename.startswith("<frozen"):
            return f"{frame.f_code.co_filename}:{line}"
    return ""


def current() -> Steering | None:
    """Return the active steering, or None outside a run; starts one that a run has postponed."""
    start_postponed()
    return _active()


def _active() -> Steering | None:
    return _stack[-1] if _stack else None


@contextmanager
def on_behalf_of(name: str) -> Iterator[None]:
    """Count the links of another target inside the block as links of this one."""
    before = _thread.behalf
    try:
        _thread.behalf = name
        yield
        _thread.behalf = before
    except BaseException:
        _thread.behalf = before  # (again, if an exception kept the line above from doing so)
        raise


def linking_for(name: str) -> str:
    """Return the target for which a link through `name` counts."""
    return _thread.behalf or name


@dataclass(eq=False, kw_only=True)
class Steering:
    """The targets of one run, the choice that they are forced to, and where their links are reported."""

    targets: Mapping[str, Target]  # by name
    only: frozenset[str] | None = None  # names of the targets that may be forced; all are watched. None: all
    #: May change a choice for one target or one link.
    decide: Decide = lambda _target, choice, _inputs: choice
    #: By module name: what else to do with that module, once per process, when it is imported.
    seams: Mapping[str, Sequence[Callable[[ModuleType], None]]] = field(default_factory=dict)
    #: Called with each link.
    on_link: Callable[[LinkEvent], None] = lambda _event: None
    #: Called with the name of a target that cannot be steered and the reason, as long as nothing forces that target.
    on_unsupported: Callable[[str, str], None] = lambda _target, _why: None
    #: Called with each error before it is raised into the code that linked.
    on_mismatch: Callable[[ForcedBackendError], None] = lambda _error: None
    #: Called with the name of a target that is forced and cannot be steered, and the error, before that is raised into
    #: the code that imports the library or forces the target.
    on_stale: Callable[[str, Exception], None] = lambda _target, _error: None
    #: Called with each link that no target steers, and with the choice that counted for it.
    on_unsteered: Callable[[UnsteeredLink, BackendChoice], None] = lambda _link, _choice: None
    nodeid: Callable[[], str | None] = lambda: None  # returns the current test

    def __post_init__(self) -> None:
        self.modules: dict[str, dict[str, ModuleType]] = {name: {} for name in self.targets}
        self._by_module = grouped((name, target) for target in self.targets.values() for name in target.modules)
        self._stale: dict[str, str] = {}
        self._choice = self._of_run = BackendChoice()
        self._verified: set[tuple[str, Backend]] = set()
        self._imports = ImportWatch(self._imported)

    # -- life

    @property
    def _entries(self) -> tuple[tuple[list[Any], object], ...]:
        """The lists of what is active in this process, each with the entry of this steering."""
        return (_stack, self), (probes.listeners, self.refresh)

    def start(self, choice: BackendChoice) -> None:
        """Become the active steering, for modules imported now and later."""
        self._choice = self._of_run = choice
        for active, entry in self._entries:
            if entry not in active:  # an exception may have ended this before
                active.append(entry)
        self._imports.watch([*self.seams, *self._by_module])

    def stop(self) -> None:
        """Give every choice back to its library, or to the outer run."""
        try:
            self._stop()
        except BaseException:
            self._stop()  # what an exception left of it
            raise

    def _stop(self) -> None:
        self._imports.stop()
        for active, entry in self._entries[::-1]:
            if entry in active:
                active.remove(entry)
        outer = _active()
        if outer is not None:
            outer.refresh()
        else:
            for target, module in self._loaded():
                target.force(module, None)

    def _imported(self, module: ModuleType) -> None:
        name = module.__name__
        if name in self.seams:
            _install("", module, *self.seams[name])
        for target in self._by_module.get(name, []):
            backend = self.wanted(target.name).backend
            try:
                _install(target.name, module, target.install)
                self.modules[target.name][name] = module
                target.force(module, backend)
            except Exception as error:
                self.modules[target.name].pop(name, None)
                if backend is not None:
                    self.on_stale(target.name, error)
                if backend is not None or not isinstance(error, StaleRecipeError):
                    raise
                self._stale[target.name] = str(error)
                self.on_unsupported(target.name, str(error))

    def _loaded(self) -> Iterable[tuple[Target, ModuleType]]:
        for name, modules in self.modules.items():
            for module in list(modules.values()):
                yield self.targets[name], module

    # -- choices

    @property
    def choice(self) -> BackendChoice:
        """The choice that targets are forced to now."""
        return self._choice

    def force(self, choice: BackendChoice) -> BackendChoice:
        """Change the choice that targets are forced to; returns the previous one.

        Raises StaleRecipeError if a library that cannot be steered is imported and would be forced; the choice stays as
        it was.
        """
        before, self._choice = self._choice, choice
        if choice.backend != before.backend or choice.backend is not None:
            for name, why in self._stale.items():
                if self.wanted(name).backend is not None:
                    self._choice = before
                    error = StaleRecipeError(why)
                    self.on_stale(name, error)
                    raise error
            self.refresh()
        return before

    def refresh(self) -> None:
        """Apply the choice to every loaded target; also called when a faked version changes."""
        if _active() is not self:
            return
        for target, module in self._loaded():
            target.force(module, self.wanted(target.name).backend)

    def wanted(self, target: str, inputs: tuple[LinkInput, ...] | None = None) -> BackendChoice:
        """Return the choice for a target: for one link if its inputs are given, else from now on."""
        choice = self._choice
        if self.only is not None and target not in self.only:
            choice = BackendChoice(source="--cudalink-target leaves it out")
        return self.decide(target, choice, inputs)

    # -- links

    def report(self, event: LinkEvent, choice: BackendChoice, *, made_in: str | None = None) -> None:
        """Report a link, and compare its backend with the forced one.

        `choice`: what was forced when the linker was made.
        `made_in`: node ID of another test, in which the linker was made: what is forced now counts as well.
        Raises ForcedBackendError if the link ran on another backend.
        """
        event = replace(event, nodeid=self.nodeid())
        self.on_link(event)
        self._verify(event, choice)
        if made_in is not None and event.nodeid is not None and made_in != event.nodeid:
            self._verify_outlived(event, made_in)

    def _verify_outlived(self, event: LinkEvent, made_in: str) -> None:
        """Compare the backend of a linker from an earlier test with what is forced now."""
        wanted = self.wanted(event.target, event.inputs)
        if wanted.backend is None or event.backend in (wanted.backend, "unknown"):
            return
        msg = (
            f"cudalink: {event.target} was forced to {wanted.backend} by {wanted.source}, but this linker was made for "
            f"{event.backend} in {made_in}, and keeps its backend. Make the linker in the test or in a fixture of the "
            "test's scope"
        )
        self._refuse(event, msg)

    def _refuse(self, event: LinkEvent, msg: str) -> NoReturn:
        mismatch = ForcedBackendError(msg)
        self.on_mismatch(mismatch)
        raise mismatch from event.error

    def report_unsteered(self, link: UnsteeredLink) -> None:
        """Report a link that no target steers."""
        wanted = self._choice
        # where the run forces only some targets, other code may link as it likes; a test that names a backend means all
        if self.only is not None and wanted.source == self._of_run.source:
            wanted = BackendChoice()
        self.on_unsteered(replace(link, nodeid=self.nodeid(), forced=wanted.backend), wanted)

    def _verify(self, event: LinkEvent, wanted: BackendChoice) -> None:
        if wanted.backend is None or event.backend == "unknown":
            return
        key = (event.target, wanted.backend)
        confirmed = key in self._verified
        if confirmed and event.backend == wanted.backend:
            return
        target = self.targets.get(event.target)
        answers = {"its linker": event.backend}
        # the library is asked until it has once confirmed the choice; it cannot confirm one that is for one link alone
        if not confirmed and target is not None and self.wanted(event.target).backend == wanted.backend:
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
                f"The target {event.target} did not steer this link: correct the target or the code that undid its "
                "choice, update pytest-cudalink if the target is the plugin's, or leave it out with --cudalink-target"
            )
            self._refuse(event, msg)
        self._verified.add(key)


def _install(name: str, module: ModuleType, *installs: Callable[[ModuleType], None]) -> None:
    """Prepare a module once."""
    key = (name, module.__name__)
    if _installed.get(key) is not module:
        for install in installs:
            install(module)
        _installed[key] = module


_NO_RUN: Final = BackendChoice(source="no run")


class Watch:
    """One link, from the construction of its linker to the image; see `watch`.

    `choice`: what the run forces for this link.
    `backend`: the backend that ran; the target sets it as soon as it is known.
    """

    def __init__(self, target: str, inputs: Iterable[LinkInput] = ()) -> None:
        self.target = linking_for(target)
        self.inputs = tuple(inputs)
        self._run = run = current()
        wanted = (run.wanted(self.target, self.inputs), run.nodeid()) if run else (_NO_RUN, None)
        # the test in which the linker was made: none outside of tests, or if the backend is the caller's choice
        self.choice, self._made_in = wanted
        self.backend: str = "unknown"
        self._spent = 0.0
        self._done = False

    @contextmanager
    def step(self, *, last: bool = False) -> Iterator[None]:
        """Time a part of the link; an error in it, or the end of the last part, is reported."""
        start = time.perf_counter()
        try:
            with covered():
                yield
        except BaseException as error:
            self._spent += time.perf_counter() - start
            self._report(error)
            raise
        self._spent += time.perf_counter() - start
        if last:
            self._report(None)

    def _report(self, error: BaseException | None) -> None:
        run = self._run
        if self._done or run is None or run is not _active():
            return
        if isinstance(error, libcuda.DriverNotFoundError):  # then no link was made either
            return
        self._done = True
        run.report(
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
            made_in=self._made_in,
        )

    def add(self, added: LinkInput) -> None:
        """Add an input that the linker received after it was made; the run chooses for the link with all of them."""
        self.inputs = (*self.inputs, added)
        if self._run is not None:
            self.choice = self._run.wanted(self.target, self.inputs)

    def overrule(self, source: str) -> None:
        """Let `source` choose the backend of this link: it is no longer compared with the choice of the run."""
        self.choice = BackendChoice(source=source)
        self._made_in = None


def _driver_version() -> str | None:
    version = probes.driver_version_elsewhere()
    return None if version is None else str(version)


def _nvjitlink_version() -> str | None:
    # without the warning of nvjitlink_version: this only describes a link
    version = probes.nvjitlink_version() if probes.fakes().fakes_nvjitlink else probes.nvjitlink().usable
    return None if version is None else str(version)


@contextmanager
def watch(target: str, inputs: Iterable[LinkInput] = (), *, backend: str = "unknown") -> Iterator[Watch]:
    """Watch one link of a target: time it, report it, and compare its backend with the forced one.

    `target`: name of the target.
    `backend`: the backend, if it is known beforehand; otherwise set `Watch.backend` inside the block.
    Raises ForcedBackendError if the link ran on another backend than the forced one.
    """
    watched = Watch(target, inputs)
    watched.backend = backend
    with watched.step(last=True):
        yield watched


def replace_everywhere(old: object, new: object) -> None:
    """Replace a function or class in every imported module that holds it by name."""
    for module in list(sys.modules.values()):
        # its attributes may run code: of a module that is imported lazily, of an object that claims to be a module
        if not issubclass(type(module), ModuleType):
            continue
        names = vars(ModuleType)["__dict__"].__get__(module)
        for name, value in list(names.items()):
            if value is old:
                names[name] = new


def as_backend(value: str) -> Backend | None:
    """Return the backend that a library's own word means: ``"nvJitLink"`` is ``"nvjitlink"``; None if it is neither."""
    lowered = value.lower()
    return cast("Literal['driver', 'nvjitlink']", lowered) if lowered in ("driver", "nvjitlink") else None
