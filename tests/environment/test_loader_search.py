"""How the dynamic loader searches, compared with what it does: its order, its cache, and where it may find a name."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.environment import library_search, loader_search
from pytest_cudalink.environment.installed import Installed
from pytest_cudalink.environment.library_search import Providers
from tests.audit.test_environment import Made

TAGS = {"RPATH": "-Wl,--disable-new-dtags", "RUNPATH": "-Wl,--enable-new-dtags"}
LOADED = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(*{one.split()[-1] for one in open('/proc/self/maps')})"


@pytest.mark.parametrize(
    "named",
    [
        *(None, "$ORIGIN/../wheel", "$ORIGIN/../empty:$ORIGIN/../wheel", "$ORIGIN/../empty", ":$ORIGIN/../wheel"),
        *("$ORIGIN/../$LIB", "${ORIGIN}/../${LIB}", "$ORIGIN/../${PLATFORM}", "$ORIGIN/../$LIBS:$ORIGINAL"),
    ],
)
@pytest.mark.parametrize("tag", TAGS)
def test_search_order_is_the_loaders(tag, named, tmp_path, monkeypatch) -> None:
    """RPATH, LD_LIBRARY_PATH, RUNPATH: what the loader takes, also for a link, whose own folder is that of $ORIGIN.

    A folder without a name is the current one.
    """
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: ())
    made = Made(tmp_path)
    wheel = made.library("wheel/libcudart.so.12", "cudaMalloc")
    folder = (made.site / made.library("ld/libcudart.so.12", "cudaMalloc")).parent
    for name in ("$LIB", "$PLATFORM"):
        (link := made.site / loader_search.expanded(name, "")).parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    monkeypatch.chdir(folder)
    (made.site / "empty").mkdir()
    rpath = (f"-Wl,-rpath,{named}",) if named else ()
    user = made.site / made.user("x/user.so", wheel, "cudaMalloc", TAGS[tag], "-Wl,-soname,user.so", *rpath)
    link = made.site / "y/z/user.so"
    link.parent.mkdir(parents=True)
    link.symlink_to(user)
    owner = Installed("nvidia-cuda-runtime-cu12", "12.9.79", "pip", "", files=(str(made.site / wheel),))
    program = f"$ORIGIN/{os.path.relpath(folder, Path(sys.executable).resolve().parent)}"
    for variable in ("", "@/ld", "@/nowhere:@/empty", "@/empty;@/ld", ":@/empty", "@/empty:", program):
        monkeypatch.setenv("LD_LIBRARY_PATH", variable.replace("@", str(made.site)))
        for path in map(str, (user, link)):
            done = subprocess.run([sys.executable, "-Sc", LOADED, path], capture_output=True, text=True, check=False)
            folders = [Path(path).parent.name for path in done.stdout.split() if path.endswith("libcudart.so.12")]
            # where the loader finds none, a program preloads the wheel's
            provider = Providers([owner]).of("libcudart", 12, path)
            assert provider is not None
            assert [Path(provider.path).parent.name] == (folders or ["wheel"]), (variable, done.stderr)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("2 libs\n\ta.so.1 (libc6,x86-64) => /l/a.so.1\n\t\udcff\n\tlibb.so => /b\n", [("a.so.1", "/l/a.so.1")]),
        ("", []),
    ],
)
def test_the_cache_of_the_loader(tmp_path, monkeypatch, output, expected) -> None:
    """What ldconfig prints, wherever it is, asked once for each cache that it has written; nothing without it."""
    asked: list[object] = []

    def run(command, **options):
        asked.append((command, options))
        return SimpleNamespace(stdout=output.encode("utf-8", "surrogateescape"))

    monkeypatch.setattr(loader_search.shutil, "which", lambda name, path: f"{path}/{name}")
    monkeypatch.setattr(loader_search.subprocess, "run", run)
    monkeypatch.setenv("PATH", "/p")
    monkeypatch.setattr(loader_search, "_CACHE", tmp_path)
    assert loader_search.loader_cache() == loader_search.loader_cache() == expected
    monkeypatch.delenv("PATH")
    loader_search.loader_cache()
    os.utime(tmp_path, (1, 1))
    loader_search.loader_cache()
    monkeypatch.setattr(loader_search, "_CACHE", tmp_path / "elsewhere")
    assert loader_search.loader_cache() == expected
    options = {"capture_output": True, "check": False, "timeout": 10}
    assert asked == [([f"/sbin:/usr/sbin:{path}/ldconfig", "-p"], options) for path in ("/p", "", "", "")]
    monkeypatch.setattr(loader_search.shutil, "which", lambda name, path: None)
    assert loader_search.loader_cache() == []


def test_folders_are_the_loaders(tmp_path, monkeypatch) -> None:
    """What lies in a folder that the loader itself names is found, also before ldconfig has seen it."""
    loader = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/ld-" in line)
    done = subprocess.run([loader, "--list-diagnostics"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("needs a loader that names its folders, as that of glibc 2.33 does")
    folders = re.findall(r'^path.system_dirs\[.*?\]="(.*)/"$', done.stdout, re.MULTILINE)
    names = [f"{folder}/{file.name}" for folder in folders if Path(folder).is_dir() for file in Path(folder).iterdir()]
    assert names
    assert set(names) <= {*loader_search.found_by_name()}
    assert loader_search.is_any_reached(sys.executable, [Path(names[-1]).name], names)
    stand_for = dict(re.findall(r'^dl_(dst_lib|platform)="(.*)"$', done.stdout, re.MULTILINE))
    assert loader_search.expanded("$LIB ${PLATFORM}", "") == f"{stand_for['dst_lib']} {stand_for['platform']}"
    monkeypatch.setattr(loader_search, "_PROCESSOR", tmp_path / "cpuinfo")
    flags = "fpu avx2 fma bmi1 bmi2 abm movbe popcnt"
    for text, named in ((f"GenuineIntel {flags}", "haswell"), (f"AuthenticAMD {flags}", os.uname().machine)):
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
        assert loader_search.expanded("$PLATFORM", "") == named


def test_a_current_folder_that_is_gone(tmp_path, monkeypatch) -> None:
    """The loader finds nothing there, and goes on."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}")
    assert [loader_search.names_in(folder) for folder in loader_search.library_path()] == [[], []]
    assert str(tmp_path) in loader_search.searched_first(sys.executable)


def test_names_are_whole(tmp_path, monkeypatch) -> None:
    """The loader opens a name with a version only as it stands; to one without, the file that opens it adds some."""
    (tmp_path / "libnvrtc-builtins-x.so.12.1.55").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    versions = {"": True, ".12.1.55": True, ".12.1": False, ".1": False, ".12": False}
    names = [f"libnvrtc-builtins-x.so{version}" for version in versions]
    assert [loader_search.is_any_reached(sys.executable, [name], ()) for name in names] == [*versions.values()]


def test_folders_of_distributions(monkeypatch) -> None:
    """Where 64 bits have /usr/lib64, as in Fedora, the loader itself does not search /usr/lib (ld.so(8))."""
    monkeypatch.setattr(loader_search, "_OF_DEBIAN", ("/lib/m", "/usr/lib/m", "/lib", "/usr/lib"))
    monkeypatch.setattr(loader_search, "loader_cache", list)
    monkeypatch.setattr(loader_search, "names_in", lambda folder: ["x"])
    debian = "/lib/m /usr/lib/m /lib /usr/lib"
    for there, folders in (("/usr/lib64", "/lib64 /usr/lib64"), ("/usr/lib64 /usr/lib/m", debian), ("", debian)):
        monkeypatch.setattr(Path, "is_dir", lambda path, there=there: str(path) in there.split())
        assert [*loader_search.found_by_name()] == [f"{folder}/x" for folder in folders.split()]
        assert loader_search.expanded("$LIB", "") == ("lib/m" if folders == debian else "lib64")


def test_where_a_driver_may_be(tmp_path, monkeypatch) -> None:
    """In a folder that loaders search, or in the loader's cache; a system without that cache says nothing."""
    monkeypatch.setattr(loader_search, "_FOLDERS", ())
    monkeypatch.setattr(loader_search, "_CACHE", tmp_path / "cache")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    may_find = partial(loader_search.may_find, "libcuda.so.1")
    assert may_find()
    (tmp_path / "cache").write_bytes(b"libc.so.6")
    assert not may_find()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path};{tmp_path / 'absent'}")
    assert not may_find()
    (tmp_path / "libcuda.so.1").symlink_to("nothing")
    assert may_find()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    (tmp_path / "cache").write_bytes(b"libcuda.so.1")
    assert may_find()
