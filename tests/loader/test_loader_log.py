"""The list that glibc's loader writes becomes programs with their objects, whatever else is in the text."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.base import compiler
from pytest_cudalink.loader.loader_log import LoadedImage, listing, parse
from pytest_cudalink.loader.loads import LoadedObject, Opening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the list is that of glibc")


def lines(*events: str, pid: int = 7) -> str:
    """The text that the loader would write."""
    return "".join(f"{pid:>10}:\t{line}\n" for event in events for line in ("", event))


def mapped(name: str, by: str, how: str = "needed by", path: str = "") -> list[str]:
    """What the loader writes when it maps a file and initializes it."""
    lines = (
        [f"find library={name} [0]; searching", f"  trying file=/no/{name}", f"  trying file={path}"] if path else []
    )
    return [
        f"file={name} [0];  {how} {by} [0]",
        *lines,
        f"file={name} [0];  generating link map",
        f"calling init: {path or name}",
    ]


START = [*mapped("libc.so.6", "prog", path="/lib/libc.so.6"), "initialize program: prog", "transferring control: prog"]
LIBC = LoadedObject("/lib/libc.so.6", "libc.so.6", ())
PROGRAM = LoadedObject("prog", "", ("libc.so.6",))


def test_what_is_linked_and_what_is_opened() -> None:
    """The path is the last that was tried; what needs or opens an object is told."""
    opened = mapped("/a/ext.so", "/lib/libc.so.6", "dynamically loaded by")
    needed = mapped("libcudart.so.13", "/a/ext.so", path="/cuda/libcudart.so.13")
    (image,) = parse(lines(*START, *opened, *needed))
    assert image == LoadedImage(
        "prog",
        (
            PROGRAM,
            LIBC,
            LoadedObject("/a/ext.so", "", ("libcudart.so.13",)),
            LoadedObject("/cuda/libcudart.so.13", "libcudart.so.13", ()),
        ),
        (Opening("/a/ext.so", "", "/lib/libc.so.6"),),
    )


def test_a_load_that_fails_is_none() -> None:
    """A file that is mapped, and given up because something is missing, has not been loaded; one that is closed has."""
    failed = [*mapped("/a/ext.so", "prog", "dynamically loaded by")[:-1], "file=/a/ext.so [0];  destroying link map"]
    closed = [*mapped("/a/b.so", "prog", "dynamically loaded by"), "file=/a/b.so [0];  destroying link map"]
    (image,) = parse(lines(*START, *failed, *closed))
    assert [loaded.path for loaded in image.objects] == ["prog", "/lib/libc.so.6", "/a/b.so"]


def test_a_forked_child_and_a_program_that_takes_the_place_of_another() -> None:
    """A child writes into the file of its parent, and has what that had; of one process, the second image has not."""
    opened = mapped("/a/libcudart.so.12", "/lib/libc.so.6", "dynamically loaded by")
    child = lines(*opened, pid=8)
    first, second, forked = parse(lines(*START, *opened, *START) + child)
    assert first.objects == (PROGRAM, LIBC, LoadedObject("/a/libcudart.so.12", "", ()))
    assert second.objects == (PROGRAM, LIBC)
    assert forked.objects == first.objects


def test_relative_paths_and_preloaded_files() -> None:
    """A relative path begins at the folder of the program; ``$ORIGIN`` is that of what needs the file."""
    opened = mapped("./x.so", "/lib/libc.so.6", "dynamically loaded by")
    needed = mapped("$ORIGIN/deps/y.so", "./x.so")
    preloaded = mapped("/emulated/libcuda.so.1", "prog")
    (image,) = parse(lines(*preloaded, *START, *opened, *needed), "/work", ["/emulated/libcuda.so.1"])
    paths = ["prog", "/emulated/libcuda.so.1", "/lib/libc.so.6", "/work/./x.so", "/work/./deps/y.so"]
    assert [loaded.path for loaded in image.objects] == paths
    assert image.objects[0].needed == ("libc.so.6",)
    assert image.openings[0] == Opening("/emulated/libcuda.so.1", "", "LD_PRELOAD")


_NAMES = st.integers(0, 99).map("lib{}.so".format)


@given(st.lists(_NAMES, min_size=1, max_size=8, unique=True), st.data())
def test_every_tree(names, data) -> None:
    """Each object of a tree is found at its path, with exactly what it was said to need."""
    events, parents = [], ["prog"]
    needed: dict[str, list[str]] = {}
    for name in names:
        parent = data.draw(st.sampled_from(parents))
        events += mapped(name, parent, path=f"/lib/{name}")
        needed.setdefault(parent, []).append(name)
        parents.append(f"/lib/{name}")
    (image,) = parse(lines(*events, "initialize program: prog"))
    assert [loaded.path for loaded in image.objects] == parents
    assert {loaded.path: list(loaded.needed) for loaded in image.objects if loaded.needed} == needed


_LINES = ("     7:\t", "     8:\t", "file=", " [0];  ", "needed by ", "dynamically loaded by ", "generating link map")
_OTHERS = ("destroying link map", "calling init: ", "find library=", " [0]; searching", "  trying file=", "\0", "\r")
_ENDS = ("transferring ", "control: ", "initialize program: ", "/a/b.so", "x.so", "$ORIGIN/", " [0]", "\udcff", "\n")
_PIECES = st.sampled_from((*_LINES, *_OTHERS, *_ENDS, "∞"))


@given(st.lists(_PIECES | st.text(max_size=5), max_size=60).map("".join))
def test_any_text(text) -> None:
    """No text is an error, and no file is invented."""
    for image in parse(text, "/work"):
        for loaded in image.objects:
            assert Path(loaded.path).name in text


# -- programs


def listed(tmp_path: Path, *command: str) -> tuple[LoadedImage, ...]:
    """The images of a real program."""
    prefix = tmp_path / "list"
    environment = {**os.environ, "LD_DEBUG": "files,libs", "LD_DEBUG_OUTPUT": str(prefix)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        process.wait()
    listed = listing(prefix, process.pid, str(tmp_path))
    assert not listed.fault
    return listed.images


def test_a_real_program_and_its_child(tmp_path) -> None:
    """What glibc writes on this machine is understood, also where a file has no initializer, of a child, and exec."""
    source = tmp_path / "empty.c"
    source.write_text("int cudalink_test_empty;\n")
    flags = ("-nostdlib", "-nostartfiles")
    inner = compiler.SharedLibrary("libinner.so.2", (source,), flags=flags)
    compiler.build(inner, tmp_path, strict=False)
    needs = ("-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libinner.so.2", f"-Wl,-rpath,{tmp_path}")
    outer = compiler.SharedLibrary("libouter.so.1", (source,), flags=needs)
    compiler.build(outer, tmp_path, strict=False)
    child = "import ctypes; ctypes.CDLL('./libouter.so.1')"
    text = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); os.execvp('true', ['true'])"
    images = listed(tmp_path, sys.executable, "-c", text)
    assert sorted(Path(image.program).name for image in images) == sorted(["true", *[Path(sys.executable).name] * 2])
    (image,) = (image for image in images if any(loaded.path.endswith("libouter.so.1") for loaded in image.objects))
    by_name = {Path(loaded.path).name: loaded for loaded in image.objects}
    assert os.path.realpath(by_name["libouter.so.1"].path) == str(tmp_path / "libouter.so.1")
    assert "libinner.so.2" in by_name["libouter.so.1"].needed
    assert by_name["libinner.so.2"].path == str(tmp_path / "libinner.so.2")
    (opening,) = (opening for opening in image.openings if opening.name.endswith("libouter.so.1"))
    assert "_ctypes" in opening.through or "libpython" in opening.through or opening.through == sys.executable


def test_no_list_and_too_long_a_list(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing can be known is said."""
    assert "the loader wrote no list" in listing(tmp_path / "none", 1, "/").fault
    tmp_path.joinpath("list.1").write_text(lines(*START))
    assert listing(tmp_path / "list", 1, "/").fault == ""
    assert "the loader wrote no list" in listing(tmp_path / "list", 2, "/").fault
    monkeypatch.setattr("pytest_cudalink.loader.loader_log._MOST", 8)
    assert listing(tmp_path / "list", 1, "/").fault == "the lists of the loader have more than 0 MiB"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert listing(tmp_path / "list", 1, "/").fault == "this system is not Linux"
