"""What a driver does with the images of one group on a GPU. Pure; the data is that of `compat`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from ...base.tables import read_table
from ...compat import atlas
from ...compat.architectures import ARCHITECTURES, parse_architecture
from ...compat.releases import ptx_isa_of
from ...versions import CudaVersion
from .images import DeviceImage


class DriverOutcome(StrEnum):
    """What happens to device code, from good to bad; `UNDRIVEN` is not a fault of the code."""

    UNDRIVEN = "no driver"
    NATIVE = "native"
    COMPILED = "compiled"
    LINKED = "linked"
    TOO_NEW = "222"
    WRONG_TARGET = "218"
    UNKNOWN_FORM = "200"
    NOTHING_FITS = "209"

    @property
    def fails(self) -> bool:
        """Whether the driver refuses the code."""
        return self.severity >= DriverOutcome.TOO_NEW.severity

    @property
    def severity(self) -> int:
        """The place in the order from good to bad."""
        return list(DriverOutcome).index(self)


class DriverAnswer(NamedTuple):
    """The answer for one group of images, one architecture and one driver."""

    outcome: DriverOutcome
    # the image that decides: that runs, that is compiled, or that the driver takes and cannot use
    image: DeviceImage | None = None


def what_happens(images: Iterable[DeviceImage], arch: str, driver: CudaVersion) -> DriverAnswer:
    """Return what a driver does with a group of images on a GPU.

    The choice was recorded for fatbins on driver 580 with an H100 (`campaigns/conformance/fatbin_record.py`): the
    driver looks at the architectures alone, and at what is in an image after it has chosen.

    1. A driver that does not know the GPU drives nothing.
    2. Of the cubins that run on the GPU, that of the highest architecture is taken, of equal ones the first. If it is
       of a newer major release than the driver, it is 200, CUDA_ERROR_INVALID_IMAGE, whatever lies beside it (inferred
       from the answer to a form that driver 580 does not know; 209 if it is a file by itself).
    3. Else, in a group without cubins, LTO-IR is for nvJitLink, which makes a cubin of it.
    4. Else the driver compiles the PTX for the highest architecture that is not newer than the GPU, of equal ones the
       last. If its ISA is too new, it is 222, though older PTX lies beside it. If it is for its architecture alone, and
       that is another one, it is 218.
    5. Else a driver from CUDA 13.1 on compiles Tile IR of no newer release, for the GPUs that tileiras of its release
       knows (by cuda.h; a real 13.0 has 209).
    6. Nothing of these: 209, CUDA_ERROR_NO_BINARY_FOR_GPU.

    `arch`: of the GPU, such as ``"sm_89"``.
    `driver`: the newest CUDA version that the driver supports.
    """
    images = tuple(images)
    gpu = parse_architecture(arch)[1]
    if not _drives(gpu, driver):
        return DriverAnswer(DriverOutcome.UNDRIVEN)
    if native := [one for one in images if one.kind == "cubin" and _runs_on(one, gpu)]:
        cubin = max(native, key=_specific)
        return DriverAnswer(DriverOutcome.NATIVE if _is_taken_by(cubin, driver) else DriverOutcome.UNKNOWN_FORM, cubin)
    lto = [one for one in images if one.kind == "ltoir" and serves(one, gpu)]
    if lto and not any(one.kind == "cubin" for one in images):
        return DriverAnswer(DriverOutcome.LINKED, max(lto, key=_specific))
    ptx = [one for one in reversed(images) if one.kind == "ptx" and _can_be_chosen(one, gpu)]
    if not ptx and (tile := [one for one in images if one.kind == "tileir" and _compiles(one, gpu, driver)]):
        return DriverAnswer(DriverOutcome.COMPILED, tile[0])
    if not ptx:
        return DriverAnswer(DriverOutcome.NOTHING_FITS)
    chosen = max(ptx, key=_specific)
    if not _is_read_by(chosen, driver):
        return DriverAnswer(DriverOutcome.TOO_NEW, chosen)
    return DriverAnswer(DriverOutcome.COMPILED if serves(chosen, gpu) else DriverOutcome.WRONG_TARGET, chosen)


def _can_be_chosen(ptx: DeviceImage, gpu: int) -> bool:
    """Whether a driver considers PTX for a GPU: also compute_90a for a newer one (recorded)."""
    return _same_family(ptx.number, gpu) if ptx.suffix == "f" else 0 < ptx.number <= gpu


def _compiles(tile: DeviceImage, gpu: int, driver: CudaVersion) -> bool:
    needs = tile.needs
    if needs is None or needs.newer_than:
        return False
    return any(release <= driver for release in atlas.load().tileiras_for(f"sm_{gpu}", needs.version))


def _is_read_by(ptx: DeviceImage, driver: CudaVersion) -> bool:
    return ptx.ptx_isa is not None and ptx.ptx_isa <= ptx_isa_of(driver)


def _is_taken_by(cubin: DeviceImage, driver: CudaVersion) -> bool:
    """Minor versions do not matter for cubins: a driver of CUDA 12.0 runs those of 12.9, but not those of 13.0."""
    return cubin.needs is None or cubin.needs.version.major <= driver.major


def _specific(image: DeviceImage) -> tuple[int, bool]:
    return image.number, image.suffix == "a"


def serves(image: DeviceImage, gpu: int) -> bool:
    """Whether PTX or LTO-IR can be compiled for a GPU: for its architecture or a later one, if no suffix binds it."""
    if image.suffix == "a":
        return image.number == gpu
    if image.suffix == "f":
        return _same_family(image.number, gpu)
    return 0 < image.number <= gpu


def _runs_on(cubin: DeviceImage, gpu: int) -> bool:
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
    return frozenset(read_table("device_code.toml")["tegra"]["architectures"])


@cache
def _dropped_since() -> CudaVersion:
    return CudaVersion.parse(read_table("device_code.toml")["drivers"]["dropped-since"])


_KNOWN: Final = {one.number: one for one in ARCHITECTURES}


def _drives(gpu: int, driver: CudaVersion) -> bool:
    known = _KNOWN[gpu]
    return driver >= known.since and (known.dropped is None or driver < _dropped_since())
