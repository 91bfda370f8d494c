"""What a driver does with images: the cases at the edges of the rule; `test_device_code.py` has the recorded ones."""

from __future__ import annotations

from itertools import permutations

import pytest

from pytest_cudalink.audit.device_code import DeviceImage, DriverOutcome, what_happens
from pytest_cudalink.versions import CudaVersion, Needs

OLD, NEW = CudaVersion(12, 2), CudaVersion(13, 5)


def image(kind: str, arch: str, isa: tuple[int, int] | None = (8, 0)) -> DeviceImage:
    needs = None if isa is None else Needs(CudaVersion(13, 1) if kind == "tileir" else CudaVersion(12, 0))
    return DeviceImage(arch, kind, arch, ptx_isa=isa if kind == "ptx" else None, needs=needs)


def test_outcomes_that_fail() -> None:
    """From good to bad; what no driver drives is no fault of the code."""
    assert [str(one) for one in DriverOutcome if one.fails] == ["222", "218", "200", "209"]
    assert [one.severity for one in DriverOutcome] == [*range(8)]
    assert DriverOutcome.NATIVE.fails is False


@pytest.mark.parametrize(
    ("code", "arch", "driver", "outcome", "chosen"),
    [
        ("ltoir sm_80", "sm_90", OLD, "linked", "sm_80"),
        ("ltoir sm_80, ltoir sm_86, ltoir sm_90a", "sm_89", OLD, "linked", "sm_86"),
        ("ltoir sm_80, cubin sm_80", "sm_90", OLD, "209", None),  # nvJitLink gets it from a program that knows of it
        ("ltoir sm_80, cubin sm_80, ptx sm_80", "sm_90", OLD, "compiled", "sm_80"),
        ("ltoir sm_100f", "sm_103", NEW, "linked", "sm_100f"),
        ("ltoir sm_100f", "sm_120", NEW, "209", None),
        ("cubin sm_90, cubin sm_90a", "sm_90", OLD, "native", "sm_90a"),
        ("ptx sm_90, ptx sm_90a", "sm_90", OLD, "compiled", "sm_90a"),
        ("cubin sm_103", "sm_103", CudaVersion(12, 9), "native", "sm_103"),  # the first driver that knows the GPU
        ("cubin sm_103", "sm_103", CudaVersion(12, 8), "no driver", None),
        ("cubin sm_80", "sm_80", NEW, "native", "sm_80"),
    ],
)
def test_in_any_order(code: str, arch: str, driver: CudaVersion, outcome: str, chosen: str | None) -> None:
    """Images for different architectures may stand in any order."""
    for words in permutations(code.split(", ")):
        answer = what_happens([image(*one.split()) for one in words], arch, driver)
        assert str(answer.outcome) == outcome
        assert (answer.image and answer.image.arch) == chosen


def test_tile_ir_beside_ptx() -> None:
    """The driver compiles PTX where there is some, and Tile IR elsewhere."""
    both = [image("tileir", ""), image("ptx", "sm_90")]
    found = {arch: what_happens(both, arch, NEW).image for arch in ("sm_90", "sm_80")}
    assert {arch: one and one.kind for arch, one in found.items()} == {"sm_90": "ptx", "sm_80": "tileir"}


@pytest.mark.parametrize(
    ("needs", "driver", "outcome"),
    [
        (Needs(CudaVersion(13, 1)), NEW, "compiled"),
        (Needs(CudaVersion(13, 1)), CudaVersion(13, 0), "209"),
        (Needs(CudaVersion(13, 4)), CudaVersion(13, 3), "209"),
        (Needs(CudaVersion(13, 1), newer_than=True), NEW, "209"),
        (None, NEW, "209"),
    ],
)
def test_tile_ir(needs: Needs | None, driver: CudaVersion, outcome: str) -> None:
    """A driver compiles the Tile IR of releases that it knows, and none that names no release."""
    tile = DeviceImage("x", "tileir", "", needs=needs)
    assert str(what_happens([tile], "sm_90", driver).outcome) == outcome


def test_images_that_say_little() -> None:
    """PTX whose ISA cannot be read is too new for each driver; a cubin that names no release is of each."""
    assert str(what_happens([image("ptx", "sm_80", None)], "sm_80", NEW).outcome) == "222"
    assert str(what_happens([image("cubin", "sm_80", None)], "sm_80", OLD).outcome) == "native"
