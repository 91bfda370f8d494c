"""The device code of published wheels, with what is known of each. ``nox -s device-code`` downloads them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from pytest_cudalink.audit.device_code import DeviceCode, device_code, images
from pytest_cudalink.versions import CudaVersion
from tests.audit.test_device_code import cuobjdump

FOLDER = os.environ.get("CUDALINK_AUDITED_WHEELS")
pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(FOLDER is None, reason="needs published wheels: 'nox -s device-code' downloads them"),
]

#: GPUs of data centres and desktops since Volta.
GPUS = ("V100", "T4", "A100", "A10", "L4", "H100", "B200", "RTX 5090")
#: A file of which cuobjdump 13.5 says that its ELF is invalid, in the middle of the list.
UNLISTED = "libbitsandbytes_cuda121.so"


@pytest.fixture(scope="module")
def published():
    """The audit of a wheel by its name; each wheel is read once."""
    known: dict[str, DeviceCode] = {}

    def of(name: str) -> DeviceCode:
        if name not in known:
            known[name] = device_code(path_of(name))
        return known[name]

    return of


def path_of(name: str) -> Path:
    (path,) = Path(FOLDER).glob(f"{name}-*.whl")
    return path


def outcomes(found: DeviceCode, gpu: str, driver: tuple[int, int], files: str) -> set[str]:
    """What happens to the code of some files."""
    answers = found.answers(gpu, CudaVersion(*driver))
    return {str(answer.outcome) for group, answer in answers if any(files in path for path in group.paths)}


def test_cupy(published) -> None:
    """CuPy has cubins for every GPU of desktops and data centres, and PTX of CUDA 12.9 for what comes after sm_120."""
    found = published("cupy_cuda12x")
    assert not found.faults
    found.check(GPUS, ">=525")
    assert {one.producer for group in found.groups for one in group.images if one.kind == "cubin"} == {(12, 9)}
    (ptx,) = {(one.arch, one.ptx_isa) for group in found.groups for one in group.images if one.kind == "ptx"}
    assert ptx == ("sm_100", (8, 8))
    assert outcomes(found, "sm_87", (12, 9), "cub.") == {"209"}
    assert outcomes(found, "sm_110", (13, 0), "cub.") == {"compiled"}


def test_bitsandbytes(published) -> None:
    """A library for each CUDA release: those for 13 load on no driver of 12, those for 11.8 to 12.6 on no Blackwell."""
    found = published("bitsandbytes")
    assert outcomes(found, "sm_89", (12, 9), "cuda130") == {"200"}
    assert outcomes(found, "sm_89", (13, 0), "cuda130") == {"native"}
    assert outcomes(found, "sm_100", (13, 0), "cuda118") == {"209"}
    assert outcomes(found, "sm_100", (13, 0), "cuda128") == {"native"}
    found.check(["T4", "A100", "B200"], ">=580", files="*_cuda13*.so")


def test_xformers(published) -> None:
    """PTX serves what comes after its newest cubin, and only from the driver on whose CUDA release wrote it."""
    found = published("xformers")
    assert outcomes(found, "sm_70", (12, 8), "_C.so") == {"209"}
    assert outcomes(found, "sm_90", (12, 0), "_C.so") == {"native"}
    assert outcomes(found, "sm_100", (12, 8), "_C.so") == {"compiled"}


def test_without_device_code(published) -> None:
    assert published("torch_memory_saver").groups == ()


@pytest.mark.skipif(cuobjdump() is None, reason="needs cuobjdump: the wheel nvidia-cuda-cuobjdump, or a toolkit")
@pytest.mark.parametrize("name", ["cupy_cuda12x", "bitsandbytes", "xformers"])
def test_agrees_with_cuobjdump(name, tmp_path) -> None:
    """The same cubins and PTX in each library of a wheel."""
    ours: dict[str, Counter] = {}
    for one in images(path_of(name)):
        ours.setdefault(one.path, Counter())[one.kind, one.arch.rstrip("f")] += 1
    assert ours
    archive = zipfile.ZipFile(path_of(name))
    for path, counted in ours.items():
        if UNLISTED in path:
            continue
        extracted = archive.extract(path, tmp_path)
        done = subprocess.run(
            [cuobjdump(), "-all", "-lelf", "-lptx", extracted], capture_output=True, text=True, check=True
        )
        names = [word for word in done.stdout.split() if word.endswith((".cubin", ".ptx"))]
        assert counted == Counter((Path(word).suffix[1:], word.split(".")[-2]) for word in names), path
