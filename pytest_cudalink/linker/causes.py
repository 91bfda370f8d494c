"""Why a driver or nvJitLink refused device code, and the smallest changes that help: a pure function of versions.

The rules are those of the tables in `compat`; the decision table of `dispatch` says whether nvJitLink helps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..artifacts import Artifact
from ..base.finding import Finding
from ..base.install_command import install_command
from ..compat import atlas
from ..compat.releases import DRIVER_RELEASES, ptx_isa_of
from ..emulator.faults import name_of
from ..environment.wheels import NVJITLINK, TILEIRAS
from ..probes import FIRST_USABLE_NVJITLINK
from ..targets.base import Backend
from ..versions import CudaVersion, Needs
from . import dispatch
from .errors import LinkError

_NAMES: Final = {"ptx": "PTX", "ltoir": "LTO-IR", atlas.TILE: "Tile IR"}
#: CUDA_ERROR_JIT_COMPILER_NOT_FOUND.
_NO_COMPILER: Final = 221
#: The oldest CUDA version whose driver compiles Tile IR, by cuda.h.
_FIRST_TILE: Final = CudaVersion(13, 1)
#: The oldest PTX that a driver of CUDA 12 or later compiles.
_OLDEST_PTX: Final = (2, 0)
_LISTED: Final = 6
#: nvJitLinkResult of nvJitLink.h from 1 on, without ``NVJITLINK_ERROR_``.
_NVJITLINK_ERRORS: Final = (
    *("UNRECOGNIZED_OPTION", "MISSING_ARCH", "INVALID_INPUT", "PTX_COMPILE", "NVVM_COMPILE", "INTERNAL", "THREADPOOL"),
    *("UNRECOGNIZED_INPUT", "FINALIZE", "NULL_INPUT", "INCOMPATIBLE_OPTIONS", "INCORRECT_INPUT_TYPE", "ARCH_MISMATCH"),
    *("OUTDATED_LIBRARY", "MISSING_FATBIN", "UNRECOGNIZED_ARCH", "UNSUPPORTED_ARCH", "LTO_NOT_ENABLED"),
)
#: Those that say nothing about an input, but about options, a missing input or architecture, a kind that is off.
_NOT_OF_AN_INPUT: Final = frozenset({1, 2, 10, 11, 12, 18})


@dataclass(frozen=True)
class Refusal:
    """A call that refused device code."""

    call: str  # the function, such as "cuModuleLoadData"; empty for a check before any call
    code: int  # the CUresult or nvJitLinkResult; 0 without a call
    image: Artifact
    backend: Backend  # the reader of the image: "driver" or "nvjitlink"
    version: CudaVersion  # its CUDA version
    loads: bool = False  # whether the image is loaded; else it is an input of a link
    arch: str = ""  # architecture of the device, or of the link; empty where it is not known

    @property
    def reader(self) -> str:
        """The reader in words: ``"a driver of CUDA 12.9"``."""
        return f"nvJitLink {self.version}" if self.backend == "nvjitlink" else f"a driver of CUDA {self.version}"

    @property
    def error(self) -> str:
        """The error and the call in words: ``"CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData"``."""
        if not self.call:
            return "VersionSkewError: a link"
        if self.backend == "driver":
            return f"{name_of(self.code)} ({self.code}): {self.call}"
        name = dict(enumerate(_NVJITLINK_ERRORS, 1)).get(self.code, "UNKNOWN")
        return f"NVJITLINK_ERROR_{name} ({self.code}): {self.call}"


class _Reason(NamedTuple):
    leaf: Artifact
    why: str
    fixes: tuple[str, ...]


def explain(refusal: Refusal) -> Finding | None:
    """Return why the code was refused and what helps; None where neither versions nor architectures explain it."""
    if refusal.backend == "nvjitlink" and refusal.code in _NOT_OF_AN_INPUT:
        return None
    leaves = list(refusal.image.leaves)
    reasons = [reason for leaf in leaves if (reason := _reason(refusal, leaf)) is not None]
    # of a fatbin that is loaded, one image that fits is enough
    if not reasons or (refusal.loads and len(reasons) < len(leaves)):
        return None
    shown = reasons[:_LISTED] if refusal.loads else reasons[:1]
    described = " or ".join(dict.fromkeys(_described(cause.leaf) for cause in shown))
    if refusal.image.parts:
        described = f"a {refusal.image.kind} with {described}"
    why = "; ".join(dict.fromkeys(cause.why for cause in shown))
    fixes = dict.fromkeys(fix for cause in shown for fix in cause.fixes)
    return Finding("error", f"{refusal.error} of {described}", why=why, kind="skew", suggestion=tuple(fixes))


def of_link_error(error: LinkError) -> Finding | None:
    """Return why the bundled linker, or the library under it, refused an input; None where nothing explains it."""
    if error.artifact is None or error.version is None:
        return None
    backend: Backend = "driver" if error.backend == "driver" else "nvjitlink"
    return explain(Refusal(error.call, error.code or 0, error.artifact, backend, error.version))


def not_emulated(function: str, note: str) -> Finding:
    """Return the cause of a failure after a call that an emulated driver refused because it does not emulate it."""
    fix = ("run this test on a real driver", "--cudalink-unsupported=skip skips such tests here")
    what = f"CUDA_ERROR_NOT_SUPPORTED (801): {function}"
    return Finding("error", what, why=note, kind="not_emulated", suggestion=fix)


def linker_failed(function: str, failure: str) -> Finding:
    """Return the cause of a failure after a call in which the linker's process ended, or could not be started."""
    fix = (
        "run the test again; the code that it links need not be wrong",
        "if it happens again, let the machine or the container have more memory and more processes",
    )
    return Finding("error", f"CUDA_ERROR_UNKNOWN (999): {function}", why=failure, kind="linker", suggestion=fix)


def open_capture(said: str, nodeid: str) -> Finding:
    """Return the cause of a failure by a call that a capture forbids which a test (empty: the same) has left open."""
    if not nodeid:
        why = "the test captures a stream; until it ends that capture other calls fail, and so does work in stream 0"
        fix: tuple[str, ...] = (
            "do this before the capture begins or after it ends",
            "for work in stream 0, capture a stream that was created with CU_STREAM_NON_BLOCKING",
        )
        return Finding("error", said, why=why, kind="open_capture", suggestion=fix)
    why = f"{nodeid} began to capture a stream and did not end it; until then other calls of the process fail"
    fix = ("end it there with cuStreamEndCapture, also where the test fails", "--cudalink-processes=isolated")
    return Finding("error", said, why=why, kind="open_capture", suggestion=fix)


def invalid_capture(said: str, call: str, nodeid: str, *, by_mode: bool) -> Finding:
    """Return the cause of a failure by a capture that a call of a test (empty: the same test) has invalidated.

    `by_mode`: a capture in mode RELAXED would have allowed the call.
    """
    where = f"in {nodeid} " if nodeid else ""
    why = f"{call} {where}is a call that a capture forbids, and it invalidated the capture of a stream"
    other = ("capture with CU_STREAM_CAPTURE_MODE_RELAXED",) if by_mode else ()
    fix = (f"call {call} before the capture begins or after it ends", *other)
    return Finding("error", said, why=why, kind="open_capture", suggestion=fix)


def insufficient_driver(said: str, driver: CudaVersion) -> Finding:
    """Return the cause of a failure after cudaErrorInsufficientDriver (35), on a driver of a CUDA version."""
    needs = CudaVersion(driver.major + 1, 0)
    release = f" ({DRIVER_RELEASES[needs]})" if needs in DRIVER_RELEASES else ""
    why = f"a driver of CUDA {driver} serves CUDA runtimes up to CUDA {driver.major}; this code has a newer one"
    fix = (
        f"use the build for CUDA {driver.major} of the library that has the runtime",
        f"require a driver for CUDA {needs}{release} or newer",
    )
    return Finding("error", said, why=why, kind="skew", suggestion=fix)


def _described(leaf: Artifact) -> str:
    """Return a phrase for one image: ``"PTX ISA 9.0 for sm_90, made by CUDA 13.0"``."""
    text = _NAMES.get(leaf.kind, f"a {leaf.kind}")
    if leaf.ptx_isa:
        text += " ISA {}.{}".format(*leaf.ptx_isa)
    if leaf.arch:
        text += f" for {leaf.arch}"
    return f"{text}, made by CUDA {leaf.producer}" if leaf.producer else text


def _reason(refusal: Refusal, leaf: Artifact) -> _Reason | None:
    causes = [cause for cause in (_of_architecture(refusal, leaf), _of_version(refusal, leaf)) if cause is not None]
    if not causes:
        return None
    return _Reason(
        leaf, "; ".join(why for why, _ in reversed(causes)), tuple(fix for _, fixes in causes for fix in fixes)
    )


# -- versions


def _of_version(refusal: Refusal, leaf: Artifact) -> tuple[str, tuple[str, ...]] | None:
    """Return why the versions of reader and image do not fit, with the changes that help; None if they fit."""
    reader, version = refusal.reader, refusal.version
    if leaf.kind == atlas.TILE:
        return _of_tile(refusal, leaf)
    if leaf.kind == "ltoir" and refusal.backend == "driver":
        verb = "loads" if refusal.loads else "links"
        why = f"no driver {verb} LTO-IR: nvJitLink links it, and the driver loads the result"
    elif leaf.ptx_isa is not None:
        if leaf.ptx_isa < _OLDEST_PTX and refusal.backend == "driver":
            return f"{reader} reads PTX from ISA 2.0 on", ("compile the code again, with CUDA 12 or newer",)
        reads = ptx_isa_of(version)
        if leaf.ptx_isa <= reads:
            return None
        why = f"{reader} reads PTX up to ISA {_dotted(reads)}; {_maker(leaf)} wrote {_dotted(leaf.ptx_isa)}"
    elif leaf.needs is None or leaf.needs.met_by(version):
        return None
    elif not refusal.loads:
        why = f"{reader} links code of CUDA {version} or older; {_maker(leaf)} made this"
    elif leaf.needs.version.major > version.major:
        why = f"{reader} loads cubins of toolkits up to CUDA {version.major}; {_maker(leaf)} made this one"
    else:
        return None  # of the driver's own major release
    return why, tuple(_changes(refusal, leaf))


def _of_tile(refusal: Refusal, leaf: Artifact) -> tuple[str, tuple[str, ...]] | None:
    """Return why Tile IR was refused, with the changes that help; None where its reader should compile it."""
    version, needs = refusal.version, leaf.needs
    if needs is None:
        return None
    known = [cuda for cuda in atlas.load().tileiras_for(refusal.arch, needs.version) if cuda.major <= version.major]
    wheels = [f"{TILEIRAS}=={release}.*" for release in known[:1]]
    cubin = [f"compile it with tileiras, and load the cubin: {install_command(wanted)}" for wanted in wheels]
    if not refusal.loads:
        why = "nothing links Tile IR: tileiras or the driver compiles it to a cubin"
        return why, (f"load it, on a driver of CUDA {_FIRST_TILE} or newer", *cubin)
    if needs.met_by(version):
        why = "the driver compiles Tile IR with its own version of libnvidia-tileiras, which is missing"
        whole = "install all of the driver, or let the container mount libnvidia-tileiras.so next to libcuda.so.1"
        return (why, (whole, *cubin)) if refusal.code == _NO_COMPILER else None
    newer = _newer_reader(refusal, leaf, needs)
    if version < _FIRST_TILE:
        return f"{refusal.reader} does not know Tile IR; those from CUDA {_FIRST_TILE} on do", (*cubin, *newer)
    why = f"{refusal.reader} compiles bytecode of CUDA {version} or older; this has {needs}"
    return why, (f"write bytecode of CUDA {version}", *cubin, *newer)


def _dotted(isa: tuple[int, int]) -> str:
    return f"{isa[0]}.{isa[1]}"


def _maker(leaf: Artifact) -> str:
    if leaf.producer is not None:
        return f"CUDA {leaf.producer}"
    assert leaf.needs is not None  # (else it would not be too new)
    return f"{'a toolkit ' if leaf.needs.newer_than else ''}{leaf.needs}"


def _changes(refusal: Refusal, leaf: Artifact) -> Iterator[str]:
    """Yield the changes that help code that is too new for its reader, or that no driver reads; the smallest first."""
    version, reader, on_driver = refusal.version, refusal.reader, refusal.backend == "driver"
    needs = leaf.needs
    maker = leaf.producer or (needs.version if needs and not needs.newer_than else None)
    ltoir = leaf.kind == "ltoir"
    if on_driver and maker and maker.major == version.major:
        if refusal.loads and leaf.kind == "ptx" and refusal.arch:
            yield f"compile to a cubin, with -arch={refusal.arch}: {reader} loads those of every CUDA {version.major}"
        usable = maker if maker >= FIRST_USABLE_NVJITLINK else None
        if dispatch.explain(version, usable, ltoir, ltoir).backend == "nvjitlink":
            yield f"link it with nvJitLink {maker}, and load the result: {_install(maker, '==', '.*')}"
    elif on_driver and ltoir and maker is None:
        yield "link it with nvJitLink, and load the result"
    if needs is not None and not needs.met_by(version):
        also = f", and link with nvJitLink {version}" if ltoir and on_driver else ""
        any_minor = leaf.kind == "cubin" and refusal.loads
        release = version.major if any_minor else version
        toolkit = f"cuda-toolkit[nvrtc]=={release}.*"
        yield f"compile with CUDA {release}{also}: {install_command(toolkit)}"
        yield from _newer_reader(refusal, leaf, needs)
    if maker is not None:
        kind = "linked-cubin" if leaf.relocatable is False else leaf.kind
        yield f"see what else works: cudalink can-link {maker} {refusal.backend}-{version} {kind}"


def _newer_reader(refusal: Refusal, leaf: Artifact, needs: Needs) -> Iterator[str]:
    if refusal.backend == "nvjitlink":
        yield f"take a newer nvJitLink: {_install(needs.version, '>' if needs.newer_than else '>=')}"
    elif needs.newer_than:
        yield f"require a driver for a CUDA newer than {needs.version}"
    else:
        # what is linked already, and what nvJitLink links, runs on every driver of its major release
        exact = leaf.kind in ("ptx", atlas.TILE) or (leaf.kind == "cubin" and not refusal.loads)
        first = needs.version if exact else CudaVersion(needs.version.major, 0)
        release = f" ({DRIVER_RELEASES[first]})" if first in DRIVER_RELEASES else ""
        also = f", and link with nvJitLink {needs.version}" if leaf.kind == "ltoir" else ""
        yield f"require a driver for CUDA {first}{release} or newer{also}"


def _install(version: CudaVersion, operator: str, end: str = "") -> str:
    package = NVJITLINK[version.major == 12]
    return install_command(f"{package}{operator}{version}{end}")


# -- architectures


def _of_architecture(refusal: Refusal, leaf: Artifact) -> tuple[str, tuple[str, ...]] | None:
    """Return why an image is not for the architecture of the device or link, with what helps; None if it is."""
    made, wanted = _architecture(str(leaf.arch)), _architecture(refusal.arch)
    judged = leaf.kind == "cubin" or (leaf.kind == "ptx" and refusal.backend == "driver")
    if made is None or wanted is None or not judged:
        return None
    number, suffix = made
    device = wanted[0]
    is_ptx = leaf.kind == "ptx"
    if not refusal.loads and not is_ptx:
        if number == device:
            return None
        why = f"a link for {refusal.arch} takes cubins for {refusal.arch} only; this one is for {leaf.arch}"
        return why, (f"compile with -arch={refusal.arch}",)
    if suffix == "a":
        fits, runs = number == device, f"on sm_{number} only"
    elif is_ptx and not suffix:
        fits, runs = number <= device, f"on sm_{number} and newer devices only"
    else:
        fits = number // 10 == device // 10 and number <= device
        runs = f"on devices of compute capability {number // 10}.{number % 10} to {number // 10}.9 only"
    if fits:
        return None
    why = f"{_NAMES.get(leaf.kind, f'a {leaf.kind}')} for {leaf.arch} runs {runs}; this device is {refusal.arch}"
    return why, (
        f"compile with -arch={refusal.arch} for this device",
        f"compile with -arch=compute_{device} or lower to PTX, which runs on this device and on newer ones",
    )


def _architecture(text: str) -> tuple[int, str] | None:
    """Return number and letter of an architecture, known or not."""
    match = re.fullmatch(r"(?:sm|compute)_(\d{2,3})([a-z]?)", text, re.ASCII)
    return (int(match[1]), match[2]) if match else None
