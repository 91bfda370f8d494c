"""Installed wheels: which of the packages that bring one library are there."""

from importlib import metadata

from pytest_cudalink import emulator, probes
from pytest_cudalink.base.regular_files import TEXT
from pytest_cudalink.environment import wheels
from pytest_cudalink.versions import CudaVersion


def _install(site, name, version) -> None:
    """Make a folder look as if a wheel with one library was installed there."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    library = f"nvidia/{version}/lib/libnvJitLink.so.{version.partition('.')[0]}"
    (site / library).parent.mkdir(parents=True)
    (site / library).write_bytes(b"")
    (info / "RECORD").write_text(f"{library},,\n", encoding="utf-8")


def test_two_majors_at_once(tmp_path, monkeypatch) -> None:
    """CUDA 13's nvJitLink is the environment's; an emulated driver of CUDA 12 takes the other one."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert probes.nvjitlink_wheel() is None
    assert wheels.installed_wheel(*wheels.NVJITLINK) is None
    _install(tmp_path, "nvidia-nvjitlink-cu12", "12.9.86")
    assert probes.nvjitlink_wheel() == "12.9.86"
    _install(tmp_path, "nvidia-nvjitlink", "13.0.88")
    assert probes.nvjitlink_wheel() == "13.0.88"
    assert [wheel.version for wheel in wheels.installed_wheels(*wheels.NVJITLINK)] == ["13.0.88", "12.9.86"]
    paths = [emulator._nvjitlink_of_environment(CudaVersion.parse(version)) for version in ("12.9", "13.0")]
    assert [path and path.name for path in paths] == ["libnvJitLink.so.12", "libnvJitLink.so.13"]
    assert emulator._nvjitlink_of_environment(CudaVersion(12, 8)) is None


def test_what_cannot_be_read(tmp_path, monkeypatch) -> None:
    """A package whose metadata is too large is passed over."""
    assert wheels.own_version() == metadata.version("pytest-cudalink")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    _install(tmp_path, "x", "1")
    (tmp_path / "x-1.dist-info/RECORD").unlink()
    (tmp_path / "large-1.dist-info").mkdir()
    for name in ("large-1.dist-info/METADATA", "larger-2.egg-info"):
        (tmp_path / name).write_text(f"Name: {name[:5]}\nVersion: 1\n\n{' ' * TEXT}", encoding="utf-8")
    assert [wheel.name for wheel in wheels.installed_wheels("larger", "large", "x")] == ["x"]
    assert [*wheels.files_of(None, ".*"), *wheels.files_of(wheels.installed_wheel("x"), ".*")] == []
