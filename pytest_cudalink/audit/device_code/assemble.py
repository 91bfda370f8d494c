"""Assembling the PTX of a wheel: linking it for each architecture on which a driver would compile it.

The links are made in the link worker, so that PTX which ends nvJitLink is a result as any other.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from ... import toolchains
from ...compat.architectures import known_architectures, parse_architecture
from ...compat.releases import ptx_isa_of
from ...emulator.worker import WorkerLink
from ...linker.backends.nvjitlink import INPUT_TYPES
from ...toolchains import Toolchain, ToolchainError
from ...versions import CudaVersion
from . import DeviceImage, images, serves, what_happens

_CUBIN: Final = 0
_UNDEFINED: Final = "undefined reference"
_Outcome = Literal["assembled", "incomplete", "failed", "crashed", "unfinished", "not tried"]


@dataclass(frozen=True)
class Assembled:
    """The result of assembling one PTX for one architecture."""

    path: str
    image: DeviceImage  # the PTX, without its bytes
    arch: str  # for which it was assembled: "sm_121f"
    # "assembled", "incomplete" (it calls functions of other images), "failed", "crashed", "unfinished" (it takes longer
    # than `CUDALINK_LINK_TIMEOUT`) or "not tried"
    outcome: _Outcome
    log: str  # what nvJitLink wrote, or why it was not tried

    @property
    def fails(self) -> bool:
        """Whether nvJitLink refused it, or ended."""
        return self.outcome in ("failed", "crashed")


def assembler(release: str | None = None) -> Toolchain:
    """Return the toolchain of a release that has an nvJitLink; the newest of the cache by default.

    Raises ToolchainError if the cache has no such toolchain; the message says how to add it.
    Raises ValueError if the release is not a CUDA version.
    """
    if release is not None:
        return toolchains.find(CudaVersion.parse(release))
    cached = toolchains.installed()
    if not cached:
        msg = f"no toolchain is in {toolchains.cache_root()}; run: cudalink toolchain add {max(toolchains.releases())}"
        raise ToolchainError(msg)
    return cached[-1]


def assemble(path: str | Path, toolchain: Toolchain) -> Iterator[Assembled]:
    """Yield the result of each PTX in a wheel, folder or file, for each architecture that has nothing better.

    PTX is linked for the architectures for which the newest driver would compile it; one that no driver compiles,
    because a cubin is always there, for its own. Equal PTX is linked once.

    `toolchain`: whose nvJitLink links.
    Raises AuditError if there is no such file, or a wheel is damaged.
    Raises WorkerError if the link worker cannot be started.
    """
    library = str(toolchain.library("nvJitLink"))
    done = set()
    for _, group in groupby(images(path), key=lambda image: (image.path, image.at)):
        together = list(group)
        for image in together:
            if image.kind != "ptx":
                continue
            bare = replace(image, data=None)
            if image.data is None:
                yield Assembled(image.path, bare, image.arch, "not tried", image.note)
                continue
            digest = hashlib.sha256(image.data).digest()
            for arch in _targets(image, together, toolchain.version):
                if (digest, arch) in done:
                    continue
                done.add((digest, arch))
                yield _assembled(bare, image.data, arch, toolchain.version, library)


def _targets(ptx: DeviceImage, together: Sequence[DeviceImage], release: CudaVersion) -> list[str]:
    """The architectures for which a driver of a release would compile PTX; its own if there are none."""

    def is_compiled(arch: str) -> bool:
        _, number, suffix = parse_architecture(arch)
        fits = suffix == ptx.suffix and serves(ptx, number)
        return fits and what_happens(together, f"sm_{number}", release).image is ptx

    return [*filter(is_compiled, known_architectures(release))] or [ptx.arch]


def _assembled(ptx: DeviceImage, code: bytes, arch: str, release: CudaVersion, library: str) -> Assembled:
    def result(outcome: _Outcome, log: str) -> Assembled:
        return Assembled(ptx.path, ptx, arch, outcome, log.strip())

    if arch not in known_architectures(release):
        return result("not tried", f"nvJitLink {release} does not link for {arch}")
    if ptx.ptx_isa is None or ptx.ptx_isa > ptx_isa_of(release):
        reads = ".".join(map(str, ptx_isa_of(release)))
        return result("not tried", f"it needs {ptx.needs}; nvJitLink {release} reads PTX {reads}")
    name = ptx.path.encode("utf-8", "backslashreplace")
    with closing(WorkerLink(library, [f"-arch={arch}"])) as link:
        answer = link.answer
        if not (answer.code or answer.end):
            answer = link.add(INPUT_TYPES["ptx"], code.rstrip(b"\0") + b"\0", name)
        if not (answer.code or answer.end):
            answer = link.complete(_CUBIN)
    logs = (text.strip("\0\n ") for text in (answer.error_log, answer.info_log))
    log = "\n".join(filter(None, logs))
    if answer.end:
        return result("unfinished" if answer.hung else "crashed", f"libnvJitLink {release} {answer.end}\n{log}")
    if answer.code:
        return result("incomplete" if _UNDEFINED in log.lower() else "failed", log or f"nvJitLink: error {answer.code}")
    return result("assembled", log)
