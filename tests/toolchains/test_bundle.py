"""Bundles: made from real wheels, split, damaged, and installed without a network."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.toolchains import ToolchainError
from pytest_cudalink.versions import CudaVersion
from tools import bundle, unbundle
from tools.unbundle import BundleError

pytestmark = pytest.mark.xdist_group("bundle")  # one worker: the bundle is made once

NVRTC, NVJITLINK = "nvidia-cuda-nvrtc", "nvidia-nvjitlink"
LINK = "from pytest_cudalink.linker import sample; print(len(sample.link_sample('ptx', 'sm_90', 'nvjitlink')[0].code))"


def wanted(**changes) -> bundle.Wanted:
    """CUDA 13.0, whose two large wheels this environment has, for this Python."""
    given = {
        "releases": (CudaVersion(13, 0),),
        "python": bundle.default_python(),
        "platform": bundle.default_platform(),
        "without": (NVRTC, "NVIDIA_nvjitlink"),
    }
    return bundle.Wanted(**{**given, **changes})


@pytest.fixture(scope="module")
def volumes(tmp_path_factory) -> Path:
    """The volumes of a small bundle: a wheel with this project's name, which requires pytest, and pip."""
    own = tmp_path_factory.mktemp("own") / "pytest_cudalink-1.0-py3-none-any.whl"
    files = {
        "pytest_cudalink/__init__.py": "",
        "pytest_cudalink-1.0.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: pytest-cudalink\nVersion: 1.0\nRequires-Dist: pytest\n"
        ),
        "pytest_cudalink-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(own, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("pytest_cudalink-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    out = tmp_path_factory.mktemp("volumes") / "split"
    made = bundle.make(out, wanted(wheel=own, volume_size=10 * bundle.MIB), others={"pip": "installs"})
    assert made.without == (f"{NVRTC}==13.0.88", f"{NVJITLINK}==13.0.88")
    assert made.volumes == tuple(f"bundle.tar.{number:03}" for number in range(1, len(made.volumes) + 1))
    assert len(made.volumes) >= 2
    return out


@pytest.fixture(scope="module")
def whole(volumes: Path, tmp_path_factory) -> Path:
    """The bundle, joined from its volumes by its own script."""
    out = tmp_path_factory.mktemp("bundle") / "whole"
    command = [sys.executable, "-I", str(volumes / "unbundle.py"), "--to", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "all as in manifest.json" in done.stdout
    return out


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage; its wheels are hard links, which a test must replace and not write to."""
    return Path(shutil.copytree(whole, tmp_path / "copy", copy_function=os.link))


def replaced(path: Path, content: bytes) -> None:
    """Give a file of a copy other content, and leave the original as it is."""
    path.unlink()
    path.write_bytes(content)


@pytest.mark.weekly
@pytest.mark.slow
def test_the_manifest_says_what_and_what_for(whole: Path) -> None:
    """Every file has version, size, hash and purpose; a CUDA wheel has a hash of toolchains.toml."""
    manifest = unbundle.check(whole)
    files = {entry.get("name", entry["file"]): entry for entry in manifest["files"]}
    assert {"pytest-cudalink", "pytest", "cuda-bindings", "nvidia-cuda-runtime", "unbundle.py"} <= set(files)
    assert NVRTC not in files
    runtime = files["nvidia-cuda-runtime"]
    known = [lib for lib in toolchains.releases_table()[CudaVersion(13, 0)]["libs"] if lib["name"] == runtime["name"]]
    assert runtime["sha256"] in known[0]["sha256"]
    assert (runtime["requirement"], runtime["version"]) == ("nvidia-cuda-runtime==13.0.96", "13.0.96")
    assert runtime["for"] == "CUDA 13.0: the CUDA runtime and its headers"
    assert [entry["name"] for entry in manifest["without"]] == [NVRTC, NVJITLINK]
    assert all(entry["size"] == (whole / entry["file"]).stat().st_size and entry["for"] for entry in manifest["files"])


def installed(whole: Path, venv: Path, *options: str) -> str:
    """Install a bundle where no index can be reached; return what was written."""
    nowhere = dict.fromkeys(("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    command = [sys.executable, str(whole / "unbundle.py"), "--venv", str(venv), *options]
    done = subprocess.run(command, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.weekly
@pytest.mark.slow
def test_install_without_a_network(whole: Path, tmp_path: Path, toolkit) -> None:
    """The environment has the bundle's wheels, and copies of this Python's NVRTC and nvJitLink."""
    if toolkit != CudaVersion(13, 0):
        pytest.skip(f"takes NVRTC and nvJitLink 13.0 from this environment, which has {toolkit}")
    venv = tmp_path / "venv"
    assert f"{NVJITLINK} 13.0.88: the machine's, the bundle leaves it out" in installed(whole, venv)
    where = "import nvidia, pytest, pytest_cudalink; print(*nvidia.__path__, pytest.__file__, pytest_cudalink.__file__)"
    command = [venv / "bin" / "python", "-I", "-c", where]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert all(path.startswith(str(venv)) for path in shown)
    assert list(venv.rglob("libnvJitLink.so.13"))
    kept = json.loads((venv / "bundle.json").read_text(encoding="utf-8"))
    assert kept["machine"] == {NVRTC: "13.0.88", NVJITLINK: "13.0.88"}
    assert kept["installed"]["pytest-cudalink"] == "1.0"
    assert kept["toolchains"] == []


@pytest.mark.apart
@pytest.mark.skipif(
    "CUDALINK_BUNDLE" not in os.environ, reason="builds the wheel of this checkout; run `nox -s bundle`"
)
def test_link_from_a_bundle(tmp_path: Path, toolkit) -> None:
    """What a bundle with this project's wheel installs links; the whole release 12.0 is in the cache only."""
    assert toolkit == CudaVersion(13, 0)
    whole, venv = tmp_path / "whole", tmp_path / "venv"
    bundle.make(whole, wanted(releases=(CudaVersion(13, 0), CudaVersion(12, 0))), others={"pip": "installs"})
    installed(whole, venv, "--cache", str(tmp_path / "cache"))
    python = venv / "bin" / "python"
    linked = subprocess.run([python, "-I", "-c", LINK], capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr
    assert int(linked.stdout) > 1000
    kept = json.loads((venv / "bundle.json").read_text(encoding="utf-8"))
    assert "nvidia-nvjitlink-cu12" not in kept["installed"]
    # two wheels of 13.0 are not in the bundle
    assert kept["toolchains"] == ["12.0"]
    assert list((tmp_path / "cache" / "toolchains" / "12.0" / "lib64").glob("libnvJitLink.so.12*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: replaced(path, b"short"), r"has 5 bytes; expected \d+"),
        (lambda path: replaced(path, path.read_bytes()[:-1] + b"?"), r"has the sha256 [0-9a-f]{64}; expected"),
        (lambda path: path.unlink(), r"is missing; expected \d+ bytes"),
        (lambda path: (path.rename(path.with_suffix(".x")), path.symlink_to(path.with_suffix(".x"))), "is a link"),
    ],
)
def test_damage_is_found_before_anything_is_installed(
    copied: Path, tmp_path: Path, damage, message: str, capsys
) -> None:
    """The error names the file, what it has and what is expected; no environment is made."""
    damage(min((copied / "wheels").glob("pytest-*.whl")))
    with pytest.raises(BundleError, match=message):
        unbundle.check(copied)
    assert unbundle.main([str(copied), "--venv", str(tmp_path / "venv")]) == 1
    assert "unbundle: " in capsys.readouterr().err
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"python": "3.1"}, r"expected 3\.1, for which the bundle was made; run it with python3\.1"),
        ({"platform": "manylinux_2_28_riscv64"}, "expected manylinux_2_28_riscv64; make a bundle with its --platform"),
        ({"without": [{"name": "no-such", "version": "1.0"}]}, "is not installed on this machine; expected 1.0"),
        ({"without": [{"name": NVRTC, "version": "12.9.1"}]}, r"of this machine is 13\.\d+\.\d+; expected 12\.9\.1"),
    ],
)
def test_a_bundle_that_does_not_fit(copied: Path, tmp_path: Path, change: dict[str, object], message: str) -> None:
    """Another Python or platform, or a package that the machine lacks, is an error with what to do."""
    manifest = json.loads((copied / "manifest.json").read_text(encoding="utf-8"))
    replaced(copied / "manifest.json", json.dumps({**manifest, **change}).encode())
    with pytest.raises(BundleError, match=message):
        unbundle.install(copied, tmp_path / "venv")
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_damaged_volumes(volumes: Path, tmp_path: Path) -> None:
    """A volume that is missing or damaged is named; the folder of the volumes itself is no bundle."""
    with pytest.raises(BundleError, match="has the volumes of a bundle; expected a joined one; give --to FOLDER"):
        unbundle.check(volumes)
    copy = Path(shutil.copytree(volumes, tmp_path / "volumes"))
    first = copy / "bundle.tar.001"
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    (copy / "bundle.tar.002").unlink()
    with pytest.raises(
        BundleError, match=r"copy these volumes again:\n  bundle.tar.001 has the sha256(.|\n)*002 is missing"
    ):
        unbundle.unpack(copy, tmp_path / "to")
    with pytest.raises(BundleError, match="is not an empty folder"):
        unbundle.unpack(volumes, copy)


def sparse() -> tarfile.TarInfo:
    """A member of 3 GiB that takes a few bytes of the archive."""
    head = tarfile.TarInfo("x")
    head.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "x"}
    head.pax_headers |= {"GNU.sparse.size": str(3 << 30), "GNU.sparse.map": f"{3 << 30},0"}
    return head


@pytest.mark.parametrize(("name", "kind"), [("../out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("", b"")])
def test_a_hostile_archive(tmp_path: Path, name: str, kind: bytes) -> None:
    """A member that leads out of the folder, is a link, or is sparse is refused before anything is written."""
    member = tarfile.TarInfo(name) if name else sparse()
    member.type = kind or member.type
    with tarfile.open(tmp_path / "x.tar", "w:", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO())
    with pytest.raises(BundleError, match="expected regular files only"):
        unbundle.unpack(tmp_path / "x.tar", tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"files": [{"file": "", "size": 1, "sha256": ""}]}, "names the file ''; expected a path inside"),
        ({"files": [{"file": "../x", "size": 1, "sha256": ""}]}, "names the file '../x'; expected a path inside"),
        ({"files": [{"file": "x" * 300, "size": 1, "sha256": ""}]}, f"\n  {'x' * 300} "),
        ({"files": [{"file": "x", "sha256": ""}]}, "KeyError('size')"),
        ({"format": 2}, "has format 2; expected 1; use the unbundle.py that lies next to it"),
        *((damaged, "manifest.json is damaged") for damaged in ({"files": [3]}, "[" * 100_000, "3", "\x00")),
        ({"files": 3}, "; expected JSON that"),
    ],
)
def test_damaged_manifests(tmp_path: Path, capsys, manifest: dict[str, object] | str, said: str) -> None:
    """They are an error, and no traceback."""
    text = manifest if isinstance(manifest, str) else json.dumps({"format": 1, **manifest})
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    assert unbundle.main([str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("unbundle: ")
    assert said in error


@pytest.mark.slow
def test_too_large(whole: Path) -> None:
    """The error names the largest wheels, and the options that make the bundle small enough."""
    limited = wanted(max_size=5 * bundle.MIB)
    size = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    with pytest.raises(ToolchainError) as caught:
        bundle._check_size(size, whole / "wheels", limited)
    first, *rows, last = str(caught.value).splitlines()
    assert f"{size / bundle.MIB:.1f} MiB; expected at most 5.0 MiB (--max-size)" in first
    assert "cuda-bindings" in rows[0]
    assert "Leave out what the machine has: --without cuda-bindings --without nvidia-cuda-runtime, which" in last
    bundle._check_size(size, whole / "wheels", wanted(max_size=size))


@pytest.mark.parametrize(
    ("place", "options", "message"),
    [
        ("out", ["--ctk", "12.7"], "NVIDIA published no wheels of CUDA 12.7"),
        ("out", ["--ctk", "13.0", "--python", "three"], "--python is 'three'; expected a version such as 3.12"),
        ("out", ["--ctk", "13.0", "--wheel", __file__], f"--wheel is {__file__}; expected a wheel of pytest-cudalink"),
        ("out", ["--ctk", "13.0", "--platform", "win_amd64"], "is 'win_amd64'; expected manylinux_2_N_x86_64"),
        (".", ["--ctk", "13.0"], " exists; expected a new folder"),
        ("x.tar", ["--ctk", "13.0", "--volume-size", "50MiB"], "is one file; expected a folder for the volumes"),
        ("x.tar", ["--ctk", "13.0", "--volume-size", "50"], "is '50'; expected a number with KiB, MiB or GiB"),
    ],
)
def test_options_are_checked_first(tmp_path: Path, capsys, place: str, options: list[str], message: str) -> None:
    """A wrong option or place is an error before anything is fetched; nothing is written, or replaced."""
    with pytest.raises(SystemExit, match="1|2"):
        sys.exit(bundle.main([str(tmp_path / place), *options]))
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
