"""The linker: inspects its inputs, decides on a backend, and links."""

from __future__ import annotations

import atexit
import sys
import weakref
from functools import cache
from typing import Self

from .. import probes
from ..compat.architectures import known_architectures, parse_architecture
from ..targets.base import Backend, Bundled
from ..targets.steering import Watch, current
from ..versions import CudaVersion
from . import objectcode
from .backends import OPENERS, opener
from .backends.nvjitlink import can_fetch_ltoir
from .backends.state import LinkState
from .dispatch import Decision, driver_matters, explain, policy_named
from .errors import LinkError, skew_sentence
from .objectcode import ObjectCode
from .options import DriverOption, LinkerOptions
from .policy import default_policy

#: The options of a linker that names none.
_DEFAULT_OPTIONS = LinkerOptions()

_ARGUMENT = "the argument 'backend'"

#: The states of the linkers that are open, by id: they are closed at the end of the process. A weakref.finalize for
#: each linker does the same and costs as much as deciding on the backend.
_open_states: dict[int, LinkState] = {}
#: References to linkers that are gone although an exception kept their finalizer from closing them.
_gone: list[weakref.ref[Linker]] = []


def _close_forgotten() -> None:
    """Close the states of the linkers in `_gone`."""
    for key, state in list(_open_states.items()):
        if state.owner is not None and state.owner() is None:
            state.close()
            _open_states.pop(key, None)
    _gone.clear()


@atexit.register
def _close_all() -> None:
    while _open_states:
        _, state = _open_states.popitem()
        try:
            state.close()
        except Exception:  # noqa: BLE001 (the others are closed all the same)
            sys.excepthook(*sys.exc_info())


#: A situation has one decision, that of the table or a forced one: to make it again costs a twentieth of a link.
_decision, _kept = cache(explain), cache(Decision)


class Linker:
    """Links object codes, with nvJitLink or with the driver.

    The backend is chosen for this linker alone, when it is made, by the table of the policy
    (`pytest_cudalink.linker.dispatch`).

    `object_codes`: at least one.
    `policy`: overrides ``options.policy``, which overrides the plugin's choice and ``CUDALINK_POLICY``.
    `backend`: ``"driver"`` or ``"nvjitlink"``: skips the table.
    Raises ValueError without inputs; for an input that is damaged, linked already or of another kind than declared; for
    an option that the backend cannot honour; for an unknown architecture or policy.
    Raises TypeError if an input is not an ObjectCode.
    Raises RuntimeError if the table says that no backend can link this; if a driver is needed and missing. Its subclass
    `VersionSkewError` is raised for inputs that are newer than the linker, and `LinkError` if a library refuses.
    """

    def __init__(
        self,
        *object_codes: ObjectCode,
        options: LinkerOptions | None = None,
        policy: str | None = None,
        backend: Backend | None = None,
    ) -> None:
        if not object_codes:
            raise ValueError("Linker needs at least one ObjectCode, got none")
        for code in object_codes:
            if not isinstance(code, ObjectCode):
                kind = type(code).__name__
                msg = f"Linker takes ObjectCode instances, got {kind}; make one with ObjectCode.from_ptx or a sibling"
                raise TypeError(msg)
        if options is not None and not isinstance(options, LinkerOptions):
            raise TypeError(f"Linker: options must be a LinkerOptions, got {type(options).__name__}")
        self._options = options or _DEFAULT_OPTIONS
        self._codes = object_codes
        self._has_ltoir = False
        for code in object_codes:
            facts = code.facts
            if not facts.linkable:
                objectcode.refuse_images(self._inputs)
            if facts.needs_lto:
                self._has_ltoir = True
        self._linked: ObjectCode | None = None
        self._watch: Watch | None = None
        if current() is None:
            self._start(policy, backend)
        else:
            inputs = (code.as_link_input(number) for number, code in enumerate(object_codes, 1))
            self._watch = Watch(Bundled.name, inputs)
            with self._watch.step():
                self._start(policy, backend)

    @property
    def _inputs(self) -> objectcode.Inputs:
        """The inputs with their names in messages."""
        return [(code.name or f"input {number}", code) for number, code in enumerate(self._codes, 1)]

    def _start(self, policy: str | None, backend: Backend | None) -> None:
        """Decide on the backend, check options and inputs against it, and give it the inputs."""
        self._decision = self._decide(policy, backend)
        if self._decision.backend is None:
            raise RuntimeError(self._decision.message)
        if self._watch is not None:
            self._watch.backend = self._decision.backend
        self._backend: Backend = self._decision.backend
        self._open(self._settle())

    # -- before any library is called

    def _decide(self, policy: str | None, backend: Backend | None) -> Decision:
        if policy is not None:
            policy_named(policy)  # a wrong name is an error even where a forced backend needs no policy
        if backend is not None:
            if self._watch is not None:
                self._watch.overrule(_ARGUMENT)
            return self._obey(backend, _ARGUMENT)
        if self._watch is not None and self._watch.choice.backend is not None:
            return self._obey(self._watch.choice.backend, self._watch.choice.source)
        ltoir, lto = self._has_ltoir, self._options.lto_requested
        policy = policy or self._options.policy or default_policy()
        nvjitlink = probes.nvjitlink_version()
        asked = driver_matters(nvjitlink, ltoir, lto, policy)
        driver = probes.driver_version() if asked else None
        return _decision(driver, nvjitlink, ltoir, lto, policy, driver_asked=asked)

    def _obey(self, backend: Backend, source: str) -> Decision:
        if backend not in tuple(OPENERS):  # (a wrong backend may be unhashable)
            raise ValueError(f"Linker: unknown backend {backend!r}; known: {', '.join(map(repr, OPENERS))}")
        nvjitlink, driver = None, None
        if backend == "nvjitlink":
            nvjitlink = probes.nvjitlink_version()
            if nvjitlink is None:
                raise RuntimeError(f"nvJitLink is not available, but the backend nvjitlink is forced by {source}")
        elif self._has_ltoir:
            why = f"that backend is forced by {source}"
            msg = f"Linker: input {self._first_ltoir!r} is LTO-IR, which the driver backend does not link; {why}"
            raise ValueError(msg)
        else:
            driver = probes.driver_version()
        lto, why, asked = self._options.lto_requested, f"forced by {source}", backend == "driver"
        return _kept(backend, "none", "forced", driver, nvjitlink, self._has_ltoir, lto, why, driver_asked=asked)

    @property
    def _first_ltoir(self) -> str:
        """The name of the first input that only links as LTO-IR."""
        return next(name for name, code in self._inputs if code.facts.needs_lto)

    def _settle(self) -> list[DriverOption] | list[str]:
        """Return the options as the backend takes them, and check the inputs against its release."""
        backend, options = self._backend, self._options
        #: CUDA release of the library that will link; None if the driver's is unknown.
        self._version = version = self._decision.nvjitlink if backend == "nvjitlink" else probes.driver_version()
        written = options.kept(backend, version, lto=self._has_ltoir) or self._written_options(backend, version)
        if options.check_inputs and version is not None:
            for code in self._codes:
                needs = code.facts.needs
                if needs is not None and (needs.newer_than or needs.version > version) and not needs.met_by(version):
                    objectcode.refuse_newer(self._inputs, backend, version)
            if backend == "nvjitlink" and objectcode.added_checks:
                objectcode.refuse_by_added_checks(self._inputs, version)
        defined: set[str] = set()
        for code in self._codes:
            facts = code.facts
            if facts.defines_twice or not defined.isdisjoint(facts.defined):
                objectcode.refuse_duplicates(self._inputs, backend)
            defined |= facts.defined
        return written

    def _written_options(self, backend: Backend, version: CudaVersion | None) -> list[DriverOption] | list[str]:
        """Write the options, after checks that only the first link with the same options and versions needs."""
        arch = self._resolve_arch(backend, version)
        if backend == "nvjitlink" and self._has_ltoir and self._options.link_time_optimization is False:
            named = f"input {self._first_ltoir!r} is LTO-IR (backend nvjitlink)"
            raise ValueError(f"LinkerOptions.link_time_optimization = False, but {named}")
        return self._options.written(backend, version, arch, lto=self._has_ltoir)

    def _resolve_arch(self, backend: Backend, version: CudaVersion | None) -> str:
        arch, source = self._wanted_arch()
        try:
            _, number, suffix = parse_architecture(arch)
        except ValueError as error:
            raise ValueError(f"Linker: the architecture of {source} is not known here: {error}") from None
        if f"sm_{number}{suffix}" not in known_architectures(version):
            where = f"CUDA {version}" if version else "CUDA"
            what = f"{source} = {arch!r} is not an architecture of {where} (backend {backend})"
            raise ValueError(f"{what}; known: {', '.join(known_architectures(version))}")
        return arch

    def _wanted_arch(self) -> tuple[str, str]:
        """Return the architecture to link for, and where it comes from."""
        if self._options.arch is not None:
            return self._options.arch, "LinkerOptions.arch"
        device = probes.device_arch()
        if device is not None:
            return device, "the device"
        inputs_by_arch: dict[str, str] = {}
        for name, code in self._inputs:
            for arch in code.facts.archs:
                inputs_by_arch.setdefault(arch, name)
        if len(inputs_by_arch) != 1:
            archs = ", ".join(sorted(inputs_by_arch))
            named = f"the inputs are for {archs}" if archs else "the inputs name none"
            raise ValueError(f"Linker needs LinkerOptions(arch='sm_…'): there is no device to ask, and {named}")
        ((arch, name),) = inputs_by_arch.items()
        return arch.replace("sm_", "compute_") if self._options.ptx else arch, f"input {name!r}"

    # -- with a library

    def _open(self, options: list[DriverOption] | list[str]) -> None:
        if _gone:
            _close_forgotten()
        self._state = state = opener(self._backend, contain=self._options.contain)(options)
        try:
            state.owner = weakref.ref(self, _gone.append)  # written in C: no exception comes between
            _open_states[id(state)] = state
            for number, code in enumerate(self._codes, 1):
                facts = code.facts
                name = facts.name or f"input {number}"
                try:
                    state.add(facts.kind, facts.payload, name)
                except LinkError as error:
                    raise self._explained(error, name, code) from error.__cause__
        except BaseException:
            self.close()
            raise

    def _explained(self, error: LinkError, name: str, code: ObjectCode) -> LinkError:
        """Return the error of a library that refused an input, which also names the input and a version skew."""
        version, hint = self._version, ""
        if version is not None:
            for leaf, needs in objectcode.newer_leaves(code.artifact, version):
                hint = skew_sentence(leaf, needs, version, self._backend)
        return error.with_context(input_name=name, artifact=code.artifact, hint=hint, version=version)

    def link(self, target_type: str = "cubin") -> ObjectCode:
        """Link the inputs.

        `target_type`: ``"cubin"``; on nvJitLink also ``"ptx"`` (with ``LinkerOptions(ptx=True)``) and, from 13.3 on
        with LTO, ``"ltoir"``.
        Returns the same object if called again for the same target.
        Raises ValueError if the target does not fit the backend or the options.
        Raises LinkError if the library refuses the link.
        Raises RuntimeError if the linker is closed.
        """
        options = self._options
        lto = self._has_ltoir or options.lto_requested
        options.check_target(target_type, self._backend, self._decision.nvjitlink, lto=lto)
        with self._state.lock:  # a second thread waits, and gets the same object
            return self._link_once(target_type, lto=lto)

    def _link_once(self, target_type: str, *, lto: bool) -> ObjectCode:
        if self._linked is not None:
            if self._linked.code_type == target_type:
                return self._linked
            msg = f"link({target_type!r}): this linker already made a {self._linked.code_type}; make another Linker"
            raise ValueError(msg)
        if self.is_closed:
            raise RuntimeError("link() on a closed Linker")
        version = self._decision.nvjitlink
        if target_type == "ltoir" and version and (obstacle := can_fetch_ltoir(version)):
            raise ValueError(obstacle)
        if self._watch is None:
            image = self._complete(target_type, lto=lto)
        else:
            with self._watch.step(last=True):
                image = self._complete(target_type, lto=lto)
        self._linked = linked = ObjectCode._make(image, target_type, self._options.name)
        return linked

    def _complete(self, target_type: str, *, lto: bool) -> bytes:
        try:
            return self._state.complete(target_type)
        except LinkError as error:
            if lto and not self._has_ltoir:
                hint = "LTO was requested, but no input is LTO-IR: compile with Program.compile('ltoir')"
                raise error.with_context(hint=hint) from error.__cause__
            raise

    # -- facts and release

    @property
    def backend(self) -> Backend:
        """``"driver"`` or ``"nvjitlink"``."""
        return self._backend

    @property
    def decision(self) -> Decision:
        """The reason for the backend: the policy, its row, the versions, and a sentence."""
        return self._decision

    @property
    def handle(self) -> int:
        """Address of the nvJitLinkHandle or CUlinkState; 0 when closed."""
        return self._state.handle

    def get_info_log(self) -> str:
        """The info log; also after `close`."""
        self._state.read_logs()
        return self._state.info_log

    def get_error_log(self) -> str:
        """The error log; also after `close`, and after a link that failed."""
        self._state.read_logs()
        return self._state.error_log

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return id(self._state) not in _open_states

    def close(self) -> None:
        """Release the handle and all memory; logs and linked code stay readable. May be called again.

        Waits for a thread that is linking.
        """
        state = self._state
        try:
            state.close()
        finally:
            _open_states.pop(id(state), None)
            state.owner = None

    def __del__(self) -> None:
        if _open_states:  # otherwise closed, also by `_close_all`
            state = self.__dict__.get("_state")  # (it may have been refused before it was opened)
            if state is not None and id(state) in _open_states:
                self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Linker {self._options.name!r}: {self.backend}{', closed' if self.is_closed else ''}>"
