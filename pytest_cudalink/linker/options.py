"""The options of `Program` and `Linker`: validated once, then written for one backend."""

# ruff: noqa: RUF009 (an option is immutable)
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, TypeVar

from ..base.laziness import cached_property
from ..base.safe_text import warn
from ..compat.architectures import parse_architecture
from ..targets.base import Backend
from ..versions import CudaVersion
from .dispatch import policy_named

_T = TypeVar("_T")
Names = str | Sequence[str] | None
#: Warnings to issue: (text, category).
_Warnings = tuple[tuple[str, type[Warning]], ...]


def names_of(owner: str, field: str, value: object) -> tuple[str, ...]:
    """Return one name or a sequence of names as a tuple."""
    names: Any = (value,) if isinstance(value, str) else value
    several = isinstance(names, Sequence) and not isinstance(names, bytes)
    if not (several and all(isinstance(name, str) and name for name in names)):
        raise TypeError(f"{owner}.{field} takes a name or a sequence of names, got {value!r}")
    return tuple(names)


@dataclass(frozen=True)
class _Option:
    """How a field of the options is checked and written."""

    kind: type  # of its values; tuple for names
    flag: str = ""  # of nvJitLink or NVRTC, with `{}` for the value or each name. Without these it is a switch.
    bounds: tuple[int, int] | None = None  # the least and the greatest value
    jit: int | None = None  # the CUjit_option of cuda.h; None for an option that the driver does not have
    off: object = False  # the value that is no option for the driver, besides None and no names
    deprecated: str = ""  # why the driver's option is deprecated
    only_lto: bool = False  # whether nvJitLink ignores the option without LTO

    def field(self, default: _T) -> _T:
        """Return a field of a dataclass that is this option."""
        return field(default=default, metadata={"option": self})

    @property
    def is_switch(self) -> bool:
        return "{}" not in self.flag

    def checked(self, owner: str, name: str, value: object) -> object:
        """Return a value as the options keep it.

        Raises TypeError, ValueError if the value has the wrong type or is out of range; names the field.
        """
        if self.kind is tuple:
            return names_of(owner, name, value)
        # bool is an int in Python, but 'max_register_count=True' is a mistake
        if not isinstance(value, self.kind) or (self.kind is int and isinstance(value, bool)):
            raise TypeError(f"{owner}.{name} takes {self.kind.__name__} or None, got {value!r}")
        if self.bounds is not None and isinstance(value, int) and not self.bounds[0] <= value <= self.bounds[1]:
            raise ValueError(f"{owner}.{name} = {value}, expected {self.bounds[0]} to {self.bounds[1]}")
        return value

    def flags(self, value: object, words: tuple[str, str]) -> Iterator[str]:
        """Yield a value as nvJitLink or NVRTC spells it; `words` are those for False and True."""
        if self.is_switch:
            yield from [self.flag] if value else []
        elif value is not None:
            several = value if isinstance(value, tuple) else [words[value] if isinstance(value, bool) else value]
            yield from (self.flag.format(value) for value in several)


def _options_of(options: object) -> dict[str, _Option]:
    """Return the options by their names."""
    return _options_of_class(type(options))  # type: ignore[arg-type] # mypy issue 11470: a class is hashable


@cache
def _options_of_class(owner: type) -> dict[str, _Option]:
    return {option.name: option.metadata["option"] for option in fields(owner)}


def _check(options: object) -> None:
    """Check the fields of options, and keep names as a tuple."""
    for name, option in _options_of(options).items():
        value = getattr(options, name)
        if value is not None:
            object.__setattr__(options, name, option.checked(type(options).__name__, name, value))


def _flags(options: object, words: tuple[str, str], **instead: object) -> list[str]:
    """Return the flags of options, some of which have other values."""
    flagged = ((name, option) for name, option in _options_of(options).items() if option.flag)
    values = ((option, instead.get(name, getattr(options, name))) for name, option in flagged)
    return [flag for option, value in values for flag in option.flags(value, words)]


@dataclass(frozen=True)
class DriverOption:
    """One entry of the option arrays of ``cuLinkCreate``: the CUjit_option, its name, and its value.

    A tuple of names becomes two entries: the array and its length.
    """

    key: int
    name: str
    value: int | tuple[str, ...]


#: The CUjit_option of cuda.h that the architecture is.
_TARGET: Final = 9
_NO_EFFECT: Final = "its CU_JIT option only served LTO-IR from before CUDA 12.0, and has no effect"
# CUjit_target: accelerated and family-specific targets are offset by these
_TARGET_OFFSET = {"": 0, "a": 0x10000, "f": 0x20000}

#: The first nvJitLink releases whose nvJitLink.h documents a relocatable link and linked LTO-IR. 13.2 ignores ``-r``
#: together with ``-lto`` and makes an executable; from 13.3 on the result is relocatable (measured).
_INCREMENTAL_SINCE: Final = CudaVersion(13, 2)
_INCREMENTAL_LTO_SINCE = _LTOIR_OUTPUT_SINCE = CudaVersion(13, 3)


@dataclass(frozen=True)
class LinkerOptions:
    """Options of a `Linker`. None leaves a choice to the library; a False switch is off, on every backend.

    Raises TypeError, ValueError if a value has the wrong type or is out of range; names the field.
    """

    name: str = _Option(str).field("<default linker>")  # name of the linker, and of the object code that it makes
    # "sm_90", or "compute_90" for PTX output. Default: that of the current device; without a device, the one that all
    # inputs are for.
    arch: str | None = _Option(str, "-arch={}").field(None)
    # registers per thread, 1 to 255
    max_register_count: int | None = _Option(int, "-maxrregcount={}", bounds=(1, 255), jit=0).field(None)
    time: bool | None = _Option(bool, "-time").field(None)  # timing information in the info log. nvJitLink only.
    verbose: bool | None = _Option(bool, "-verbose", jit=12).field(None)  # verbose info log
    # LTO. Default: on when an input is LTO-IR. nvJitLink only.
    link_time_optimization: bool | None = _Option(bool, "-lto").field(None)
    ptx: bool | None = _Option(bool, "-ptx").field(None)  # PTX instead of a cubin; implies LTO. nvJitLink only.
    # nvJitLink: 0 or 3. Driver: 0 to 4.
    optimization_level: int | None = _Option(int, "-O{}", bounds=(0, 4), jit=7).field(None)
    debug: bool | None = _Option(bool, "-g", jit=11).field(None)  # debug information
    lineinfo: bool | None = _Option(bool, "-lineinfo", jit=13).field(None)  # line information
    # the four floating-point modes of LTO; without LTO nvJitLink ignores them and a warning is issued. The driver
    # accepts and ignores them (deprecated).
    ftz: bool | None = _Option(bool, "-ftz={}", jit=21, deprecated=_NO_EFFECT, only_lto=True).field(None)
    prec_div: bool | None = _Option(bool, "-prec-div={}", jit=22, deprecated=_NO_EFFECT, only_lto=True).field(None)
    prec_sqrt: bool | None = _Option(bool, "-prec-sqrt={}", jit=23, deprecated=_NO_EFFECT, only_lto=True).field(None)
    fma: bool | None = _Option(bool, "-fma={}", jit=24, deprecated=_NO_EFFECT, only_lto=True).field(None)
    # what must survive LTO; everything else may be removed. Also works without LTO and keeps every kernel whose name
    # contains one of the names; deprecated on the driver.
    kernels_used: Names = _Option(
        tuple,
        "-kernels-used={}",
        jit=25,
        deprecated="CU_JIT_REFERENCED_KERNEL_NAMES is, too; it keeps every kernel whose name contains one of these",
    ).field(None)
    # what must survive LTO; rejected without LTO, and on the driver, whose CU_JIT_REFERENCED_VARIABLE_NAMES keeps every
    # variable and drops every kernel that is not named (measured on driver 580.159.04)
    variables_used: Names = _Option(tuple, "-variables-used={}").field(None)
    # unreferenced variables may be removed. Deprecated on the driver, without effect.
    optimize_unused_variables: bool | None = _Option(
        bool, "-optimize-unused-variables", jit=29, deprecated=_NO_EFFECT
    ).field(None)
    ptxas_options: Names = _Option(tuple, "-Xptxas={}").field(None)  # passed to ptxas. nvJitLink only.
    # threads of split compilation, here and in the next: 0 all processors, 1 off. nvJitLink only.
    split_compile: int | None = _Option(int, "-split-compile={}", bounds=(0, 1 << 16), off=1).field(None)
    split_compile_extended: int | None = _Option(int, "-split-compile-extended={}", bounds=(0, 1 << 16), off=1).field(
        None
    )
    # turn off the cache of intermediate steps. nvJitLink only.
    no_cache: bool | None = _Option(bool, "-no-cache").field(None)
    # make a relocatable object that can be linked again. nvJitLink 13.2 or newer.
    incremental: bool | None = _Option(bool, "-r").field(None)
    # reject inputs that are newer than the linker. The bounds of images are always checked.
    check_inputs: bool = _Option(bool).field(default=True)
    # how the backend is chosen; default `CUDALINK_POLICY`, else "strict-major"
    policy: str | None = _Option(str).field(None)
    # link in a worker process, so that a crash of nvJitLink is a LinkError. On the driver backend only an emulated
    # driver can be contained.
    contain: bool = _Option(bool).field(default=False)

    def __post_init__(self) -> None:
        _check(self)
        if self.arch is not None and parse_architecture(self.arch)[0] == "lto":
            raise ValueError(
                f"LinkerOptions.arch = {self.arch!r}: write {self.arch.replace('lto', 'sm')} (LTO is a separate option)"
            )
        if self.policy is not None:
            policy_named(self.policy)
        if self.ptx and self.link_time_optimization is False:
            raise ValueError("LinkerOptions.ptx needs link_time_optimization, which is set to False")
        if self.ptx and self.incremental:
            raise ValueError("LinkerOptions.ptx and LinkerOptions.incremental exclude each other")

    @cached_property
    def lto_requested(self) -> bool:
        """Whether link-time optimization or PTX output is requested."""
        return bool(self.link_time_optimization or self.ptx)

    @cached_property
    def _written(self) -> dict[tuple[object, ...], tuple[list[DriverOption] | list[str], _Warnings]]:
        """What `written` keeps: the options and their warnings, by backend, version, architecture and LTO."""
        return {}

    def _for_nvjitlink(self, version: CudaVersion, arch: str, *, lto: bool) -> tuple[list[str], _Warnings]:
        """Return the options as nvJitLink spells them. Source: nvJitLink documentation, "Supported Link Options"."""
        if self.optimization_level not in (None, 0, 3):
            raise _unsupported("optimization_level", self.optimization_level, "nvjitlink", "accepts 0 and 3")
        lto = lto or self.lto_requested
        if self.variables_used and not lto:
            # measured with 13.0.88: without LTO it silently drops every kernel
            why = "supports it only with LTO: link LTO-IR, or leave it out"
            raise _unsupported("variables_used", self.variables_used, "nvjitlink", why)
        since = _INCREMENTAL_LTO_SINCE if lto else _INCREMENTAL_SINCE
        if self.incremental and version < since:
            why = f"{'with LTO needs' if lto else 'needs'} nvJitLink {since} or newer, found {version}"
            raise _unsupported("incremental", self.incremental, "nvjitlink", why)
        if arch.startswith("compute_") and not self.ptx:
            why = f"makes PTX for it (ptx=True) but no cubin: write {arch.replace('compute', 'sm')}"
            raise _unsupported("arch", arch, "nvjitlink", why)
        written = _flags(self, ("0", "1"), arch=arch, link_time_optimization=lto)
        return written, () if lto else tuple(_without_lto(self))

    def _for_driver(self, arch: str) -> tuple[list[DriverOption], _Warnings]:
        """Return the options for cuLink*. Source: CUDA Driver API, CUjit_option."""
        options = _options_of(self)
        for name, option in options.items():
            value = getattr(self, name)
            if option.flag and option.jit is None and name != "arch" and value not in (None, (), option.off):
                raise _unsupported(name, value, "driver", "has no such option")
        prefix, number, suffix = parse_architecture(arch)
        if prefix != "sm":
            raise _unsupported("arch", arch, "driver", f"links for real architectures only: write sm_{number}{suffix}")
        written = [DriverOption(_TARGET, "arch", number + _TARGET_OFFSET[suffix])]
        warnings = []
        for name, option in options.items():
            value = getattr(self, name)
            if option.jit is None or value in (None, ()) or (option.is_switch and not value):
                continue
            written.append(DriverOption(option.jit, name, value if isinstance(value, tuple) else int(value)))
            if option.deprecated:
                text = f"LinkerOptions.{name} is deprecated on the driver backend: {option.deprecated}"
                warnings.append((text, DeprecationWarning))
        return written, tuple(warnings)

    def kept(self, backend: Backend, version: CudaVersion | None, lto: bool) -> list[DriverOption] | list[str] | None:
        """Return what `written` has kept for `arch`; None before, without `arch`, and where there is a warning."""
        kept = self._written.get((backend, version, self.arch, lto))
        return None if kept is None or kept[1] else kept[0]

    def written(
        self, backend: Backend, version: CudaVersion | None, arch: str, *, lto: bool
    ) -> list[DriverOption] | list[str]:
        """Return the options as a backend takes them, written once and kept: the next link gets the same list.

        Raises ValueError if this release of the backend cannot honour an option with these inputs; names the option.
        Warns every time: of floating-point modes without LTO, which have no effect, by a UserWarning; of options that
        remain from the driver's former LTO by a DeprecationWarning.
        """
        key = (backend, version, arch, lto)
        kept = self._written.get(key)
        if kept is None:
            if backend == "driver":
                kept = self._for_driver(arch)
            else:
                assert version is not None  # (a decision for nvJitLink knows its version)
                kept = self._for_nvjitlink(version, arch, lto=lto)
            self._written[key] = kept
        options, warnings = kept
        for text, category in warnings:
            warn(text, category)
        return options

    def check_target(self, target: str, backend: Backend, version: CudaVersion | None, *, lto: bool) -> None:
        """Raise ValueError for a target that this backend does not make with these options.

        Raises ValueError names the target, the backend, and the option that is missing or in the way.
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


def _without_lto(options: LinkerOptions) -> Iterator[tuple[str, type[Warning]]]:
    """Yield the warnings about options without effect: the code is compiled already (measured: the same images)."""
    for name, option in _options_of(options).items():
        if option.only_lto and (value := getattr(options, name)) is not None:
            do = "give it to the compiler, as in ProgramOptions, or link LTO-IR"
            yield f"LinkerOptions.{name} = {value!r} has no effect without LTO (backend nvjitlink): {do}", UserWarning


@dataclass(frozen=True)
class ProgramOptions:
    """Options of a `Program`, written for NVRTC. None leaves a choice to the compiler.

    Raises TypeError, ValueError if a value has the wrong type or is out of range; names the field.
    """

    name: str = _Option(str).field("<default program>")  # name of the program in messages, and of its object code
    # "sm_90" or "compute_90". Default: that of the current device; without a device NVRTC's default, which serves for
    # PTX and LTO-IR but not for a cubin.
    arch: str | None = _Option(str, "--gpu-architecture={}").field(None)
    # needed for code that is linked with other code
    relocatable_device_code: bool | None = _Option(bool, "--relocatable-device-code={}").field(None)
    # implied by `compile("ltoir")`, the only target that the option allows
    link_time_optimization: bool | None = _Option(bool, "-dlto").field(None)
    debug: bool | None = _Option(bool, "--device-debug").field(None)
    lineinfo: bool | None = _Option(bool, "--generate-line-info").field(None)
    max_register_count: int | None = _Option(int, "--maxrregcount={}", bounds=(1, 255)).field(None)
    ftz: bool | None = _Option(bool, "--ftz={}").field(None)
    prec_div: bool | None = _Option(bool, "--prec-div={}").field(None)
    prec_sqrt: bool | None = _Option(bool, "--prec-sqrt={}").field(None)
    fma: bool | None = _Option(bool, "--fmad={}").field(None)
    use_fast_math: bool | None = _Option(bool, "--use_fast_math").field(None)
    define_macro: Names = _Option(tuple, "--define-macro={}").field(None)  # a macro is "NAME" or "NAME=VALUE"
    undefine_macro: Names = _Option(tuple, "--undefine-macro={}").field(None)
    include_path: Names = _Option(tuple, "--include-path={}").field(None)
    pre_include: Names = _Option(tuple, "--pre-include={}").field(None)
    std: str | None = _Option(str, "--std={}").field(None)  # "c++17"
    extra_options: Names = _Option(tuple, "{}").field(None)  # passed to NVRTC unchanged

    def __post_init__(self) -> None:
        _check(self)
        if self.arch is not None:
            parse_architecture(self.arch)

    def for_nvrtc(self, arch: str | None, *, lto: bool) -> list[str]:
        """Return the options for NVRTC. Source: NVRTC documentation, "Supported Compile Options"."""
        lto = bool(lto or self.link_time_optimization)
        return _flags(self, ("false", "true"), arch=arch, link_time_optimization=lto)
