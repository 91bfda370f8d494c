"""The makers of the tables of cuda-toolkit and of requirements, and the wheels of a package index."""

import tomllib
from collections.abc import Iterator
from functools import partial

import pytest

from tests.compat.test_make_exports import Index
from tools import make_requires, package_index
from tools.package_index import PackageIndexError, metadata_of, wheel_named


@pytest.fixture
def index(monkeypatch) -> Iterator[Index]:
    """An index on this machine, which is the default one."""
    monkeypatch.setattr(package_index, "BACKOFF", 0.0)
    with Index().serving() as made:
        monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
        yield made


def test_wheel_by_its_name(index) -> None:
    """A wheel of any machine is found by its file name, and an error names the one that the index lacks."""
    for machine in ("aarch64", "sparc"):
        index.add("x-cu12", "3.0", {"x_cu12-3.0.dist-info/METADATA": machine.encode()}, machine)
    name = "x_cu12-3.0-py3-none-manylinux2014_sparc.whl"
    assert metadata_of(wheel_named(name)) == b"sparc"
    with pytest.raises(PackageIndexError, match=f"^{index.url} has no x_cu12-4.0-py3-none-any.whl$"):
        wheel_named("x_cu12-4.0-py3-none-any.whl")


def test_making_the_table_of_requirements(index, tmp_path, monkeypatch, capsys) -> None:
    """The command reads the newest wheel of each package that is not for Windows, yanked or a pre-release."""
    add = partial(index.add_metadata, "nvidia-cublas")
    add("13.0", "nvidia-old")
    add("13.1", "Nvidia_B", "nvidia-a>=1", "nvidia-cuda-nvrtc", "numpy", "nvidia-c; extra == 'all'")
    add("13.2rc1", "nvidia-early")
    add("13.2", "nvidia-yanked")["yanked"] = True
    add("13.3", "nvidia-windows")["filename"] = "nvidia_cublas-13.3-py3-none-win_amd64.whl"
    monkeypatch.setattr(make_requires, "packages", lambda: ["nvidia-cublas"])
    monkeypatch.setattr(make_requires, "_TARGET", tmp_path / "requires.toml")
    assert make_requires.main([]) == 0
    assert capsys.readouterr().out.endswith("requires.toml: 1 packages\n")
    assert tomllib.loads((tmp_path / "requires.toml").read_text(encoding="utf-8")) == {
        "nvidia-cublas": ["nvidia-a", "nvidia-b"]
    }
    assert make_requires.main(["--check"]) == 0
    add("13.4", "nvidia-new")
    assert make_requires.main(["--check"]) == 1
    assert "requires.toml: nvidia-cublas requires ['nvidia-new'] by the index" in capsys.readouterr().err


def test_the_table_of_requirements_is_a_made_one() -> None:
    """Its text is what the command writes; packages of every cuda-toolkit are looked at."""
    text = make_requires._TARGET.read_text(encoding="utf-8")
    assert make_requires.written(tomllib.loads(text)) == text
    assert {*tomllib.loads(text), "nvidia-nvjitlink-cu12"} <= set(make_requires.packages())
