"""One run of ``cudalink audit`` with no option: needs, device code and copies, briefly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_cudalink.audit import audit
from pytest_cudalink.audit.device_code import DeviceImage, UnreadImage
from pytest_cudalink.audit.device_code.verdicts import grouped
from pytest_cudalink.audit.scan import completed
from pytest_cudalink.cli import main
from pytest_cudalink.cli.audit_device_code import served
from pytest_cudalink.versions import CudaVersion, Needs

DATA = Path(__file__).parents[1] / "data" / "device_code"
OLD, NEW = Needs(CudaVersion(12, 8)), Needs(CudaVersion(13, 0))


def cubin(path: str, arch: str, needs: Needs | None = OLD, **more) -> DeviceImage:
    return DeviceImage(path, "cubin", arch, needs=needs, group=1, section=".nv_fatbin", **more)


def test_device_code_of_a_wheel(make_wheel, capsys) -> None:
    """A wheel with device code has a line about it, and JSON has the answer of each driver; others have none."""
    path = make_wheel("x-1-py3-none-any.whl", {"x/none.fatbin": (DATA / "none.fatbin").read_bytes(), "x/a.py": b""})
    assert main(["audit", str(path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "device code" in line]
    assert line.startswith("  device code  of 1 file runs on sm_")

    assert main(["audit", str(path), "--format=json"]) == 0
    (plain,) = json.loads(capsys.readouterr().out)
    assert plain["device_code"][0]["paths"] == ["x/none.fatbin"]
    assert set(plain["device_code"][0]["answers"]["sm_90"]) >= {"12.0", "13.0"}

    assert main(["audit", str(make_wheel("y-1-py3-none-any.whl", {"y/a.py": b""}))]) == 0
    assert "device code" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("images", "lines"),
    [
        ([], []),
        (
            [cubin("a", "sm_80"), cubin("b", "sm_80", NEW)],
            [
                "of 2 files runs on sm_80 to sm_89 with drivers from 580 on",
                "of some of 2 files runs on sm_80 to sm_89 with every driver from 525 on",
            ],
        ),
        ([cubin("a", "sm_70")], ["of 1 file runs on sm_70 to sm_75 with every driver from 525 on"]),
        (
            [cubin("a", "sm_80"), cubin("a", "sm_90")],
            ["of 1 file runs on sm_80 to sm_90 with every driver from 525 on"],
        ),
        (
            [cubin("a", "sm_80"), cubin("a", "sm_120")],
            ["of 1 file runs on sm_80 to sm_89, sm_120 to sm_121 with every driver from 525 on"],
        ),
        (
            [cubin("a", "sm_87")],
            ["of 1 file runs on none of sm_70 to sm_121"],
        ),
        (
            [cubin("a", "sm_70", NEW)],
            ["of 1 file runs on sm_70 to sm_75 with drivers from 580 on"],
        ),
        ([cubin("a", "sm_80", relocatable=True)], ["in 1 file, for linkers only"]),
        (
            [cubin("a", "sm_90", note="x")],
            ["of 1 file runs on sm_90 with every driver from 525 on; as far as the headers of packed images say"],
        ),
    ],
)
def test_where_it_runs(images, lines) -> None:
    """GPUs with the same drivers share an entry; what runs in some files alone has a line of its own."""
    assert [line.removeprefix("  device code  ") for line in served(grouped("x.whl", images))] == lines


def test_packed_cubins_follow_their_neighbours() -> None:
    """A cubin whose header does not say its release has that of the file's other cubins, and their suffix."""
    read = cubin("a", "sm_90a", NEW, data=b"x")
    fault = UnreadImage("a", "damaged")
    found = completed([read, cubin("a", "sm_90", None, note="large"), fault, cubin("a", "sm_120f", None, note="large")])
    assert found == [cubin("a", "sm_90a", NEW), cubin("a", "sm_90a", NEW), fault, cubin("a", "sm_120f", NEW)]
    alone = cubin("a", "sm_120", None, note="large")
    assert completed([alone]) == [alone]


def test_needs_are_folded(cuda_library, built, make_wheel, capsys) -> None:
    """Files with the same need share a line, which counts them; ``--symbols`` shows each."""
    cudart = cuda_library("libcudart.so.13", "cudaMalloc")
    files = {f"x/{name}.so": built(f"{name}.so", {cudart: "cudaMalloc"}, "", f"-Wl,-rpath,/{name}") for name in "abcd"}
    path = make_wheel("x-1-py3-none-any.whl", files, "nvidia-cuda-runtime>=13.0,<14")
    assert main(["audit", str(path)]) == 0
    out = capsys.readouterr().out
    assert "  x/a.so and 3 more files  need libcudart.so.13  (CUDA 13; 1 symbol)\n" in out
    assert "  x/a.so  RPATH /a\n" in out
    assert "  1 more RPATH: --symbols shows every file\n" in out
    assert "  rpath (note): 1 more: --symbols shows all\n" in out
    assert out.count("RPATH names") == 3
    assert main(["audit", str(path), "--symbols"]) == 0
    out = capsys.readouterr().out
    assert out.count(" needs libcudart.so.13  ") == 4
    assert out.count("RPATH names") == 4
    assert "more" not in out


def test_opened_libraries_are_folded(make_wheel, capsys) -> None:
    """A library that may be opened has a line with all its majors."""
    source = b"import ctypes\ntry:\n    ctypes.CDLL('libnvrtc.so')\nexcept OSError:\n    pass\n"
    assert main(["audit", str(make_wheel("x-1-py3-none-any.whl", {"x/a.py": source}))]) == 0
    assert "  x/a.py  may open libnvrtc of CUDA 11, 12, 13  (names libnvrtc.so)\n" in capsys.readouterr().out


def test_copy_of_a_library_that_a_requirement_brings(cuda_library, make_wheel) -> None:
    """A wheel that contains a library and requires its package has two copies; NVIDIA's package itself has one."""
    files = {"x.libs/libcudart-0123abcd.so.13": cuda_library("libcudart.so.13", "cudaMalloc")}
    for requirement in ("nvidia-cuda-runtime>=13.0,<14", "cuda-toolkit[cudart]==13.0.*"):
        (finding,) = audit(make_wheel("x-1-py3-none-any.whl", files, requirement)).findings
        assert (finding.kind, finding.severity) == ("twice", "note")
        assert finding.path == "x.libs/libcudart-0123abcd.so.13"
        assert finding.text == (
            "is a copy of libcudart, and its requirements bring nvidia-cuda-runtime, which has the library, too: a "
            "process may load both; leave the copy out of the wheel"
        )
    assert audit(make_wheel("x-1-py3-none-any.whl", files, "nvidia-cublas<14", "numpy")).findings == ()
    own = make_wheel("nvidia_cuda_runtime-13.0.96-py3-none-any.whl", files, "cuda-toolkit[cudart]==13.0.*")
    assert audit(own).findings == ()
