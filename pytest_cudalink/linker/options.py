"""The options of `Program` and `Linker`: validated once, then written for one backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from .._warn import warn
from ..compat.architectures import parse_architecture
from ..laziness import cached_property
from ..targets.choice import Backend
from ..versions import CudaVersion
from .dispatch import Decision, policy_named

__all__ = ["DriverOption", "LinkerOptions", "ProgramOptions"]

Names = str | Sequence[str] | None
#: Warnings to issue: (text, category).
_Warnings = tuple[tuple[str, type[Warning]], ...]


def names_of(owner: str, field: str, value: Names) -> tuple[str, ...] | None:
    """Return one name or a sequence of names as a tuple; None stays None."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if (
        isinstance(names, bytes)
        or not isinstance(names, Sequence)
        or not all(isinstance(name, str) and name for name in names)
    ):
        msg = f"{owner}.{field} takes a name or a sequence of names, got {value!r}"
        raise TypeError(msg)
    return tuple(names)


@cache
def _field_kinds(owner: type[Any]) -> dict[str, type]:
    """Return the plain type of each field that has one: bool for ``"bool | None"``."""
    plain: dict[str, type] = {"str": str, "int": int, "bool": bool}
    kinds = {field.name: str(field.type).removesuffix(" | None") for field in fields(owner)}
    return {name: plain[kind] for name, kind in kinds.items() if kind in plain}


def _check_types(options: Any) -> None:
    kinds = _field_kinds(type(options))  # type: ignore[arg-type] # mypy issue 11470: a class is hashable
    for field, kind in kinds.items():
        value = getattr(options, field)
        # bool is an int in Python, but 'max_register_count=True' is a mistake
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            msg = f"{type(options).__name__}.{field} takes {kind.__name__} or None, got {value!r}"
            raise TypeError(msg)


def _check_range(owner: str, field: str, value: int | None, low: int, high: int) -> None:
    if value is not None and not low <= value <= high:
        msg = f"{owner}.{field} = {value}, expected {low} to {high}"
        raise ValueError(msg)


@dataclass(frozen=True)
class DriverOption:
    """One entry of the option arrays of ``cuLinkCreate``: the CUjit_option, its name, and its value.

    A tuple of names becomes two entries: the array and its length.
    """

    key: int
    name: str
    value: int | tuple[str, ...]


# CUjit_option of cuda.h
_MAX_REGISTERS, _OPTIMIZATION_LEVEL, _TARGET, _DEBUG, _VERBOSE, _LINE_INFO = 0, 7, 9, 11, 12, 13
_FTZ, _PREC_DIV, _PREC_SQRT, _FMA = 21, 22, 23, 24
_KERNEL_NAMES, _OPTIMIZE_UNUSED = 25, 29
# CUjit_target: accelerated and family-specific targets are offset by these
_TARGET_OFFSET = {"": 0, "a": 0x10000, "f": 0x20000}

#: The first nvJitLink releases whose nvJitLink.h documents a relocatable link and linked LTO-IR. 13.2 ignores ``-r``
#: together with ``-lto`` and makes an executable; from 13.3 on the result is relocatable (measured).
_INCREMENTAL_SINCE, _INCREMENTAL_LTO_SINCE, _LTOIR_OUTPUT_SINCE = (
    CudaVersion(13, 2),
    CudaVersion(13, 3),
    CudaVersion(13, 3),
)


@dataclass(frozen=True)
class LinkerOptions:
    """Options of a `Linker`. None leaves a choice to the library; a False switch is off, on every backend.

    Attributes
    ----------
    name : str
        Name of the linker, and of the object code that it makes.
    arch : str, optional
        ``"sm_90"``, or ``"compute_90"`` for PTX output. Default: that of the current device; without a device, the one
        that all inputs are for.
    max_register_count : int, optional
        Registers per thread, 1 to 255.
    time : bool, optional
        Timing information in the info log. nvJitLink only.
    verbose : bool, optional
        Verbose info log.
    link_time_optimization : bool, optional
        LTO. Default: on when an input is LTO-IR. nvJitLink only.
    ptx : bool, optional
        PTX instead of a cubin; implies LTO. nvJitLink only.
    optimization_level : int, optional
        nvJitLink: 0 or 3. Driver: 0 to 4.
    debug, lineinfo : bool, optional
        Debug information; line information.
    ftz, prec_div, prec_sqrt, fma : bool, optional
        Floating-point modes of LTO; without LTO nvJitLink ignores them and a warning is issued. The driver accepts and
        ignores them (deprecated).
    kernels_used, variables_used : str or sequence of str, optional
        What must survive LTO; everything else may be removed. `kernels_used` also works without LTO and keeps every
        kernel whose name contains one of the names; on the driver it is deprecated. `variables_used` is rejected
        without LTO, and on the driver.
    optimize_unused_variables : bool, optional
        Unreferenced variables may be removed. Deprecated on the driver, without effect.
    ptxas_options : str or sequence of str, optional
        Passed to ptxas. nvJitLink only.
    split_compile, split_compile_extended : int, optional
        Threads of split compilation: 0 all processors, 1 off. nvJitLink only.
    no_cache : bool, optional
        Turn off the cache of intermediate steps. nvJitLink only.
    incremental : bool, optional
        Make a relocatable object that can be linked again. nvJitLink 13.2 or newer.
    check_inputs : bool
        Reject inputs that are newer than the linker. The bounds of images are always checked.
    policy : str, optional
        How the backend is chosen; default ``CUDALINK_POLICY``, else ``"strict-major"``.
    contain : bool
        Link in a worker process, so that a crash of nvJitLink is a LinkError. On the driver backend only an emulated
        driver can be contained.

    Raises
    ------
    TypeError, ValueError
        If a value has the wrong type or is out of range; names the field.
    """

    name: str = "<default linker>"
    arch: str | None = None
    max_register_count: int | None = None
    time: bool | None = None
    verbose: bool | None = None
    link_time_optimization: bool | None = None
    ptx: bool | None = None
    optimization_level: int | None = None
    debug: bool | None = None
    lineinfo: bool | None = None
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    fma: bool | None = None
    kernels_used: Names = None
    variables_used: Names = None
    optimize_unused_variables: bool | None = None
    ptxas_options: Names = None
    split_compile: int | None = None
    split_compile_extended: int | None = None
    no_cache: bool | None = None
    incremental: bool | None = None
    check_inputs: bool = True
    policy: str | None = None
    contain: bool = False

    def __post_init__(self) -> None:
        _check_types(self)
        owner = type(self).__name__
        if self.arch is not None and parse_architecture(self.arch)[0] == "lto":
            msg = f"{owner}.arch = {self.arch!r}: write {self.arch.replace('lto', 'sm')} (LTO is a separate option)"
            raise ValueError(msg)
        if self.policy is not None:
            policy_named(self.policy)
        _check_range(owner, "max_register_count", self.max_register_count, 1, 255)
        _check_range(owner, "optimization_level", self.optimization_level, 0, 4)
        _check_range(owner, "split_compile", self.split_compile, 0, 1 << 16)
        _check_range(owner, "split_compile_extended", self.split_compile_extended, 0, 1 << 16)
        for field in ("kernels_used", "variables_used", "ptxas_options"):
            object.__setattr__(self, field, names_of(owner, field, getattr(self, field)))
        if self.ptx and self.link_time_optimization is False:
            msg = "LinkerOptions.ptx needs link_time_optimization, which is set to False"
            raise ValueError(msg)
        if self.ptx and self.incremental:
            msg = "LinkerOptions.ptx and LinkerOptions.incremental exclude each other"
            raise ValueError(msg)

    @cached_property
    def lto_requested(self) -> bool:
        """Whether link-time optimization or PTX output is requested."""
        return bool(self.link_time_optimization or self.ptx)

    @cached_property
    def last_decisions(self) -> list[Decision]:
        """The last decision of the table for a link with these options; empty before the first."""
        return []

    @cached_property
    def _written(self) -> dict[tuple[object, ...], tuple[list[Any], _Warnings]]:
        """What `written` keeps: the options and their warnings, by backend, version, architecture and LTO."""
        return {}

    def for_nvjitlink(self, version: CudaVersion, arch: str, *, lto: bool) -> list[str]:
        """Return the options as nvJitLink spells them.

        Source: nvJitLink documentation, "Supported Link Options".

        Raises
        ------
        ValueError
            If this version of nvJitLink cannot honour an option with these inputs; names the option.

        Warns
        -----
        UserWarning
            For floating-point modes without LTO, which have no effect.
        """
        options, warnings = self._write_for_nvjitlink(version, arch, lto=lto)
        _issue(warnings)
        return options

    def _write_for_nvjitlink(self, version: CudaVersion, arch: str, *, lto: bool) -> tuple[list[str], _Warnings]:
        if self.optimization_level not in (None, 0, 3):
            raise _unsupported("optimization_level", self.optimization_level, "nvjitlink", "accepts 0 and 3")
        lto = lto or self.lto_requested
        if self.variables_used and not lto:
            # measured with 13.0.88: without LTO it silently drops every kernel
            raise _unsupported(
                "variables_used",
                self.variables_used,
                "nvjitlink",
                "supports it only with LTO: link LTO-IR, or leave it out",
            )
        since = _INCREMENTAL_LTO_SINCE if lto else _INCREMENTAL_SINCE
        if self.incremental and version < since:
            what = "with LTO needs" if lto else "needs"
            raise _unsupported(
                "incremental", self.incremental, "nvjitlink", f"{what} nvJitLink {since} or newer, found {version}"
            )
        if arch.startswith("compute_") and not self.ptx:
            raise _unsupported(
                "arch",
                arch,
                "nvjitlink",
                f"makes PTX for it (ptx=True) but no cubin: write {arch.replace('compute', 'sm')}",
            )
        switches = (
            ("-time", self.time),
            ("-verbose", self.verbose),
            ("-lto", lto),
            ("-ptx", self.ptx),
            ("-g", self.debug),
            ("-lineinfo", self.lineinfo),
            ("-optimize-unused-variables", self.optimize_unused_variables),
            ("-no-cache", self.no_cache),
            ("-r", self.incremental),
        )
        values: tuple[tuple[str, int | bool | None], ...] = (
            ("-maxrregcount", self.max_register_count),
            ("-ftz", self.ftz),
            ("-prec-div", self.prec_div),
            ("-prec-sqrt", self.prec_sqrt),
            ("-fma", self.fma),
            ("-split-compile", self.split_compile),
            ("-split-compile-extended", self.split_compile_extended),
        )
        modes = {"ftz": self.ftz, "prec_div": self.prec_div, "prec_sqrt": self.prec_sqrt, "fma": self.fma}
        lists = (
            ("-kernels-used", self.kernels_used),
            ("-variables-used", self.variables_used),
            ("-Xptxas", self.ptxas_options),
        )
        level = [] if self.optimization_level is None else [f"-O{self.optimization_level}"]
        written = [
            f"-arch={arch}",
            *level,
            *(option for option, on in switches if on),
            *(f"{option}={int(value)}" for option, value in values if value is not None),
            *(f"{option}={name}" for option, names in lists for name in names or ()),
        ]
        return written, () if lto else tuple(_without_lto(modes))

    def for_driver(self, arch: str) -> list[DriverOption]:
        """Return the options for cuLink*.

        Source: CUDA Driver API, CUjit_option.

        Raises
        ------
        ValueError
            If the driver cannot honour an option; names the option.

        Warns
        -----
        DeprecationWarning
            For options that remain from the driver's former LTO.
        """
        options, warnings = self._write_for_driver(arch)
        _issue(warnings)
        return options

    def _write_for_driver(self, arch: str) -> tuple[list[DriverOption], _Warnings]:
        unsupported: tuple[tuple[str, object, object], ...] = (
            ("time", self.time, False),
            ("link_time_optimization", self.link_time_optimization, False),
            ("ptx", self.ptx, False),
            # CU_JIT_REFERENCED_VARIABLE_NAMES keeps every variable and drops every kernel that is not named (measured
            # on driver 580.159.04), the opposite of what the caller wants
            ("variables_used", self.variables_used, ()),
            ("ptxas_options", self.ptxas_options, ()),
            ("split_compile", self.split_compile, 1),
            ("split_compile_extended", self.split_compile_extended, 1),
            ("no_cache", self.no_cache, False),
            ("incremental", self.incremental, False),
        )
        for field, value, off in unsupported:
            if value is not None and value != off:
                raise _unsupported(field, value, "driver", "has no such option")
        prefix, number, suffix = parse_architecture(arch)
        if prefix != "sm":
            raise _unsupported("arch", arch, "driver", f"links for real architectures only: write sm_{number}{suffix}")
        numbers: tuple[tuple[int, str, int | bool | None, bool], ...] = (
            (_MAX_REGISTERS, "max_register_count", self.max_register_count, False),
            (_OPTIMIZATION_LEVEL, "optimization_level", self.optimization_level, False),
            (_DEBUG, "debug", self.debug or None, False),
            (_VERBOSE, "verbose", self.verbose or None, False),
            (_LINE_INFO, "lineinfo", self.lineinfo or None, False),
            (_FTZ, "ftz", self.ftz, True),
            (_PREC_DIV, "prec_div", self.prec_div, True),
            (_PREC_SQRT, "prec_sqrt", self.prec_sqrt, True),
            (_FMA, "fma", self.fma, True),
            (_OPTIMIZE_UNUSED, "optimize_unused_variables", self.optimize_unused_variables or None, True),
        )
        options = [DriverOption(_TARGET, "arch", number + _TARGET_OFFSET[suffix])]
        warnings = []
        for key, field, value, deprecated in numbers:
            if value is not None:
                options.append(DriverOption(key, field, int(value)))
                if deprecated:
                    why = "its CU_JIT option only served LTO-IR from before CUDA 12.0, and has no effect"
                    warnings.append(_deprecated(field, why))
        if self.kernels_used:
            options.append(DriverOption(_KERNEL_NAMES, "kernels_used", tuple(self.kernels_used)))
            why = "CU_JIT_REFERENCED_KERNEL_NAMES is, too; it keeps every kernel whose name contains one of these"
            warnings.append(_deprecated("kernels_used", why))
        return options, tuple(warnings)

    def kept(self, backend: Backend, version: CudaVersion | None, lto: bool) -> list[DriverOption] | list[str] | None:
        """Return what `written` has kept for `arch`; None before, without `arch`, and where there is a warning."""
        found = self._written.get((backend, version, self.arch, lto))
        return None if found is None or found[1] else found[0]

    def written(
        self, backend: Backend, version: CudaVersion | None, arch: str, *, lto: bool
    ) -> list[DriverOption] | list[str]:
        """Return the options for a backend: `for_nvjitlink` or `for_driver`, written once and kept; warns every time.

        The list must stay as it is: the next link gets the same one.
        """
        key = (backend, version, arch, lto)
        kept = self._written.get(key)
        if kept is None:
            if backend == "driver":
                kept = self._write_for_driver(arch)
            else:
                assert version is not None  # (a decision for nvJitLink knows its version)
                kept = self._write_for_nvjitlink(version, arch, lto=lto)
            self._written[key] = kept
        if kept[1]:
            _issue(kept[1])
        return kept[0]

    def check_target(self, target: str, backend: Backend, version: CudaVersion | None, *, lto: bool) -> None:
        """Raise ValueError for a target that this backend does not make with these options.

        Raises
        ------
        ValueError
            Names the target, the backend, and the option that is missing or in the way.
        """
        if target == "cubin" and not self.ptx:
            return
        if target not in ("cubin", "ptx", "ltoir"):
            msg = f"link({target!r}): unknown target; known: 'cubin', 'ptx', 'ltoir'"
        elif backend == "driver" and target != "cubin":
            msg = f"link({target!r}): the driver backend makes cubins only; use the nvjitlink backend"
        elif target == "ptx" and not self.ptx:
            msg = "link('ptx') needs LinkerOptions(ptx=True) when the linker is made (backend nvjitlink)"
        elif target != "ptx" and self.ptx:
            msg = f"link({target!r}): LinkerOptions(ptx=True) makes PTX only (backend nvjitlink)"
        elif target == "ltoir" and (version is None or version < _LTOIR_OUTPUT_SINCE):
            msg = f"link('ltoir') needs nvJitLink {_LTOIR_OUTPUT_SINCE} or newer, found {version} (backend nvjitlink)"
        elif target == "ltoir" and not lto:
            msg = "link('ltoir') needs LTO-IR inputs or LinkerOptions(link_time_optimization=True) (backend nvjitlink)"
        else:
            return
        raise ValueError(msg)


def _unsupported(field: str, value: object, backend: Backend, why: str) -> ValueError:
    return ValueError(f"LinkerOptions.{field} = {value!r}: the {backend} backend {why}")


def _without_lto(values: dict[str, bool | None]) -> Iterator[tuple[str, type[Warning]]]:
    """Yield the warnings about options without effect: the code is compiled already (measured: the same images)."""
    for field, value in values.items():
        if value is not None:
            text = (
                f"LinkerOptions.{field} = {value!r} has no effect without LTO (backend nvjitlink): give it to the "
                "compiler, as in ProgramOptions, or link LTO-IR"
            )
            yield text, UserWarning


def _deprecated(field: str, why: str) -> tuple[str, type[Warning]]:
    return f"LinkerOptions.{field} is deprecated on the driver backend: {why}", DeprecationWarning


def _issue(warnings: _Warnings) -> None:
    for text, category in warnings:
        warn(text, category)


@dataclass(frozen=True)
class ProgramOptions:
    """Options of a `Program`, written for NVRTC. None leaves a choice to the compiler.

    Attributes
    ----------
    name : str
        Name of the program in messages, and of its object code.
    arch : str, optional
        ``"sm_90"`` or ``"compute_90"``. Default: that of the current device; without a device NVRTC's default, which
        serves for PTX and LTO-IR but not for a cubin.
    relocatable_device_code : bool, optional
        Needed for code that is linked with other code.
    link_time_optimization : bool, optional
        Implied by ``compile("ltoir")``, the only target that the option allows.
    debug, lineinfo : bool, optional
    max_register_count : int, optional
    ftz, prec_div, prec_sqrt, fma, use_fast_math : bool, optional
    define_macro, undefine_macro, include_path, pre_include : str or sequence of str, optional
        A macro is ``"NAME"`` or ``"NAME=VALUE"``.
    std : str, optional
        ``"c++17"``.
    extra_options : str or sequence of str, optional
        Passed to NVRTC unchanged.

    Raises
    ------
    TypeError, ValueError
        If a value has the wrong type or is out of range; names the field.
    """

    name: str = "<default program>"
    arch: str | None = None
    relocatable_device_code: bool | None = None
    link_time_optimization: bool | None = None
    debug: bool | None = None
    lineinfo: bool | None = None
    max_register_count: int | None = None
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    fma: bool | None = None
    use_fast_math: bool | None = None
    define_macro: Names = None
    undefine_macro: Names = None
    include_path: Names = None
    pre_include: Names = None
    std: str | None = None
    extra_options: Names = None

    def __post_init__(self) -> None:
        _check_types(self)
        if self.arch is not None:
            parse_architecture(self.arch)
        _check_range(type(self).__name__, "max_register_count", self.max_register_count, 1, 255)
        for field in ("define_macro", "undefine_macro", "include_path", "pre_include", "extra_options"):
            object.__setattr__(self, field, names_of(type(self).__name__, field, getattr(self, field)))

    def for_nvrtc(self, arch: str | None, *, lto: bool) -> list[str]:
        """Return the options for NVRTC. Source: NVRTC documentation, "Supported Compile Options"."""
        values: tuple[tuple[str, object], ...] = (
            ("--gpu-architecture", arch),
            ("--relocatable-device-code", self.relocatable_device_code),
            ("--maxrregcount", self.max_register_count),
            ("--ftz", self.ftz),
            ("--prec-div", self.prec_div),
            ("--prec-sqrt", self.prec_sqrt),
            ("--fmad", self.fma),
            ("--std", self.std),
        )
        switches = (
            ("-dlto", lto or self.link_time_optimization),
            ("--device-debug", self.debug),
            ("--generate-line-info", self.lineinfo),
            ("--use_fast_math", self.use_fast_math),
        )
        lists = (
            ("--define-macro=", self.define_macro),
            ("--undefine-macro=", self.undefine_macro),
            ("--include-path=", self.include_path),
            ("--pre-include=", self.pre_include),
            ("", self.extra_options),
        )
        return [
            *(
                f"{option}={str(value).lower() if isinstance(value, bool) else value}"
                for option, value in values
                if value is not None
            ),
            *(option for option, on in switches if on),
            *(f"{option}{name}" for option, names in lists for name in names or ()),
        ]
