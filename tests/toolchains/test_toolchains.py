"""Toolchains: real wheels of several releases in a cache, and the command that puts them there."""

import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_cudalink import cli, toolchains
from pytest_cudalink.base.progress import run_and_tell
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.toolchains import ToolchainError
from pytest_cudalink.versions import CudaVersion

pytestmark = pytest.mark.xdist_group("toolchains")  # one worker: the cache is filled once

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache of its own with CUDA 12.0, 12.9 and 13.0, one of them fetched by pip."""
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDALINK_CACHE", str(root))
        toolchains.add("12.0")
        toolchains.add("12.9", installer="pip")
        toolchains.add("13.0", "ctk")
        toolchains.add("13.0")
    return root


@pytest.fixture(autouse=True)
def _own_cache(request, monkeypatch, tmp_path) -> None:
    """No test touches the cache of the user."""
    root = request.getfixturevalue("cache") if "cache" in request.fixturenames else tmp_path / "cache"
    monkeypatch.setenv("CUDALINK_CACHE", str(root))


def test_table_names_every_release_but_12_7() -> None:
    """Every known CUDA release has exact wheels with hashes, except the one without wheels."""
    assert set(toolchains.releases()) == set(PTX_ISA) - {CudaVersion(12, 7)}
    table = tomllib.loads((ROOT / "pytest_cudalink" / "data" / "toolchains.toml").read_text(encoding="utf-8"))
    for name, release in table["releases"].items():
        assert toolchains.toolkit_version(name).startswith(name)
        for package in (*release["libs"], *release["ctk"]):
            assert len(package["sha256"]) >= 2
            assert all(len(bytes.fromhex(value)) == 32 for value in package["sha256"])


@pytest.mark.slow
def test_add_unpacks_libraries_and_headers(cache) -> None:
    """NvJitLink, NVRTC, cudart and their headers lie where an installed toolkit has them; all open in one process."""
    opened = []
    for version, major in (("12.0", "12"), ("12.9", "12"), ("13.0", "13")):
        chain = toolchains.find(version)
        for library in ("nvJitLink", "nvrtc", "cudart"):
            assert toolchains.library_path(version, library).name == f"lib{library}.so.{major}"
            assert (chain.lib / f"lib{library}.so").resolve() == chain.library(library).resolve()
        assert {"cuda.h", "cuda_runtime.h", "nvrtc.h", "nvJitLink.h"} <= {path.name for path in chain.include.iterdir()}
        assert f"CUDA_VERSION {major}0{version[3:]}0" in (chain.include / "cuda.h").read_text(encoding="utf-8")
        opened.append(str(chain.library("nvrtc")))
    code = (
        "import ctypes, sys\n"
        "for path in sys.argv[1:]:\n"
        "    major, minor = ctypes.c_int(), ctypes.c_int()\n"
        "    assert ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0\n"
        "    print(major.value, minor.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *opened], capture_output=True, text=True, check=True)
    assert done.stdout == "12 0\n12 9\n13 0\n"


@pytest.mark.slow
def test_ctk_layout_is_a_toolkit(cache, tmp_path) -> None:
    """The mini toolkit has the folders and version.json of an installed one, and its nvcc compiles and links."""
    chain = toolchains.find("13.0", "ctk")
    assert {"bin", "include", "lib64", "nvvm", "version.json"} <= {path.name for path in chain.path.iterdir()}
    version = json.loads((chain.path / "version.json").read_text(encoding="utf-8"))
    assert version["cuda"]["version"].startswith("13.0.")
    assert version["libnvjitlink"]["version"] == chain.packages["nvidia-nvjitlink"]
    for library, package in (("nvrtc", "nvidia-cuda-nvrtc"), ("nvJitLink", "nvidia-nvjitlink")):
        assert chain.library(library).resolve().name == f"lib{library}.so.{chain.packages[package]}"
        assert (chain.lib / f"lib{library}.so").resolve() == chain.library(library).resolve()
    source = tmp_path / "k.cu"
    source.write_text("#include <cuda_fp16.h>\n__global__ void k(__half* x) { *x = __float2half(1.0f); }\n")
    nvcc = [str(chain.path / "bin" / "nvcc"), "-arch=sm_90", "-cubin", "-o", str(tmp_path / "k.cubin"), str(source)]
    done = subprocess.run(nvcc, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "k.cubin").read_bytes()[:4] == b"\x7fELF"


@pytest.mark.slow
def test_pathfinder_finds_the_ctk_layout(cache, tmp_path) -> None:
    """cuda.pathfinder takes the mini toolkit for an installed one through CUDA_HOME."""
    home = str(toolchains.find("13.0", "ctk").path)
    code = "from cuda.pathfinder import find_nvidia_header_directory as f; print(f('cudart'))"
    # isolated from site-packages of this environment, whose wheels come first
    import cuda.pathfinder

    (tmp_path / "cuda").symlink_to(Path(cuda.pathfinder.__file__).parent.parent)
    environment = {"CUDA_HOME": home, "PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == f"{home}/include", done.stderr


@pytest.mark.slow
def test_wrong_hash_leaves_nothing(monkeypatch, tmp_path) -> None:
    """A wheel whose hash is not the recorded one is refused, and the cache stays as it was."""
    table = {release: dict(entry) for release, entry in toolchains.releases_table().items()}
    first, *rest = table[CudaVersion(12, 3)]["libs"]
    table[CudaVersion(12, 3)]["libs"] = [{**first, "sha256": ["0" * 64]}, *rest]
    monkeypatch.setattr(toolchains, "releases_table", lambda: table)
    with pytest.raises(ToolchainError, match=r"(?s)could not be fetched; nothing was changed.*[Hh]ash"):
        toolchains.add("12.3")
    assert toolchains.installed() == []
    assert [path.name for path in (tmp_path / "cache" / "toolchains").iterdir()] == [".12.3.lock"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("12.7", "no wheels of CUDA 12.7; use 12.6 or 12.8"),
        ("11.8", "no wheels of CUDA 11.8 are known; known: 12.0, "),
        ("12.x", "'12.x' is not a CUDA version"),
        ("575", "'575' is a branch of drivers, which came with CUDA 12.9; write a version of CUDA, such as 12.9"),
        ("12.9.1", "'12.9.1' has three numbers, and a toolchain has the newest wheels of its release; write 12.9"),
    ],
)
def test_releases_that_cannot_be(version, words) -> None:
    """A release without wheels is refused with the ones that have some; a missing one with the command to fetch it."""
    for ask in (toolchains.add, toolchains.library_path):
        with pytest.raises(ToolchainError, match=words):
            ask(version)
    with pytest.raises(ToolchainError, match=r"CUDA 13\.0 is not in .*run: cudalink toolchain add 13\.0$"):
        toolchains.library_path("13.0")
    with pytest.raises(ToolchainError, match=r"toolchain add 13\.0 --layout ctk$"):
        toolchains.find("13.0", "ctk")


@pytest.mark.slow
def test_command(cache, capsys) -> None:
    """``list``, ``path`` and ``remove`` print what a script needs; errors are exit code 1."""

    def printed(words: str, code: int = 0) -> str:
        assert cli.main(["toolchain", *words.split()]) == code
        return "".join(capsys.readouterr())

    rows = [line.split()[:2] for line in printed("list").splitlines()]
    assert rows == [["12.0", "libs"], ["12.9", "libs"], ["13.0", "libs"], ["13.0", "ctk"]]
    assert "12.3  -     cudalink toolchain add 12.3" in printed("list --all")
    assert [row["version"] for row in json.loads(printed("list --json"))] == ["12.0", "12.9", "13.0", "13.0"]
    assert printed("path 13.0 --library nvrtc") == f"{cache}/toolchains/13.0/lib64/libnvrtc.so.13\n"
    assert "cudalink toolchain add 13.5" in printed("path latest", code=1)


def test_cache_root(monkeypatch, tmp_path) -> None:
    """The cache follows CUDALINK_CACHE, then XDG, then the home folder."""
    assert toolchains.cache_root() == tmp_path / "cache"
    monkeypatch.delenv("CUDALINK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert toolchains.cache_root() == tmp_path / "xdg" / "pytest-cudalink"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/invalid")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert toolchains.cache_root() == tmp_path / ".cache" / "pytest-cudalink"


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path, capsys) -> None:
    """The folder is named, and the variable that names another."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "file"))
    assert cli.main(["toolchain", "add", "13.0"]) == 1
    error = capsys.readouterr().err
    assert "cannot be put into" in error
    assert "$CUDALINK_CACHE names another" in error
    with pytest.raises(ToolchainError, match=r"cannot be put into .*names another$"):  # which no network mends
        toolchains.provide([CudaVersion(13, 0)], lambda _: None)


def test_which_program_fetches(monkeypatch, tmp_path) -> None:
    """The uv next to the interpreter needs no PATH, and installs for that interpreter."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(toolchains.importlib.util, "find_spec", lambda _: None)
    words = (
        f"fetching wheels needs uv or pip; neither PATH nor the folder of {tmp_path}.*\n.*`cudalink toolchain add 13.0`"
    )
    with pytest.raises(ToolchainError, match=words):
        toolchains.provide([CudaVersion(13, 0)], lambda _: None)
    assert not toolchains.cache_root().exists()
    (tmp_path / "uv").touch()
    command = [str(tmp_path / "uv"), "pip", "install", "-q", "--no-build", "--python", sys.executable]
    assert toolchains._installer(None) == command


def test_what_a_killed_process_left_is_swept(monkeypatch, tmp_path) -> None:
    """The next one that fetches the same release clears it; other releases' are left alone."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    folders = [tmp_path / "toolchains" / name for name in (".13.0-abcdefgh", ".13.0-ctk-abcdefgh", ".12.9-abcdefgh")]
    for folder in folders:
        folder.mkdir(parents=True)
    monkeypatch.setattr(toolchains, "run_installer", lambda *_: (_ for _ in ()).throw(ToolchainError("offline")))
    with pytest.raises(ToolchainError, match="offline"):
        toolchains.add("13.0")
    assert [folder.exists() for folder in folders] == [False, True, True]
    (tmp_path / "toolchains" / f".13.0-{os.getpid():08x}").touch()
    with pytest.raises(ToolchainError, match="cannot be put into .* File exists"):
        toolchains.add("13.0")


#: Begins to add a release, and stays at it until it is killed.
HOLD = """
import sys, time
from pytest_cudalink import toolchains
def wait(*_):
    print("holding", flush=True)
    time.sleep(600)
toolchains.run_installer = wait
toolchains.add(sys.argv[1])
"""


def test_a_killed_process_leaves_no_lock(monkeypatch) -> None:
    """Another process waits while one fetches a release, and goes on as soon as that one is killed."""
    monkeypatch.setattr(toolchains, "run_installer", lambda *_: (_ for _ in ()).throw(ToolchainError("offline")))
    with (
        subprocess.Popen([sys.executable, "-c", HOLD, "12.3"], stdout=subprocess.PIPE, text=True) as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        try:
            assert holder.stdout.readline() == "holding\n"
            waiting = pool.submit(toolchains.add, "12.3")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
        finally:
            holder.kill()
        with pytest.raises(ToolchainError, match="offline"):
            waiting.result(timeout=60)


def test_each_line_is_told() -> None:
    """The installer is not quiet; its last lines are the end of the error, from both streams."""
    program = (
        "import sys; print('  Downloading x (1.0MiB)', *sys.argv[1:], flush=True); print(); sys.exit('  x no space')"
    )
    told: list[str] = []
    command = [sys.executable, "-c", program, "-q", "y"]
    code, said = run_and_tell(command, told.append)
    assert (code, sorted(said.splitlines())) == (1, ["  Downloading x (1.0MiB) y", "  x no space"])
    assert sorted(told) == ["Downloading x (1.0MiB) y", "x no space"]
    with pytest.raises(ToolchainError, match=r"(?s)could not be fetched; nothing was changed.*\n    x no space\n"):
        toolchains.run_installer(command, CudaVersion(13, 0), told.append)


def test_interrupt_ends_the_installer() -> None:
    """An exception in the caller, as Ctrl-C raises one, kills the installer."""
    program = "print('Downloading x (1.0MiB)', flush=True); import time; time.sleep(600)"

    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_tell([sys.executable, "-c", program], interrupt)
