"""The linker: inspects its inputs, decides on a backend, and links."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Self

from .. import probes
from ..compat.architectures import known_architectures, parse_architecture
from ..targets.bundled import Bundled
from ..targets.choice import Backend, BackendChoice
from ..targets.events import LinkInput
from ..targets.steering import Watch
from ..versions import CudaVersion
from . import forcing, input_checks
from .backends import OPENERS, opener
from .backends.nvjitlink import can_fetch_ltoir
from .dispatch import Decision, driver_matters, explain, policy_named
from .errors import LinkError, skew_sentence
from .objectcode import ObjectCode
from .options import DriverOption, LinkerOptions

__all__ = ["Linker"]

_MAKERS = {"cubin": ObjectCode.from_cubin, "ptx": ObjectCode.from_ptx, "ltoir": ObjectCode.from_ltoir}


@dataclass(frozen=True)
class _Settled:
    """What a linker settles before it calls a library.

    Attributes
    ----------
    backend : str
    version : CudaVersion or None
        CUDA release of the library that will link; None if the driver's is unknown.
    options : list
        The options as the backend takes them.
    """

    backend: Backend
    version: CudaVersion | None
    options: list[DriverOption] | list[str]


class Linker:
    """Links object codes, with nvJitLink or with the driver.

    The backend is chosen for this linker alone, when it is made, by the table of the policy
    (`pytest_cudalink.linker.dispatch`).

    Parameters
    ----------
    *object_codes : ObjectCode
        At least one.
    options : LinkerOptions, optional
    policy : str, optional
        Overrides ``options.policy``, which overrides the plugin's choice and ``CUDALINK_POLICY``.
    backend : str, optional
        ``"driver"`` or ``"nvjitlink"``: skips the table.

    Raises
    ------
    ValueError
        Without inputs; for an input that is damaged, linked already or of another kind than declared; for an option
        that the backend cannot honour; for an unknown architecture or policy.
    TypeError
        If an input is not an ObjectCode.
    RuntimeError
        If the table says that no backend can link this; if a driver is needed and missing. Its subclass
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
            msg = "Linker needs at least one ObjectCode, got none"
            raise ValueError(msg)
        for code in object_codes:
            if not isinstance(code, ObjectCode):
                found = type(code).__name__
                msg = f"Linker takes ObjectCode instances, got {found}; make one with ObjectCode.from_ptx or a sibling"
                raise TypeError(msg)
        if options is not None and not isinstance(options, LinkerOptions):
            msg = f"Linker: options must be a LinkerOptions, got {type(options).__name__}"
            raise TypeError(msg)
        self._options = options or LinkerOptions()
        self._inputs = [(code.name or f"input {number}", code) for number, code in enumerate(object_codes, 1)]
        input_checks.refuse_images(self._inputs)
        self._has_ltoir = any(code.artifact.needs_lto for code in object_codes)
        self._linked: ObjectCode | None = None
        self._watch = Watch(Bundled.name, (LinkInput(code.code_type, name, code.code) for name, code in self._inputs))
        with self._watch.step():
            self._decision = self._decide(policy, backend)
            if self._decision.backend is None:
                raise RuntimeError(self._decision.message)
            self._watch.backend = self._decision.backend
            self._settled = self._settle(self._decision.backend)
            self._open()

    # -- before any library is called

    def _decide(self, policy: str | None, backend: Backend | None) -> Decision:
        options = self._options
        lto = (self._has_ltoir, options.lto_requested)
        if policy is not None:
            policy_named(policy)  # a wrong name is an error even where a forced backend needs no policy
        forced = self._forced(backend)
        if forced.backend is not None:
            return self._obey(forced.backend, forced.source)
        policy = policy or options.policy or forcing.default_policy()
        nvjitlink = probes.nvjitlink_version()
        asked = driver_matters(nvjitlink, *lto, policy=policy)
        decision = explain(probes.driver_version() if asked else None, nvjitlink, *lto, policy=policy)
        return replace(decision, driver_asked=asked)

    def _forced(self, backend: Backend | None) -> BackendChoice:
        """Return the choice that skips the table: the argument, else `forcing`, else that of the run for this link."""
        if backend is not None:
            choice = BackendChoice(backend, "the argument 'backend'")
        elif by_hand := forcing.set_by_hand():
            choice = by_hand
        else:
            return self._watch.choice
        self._watch.overrule(choice.source)
        return choice

    def _obey(self, backend: Backend, source: str) -> Decision:
        if backend not in tuple(OPENERS):  # (a wrong backend may be unhashable)
            msg = f"Linker: unknown backend {backend!r}; known: {', '.join(map(repr, OPENERS))}"
            raise ValueError(msg)
        nvjitlink, driver = None, None
        if backend == "nvjitlink":
            nvjitlink = probes.nvjitlink_version()
            if nvjitlink is None:
                msg = f"nvJitLink is not available, but the backend nvjitlink is forced by {source}"
                raise RuntimeError(msg)
        elif self._has_ltoir:
            why = f"that backend is forced by {source}"
            msg = f"Linker: input {self._first_ltoir!r} is LTO-IR, which the driver backend does not link; {why}"
            raise ValueError(msg)
        else:
            driver = probes.driver_version()
        return Decision(
            backend=backend,
            policy="none",
            row="forced",
            driver=driver,
            nvjitlink=nvjitlink,
            inputs_have_ltoir=self._has_ltoir,
            lto_requested=self._options.lto_requested,
            because=f"forced by {source}",
            driver_asked=backend == "driver",
        )

    @property
    def _first_ltoir(self) -> str:
        """The name of the first input that only links as LTO-IR."""
        return next(name for name, code in self._inputs if code.artifact.needs_lto)

    def _settle(self, backend: Backend) -> _Settled:
        """Write the options for a backend, and check the inputs against its release."""
        version = self._decision.nvjitlink if backend == "nvjitlink" else probes.driver_version()
        settled = _Settled(backend, version, self._written_options(backend, version))
        if self._options.check_inputs and version is not None:
            input_checks.refuse_newer(self._inputs, backend, version)
            if backend == "nvjitlink":
                input_checks.refuse_by_added_checks(self._inputs, version)
        input_checks.refuse_duplicates(self._inputs, backend)
        return settled

    def _written_options(self, backend: Backend, version: CudaVersion | None) -> list[DriverOption] | list[str]:
        arch = self._resolve_arch(backend, version)
        if backend == "driver":
            return self._options.for_driver(arch)
        if self._has_ltoir and self._options.link_time_optimization is False:
            msg = (
                f"LinkerOptions.link_time_optimization = False, but input {self._first_ltoir!r} is LTO-IR "
                "(backend nvjitlink)"
            )
            raise ValueError(msg)
        assert version is not None  # (a decision for nvJitLink knows its version)
        return self._options.for_nvjitlink(version, arch, lto=self._has_ltoir)

    def _resolve_arch(self, backend: Backend, version: CudaVersion | None) -> str:
        arch, source = self._wanted_arch()
        try:
            _, number, suffix = parse_architecture(arch)
        except ValueError as error:
            msg = f"Linker: the architecture of {source} is not known here: {error}"
            raise ValueError(msg) from None
        known = known_architectures(version)
        if f"sm_{number}{suffix}" not in known:
            where = f"CUDA {version}" if version else "CUDA"
            msg = (
                f"{source} = {arch!r} is not an architecture of {where} (backend {backend}); known: {', '.join(known)}"
            )
            raise ValueError(msg)
        return arch

    def _wanted_arch(self) -> tuple[str, str]:
        """Return the architecture to link for, and where it comes from."""
        if self._options.arch is not None:
            return self._options.arch, "LinkerOptions.arch"
        device = probes.device_arch()
        if device is not None:
            return device, "the device"
        found: dict[str, str] = {}
        for name, code in self._inputs:
            for leaf in code.artifact.leaves:
                if leaf.arch:
                    found.setdefault(leaf.arch, name)
        if len(found) != 1:
            named = f"the inputs are for {', '.join(sorted(found))}" if found else "the inputs name none"
            msg = f"Linker needs LinkerOptions(arch='sm_…'): there is no device to ask, and {named}"
            raise ValueError(msg)
        ((arch, name),) = found.items()
        return arch.replace("sm_", "compute_") if self._options.ptx else arch, f"input {name!r}"

    # -- with a library

    def _open(self) -> None:
        self._state = opener(self._settled.backend, contain=self._options.contain)(self._settled.options)
        self._finalizer = weakref.finalize(self, self._state.close)
        try:
            for name, code in self._inputs:
                self._add(name, code)
        except BaseException:
            self.close()
            raise

    def _add(self, name: str, code: ObjectCode) -> None:
        data = code.code
        if code.code_type == "ptx" and not data.endswith(b"\0"):
            data += b"\0"  # both linkers want PTX terminated (nvJitLink documentation; CUDA Driver API, cuLinkAddData)
        try:
            self._state.add(code.code_type, data, name)
        except LinkError as error:
            version, hint = self._settled.version, ""
            if version is not None:
                for leaf, needs in input_checks.newer_leaves(code.artifact, version):
                    hint = skew_sentence(leaf, needs, version, self._settled.backend)
            raise error.with_context(input_name=name, artifact=code.artifact, hint=hint) from error.__cause__

    def link(self, target_type: str = "cubin") -> ObjectCode:
        """Link the inputs.

        Parameters
        ----------
        target_type : str
            ``"cubin"``; on nvJitLink also ``"ptx"`` (with ``LinkerOptions(ptx=True)``) and, from 13.3 on with LTO,
            ``"ltoir"``.

        Returns
        -------
        ObjectCode
            The same object if called again for the same target.

        Raises
        ------
        ValueError
            If the target does not fit the backend or the options.
        LinkError
            If the library refuses the link.
        RuntimeError
            If the linker is closed.
        """
        options = self._options
        lto = self._has_ltoir or options.lto_requested
        options.check_target(target_type, self.backend, self._decision.nvjitlink, lto=lto)
        with self._state.lock:  # a second thread waits, and gets the same object
            return self._link_once(target_type, lto=lto)

    def _link_once(self, target_type: str, *, lto: bool) -> ObjectCode:
        if self._linked is not None:
            if self._linked.code_type == target_type:
                return self._linked
            msg = f"link({target_type!r}): this linker already made a {self._linked.code_type}; make another Linker"
            raise ValueError(msg)
        if self.is_closed:
            msg = "link() on a closed Linker"
            raise RuntimeError(msg)
        if (
            target_type == "ltoir"
            and self._decision.nvjitlink
            and (obstacle := can_fetch_ltoir(self._decision.nvjitlink))
        ):
            raise ValueError(obstacle)
        with self._watch.step(last=True):
            image = self._complete(target_type, lto=lto)
        self._linked = _MAKERS[target_type](image, name=self._options.name)
        return self._linked

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
        return self._settled.backend

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
        return not self._finalizer.alive

    def close(self) -> None:
        """Release the handle and all memory; logs and linked code stay readable. May be called again.

        Waits for a thread that is linking.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Linker {self._options.name!r}: {self.backend}{', closed' if self.is_closed else ''}>"
