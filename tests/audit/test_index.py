"""Wheels of a package index: which one is taken, that only its parts are transferred, and the table of cuda-toolkit."""

from __future__ import annotations

import io
import re
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from pytest_cudalink.audit import AuditError, audit_on_index
from pytest_cudalink.audit import index as module
from pytest_cudalink.audit.index import chosen_wheel, metadata_on_index
from pytest_cudalink.cli import main
from pytest_cudalink.compat import package_index
from pytest_cudalink.compat.package_index import IndexedFile, PackageIndexError
from tests.compat.test_make_exports import Index
from tools import make_requires, make_toolkit_extras

DATA = Random(1).randbytes(2 << 20)


@pytest.fixture
def index(monkeypatch) -> Iterator[Index]:
    """An index on this machine."""
    monkeypatch.setattr(package_index, "BACKOFF", 0.0)
    made = Index()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def published(index, cuda_library, built) -> Index:
    """Two versions for two machines, and one for a machine that no test has; version 2.0 has 2 MB of data."""
    cudart = cuda_library("libcudart.so.12", "cudaGetDriverEntryPointByVersion")
    library = built("libx.so", {cudart: "cudaGetDriverEntryPointByVersion"}).read_bytes()
    for version, machine in (
        ("1.0", "x86_64"),
        ("1.0", "aarch64"),
        ("2.0", "x86_64"),
        ("2.0", "aarch64"),
        ("3.0", "sparc"),
    ):
        metadata = f"Metadata-Version: 2.1\nName: x-cu12\nVersion: {version}\nRequires-Dist: numpy\n\n".encode()
        content = {
            "x/data.bin": DATA if version == "2.0" else b"",
            "x/libx.so": library,
            f"x_cu12-{version}.dist-info/METADATA": metadata,
        }
        index.add("x-cu12", version, content, machine)
    return index


def test_only_what_is_read_is_transferred(published, capsys) -> None:
    """The newest wheel for this machine is audited, and its data stay where they are."""
    assert main(["audit", "--from-index", "x-cu12", "--index", published.url]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("x_cu12-2.0-py3-none-manylinux2014_")
    assert "undeclared: x/libx.so: wants cudaGetDriverEntryPointByVersion of CUDA 12.5" in printed
    ((name, sent),) = published.sent.items()
    assert name.startswith("x_cu12-2.0-")
    assert sent < len(DATA) / 2


def test_older_version_and_other_machine(published) -> None:
    """A requirement can name an older version, and a file name a wheel for another machine."""
    assert audit_on_index("x-cu12<2", published.url).path.startswith("x_cu12-1.0-")
    name = "x_cu12-3.0-py3-none-manylinux2014_sparc.whl"
    assert audit_on_index(name, published.url).path == name
    assert b"Requires-Dist: numpy" in metadata_on_index("x-cu12==1.0", published.url)


def test_yanked_releases_are_skipped(published) -> None:
    """A withdrawn release is audited if its exact version is given, and never chosen."""
    for row in published.projects["x-cu12"]:
        row["yanked"] = "broken" if "-2.0-" in row["filename"] else False
    assert audit_on_index("x-cu12", published.url).path.startswith("x_cu12-1.0-")
    assert audit_on_index("x-cu12==2.0", published.url).path.startswith("x_cu12-2.0-")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("y", "answers 404"),
        ("x-cu12==3.0", "some that it has: x_cu12-3.0-py3-none-manylinux2014_sparc.whl"),
        ("x cu12 ==", "expected a requirement such as"),
    ],
)
def test_wheels_that_are_not_there(wanted: str, reason: str, published, capsys) -> None:
    """An error names what was asked for, and what there is."""
    assert main(["audit", "--from-index", wanted, "--index", published.url]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"cudalink audit: {wanted}: ")
    assert reason in said


def indexed(line: str) -> list[IndexedFile]:
    """Files of an index by version and tag; those with a mark of exclamation are withdrawn."""
    names = [f"x-{one.rstrip('!')}.whl" for one in line.split()]
    yanked = [one.endswith("!") for one in line.split()]
    return [
        IndexedFile(name, "", parse_wheel_filename(name)[1], None, None, withdrawn)
        for name, withdrawn in zip(names, yanked, strict=True)
    ]


@pytest.mark.parametrize(
    ("wanted", "files", "chosen"),
    [
        ("x", "2-py3-none-any 10-py3-none-any 1-py3-none-any", "10-py3-none-any"),
        ("x<2", "1-py3-none-any 2-py3-none-any", "1-py3-none-any"),
        ("x", "1-cp312-cp312-linux_x86_64 1-py3-none-any", "1-cp312-cp312-linux_x86_64"),
        ("x", "1-py2.py3-none-any 1-cp312.cp313-cp312-linux_x86_64", "1-cp312.cp313-cp312-linux_x86_64"),
        ("x", "1-py3-none-any 2-py3-none-win_amd64", "1-py3-none-any"),
        ("x", "1-py3-none-any 2rc1-py3-none-any", "1-py3-none-any"),
        ("x>=2rc1", "1-py3-none-any 2rc1-py3-none-any", "2rc1-py3-none-any"),
        ("x>=1", "1-py3-none-any 2-py3-none-any!", "1-py3-none-any"),
        ("x==2", "1-py3-none-any 2-py3-none-any!", "2-py3-none-any"),
        ("x==2,<9", "1-py3-none-any 2-py3-none-any!", "2-py3-none-any"),
        ("x", "1-py2.py3-none-any 1-cp312.py2-none-any", "1-py2.py3-none-any"),
        ("x===2", "1-py3-none-any 2-py3-none-any!", "2-py3-none-any"),
        ("x==2.*", "1-py3-none-any 2-py3-none-any!", "some that it has: x-1-py3-none-any.whl, x-2-py3-none-any.whl"),
        ("x-2-py3-none-win32.whl", "2-py3-none-win32! 2-py3-none-any", "2-py3-none-win32"),
        ("x-3-py3-none-any.whl", "2-py3-none-any", "some that it has: x-2-py3-none-any.whl"),
        ("x", "1-py3-none-win32 2-py3-none-win32", "some that it has: x-1-py3-none-win32.whl, x-2-py3-none-win32.whl"),
        ("x<2", "1-py3-none-win32 2-py3-none-win32", "some that it has: x-1-py3-none-win32.whl"),
        ("x>9", " ".join(f"{n}-py3-none-any" for n in range(6)),
         f"some that it has: {', '.join(f'x-{n}-py3-none-any.whl' for n in range(1, 6))}"),
        ("x", "", "some that it has: none"),
    ],
)  # fmt: skip
def test_which_wheel_is_chosen(wanted: str, files: str, chosen: str, monkeypatch) -> None:
    """The newest that fits this machine, and of these the one whose tag fits best; else some are named."""
    tags = [Tag("cp312", "cp312", "linux_x86_64"), Tag("py3", "none", "any"), Tag("py2", "none", "any")]
    monkeypatch.setattr(module, "sys_tags", lambda: iter(tags))
    if not chosen.startswith("some"):
        assert chosen_wheel(wanted, iter(indexed(files))).name == f"x-{chosen}.whl"
        return
    said = f"{wanted}: the index has no such wheel for this machine; {chosen}"
    with pytest.raises(AuditError, match=f"^{re.escape(said)}$"):
        chosen_wheel(wanted, iter(indexed(files)))


def test_wheels_that_are_opened(monkeypatch) -> None:
    """The project is asked for under its normalized name, of the default index unless one is given."""
    asked: list[Any] = []

    def files_of(index: str, project: str) -> list[IndexedFile]:
        if index == "broken":
            raise PackageIndexError("no answer")
        asked.append((index, project))
        return indexed("1-py3-none-any")

    monkeypatch.setattr(module, "files_of", files_of)
    monkeypatch.setattr(module, "default_index", lambda: "default")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x-1.dist-info/METADATA", "Name: x")
        archive.writestr("METADATA", "Name: y")
    monkeypatch.setattr(module, "RangeFile", lambda file, tell: asked.append(tell) or io.BytesIO(content.getvalue()))
    for wanted, index, tell, expected in (
        ("X_y<2", "here", len, ("here", "x-y")),
        ("x-1-py3-none-any.whl", None, None, ("default", "x")),
    ):
        name, file = module.open_on_index(wanted, index, tell)
        assert (name, file.read()) == ("x-1-py3-none-any.whl", content.getvalue())
        assert asked == [expected, tell]
        asked.clear()
    assert module.metadata_on_index("x", "there") == b"Name: x"
    assert asked == [("there", "x"), None]
    for damaged in (b"", content.getvalue()[:-40], content.getvalue().replace(b"METADATA", b"METADATB")):
        monkeypatch.setattr(module, "RangeFile", lambda file, tell, damaged=damaged: io.BytesIO(damaged))
        with pytest.raises(AuditError, match=r"^x-1-py3-none-any\.whl: its METADATA cannot be read: "):
            module.metadata_on_index("x")
    with pytest.raises(AuditError, match="^x: no answer$"):
        module.open_on_index("x", "broken")
    for wanted in ("x cu ==", "nonsense.whl"):
        with pytest.raises(AuditError) as caught:
            module.open_on_index(wanted)
        first, _, rest = str(caught.value).partition("; ")
        assert first.startswith(f"{wanted}: ")
        assert rest == "expected a requirement such as 'libcudf-cu12==26.2.1', or the name of a wheel"
        assert "\n" not in first


def test_nothing_to_audit(capsys) -> None:
    """Without a path and without a requirement the command says what to give."""
    assert main(["audit"]) == 2
    assert "give a wheel, a folder or a library, or --from-index" in capsys.readouterr().err


def test_making_the_table_of_extras(index, tmp_path, monkeypatch, capsys) -> None:
    """The command reads each version of cuda-toolkit from 12 on, without pre-releases."""
    for version in ("11.8.0", "12.9.1", "13.4.0rc1", "13.4.1"):
        line = f"Requires-Dist: nvidia-nvjitlink=={version}.*; extra == 'nvjitlink'"
        metadata = f"Metadata-Version: 2.1\nName: cuda-toolkit\nVersion: {version}\n{line}\n\n".encode()
        index.add("cuda-toolkit", version, {f"cuda_toolkit-{version}.dist-info/METADATA": metadata})
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setattr(make_toolkit_extras, "_TARGET", tmp_path / "extras.toml")
    assert make_toolkit_extras.main([]) == 0
    assert "2 versions of cuda-toolkit" in capsys.readouterr().out
    assert tomllib.loads((tmp_path / "extras.toml").read_text(encoding="utf-8")) == {
        "versions": {
            "12.9.1": {"nvjitlink": ["nvidia-nvjitlink==12.9.1.*"]},
            "13.4.1": {"nvjitlink": ["nvidia-nvjitlink==13.4.1.*"]},
        }
    }
    assert make_toolkit_extras.main(["--check"]) == 0
    index.add("cuda-toolkit", "13.6.0", {"cuda_toolkit-13.6.0.dist-info/METADATA": metadata})
    before = (tmp_path / "extras.toml").read_bytes()
    assert make_toolkit_extras.main(["--check"]) == 1
    assert "cuda-toolkit 13.6.0 is not as in the index" in capsys.readouterr().err
    assert (tmp_path / "extras.toml").read_bytes() == before


def test_making_the_table_of_requirements(index, tmp_path, monkeypatch, capsys) -> None:
    """The command reads the newest wheel of each package that is not for Windows, yanked or a pre-release."""

    def add(version: str, *requires: str) -> dict:
        lines = [f"Requires-Dist: {one}" for one in requires]
        text = "\n".join(["Metadata-Version: 2.1", "Name: nvidia-cublas", f"Version: {version}", *lines, "", ""])
        return index.add("nvidia-cublas", version, {f"nvidia_cublas-{version}.dist-info/METADATA": text.encode()})

    add("13.0", "nvidia-old")
    add("13.1", "Nvidia_B", "nvidia-a>=1", "nvidia-cuda-nvrtc", "numpy", "nvidia-c; extra == 'all'")
    add("13.2rc1", "nvidia-early")
    add("13.2", "nvidia-yanked")["yanked"] = True
    add("13.3", "nvidia-windows")["filename"] = "nvidia_cublas-13.3-py3-none-win_amd64.whl"
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
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
