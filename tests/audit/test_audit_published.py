"""The audit over published wheels, with what is known of each. ``nox -s audit`` downloads them."""

import os
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from pytest_cudalink.audit import Audit, audit
from pytest_cudalink.audit.needs import Need
from pytest_cudalink.audit.wheel.declared import judge_needs, read_requirements
from pytest_cudalink.versions import CudaVersion
from tests.audit.field import PAGE, WHEELS, audit_on_index, row
from tools.package_index import metadata_of, wheel_named

FOLDER = os.environ.get("CUDALINK_AUDITED_WHEELS")
pytestmark = [
    pytest.mark.apart,
    pytest.mark.skipif(FOLDER is None, reason="needs published wheels: 'nox -s audit' downloads them"),
]

PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))

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
    name, _, audited = published
    majors, libraries = KNOWN[name]
    assert audited.majors == majors
    assert libraries <= set(audited.libraries)
    assert not [finding for finding in audited.findings if finding.kind in ("unreadable", "majors", "name")]


def test_agrees_with_readelf(published, tmp_path) -> None:
    """Needed libraries and versioned symbols are those that readelf sees, file by file."""
    _, path, audited = published
    files = [file for file in audited.files if file.dependencies][:8]
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


@pytest.mark.parametrize("known", PUBLISHED["wheel"], ids=lambda known: known["name"].split("-cp")[0].split("-py")[0])
def test_checked_by_hand(known: dict[str, object]) -> None:
    """Majors, floors and errors of wheels that were checked with readelf, strings and their METADATA."""
    audited = audit_on_index(known["name"])
    floors = {
        f"{need.stem} {need.major} {need.floor}"
        for need in audited.needs
        if need.floor
        and need.floor
        == max(o.floor for o in audited.needs if o.floor and (o.stem, o.major) == (need.stem, need.major))
    }
    assert list(audited.majors) == known["majors"]
    assert floors == set(known["floors"])
    assert [f"{error.kind} {error.suggestion[0]}" for error in audited.errors] == known["errors"]


@pytest.mark.parametrize("name", PUBLISHED["sound"]["wheels"], ids=lambda name: name.split("-manylinux")[0])
def test_sound(name: str) -> None:
    assert audit_on_index(name).errors == ()


@pytest.mark.parametrize("name", WHEELS, ids=lambda name: "-".join(name.split("-")[:2]))
def test_table_of_the_field(name: str) -> None:
    """The row of each wheel on the page is what the audit finds."""
    assert row(audit_on_index(name)) in PAGE.read_text("utf-8").splitlines()


@pytest.mark.parametrize("version", ["26.4.0", "26.6.0", "26.8.0"])
def test_metadata_of_libcudf(version: str) -> None:
    """Two more releases of libcudf declare no nvJitLink, the next does; a few kilobytes of each are read."""
    need = Need("libcudf.so", "libnvJitLink", 12, CudaVersion(12, 9), "opened", "loads libnvJitLink", demanded=True)
    wheel = wheel_named(f"libcudf_cu12-{version}-py3-none-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl")
    findings = judge_needs([need], read_requirements(metadata_of(wheel)))
    assert [finding.kind for finding in findings] == ([] if version == "26.8.0" else ["undeclared"])
