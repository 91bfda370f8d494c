"""The Pythons and platforms of a wheel, by its file name, and its requirements there; never those of the auditor."""

import platform
import sys

import pytest
from packaging import markers

from pytest_cudalink.audit import audit
from pytest_cudalink.audit.install_targets import targets_of


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("x-1-cp312-cp312-manylinux2014_aarch64.manylinux_2_17_aarch64.whl", ["Python 3.12 on Linux aarch64"]),
        ("x-1-cp313-cp313t-linux_x86_64.whl", ["Python 3.13 on Linux x86_64"]),
        ("x-1-cp316-cp316-musllinux_1_2_x86_64.whl", ["Python 3.16 on Linux x86_64"]),
        ("x-1-cp311-none-win_amd64.whl", ["Python 3.11 on Windows AMD64"]),
        ("x-1-cp311-cp311-win32.whl", ["Python 3.11 on Windows x86"]),
        ("x-1-cp311-cp311-win_arm64.whl", ["Python 3.11 on Windows ARM64"]),
        ("x-1-cp311-cp311-macosx_11_0_universal2.whl", ["Python 3.11 on Darwin arm64"]),
        ("x-1-pp310-pypy310_pp73-manylinux1_x86_64.whl", ["PyPy 3.10 on Linux x86_64"]),
        ("x-1-cp314-abi3-linux_x86_64.whl", ["Python 3.14 on Linux x86_64", "Python 3.15 on Linux x86_64"]),
        ("x-1-cp316-abi3-linux_x86_64.whl", ["Python 3.16 on Linux x86_64"]),
        ("x-1-py316-none-linux.whl", ["Python 3.16 on Linux "]),
        ("x-1-py2-none-linux_aarch64.whl", [f"Python 3.{minor} on Linux x86_64" for minor in range(9, 16)]),
        ("x-1-cp3-none-linux_x86_64.whl", ["Python 3.0 on Linux x86_64"]),
        (f"x-1-cp31234{5:05000}-none-linux_x86_64.whl", ["Python 3.123 on Linux x86_64"]),
        ("ci-aarch64-runner/x-1-cp312-cp312-linux_x86_64.whl", ["Python 3.12 on Linux x86_64"]),
        ("C:\\aarch64\\x-1-cp312-cp312-linux_x86_64.whl", ["Python 3.12 on Linux x86_64"]),
    ],
)
def test_targets(name: str, targets: list[str]) -> None:
    """Each tag of the name counts, and no folder."""
    assert [str(target) for target in targets_of(name)] == targets


@pytest.mark.parametrize("name", ["x-1-py3-none-any.whl", "x-1-py2.py3-none-any.whl", "aarch64", "x.whl"])
def test_every_python(name: str) -> None:
    """A wheel without an exact Python is for those that Requires-Python accepts; the files say the platform."""
    minors = [target.minor for target in targets_of(name)]
    assert minors == list(range(9, 16))
    assert [target.minor for target in targets_of(name, ">=3.11.4,!=3.12.*,<3.14")] == [11, 13]
    for invalid in ("nonsense", ">=4", f">={'9' * 5000}"):
        assert [target.minor for target in targets_of(name, invalid)] == minors
    assert {(*target.system, target.machine) for target in targets_of(name, windows=True)} == {
        ("win32", "Windows", "nt", "AMD64")
    }
    assert {(target.pypy, *target.system, target.machine) for target in targets_of(name)} == {
        (False, "linux", "Linux", "posix", "x86_64")
    }
    assert {target.machine for target in targets_of(name, machine="aarch64")} == {"aarch64"}


def test_every_variable_of_markers_is_given() -> None:
    names = ("x-1-cp312-cp312-win_amd64.whl", "x-1-pp310-pypy310_pp73-macosx_11_0_arm64.whl")
    ours, other = (targets_of(name)[0].environment for name in names)
    assert ours.keys() == markers.default_environment().keys()
    assert ours == {
        "implementation_name": "cpython",
        "implementation_version": "3.12.99",
        "os_name": "nt",
        "platform_machine": "AMD64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Windows",
        "platform_version": "",
        "python_full_version": "3.12.99",
        "python_version": "3.12",
        "sys_platform": "win32",
    }
    assert (other["implementation_name"], other["platform_python_implementation"]) == ("pypy", "PyPy")


@pytest.fixture
def library(cuda_library, built):
    """A library that needs libcudart.so.13."""
    return built("libuse.so", {cuda_library("libcudart.so.13", "cudaMalloc"): "cudaMalloc"})


def test_the_auditor_does_not_matter(library, make_wheel, tmp_path, monkeypatch) -> None:
    """Neither the Python that audits nor the folder counts."""
    other = tmp_path / "ci-aarch64-runner"
    other.mkdir()
    line = "nvidia-cuda-runtime>=13,<14; python_version == '3.12' and platform_machine == 'x86_64'"
    wheel = make_wheel("x-1-cp312-cp312-linux_x86_64.whl", {"x/libuse.so": library}, line)
    wheel = wheel.rename(other / wheel.name)
    monkeypatch.setattr(platform, "machine", lambda: "sparc")
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    monkeypatch.setattr(platform, "python_version_tuple", lambda: ("3", "99", "0"))
    monkeypatch.setattr(sys, "platform", "aix")
    assert audit(wheel).errors == ()
