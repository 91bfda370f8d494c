"""The linker: inspects its inputs, decides on a backend for itself, and links."""

from __future__ import annotations

import sys
import weakref
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Self

from .. import probes
from ..compat.architectures import known_architectures, parse_architecture
from ..versions import CudaVersion
from . import forcing
from .backends.driver import DriverLinkState
from .backends.nvjitlink import NvJitLinkState, can_fetch_ltoir
from .backends.state import LinkState
from .dispatch import BackendName, Decision, driver_matters, explain, policy_named
from .errors import LinkError, VersionSkewError, skew_sentence
from .objectcode import ObjectCode
from .options import LinkerOptions

__all__ = ["Linker"]

_MAKERS = {"cubin": ObjectCode.from_cubin, "ptx": ObjectCode.from_ptx, "ltoir": ObjectCode.from_ltoir}


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
        If an input is no ObjectCode.
    RuntimeError
        If the table says that no backend can link this; if there is no driver although it is needed. Its subclass
        `VersionSkewError` refuses inputs that are newer than the linker, and `LinkError` says what a library refused.
    """

    def __init__(
        self,
        *object_codes: ObjectCode,
        options: LinkerOptions | None = None,
        policy: str | None = None,
        backend: BackendName | None = None,
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
            msg = f"Linker: options is a LinkerOptions, got {type(options).__name__}"
            raise TypeError(msg)
        self._options = options or LinkerOptions()
        self._inputs = [(code.name or f"input {number}", code) for number, code in enumerate(object_codes, 1)]
        self._check_images()
        self._has_ltoir = any(code.artifact.needs_lto for code in object_codes)
        self._linked: ObjectCode | None = None
        self._watch = forcing.watched([(code.code_type, name, code.code) for name, code in self._inputs])
        with self._watched():
            self._open(policy, backend)

    def _watched(self, *, last: bool = False) -> AbstractContextManager[None]:
        return self._watch.step(last=last) if self._watch else nullcontext()

    def _open(self, policy: str | None, backend: BackendName | None) -> None:
        self._decision = self._decide(policy, backend)
        if self._decision.backend is None:
            raise RuntimeError(self._decision.message)
        self._backend = self._decision.backend
        if self._watch:
            self._watch.backend = self._backend
        self._check_against_backend()
        self._state = self._open_state()
        self._finalizer = weakref.finalize(self, self._state.close)
        try:
            for name, code in self._inputs:
                self._add(name, code)
        except BaseException:
            self.close()
            raise

    # -- before any library is called

    def _check_images(self) -> None:
        for name, code in self._inputs:
            found = code.artifact
            if found.problems:
                msg = f"Linker: input {name!r} ({code.code_type}) cannot be linked: {found.problems[0]}"
                raise ValueError(msg)
            if found.kind != code.code_type:
                msg = f"Linker: input {name!r} was given as {code.code_type}, but its bytes are {found.describe()}"
                raise ValueError(msg)
            if found.kind == "cubin" and not found.relocatable:
                # nvJitLink makes an image without kernels of it and reports no error; the driver refuses it or dies
                msg = (
                    f"Linker: input {name!r} ({found.describe()}) is linked already: load it as it is, "
                    "or compile it with relocatable_device_code=True"
                )
                raise ValueError(msg)

    def _decide(self, policy: str | None, backend: BackendName | None) -> Decision:
        options = self._options
        lto = (self._has_ltoir, options.lto_requested)
        forced = self._watch.forced if self._watch else forcing.forced()
        if policy is not None:
            policy_named(policy)  # a wrong one is told also where none is needed
        if backend is not None:
            forced = forcing.Forced(backend, "the argument 'backend'")
            if self._watch:
                self._watch.chose_itself(forced.source)
        if forced:
            return self._obey(forced)
        policy = policy or options.policy or forcing.default_policy()
        nvjitlink = probes.nvjitlink_version()
        asked = driver_matters(nvjitlink, *lto, policy=policy)
        decision = explain(probes.driver_version() if asked else None, nvjitlink, *lto, policy=policy)
        return replace(decision, driver_asked=asked)

    def _obey(self, forced: forcing.Forced) -> Decision:
        if forced.backend not in ("driver", "nvjitlink"):
            msg = f"Linker: unknown backend {forced.backend!r}; known: 'driver', 'nvjitlink'"
            raise ValueError(msg)
        nvjitlink, driver = None, None
        if forced.backend == "nvjitlink":
            nvjitlink = probes.nvjitlink_version()
            if nvjitlink is None:
                msg = f"nvJitLink is not available, but the backend nvjitlink is forced by {forced.source}"
                raise RuntimeError(msg)
        elif self._has_ltoir:
            name = next(name for name, code in self._inputs if code.artifact.needs_lto)
            why = f"that backend is forced by {forced.source}"
            msg = f"Linker: input {name!r} is LTO-IR, which the driver backend does not link; {why}"
            raise ValueError(msg)
        else:
            driver = probes.driver_version()
        return Decision(
            backend=forced.backend,
            policy="none",
            row="forced",
            driver=driver,
            nvjitlink=nvjitlink,
            inputs_have_ltoir=self._has_ltoir,
            lto_requested=self._options.lto_requested,
            because=f"forced by {forced.source}",
            driver_asked=forced.backend == "driver",
        )

    def _linker_version(self) -> CudaVersion | None:
        """CUDA release of the library that will link, as far as it is known."""
        return self._decision.nvjitlink if self._backend == "nvjitlink" else probes.driver_version()

    def _check_against_backend(self) -> None:
        version = self._linker_version()
        lto = self._has_ltoir
        arch = self._resolve_arch(version)
        if self._backend == "driver":
            self._driver_options = self._options.for_driver(arch)
        else:
            if lto and self._options.link_time_optimization is False:
                name = next(name for name, code in self._inputs if code.artifact.needs_lto)
                msg = f"LinkerOptions.link_time_optimization = False, but input {name!r} is LTO-IR (backend nvjitlink)"
                raise ValueError(msg)
            assert version is not None  # (a decision for nvJitLink knows its version)
            self._nvjitlink_options = self._options.for_nvjitlink(version, arch, lto=lto)
        if self._options.check_inputs and version is not None:
            self._refuse_newer_inputs(version)
            if self._backend == "nvjitlink":
                self._ask_guard_rails(version)
        self._refuse_duplicates()

    def _resolve_arch(self, version: CudaVersion | None) -> str:
        arch, source = self._wanted_arch()
        try:
            _, number, suffix = parse_architecture(arch)
        except ValueError as error:
            msg = f"Linker: the architecture of {source} is not known here: {error}"
            raise ValueError(msg) from None
        known = known_architectures(version)
        if f"sm_{number}{suffix}" not in known:
            where = f"CUDA {version}" if version else "CUDA"
            msg = f"{source} = {arch!r} is not of {where} (backend {self._backend}); known: {', '.join(known)}"
            raise ValueError(msg)
        return arch

    def _wanted_arch(self) -> tuple[str, str]:
        """The architecture to link for, and who says so."""
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

    def _refuse_newer_inputs(self, version: CudaVersion) -> None:
        for name, code in self._inputs:
            for leaf in code.artifact.leaves:
                if leaf.needs is not None and not leaf.needs.met_by(version):
                    raise VersionSkewError(
                        f"{self._describe_backend(version)} cannot link this input",
                        backend=self._backend,
                        input_name=name,
                        artifact=leaf,
                        hint=skew_sentence(leaf, leaf.needs, version, self._backend),
                    )

    def _ask_guard_rails(self, version: CudaVersion) -> None:
        """Where guard rails are installed, hold every input against nvJitLink as a pipeline from NVRTC."""
        routing = sys.modules.get("pytest_cudalink.guardrails.routing")
        installed = routing.installed() if routing else None
        if installed is None:
            return
        from ..guardrails import CompatibilityCheckError
        from ..guardrails.linking import check_input

        for name, code in self._inputs:
            for leaf in code.artifact.leaves:
                try:
                    check_input(installed.guard, name, leaf, version)
                except CompatibilityCheckError as error:
                    raise VersionSkewError(
                        f"{self._describe_backend(version)} must not link this input",
                        backend=self._backend,
                        input_name=name,
                        artifact=leaf,
                        hint=error.verdict.text.replace("\n", "\n  "),
                    ) from error

    def _refuse_duplicates(self) -> None:
        """Find what nvJitLink links without an error: it prints 'Multiple definition' to stdout and goes on."""
        first: dict[str, str] = {}
        for name, code in self._inputs:
            for symbol in code.artifact.defined:
                if symbol in first:
                    msg = f"multiple definition of {symbol!r} in {name!r}, first defined in {first[symbol]!r}"
                    raise LinkError(msg, backend=self._backend, input_name=name, artifact=code.artifact)
                first[symbol] = name

    # -- with a library

    def _open_state(self) -> LinkState:
        if self._backend == "driver":
            return DriverLinkState(self._driver_options)
        return NvJitLinkState(self._nvjitlink_options)

    def _add(self, name: str, code: ObjectCode) -> None:
        data = code.code
        if code.code_type == "ptx" and not data.endswith(b"\0"):
            data += b"\0"  # both linkers want PTX terminated (nvJitLink documentation; CUDA Driver API, cuLinkAddData)
        try:
            self._state.add(code.code_type, data, name)
        except LinkError as error:
            version, hint = self._linker_version(), ""
            for leaf in code.artifact.leaves:
                if version is not None and leaf.needs is not None and not leaf.needs.met_by(version):
                    hint = skew_sentence(leaf, leaf.needs, version, self._backend)
            raise error.with_context(input_name=name, artifact=code.artifact, hint=hint) from error.__cause__

    def _describe_backend(self, version: CudaVersion | None) -> str:
        return (
            f"{'nvJitLink' if self._backend == 'nvjitlink' else 'the driver of CUDA'} {version or '(unknown version)'}"
        )

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
            The same one when called again for the same target.

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
        options.check_target(target_type, self._backend, self._decision.nvjitlink, lto=lto)
        with self._state.lock:  # a second thread waits, and gets the same
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
        with self._watched(last=True):
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
    def backend(self) -> BackendName:
        """``"driver"`` or ``"nvjitlink"``."""
        return self._backend

    @property
    def decision(self) -> Decision:
        """Why: the policy, its row, the versions, and a sentence."""
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

        While another thread links, this waits for it.
        """
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Linker {self._options.name!r}: {self._backend}{', closed' if self.is_closed else ''}>"
