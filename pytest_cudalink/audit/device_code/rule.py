"""What a driver does with the images of one group on a GPU. Pure; the data is that of `compat`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from ...compat.architectures import ARCHITECTURES, parse_architecture
from ...compat.releases import ptx_isa_of
from ...tables import read_table
from ...versions import CudaVersion
from .images import Image

__all__ = ["Answer", "Outcome", "serves", "what_happens"]


class Outcome(StrEnum):
    """What happens to device code, from good to bad; `UNDRIVEN` is not a fault of the code."""

    UNDRIVEN = "no driver"
    NATIVE = "native"
    COMPILED = "compiled"
    LINKED = "linked"
    TOO_NEW = "222"
    NOTHING_FITS = "209"

    @property
    def fails(self) -> bool:
        """Whether the driver refuses the code."""
        return self in (Outcome.TOO_NEW, Outcome.NOTHING_FITS)

    @property
    def severity(self) -> int:
        """The place in the order from good to bad."""
        return list(Outcome).index(self)


class Answer(NamedTuple):
    """The answer for one group of images, one architecture and one driver.

    Attributes
    ----------
    outcome : Outcome
    image : Image or None
        The image that decides: that runs, that is compiled, or that is too new.
    """

    outcome: Outcome
    image: Image | None = None


def what_happens(images: Iterable[Image], arch: str, driver: CudaVersion) -> Answer:
    """Return what a driver does with a group of images on a GPU.

    1. A driver that does not know the GPU drives nothing.
    2. A cubin that runs on the GPU, of a toolkit of the driver's major release or an older one, is taken as it is.
    3. Else, in a group without cubins, LTO-IR is for nvJitLink, which makes a cubin of it.
    4. Else the driver compiles PTX for this GPU or an older one: see `_chosen_ptx`.
    5. Nothing of these: 209, CUDA_ERROR_NO_BINARY_FOR_GPU.

    Parameters
    ----------
    images : iterable of Image
    arch : str
        Of the GPU, such as ``"sm_89"``.
    driver : CudaVersion
        The newest CUDA version that the driver supports.
    """
    images = tuple(images)
    gpu = parse_architecture(arch)[1]
    if not _drives(gpu, driver):
        return Answer(Outcome.UNDRIVEN)
    native = [one for one in images if one.kind == "cubin" and _runs_on(one, gpu) and _is_taken_by(one, driver)]
    if native:
        return Answer(Outcome.NATIVE, max(native, key=_specific))
    lto = [one for one in images if one.kind == "ltoir" and serves(one, gpu)]
    if lto and not any(one.kind == "cubin" for one in images):
        return Answer(Outcome.LINKED, max(lto, key=_specific))
    if ptx := _chosen_ptx(images, gpu, driver):
        return Answer(Outcome.COMPILED if _is_read_by(ptx, driver) else Outcome.TOO_NEW, ptx)
    return Answer(Outcome.NOTHING_FITS)


def _chosen_ptx(images: Iterable[Image], gpu: int, driver: CudaVersion) -> Image | None:
    """The PTX that a driver compiles for a GPU, whether it can read it or not.

    An assumption, until a driver was measured: of the PTX that serves the GPU, the driver takes that with the newest
    target, and does not fall back to an older target if the PTX ISA of that is too new for it. Of several with one
    target it takes one that it reads.
    """
    fitting = [one for one in images if one.kind == "ptx" and serves(one, gpu)]
    return max(fitting, key=lambda one: (_specific(one), _is_read_by(one, driver)), default=None)


def _is_read_by(ptx: Image, driver: CudaVersion) -> bool:
    return ptx.ptx_isa is not None and ptx.ptx_isa <= ptx_isa_of(driver)


def _is_taken_by(cubin: Image, driver: CudaVersion) -> bool:
    """Minor versions do not matter for cubins: a driver of CUDA 12.0 runs those of 12.9, but not those of 13.0."""
    return cubin.needs is None or cubin.needs.version.major <= driver.major


def _specific(image: Image) -> tuple[int, bool, bool]:
    return image.number, image.suffix == "a", image.suffix == "f"


def serves(image: Image, gpu: int) -> bool:
    """Whether PTX or LTO-IR can be compiled for a GPU: for its architecture or a later one, if no suffix binds it."""
    if image.suffix == "a":
        return image.number == gpu
    if image.suffix == "f":
        return _same_family(image.number, gpu)
    return 0 < image.number <= gpu


def _runs_on(cubin: Image, gpu: int) -> bool:
    """Whether a cubin runs on a GPU: on its own architecture, and on later minor revisions of the same major."""
    if cubin.suffix == "a":
        return cubin.number == gpu
    return _same_family(cubin.number, gpu)


def _same_family(number: int, gpu: int) -> bool:
    """Whether a GPU is of an architecture or of a later minor revision; each of Tegra's is a family by itself."""
    if number == gpu:
        return True
    return number // 10 == gpu // 10 and number < gpu and not {number, gpu} & _tegra()


@cache
def _tegra() -> frozenset[int]:
    return frozenset(read_table("compat/data/device_code.toml")["tegra"]["architectures"])


@cache
def _dropped_since() -> CudaVersion:
    return CudaVersion.parse(read_table("compat/data/device_code.toml")["drivers"]["dropped-since"])


_KNOWN: Final = {one.number: one for one in ARCHITECTURES}


def _drives(gpu: int, driver: CudaVersion) -> bool:
    known = _KNOWN[gpu]
    return driver >= known.since and (known.dropped is None or driver < _dropped_since())
