"""Which CUDA release a file belongs to: trees and metadata as they occur, and the driver's own words."""

import ctypes
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.guardrails import attribution, driver
from pytest_cudalink.guardrails.driver import DriverFacts, NvmlError, driver_release, parse_cuda_version, parse_release
from pytest_cudalink.guardrails.items import Fact
from pytest_cudalink.probes import fake
from pytest_cudalink.versions import CudaVersion


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Nothing seen before counts."""
    attribution.cache_clear()


def header(folder: Path, version: int, include: str = "include") -> None:
    """Write a cuda.h."""
    (folder / include).mkdir(parents=True, exist_ok=True)
    text = f"/* CUDA_VERSION 1 */\n#ifndef X\n #  define   CUDA_VERSION {version}\n#endif\n"
    (folder / include / "cuda.h").write_text(text, encoding="utf-8")


def file(path: Path, content: bytes = b"") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def wheel(site: Path, name: str, version: str, files: list[str], requires: list[str] | None = None) -> None:
    """Install a distribution as pip records it."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires or []]
    (info / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: in-the-description==1\n", encoding="utf-8")
    digest = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"  # of empty files
    (info / "RECORD").write_text("".join(f"{path},{digest},0\n" for path in files), encoding="utf-8")
    for path in files:
        file(site / path)


@pytest.mark.parametrize("number", [11080, 12000, 12090, 13000, 13050])
@pytest.mark.parametrize("include", ["include", "targets/x86_64-linux/include"])
@pytest.mark.parametrize(
    "at", ["lib64/libcufft.so", "targets/x86_64-linux/lib/libcufft.so", "nvvm/libdevice/l.bc", "bin/nvcc"]
)
def test_cuda_h(tmp_path, number: int, include: str, at: str) -> None:
    """The next cuda.h above names the release, in both places where toolkits have it."""
    header(tmp_path, number, include)
    fact = attribution.attribute(file(tmp_path / at))
    assert fact.value == CudaVersion.from_driver(number)
    assert fact.witness == f"CUDA_VERSION {number} in {tmp_path / include / 'cuda.h'}"


@pytest.mark.parametrize(
    "before",
    [
        *("/* #define CUDA_VERSION 12000 */", "// #define CUDA_VERSION 12000", "/*\n#define CUDA_VERSION 12000\n*/"),
        *(
            "// \\\n#define CUDA_VERSION 12000",
            "/* // */ /*\n#define CUDA_VERSION 12000\n// */",
            "/*/\n#define CUDA_VERSION 12000 */",
        ),
        *("#define CUDA_\\\nVERSION_OLD 12000", '"/*"', "#define X '\\'' // '\n// */"),
        *("/* " + "x" * 200_000 + "\n#define CUDA_VERSION 12000\n*/", "#define CUDA_VERSIONS 12000"),
    ],
)
def test_comments_do_not_count(before: str, tmp_path) -> None:
    """A version in a comment of cuda.h is no version; quotes and continued lines are read as a compiler reads them."""
    text = f"{before}\n# define CUDA_\\\nVERSION 13000 /* 13.0 */\n"
    file(tmp_path / "include" / "cuda.h", text.encode())
    assert attribution.attribute(file(tmp_path / "lib64" / "libcufft.so")).value == CudaVersion(13, 0)


@pytest.mark.parametrize("kind", ["comment", "hole", "fifo", "device", "folder", "many"])
def test_cuda_h_that_is_none(kind: str, tmp_path) -> None:
    """A cuda.h of 2 GiB, a pipe, a device or a folder is no witness, at once and in little memory."""
    path = tmp_path / "include" / "cuda.h"
    path.parent.mkdir()
    if kind == "hole":
        path.write_text("#define CUDA_VERSION 13000\n")
        os.truncate(path, 2 << 30)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        line = "/* open\n" if kind == "comment" else "#define CUDA_VERSION \\\n/*"
        path.write_text(line * 500_000)
    before = time.monotonic()
    assert attribution.attribute(file(tmp_path / "lib64" / "libcufft.so")).value is None
    assert attribution._cuda_version_of(str(path)) is None
    assert time.monotonic() - before < 60


def test_pipes_in_place_of_libraries_and_metadata(tmp_path) -> None:
    """A pipe named like a library, or in place of METADATA and RECORD, is not waited for."""
    library = tmp_path / "libnvJitLink.so.13"
    os.mkfifo(library)
    assert attribution._nvjitlink_version(str(library)) is None
    for name in ("METADATA", "RECORD"):
        os.mkfifo(tmp_path / name)
    wheel = attribution.Installed("nvidia-x", "1", "", str(tmp_path))
    assert attribution.requirements(wheel) == ()
    assert attribution._row(wheel, "x") is None


def test_cuda_h_that_disagree(tmp_path) -> None:
    """Headers of one root with different numbers are no answer; with the same one the first is named."""
    header(tmp_path, 13000)
    header(tmp_path, 13020, "targets/sbsa-linux/include")
    path = file(tmp_path / "lib64" / "libcufft.so")
    first, second = tmp_path / "include" / "cuda.h", tmp_path / "targets/sbsa-linux/include" / "cuda.h"
    disagree = f"the headers of {tmp_path} disagree: {first} (13.0), {second} (13.2)"
    assert attribution.attribute(path) == Fact(None, disagree)
    for name in ("sbsa-linux", "c", "a", "b"):  # the witness does not depend on the order of a folder's entries
        header(tmp_path, 13000, f"targets/{name}/include")
    first.unlink()
    attribution.cache_clear()
    assert attribution.attribute(path) == Fact((13, 0), f"CUDA_VERSION 13000 in {tmp_path}/targets/a/include/cuda.h")


@pytest.fixture
def alone(monkeypatch) -> None:
    """Hide the cuda-toolkit of this environment, which would count for the wheels of these tests."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("site-packages")])


CUBLAS = "nvidia/cu13/lib/libcublas.so.13"


@pytest.mark.parametrize(
    ("version", "toolkits", "value", "witness"),
    [
        ("98.1.0.3", {"13.0.2": ["nvidia-cublas==98.1.0.3.*; sys_platform == 'linux' and extra == 'cublas'"]},
         (13, 0), "is what cuda-toolkit 13.0.2 requires"),
        ("98.4.1", {"13.0.2": ["nvidia-cublas<99,>=13.1.0.3"]}, (13, 0), "is what cuda-toolkit 13.0.2 requires"),
        ("98.4.1rc1", {"13.0.2": ["nvidia_cuBLAS>=13.1.0.3"]}, (13, 0), "is what cuda-toolkit 13.0.2 requires"),
        ("98.1.0.3", {"13.0.2": ["nvidia-cublas==98.2.*", "nvidia-cublas==98.1.*"]}, (13, 0),
         "is what cuda-toolkit 13.0.2 requires"),
        (
            "98.1.0.4",
            {
                "13.0.2": ["nvidia-cublas==98.2.*", "nvidia-cublas==97.*", "nvidia-cufft==98.1.0.4"],
                "13.1.0": ["nvidia-cublas==96", "nvidia-cublas==96"],
                "13.2.0": ["nvidia-cufft"],
                "not.a.version": ["nvidia-cublas"],
            },
            None,
            (
                "fits no installed toolkit: cuda-toolkit 13.0.2 wants nvidia-cublas==97.* or ==98.2.*; cuda-toolkit "
                "13.1.0 wants nvidia-cublas==96"
            ),
        ),
        ("98.1.0.3", {"13.0.2": ["nvidia-cublas>=13.1,<99"], "13.2.1": ["nvidia-cublas>=13,<99"]}, None,
         "fits more than one toolkit: cuda-toolkit 13.0.2 in {site}, cuda-toolkit 13.2.1 in {site}"),
        ("98.1.0.3", {"13.0.1": ["nvidia-cublas>=13.1,<99"], "13.0.2": ["nvidia-cublas>=13,<99"]}, (13, 0),
         "is what cuda-toolkit 13.0.2 requires"),
    ],
)  # fmt: skip
def test_wheel_by_requirements(tmp_path, alone, version, toolkits, value, witness) -> None:
    """A wheel that no table knows belongs to the one release whose toolkits require it, by a pin or by a range."""
    wheel(tmp_path, "nvidia-cublas", version, [CUBLAS])
    for toolkit, requires in toolkits.items():
        wheel(tmp_path, "cuda-toolkit", toolkit, [], requires)
    header(tmp_path / "nvidia/cu13", 13020)  # of another wheel in the shared folder: it does not speak for this one
    expected = f"nvidia-cublas {version} {witness.format(site=tmp_path)}"
    assert attribution.attribute(str(tmp_path / CUBLAS)) == Fact(value, expected)


def test_a_toolkit_elsewhere_on_the_path(tmp_path, alone, monkeypatch) -> None:
    """It counts, too, after one in the environment of the file."""
    site = tmp_path / "site"
    wheel(site, "nvidia-cublas", "98.1.0.3", [CUBLAS])
    wheel(tmp_path / "other", "cuda-toolkit", "13.2.1", [], ["nvidia-cublas>=13,<99"])
    monkeypatch.chdir(tmp_path / "other")
    # not syspath_prepend: what it restores is the path that `alone` made
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert attribution.attribute(str(site / CUBLAS)).value == (13, 2)
    # the working folder counts only where the path has it
    monkeypatch.setattr(sys, "path", sys.path[1:])
    attribution.cache_clear()
    assert attribution.attribute(str(site / CUBLAS)).value is None


def test_wheel_without_a_toolkit(tmp_path, alone) -> None:
    """If no cuda-toolkit requires a wheel, a cuda.h next to its files counts; not one outside of the environment."""
    site = tmp_path / "include-me-not" / "site-packages"
    header(tmp_path / "include-me-not", 12000)
    wheel(site, "nvidia-cublas", "98.1.0.3", [CUBLAS])
    wheel(site, "other", "1.0", [], ["nvidia-cublas"])
    path = site / CUBLAS
    unknown = f"no installed cuda-toolkit requires nvidia-cublas 98.1.0.3, and no cuda.h above {path}"
    assert attribution.attribute(str(path)) == Fact(None, unknown)
    header(site / "nvidia" / "cu13", 13000)
    attribution.cache_clear()
    assert attribution.attribute(str(site / CUBLAS)).value == (13, 0)
    file(site / "nvidia_x-1.dist-info" / "RECORD", b"nvidia/cu13/include/cuda.h,,\n")
    attribution.cache_clear()
    stray = file(site / "nvidia/cu13/lib/libstray.so")
    unknown = f"no distribution lists {stray}, and the nearest cuda.h is that of nvidia-x"
    assert attribution.attribute(stray) == Fact(None, unknown)


@pytest.mark.parametrize(
    ("name", "version", "release", "toolkit"),
    [
        ("nvidia-cuda-cccl", "13.3.5.0.6", (13, 5), "13.5.0"),  # its own digits say 13.3
        ("nvidia-cuda-cccl", "13.3.4.3.1", (13, 4), "13.4.3"),
        ("nvidia-cublas", "13.1.0.3", (13, 0), "13.0.2"),
        ("nvidia-cuda-nvrtc", "13.2.86", (13, 2), "13.2.2"),
        ("nvidia-cuda-nvcc-cu12", "12.5.82", (12, 5), "12.5.1"),  # a patch that no cuda-toolkit requires
        ("nvidia-cuda-nvcc", "13.0.88.1", (13, 0), "13.0.3.0"),
    ],
)
def test_wheel_of_a_known_release(tmp_path, name: str, version: str, release: tuple[int, int], toolkit: str) -> None:
    """What cuda-toolkit requires counts, before a range of an installed toolkit, and never the wheel's own digits."""
    wheel(tmp_path, name, version, ["nvidia/cu13/lib/x.so"])
    wheel(tmp_path, "cuda-toolkit", "13.1.1", [], [f"{name}>=12"])
    fact = attribution.attribute(str(tmp_path / "nvidia/cu13/lib/x.so"))
    assert (fact.value, fact.witness) == (release, f"{name} {version} is of cuda-toolkit {toolkit}")


@pytest.mark.parametrize(
    ("name", "content", "value"),
    [
        ("x.h", b"", (13, 2)),
        ("x.h", b"of another release", None),
        ("libnvrtc.so.13", b"\0libnvrtc-builtins.so.13.5\0", (13, 5)),
        ("libcudart.so.13", b"stripped", None),
    ],
)
def test_a_file_that_is_not_as_its_record_says(tmp_path, name: str, content: bytes, value) -> None:
    """The metadata of another release say nothing about it; the library itself does, and no cuda.h beside it."""
    wheel(tmp_path, "nvidia-cuda-nvrtc", "13.2.86", [f"nvidia/cu13/lib/{name}"])
    header(tmp_path / "nvidia/cu13", 13020)
    fact = attribution.attribute(path := file(tmp_path / f"nvidia/cu13/lib/{name}", content))
    assert fact.value == value
    if value is None:
        assert fact.witness == f"{path} is not the file that the RECORD of nvidia-cuda-nvrtc 13.2.86 lists"


@pytest.mark.parametrize("version", ["13.99.1", "13.4.46rc1", "9.0", "x"])
def test_wheel_of_no_known_release(tmp_path, alone, version: str) -> None:
    """Its release is not guessed: newer and older ones than the table's, pre-releases, and what is no version."""
    wheel(tmp_path, "nvidia-cuda-cccl", version, ["nvidia/cu13/lib/x.so"])
    assert attribution.attribute(str(tmp_path / "nvidia/cu13/lib/x.so")).value is None


def test_links_are_not_followed(tmp_path) -> None:
    """A link to a wheel's file belongs to where it lies, not to the wheel."""
    wheel(tmp_path / "site", "nvidia-cuda-runtime", "13.0.96", ["nvidia/cu13/lib/libcudart.so.13"])
    header(tmp_path / "toolkit", 12080)
    (tmp_path / "toolkit" / "lib64").mkdir()
    link = tmp_path / "toolkit" / "lib64" / "libcudart.so.13"
    link.symlink_to(tmp_path / "site/nvidia/cu13/lib/libcudart.so.13")
    assert attribution.attribute(str(link)).value == (12, 8)


def test_owner_wants_the_exact_path(tmp_path, monkeypatch) -> None:
    """A path that only begins or ends like a listed one is not owned."""
    wheel(tmp_path, "nvidia-cublas", "13.1", [CUBLAS, "nvidia/cu13/lib/libcublasLt.so.13"])
    assert attribution.owner(str(tmp_path / CUBLAS)).name == "nvidia-cublas"
    assert attribution.owner(str(tmp_path / f"{CUBLAS}.1")) is None
    assert attribution.owner(str(tmp_path / "cu13/lib/libcublas.so.13")) is None
    monkeypatch.chdir(tmp_path)  # a file in no environment is not looked for in the working folder
    file(tmp_path / "x-1.dist-info" / "RECORD", b"../lone.so,,\n")
    assert attribution.owner(str(tmp_path.parent / "lone.so")) is None
    assert attribution.owner(str(tmp_path / "nvidia/../nvidia/cu13/lib/libcublas.so.13")).version == "13.1"


@pytest.mark.parametrize("path", ["nvidia/lib/libcufft,10.so", 'nvidia/lib/lib"cufft".so'])
def test_owner_of_a_quoted_path(tmp_path, path: str) -> None:
    """RECORD is CSV: a path with a comma or a quotation mark stands in quotes."""
    info = tmp_path / "nvidia_cufft-1.0.dist-info"
    quoted = path.replace('"', '""')
    file(info / "RECORD", f'"{quoted}",sha256=x,1\n'.encode() + b"\xff,,\n")
    assert attribution.owner(file(tmp_path / path)).name == "nvidia-cufft"


@pytest.mark.parametrize(
    ("content", "size", "version"),
    [
        *((b"newer", 5, "13.2.86"), (b"older", 5, "13.0.88"), (b"neither", 5, "13.0.88"), (None, 5, "13.0.88")),
        *((b"newer", 6, "13.0.88"), (8 << 20, 8 << 20, "13.0.88"), ((8 << 20) + 1, (8 << 20) + 1, "13.2.86")),
    ],
)
def test_owner_of_what_an_older_release_left(tmp_path, content, size: int, version: str) -> None:
    """Whose RECORD has the size and the hash of the file, or the size of a large one; the first if none has."""
    digests = {
        "13.0.88": "2pJaMOMff9qnBE4-W6SuF2cN6C1new5631cAQooTejY",
        "13.2.86": "gE9R9xJUxAgeN-fIhwc1YPSm-mza0gLprGfgMsQ-0eE",
    }
    for release, digest in digests.items():
        rows = f"n/nvrtc.h,sha256={digest},{5 if release == '13.0.88' else size}\n".encode()
        file(tmp_path / f"nvidia_cuda_nvrtc-{release}.dist-info" / "RECORD", rows)
    path = tmp_path / "n" / "nvrtc.h"
    if content is not None:
        file(path, content if isinstance(content, bytes) else bytes(content))
    owner = attribution.owner(str(path))
    assert owner is not None
    assert owner.version == version


def test_owner_of_what_two_releases_describe(tmp_path) -> None:
    """That of which more libraries are there as its RECORD says; what is not a library does not count."""
    digest = "sha256=2pJaMOMff9qnBE4-W6SuF2cN6C1new5631cAQooTejY"
    others = {"13.0.88": (b"n/gone.so.1,%b,5",), "13.2.86": (b"n/lib.so.1,%b,5", b"n/a.txt,%b,6", b"n/b.txt,%b,6")}
    for release, rows in others.items():
        lines = b"\n".join((b"n/x.h,,", b"\xff.so/..,,", *rows)).replace(b"%b", digest.encode())
        file(tmp_path / f"nvidia_x-{release}.dist-info" / "RECORD", lines)
    file(tmp_path / "n" / "lib.so.1", b"older")
    owner = attribution.owner(file(tmp_path / "n" / "x.h"))
    assert owner is not None
    assert owner.version == "13.2.86"


def test_one_of_several_owners(tmp_path) -> None:
    """NVIDIA's wheels are asked before others, and each by its name, whatever the order of the folder."""
    order = ["cuda-b", "cuda-f", "nvidia-c", "nvidia-e", "a", "d"]
    for name in ("d", "nvidia-e", "cuda-f", "a", "nvidia-c", "cuda-b"):
        wheel(tmp_path, name, "1.0", [CUBLAS])
    assert [distribution.name for distribution in attribution.distributions(str(tmp_path))] == order


ALIASES = b"\0__nvJitLinkCreate_12_9\0__nvJitLinkCreate_12_10\0__nvJitLinkCreate_12_3\0"
INSIDE = b"\0libnvrtc-builtins.so.13.2\0"


@pytest.mark.parametrize(
    ("name", "content", "beside", "value", "witness"),
    [
        ("libnvJitLink.so.12", ALIASES, (), (12, 10), "its newest symbol, __nvJitLinkCreate_12_10"),
        ("libnvJitLink.so.12", b"__nvJitLinkCreate_x", (), None, ""),
        ("libnvJitLink.so.12", None, (), None, ""), ("libother.so.12", ALIASES, (), None, ""),
        ("libnvrtc.so.13", INSIDE, (), (13, 2), "the builtins that it asks for, libnvrtc-builtins.so.13.2"),
        ("libnvrtc.so.13", INSIDE, ("13.4", "12.9", "13.4.1"), (13, 4), "the builtins next to it, {}.13.4"),
        ("libnvrtc.so.13", INSIDE, ("13.4", "13.5"), (13, 2), "the builtins that it asks for, {}.13.2"),
        ("libnvrtc.so.13", b"", (), None, ""), ("libnvrtc.so.13", b"other", (), None, ""),
        ("libnvrtc.so.13", None, (), None, ""),
        ("libother.so.13", INSIDE, ("13.4",), None, ""),
    ],
)  # fmt: skip
def test_own_versions(name, content, beside, value, witness, tmp_path) -> None:
    """NVRTC and nvJitLink are their own witnesses, by a file next to them or by content; else a cuda.h is one."""
    for release in beside:
        file(tmp_path / f"libnvrtc-builtins.so.{release}")
    path = tmp_path / name
    fact = attribution.attribute(str(path) if content is None else file(path, content))
    expected = witness.format("libnvrtc-builtins.so") or f"no cuda.h above {path}"
    assert fact == Fact(value, expected)


def test_own_versions_in_a_folder_that_is_gone(tmp_path) -> None:
    """Nothing is read there, and a cuda.h above it counts."""
    header(tmp_path, 13000)
    assert attribution.attribute(str(tmp_path / "gone" / "libnvrtc.so.13")).value == (13, 0)


def test_process_map(tmp_path) -> None:
    """Libraries are known by the stem of their file, renamed copies and deleted files too, each once."""
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 0 00:00 1   /opt/a b/libnvrtc.so.12.9.86\n"
        "7f01-7f02 r-xp 0 00:00 1   /opt/a b/libnvrtc.so.12.9.86\n"
        "7f02-7f03 r-xp 0 00:00 1   /torch/lib/libcudart-d0da41ae.so.11.0\n"
        "7f03-7f04 r-xp 0 00:00 1   /x/libnvJitLink.so.13 (deleted)\n"
        "7f04-7f05 r-xp 0 00:00 1   /x/libnvrtc-builtins.so.13.0\n"
        "7f05-7f06 r-xp 0 00:00 1   /cache/emulator/libnvJitLink.so\n"
        "7f05-7f06 r-xp 0 00:00 1   /x/libother.so.1\n"
        "7f06-7f07 rw-p 0 00:00 0   [heap]\n",
        encoding="utf-8",
    )
    names = {"libnvrtc": "nvrtc", "libcudart": "cudart", "libnvJitLink": "nvJitLink"}
    libraries = attribution.loaded_libraries(names, str(maps))
    assert libraries == [
        ("nvrtc", "/opt/a b/libnvrtc.so.12.9.86"),
        ("cudart", "/torch/lib/libcudart-d0da41ae.so.11.0"),
        ("nvJitLink", "/x/libnvJitLink.so.13"),
    ]
    assert attribution.loaded_libraries(names, str(tmp_path / "none")) == []
    assert {name for name, _ in attribution.loaded_libraries({"libc": "of this process"})} == {"of this process"}


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40).map(lambda noise: noise.replace(b"\n", b"")),
        st.sampled_from(
            [b"Requires-Dist: nvidia-cublas==1.*", b"#define CUDA_VERSION 13000", b"7f-8f r 0 0 0 /a/libx.so.1"]
        ),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(LINES)
def test_damaged_files_are_no_answer_and_no_error(tmp_path_factory, lines: list[bytes]) -> None:
    """Whatever stands in metadata, headers and maps: a release, or none with a reason, never an exception."""
    attribution.cache_clear()
    site = tmp_path_factory.mktemp("site")
    content = b"\n".join(lines)
    for name in ("nvidia_cublas-x", "cuda_toolkit-13.0.2", "nodash", "cuda_toolkit-not.a.version"):
        for part in ("METADATA", "RECORD"):
            file(site / f"{name}.dist-info" / part, content)
    file(site / "nvidia_cublas-x.dist-info" / "RECORD", f"{CUBLAS},,\n".encode() + content)
    file(site / "nvidia/cu13/include/cuda.h", content)
    fact = attribution.attribute(file(site / CUBLAS, content))
    assert fact.value is None or fact.value >= (0, 0)
    assert fact.witness
    names = {"libx": "x"}
    assert {name for name, _ in attribution.loaded_libraries(names, file(site / "maps", content))} <= {"x"}


# -- the driver


class Nvml:
    """An NVML with given answers that records its calls."""

    def __init__(self, init: int = 0, version: int = 0, shutdown: int = 0, text: bytes = b"580.65.06") -> None:
        self.codes = {"init": init, "version": version, "shutdown": shutdown}
        self.text = text
        self.calls: list[str] = []

    def _answer(self, name: str) -> int:
        self.calls.append(name)
        return self.codes[name]

    def nvmlInit_v2(self) -> int:  # noqa: N802 (NVML's name)
        return self._answer("init")

    def nvmlSystemGetDriverVersion(self, buffer, size: ctypes.c_uint) -> int:  # noqa: N802 (NVML's name)
        assert size.value == len(buffer) == 80
        buffer.value = self.text
        return self._answer("version")

    def nvmlShutdown(self) -> int:  # noqa: N802 (NVML's name)
        return self._answer("shutdown")


@pytest.mark.parametrize(
    ("nvml", "words", "calls"),
    [
        (Nvml(init=9), "nvmlInit_v2 failed with 9", ["init"]),
        (Nvml(version=3), "nvmlSystemGetDriverVersion failed with 3", ["init", "version", "shutdown"]),
        (Nvml(version=3, shutdown=1), "nvmlSystemGetDriverVersion failed with 3", ["init", "version", "shutdown"]),
        (Nvml(shutdown=1), "nvmlShutdown failed with 1", ["init", "version", "shutdown"]),
        (Nvml(text=b"R\xff"), "'R\ufffd' is not a driver release; write two or three numbers, such as '580.65.06'",
         ["init", "version", "shutdown"]),
    ],
)  # fmt: skip
def test_nvml_errors(nvml: Nvml, words: str, calls: list[str], monkeypatch) -> None:
    """Each start has one end; an error inside wins over one there, which surfaces alone; another text is an error."""
    monkeypatch.setattr(driver, "_nvml", lambda: nvml)
    with pytest.raises(NvmlError) as caught:
        driver_release()
    assert (str(caught.value), nvml.calls) == (words, calls)


def test_libraries_without_the_functions(monkeypatch) -> None:
    """A driver or an NVML that lacks a function is unknown, with the name of what is missing."""
    from pytest_cudalink.probes import libcuda

    class Empty:
        def __getattr__(self, name: str):
            raise AttributeError(f"undefined symbol: {name}")

    monkeypatch.setattr(libcuda, "library", Empty)
    fact = DriverFacts().cuda()
    assert (fact.value, fact.witness) == (None, "undefined symbol: cuDriverGetVersion")
    monkeypatch.setattr(driver, "_nvml", Empty)
    with pytest.raises(NvmlError, match="without nvmlInit_v2"):
        driver_release()


@pytest.mark.parametrize("value", [1000, "1.0", (1, 0), CudaVersion(1, 0)])
def test_driver_version_argument(value) -> None:
    """What cuDriverGetVersion answers, text, or a pair."""
    assert parse_cuda_version(value) == CudaVersion(1, 0)
    assert parse_cuda_version(None) is parse_release(None) is None
    assert parse_release("580.65.06") == "580.65.06"


@pytest.mark.parametrize(
    ("parse", "said", "value"),
    [
        *((parse_cuda_version, r"13\.0", value) for value in (13, True, 13.0, (13,), "thirteen", "", b"13.0")),
        *((parse_release, r"580\.65\.06", value) for value in (580, "580", "580.65.06.01", "")),
    ],
)
def test_wrong_arguments(parse, said, value) -> None:
    """A version has two numbers; a release is two or three numbers in a string."""
    with pytest.raises(ValueError, match=said):
        parse(value)


UNASKED = "the CUDA version of the driver is given, its release is not"


def test_driver_facts_are_asked_once_and_apart(monkeypatch) -> None:
    """Each question is asked once; without a release the version stays known; fakes are not cached."""
    from pytest_cudalink.probes import libcuda

    asked = []

    def call(function: str, number) -> None:
        asked.append(function)
        number._obj.value = 13000

    def no_nvml() -> str:
        asked.append("nvml")
        raise NvmlError("no NVML: it is gone")

    monkeypatch.setattr(libcuda, "call", call)
    monkeypatch.setattr(driver, "driver_release", no_nvml)
    facts = DriverFacts()
    with fake(driver="12.9"):
        assert facts.cuda() == Fact((12, 9), "faked by pytest_cudalink.probes.fake")
        assert facts.cuda().stated
        assert facts.release() == Fact(None, UNASKED)
    for _ in range(2):
        assert facts.cuda().value == (13, 0)
        assert facts.cuda().witness == "cuDriverGetVersion answers 13000"
        assert (facts.release().value, facts.release().witness) == (None, "no NVML: it is gone")
    assert asked == ["cuDriverGetVersion", "nvml"]
    facts.cache_clear()
    assert facts.cuda().value == (13, 0)
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("version", "problem", "witness"),
    [
        (CudaVersion(12, 9), "", "cuDriverGetVersion answers 12090"),
        (None, "it is hidden", "no CUDA driver: it is hidden"),
        (None, "", "cuDriverGetVersion failed"),
    ],
)
def test_a_driver_that_another_process_asks(monkeypatch, version, problem, witness) -> None:
    """Where this one may not call it, it is known all the same whether there is a driver."""
    from pytest_cudalink.probes import libcuda

    def call(*_: object) -> None:
        raise libcuda.DriverNotFoundError(problem)

    facts = DriverFacts()
    facts.asks_elsewhere = True
    with monkeypatch.context() as patch:
        patch.setattr(driver.probes, "driver_version_elsewhere", lambda: version)
        patch.setattr(driver, "elsewhere", SimpleNamespace(driver=lambda: SimpleNamespace(problem=problem)))
        patch.setattr(libcuda, "call", call)
        cuda, here = facts.cuda(), DriverFacts().cuda()
    assert (cuda.value, cuda.witness, cuda.absent) == (version, witness, bool(problem))
    assert (here.value, here.absent) == (None, True)


def test_given_driver_facts_are_not_asked_for(monkeypatch) -> None:
    """What is said of the driver counts, and nothing is opened for it."""
    monkeypatch.setattr(ctypes, "CDLL", None)
    facts = DriverFacts(CudaVersion(12, 0), "525.60.13")
    assert facts.cuda() == Fact((12, 0), "given as driver_cuda_version")
    assert facts.cuda().stated
    assert facts.release() == Fact("525.60.13", "given as driver_release_version")
    assert DriverFacts(CudaVersion(12, 0)).release() == Fact(None, UNASKED)
    assert facts.hint == ""


def test_nvml_is_opened_by_its_name(monkeypatch) -> None:
    """Its answer and the loader's error are facts."""
    monkeypatch.setattr(ctypes, "CDLL", {"libnvidia-ml.so.1": Nvml()}.__getitem__)
    assert DriverFacts().release() == Fact("580.65.06", "nvmlSystemGetDriverVersion")

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert DriverFacts().release() == Fact(None, "no NVML: libnvidia-ml.so.1")
