"""The audit over published wheels, with what is known of each. ``nox -s audit`` downloads them."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from pytest_cudalink.audit import Audit, audit

FOLDER = os.environ.get("CUDALINK_AUDITED_WHEELS")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="needs published wheels: 'nox -s audit' downloads them")

#: Majors, and some of the libraries that are needed.
KNOWN = {
    "cupy_cuda12x": (("12",), {"libcublas.so.12", "libnvrtc.so.12", "libcufft.so.11", "libcurand.so.10"}),
    "cupy_cuda13x": (("13",), {"libcublas.so.13", "libnvrtc.so.13", "libcufft.so.12", "libcurand.so.10"}),
    "tilelang": (("11", "12", "13", "none"), set()),
    "torchaudio": (("13",), {"libcudart.so.13"}),
    "torchcodec": (("13",), {"libcudart.so.13", "libnvrtc.so.13"}),
}


@pytest.fixture(scope="module", params=KNOWN)
def published(request) -> tuple[str, Path, Audit]:
    """Name, file and audit of one wheel."""
    (path,) = Path(FOLDER).glob(f"{request.param}-*.whl")
    return request.param, path, audit(path)


def test_majors(published) -> None:
    """Each wheel loads with the major that it is made for; one made with stubs loads with all and with none."""
    name, _, found = published
    majors, libraries = KNOWN[name]
    assert found.majors == majors
    assert libraries <= set(found.libraries)
    assert not [finding for finding in found.findings if finding.kind in ("unreadable", "majors", "name")]


def test_agrees_with_readelf(published, tmp_path) -> None:
    """Needed libraries and versioned symbols are those that readelf sees, file by file."""
    _, path, found = published
    files = [file for file in found.files if file.dependencies][:8]
    archive = zipfile.ZipFile(path)
    for file in files:
        extracted = archive.extract(file.path, tmp_path)
        dynamic = subprocess.run(["readelf", "-dW", extracted], capture_output=True, text=True, check=True).stdout
        symbols = subprocess.run(
            ["readelf", "--dyn-syms", "-W", extracted], capture_output=True, text=True, check=True
        ).stdout
        for dependency in file.dependencies:
            assert f"Shared library: [{dependency.library}]" in dynamic
            versioned = [symbol for symbol in dependency.symbols if symbol.endswith(f"@{dependency.library}")]
            assert len(versioned) == symbols.count(f"@{dependency.library} ")
