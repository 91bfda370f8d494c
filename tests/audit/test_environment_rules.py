"""What the audit of an environment says of packages and libraries that are made up: every finding, word for word."""

import base64
import hashlib
import json
import os
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_cudalink import probes
from pytest_cudalink.audit import environment, install_targets
from pytest_cudalink.audit.environment import Claim, EnvironmentAudit, audit_environment, conda, missing_libraries
from pytest_cudalink.audit.environment.claims import conda_claims, declared_claims
from pytest_cudalink.audit.loadable import LoadableLibrary
from pytest_cudalink.base.elf import ElfError
from pytest_cudalink.base.finding import VERDICTS, Finding
from pytest_cudalink.compat import known_bad
from pytest_cudalink.environment import library_search, loader_search
from pytest_cudalink.environment.conda import CondaPackage
from pytest_cudalink.environment.installed import Installed, Place, Unreadable
from pytest_cudalink.environment.library_search import Provider, Providers
from pytest_cudalink.versions import CudaVersion
from tests.audit.test_environment import Made

ARTIFACTS = Path(__file__).parents[1] / "data/artifacts"
JITLINK = "libnvJitLink.so.12"

LTOIR = b"\xed\x43\x4e\x7f\x01\x41\x02\x5d" + bytes(8) + b"\x40\0\0\0" + bytes(6) + b"\x84\x03" + bytes(36)
JITIFY = b"libnvJitLink.so.\0need at least version \0" + (ARTIFACTS / "12.9/user.cubin").read_bytes()


class Faked(Made):
    """A prefix whose libraries have no content but what the test says that the loader would read of them."""

    def __init__(self, prefix: Path) -> None:
        super().__init__(prefix)
        self.read: dict[str, LoadableLibrary | Exception] = {}

    def put(self, path: str, *needed: str, content: bytes = b"", soname: str | None = None, **symbols: str) -> str:
        """Write a library that needs others, and a symbol of some: ``put("x.so", "libcudart.so.12", cudaMalloc=…)``."""
        file = self.site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        undefined = tuple((symbol, library, library) for symbol, library in symbols.items())
        self.read[str(file)] = LoadableLibrary(soname, needed, (), (), undefined, frozenset(), frozenset())
        return path

    def nvjitlink_wheel(self, version: str = "12.8.93", folder: str = "n") -> None:
        """Install nvJitLink of CUDA 12."""
        self.wheel("nvidia-nvjitlink-cu12", version, files=(self.put(f"{folder}/libnvJitLink.so.12"),))

    def path(self, file: str) -> str:
        return str(self.site / file)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faked:
    made = Faked(tmp_path / "prefix")

    def read(path: str) -> LoadableLibrary | None:
        answer = made.read.get(path)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(missing_libraries, "read_dynamic", read)
    monkeypatch.setattr(loader_search, "_linkage", read)
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: ())
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "13.0")
    return made


def told(audited: EnvironmentAudit) -> list[str]:
    """Everything that the findings say; ``@`` stands for the prefix."""
    lines = []
    for finding in audited.findings:
        lines.append(f"{finding.severity} {finding.kind}: {finding.what}")
        lines += [f"needs {claim_line(claim)}" for claim in finding.evidence]
        lines += [f"there {finding.place}"] if finding.place else []
        remedies = finding.remedies
        lines += map(" ".join, zip(("do", "or"), remedies, strict=False))
    return [line.replace(audited.prefix, "@").replace("/lib/python3.12/site-packages", "") for line in lines]


def claim_line(claim: Claim) -> str:
    return f"{claim}: {claim.name}, {claim.how}, {claim.satisfied}, {Path(claim.file).name}, {claim.evidence}"


CUDART, CUDART_13 = "libcudart.so.12", "libcudart.so.13"
SYSTEM_LIBRARIES = library_search._system_libraries
NEEDED = "wants cudaGetDriverEntryPointByVersion of CUDA 12.5"


# -- measured


def test_floors(made: Faked) -> None:
    """The highest floor of a distribution counts, as the numbers of the package that brings the library say it."""
    cusolver = "libcusolver.so.12"
    made.wheel("nvidia-cuda-runtime-cu12", "12.4.127", files=(made.put("n/libcudart.so.12"),))
    made.wheel(
        "x", "1", "nvidia-cuda-runtime-cu12>=12.0",
        files=(
            made.put("x/a.so", CUDART, "libcuda.so.1", cudaMalloc=CUDART, cuDevSmResourceSplit="libcuda.so.1"),
            made.put("x/b.so", CUDART, cudaGetDriverEntryPointByVersion=CUDART),
            made.put("x/c.so", CUDART, cudaMalloc=CUDART),
            made.put("x/d.so", CUDART, cudaGetDriverEntryPointByVersion=CUDART),
        ),
    )  # fmt: skip
    cublas = "libcublas.so.12"
    made.wheel("own", "1", files=(made.put("o/libcublas.so.12"), made.put("o/a.so", cublas, cublasCreate_v2=cublas)))
    renamed = made.put("r/x.so", soname="libcufft.so.11"), made.put("r/a.so", "libcufft.so.11")
    made.wheel("renamed", "1", files=renamed)
    made.wheel("nvidia-cusolver", "12.1.0.51", files=(made.put("n/libcusolver.so.12"),))
    newer = made.put("s/a.so", cusolver, cusolverDnXpolar_bufferSize=cusolver)
    made.wheel("s", "1", "nvidia-cuda-runtime-cu12>=12.1", "nvidia-cusolver", files=(newer,))
    made.wheel("sound", "1", files=(made.put("s/b.so", cusolver, cusolverDnCreate=cusolver),))
    audited, wants = made.audit(), "wants cusolverDnXpolar_bufferSize of CUDA 13.2; s declares no bound"
    assert told(audited) == [
        f"error floor: nvidia-cuda-runtime-cu12 is 12.4.127; expected >=12.5 (x 1): {NEEDED}; x declares >=12.0",
        f"needs >=12.5 (x 1): nvidia-cuda-runtime-cu12, symbols, False, b.so, {NEEDED}; x declares >=12.0",
        "there nvidia-cuda-runtime-cu12 12.4.127 (@/n/libcudart.so.12)",
        "do pip --python @ install 'nvidia-cuda-runtime-cu12>=12.1,>=12.0,>=12.5'",
        f"error floor: nvidia-cusolver is 12.1.0.51; expected >=12.2.0.1 (s 1): {wants}",
        f"needs >=12.2.0.1 (s 1): nvidia-cusolver, symbols, False, a.so, {wants}",
        "there nvidia-cusolver 12.1.0.51 (@/n/libcusolver.so.12)",
        "do pip --python @ install 'nvidia-cusolver>=12.2.0.1,>=12.0.3.29'",
    ]
    (sound,) = (claim for claim in audited.claims if claim.by == "sound 1")
    assert claim_line(sound).startswith(">=12.0.3.29 (sound 1): nvidia-cusolver, symbols, True, b.so, ")
    assert sound.evidence.endswith("; sound declares no requirement on nvidia-cusolver")
    assert sound.file == made.path("s/b.so")
    assert audited.files == 12


def on_machine(made: Faked, driver: str, gpu: str = "") -> list[str]:
    """What the audit says about a machine, each with its remedy."""
    audited = audit_environment(made.prefix, driver=driver, gpu=gpu)
    return [f"{f.severity}: {f.what}; do: {f.fix or f.otherwise}" for f in audited.findings if f.kind == "machine"]


def test_machine_without_a_function_or_a_gpu(made: Faked) -> None:
    """A library that wants a newer driver's function; a driver that does not drive the GPU, newer or older than it."""
    wants = made.put("x/a.so", "libcuda.so.1", cuDevSmResourceSplit="libcuda.so.1")
    made.wheel("x", "1", files=(wants,))
    assert on_machine(made, "13.1") == []
    (function,) = on_machine(made, "13.0")
    assert "x 1" in [finding.place for finding in audit_environment(made.prefix, driver="13.0").findings]
    assert function.startswith("error: a.so of x 1 wants cuDevSmResourceSplit of CUDA 13.1; this driver is of CUDA ")
    for gpu, driver, expected in (("B200", "12.6", "12.8 to 13.5"), ("V100", "13.1", "12.0 to 13.0")):
        (no_gpu,) = on_machine(made, driver, gpu)
        assert "" in [finding.place for finding in audit_environment(made.prefix, driver=driver, gpu=gpu).findings]
        assert no_gpu.startswith(f"error: a driver of CUDA {driver} does not support sm_")
        assert no_gpu.endswith(f"do: use a driver of CUDA {expected}")
    with pytest.raises(ValueError, match="gpu = 'A100' is given without a driver"):
        audit_environment(made.prefix, gpu="A100")


def test_machine_and_the_newest_of_several(made: Faked) -> None:
    """The function of the newest release counts, and those of the driver alone; a release need not be known."""
    made.wheel("x", "1", files=(
        made.put("x/a.so", "libcuda.so.1", cuDevSmResourceSplit="libcuda.so.1"),
        made.put("x/b.so", "libcuda.so.1", cuCoredumpGetAttribute="libcuda.so.1"),
        made.put("x/c.so", "libcuda.so.1", cuDevSmResourceSplit="libcuda.so.1"),
        made.put("x/d.so", "libnvJitLink.so.13", __nvJitLinkCreate_13_2="libnvJitLink.so.13"),
    ))  # fmt: skip
    (function,) = on_machine(made, "12.4")
    assert function == (
        "error: a.so of x 1 wants cuDevSmResourceSplit of CUDA 13.1; this driver is of CUDA 12.4; do: use a driver "
        "of CUDA 13.1 (590.44.01) or newer"
    )


PARTS = {
    "cubin": ARTIFACTS / "12.9/linked.cubin", "cubin 13": ARTIFACTS / "13.0/linked.cubin",
    "ptx 12.9": ARTIFACTS / "12.9/user.ptx", "ptx 13.0": ARTIFACTS / "13.0/user.ptx",
    "sm_86": ARTIFACTS.parent / "device_code/virtual.cubin", "linker": ARTIFACTS / "12.9/user.cubin",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "driver", "gpu", "expected"),
    [
        (("cubin", "linker"), "12.8", "H100", ""),
        (("linker",), "12.8", "A100", ""),
        (("cubin 13", "ptx 13.0"), "12.8", "", ""),
        (("cubin", "linker"), "12.8", "A100", "error: device code of x 1 does not run: 0.so: 209 on sm_80"),
        (("cubin 13",), "12.8", "H100", "error: device code of x 1 does not run: 0.so: 200 on sm_90"),
        (("ptx 12.9", "cubin"), "12.8", "H100", "note: some device code of x 1 does not run: 0.so: 222 on sm_90 with"),
        (("sm_86", "cubin", "ptx 13.0"), "12.8", "H100", "note: some device code of x 1 does not run: "),
    ],
)
def test_machine_and_device_code(code: tuple[str, ...], driver: str, gpu: str, expected: str, made: Faked) -> None:
    """A distribution of which nothing fits is a conflict, a part of it a note; what a linker gets does not count."""
    files = [made.put(f"x/{at}.so", content=PARTS[name].read_bytes()) for at, name in enumerate(code)]
    made.wheel("x", "1", files=tuple(files))
    told = on_machine(made, driver, gpu)
    assert len(told) == bool(expected)
    assert all(text.startswith(expected) for text in told)
    newer = ", or a newer driver" if any(outcome in expected for outcome in ("200", "222")) or len(code) == 3 else ""
    end = f"; do: use a build of x for {'sm_80' if gpu == 'A100' else 'sm_90'} and drivers of CUDA {driver}{newer}"
    assert all(text.endswith(end) for text in told)
    assert all((" and 1 more; do: " in text) is (len(code) == 3) for text in told)
    machine = f" on a driver of CUDA {driver} ({570}){' with sm_' if gpu else ':'}"
    assert machine in audit_environment(made.prefix, driver=driver, gpu=gpu).summary


def test_libraries_that_are_nowhere(made: Faked) -> None:
    """Advice names NVIDIA's package where one is known, and the manager; a module that may be unused is a note."""
    made.wheel("a", "1", files=(made.put("a/a.so", CUDART_13, CUDART_13, "libcuda.so.1"),))
    made.wheel("b", "1", files=(made.put("b/b.so", "libnccl.so.2"),))
    module = "c.cpython-312-x86_64-linux-gnu.so"
    made.wheel("c", "1", files=(made.put(f"c/{module}", "libnccl.so.2"),))
    made.wheel("d", "1", files=(made.put("d/d.abi3.so", CUDART_13),), installer="uv")
    made.conda("e", "1", files=[os.path.relpath(made.path(made.put("e/e.so", CUDART_13)), made.prefix)])
    made.wheel("f", "1", files=(made.put("f/f.so", "libcudart.so.11.0"),))
    where = "is missing; expected in the environment or the system"
    assert told(made.audit()) == [
        f"error unprovided: libcudart.so.13 {where}: a.so of a 1 is linked with it",
        "needs any version (a 1): nvidia-cuda-runtime, linked, None, a.so, needs libcudart.so.13",
        "do pip --python @ install nvidia-cuda-runtime",
        f"error unprovided: libnccl.so.2 {where}: b.so of b 1 is linked with it",
        "needs any version (b 1): libnccl.so.2, linked, None, b.so, needs libnccl.so.2",
        "do install the package that has libnccl.so.2, or a build of b for another CUDA release",
        f"note unprovided: libnccl.so.2 {where}: {module} of c 1 is linked with it",
        f"needs any version (c 1): libnccl.so.2, linked, None, {module}, needs libnccl.so.2",
        "do nothing, if no program loads this file; else install the package that has libnccl.so.2",
        f"error unprovided: libcudart.so.13 {where}: d.abi3.so of d 1 is linked with it",
        "needs any version (d 1): nvidia-cuda-runtime, linked, None, d.abi3.so, needs libcudart.so.13",
        "do uv pip install --python @ nvidia-cuda-runtime",
        f"error unprovided: libcudart.so.11.0 {where}: f.so of f 1 is linked with it",
        "needs any version (f 1): libcudart.so.11.0, linked, None, f.so, needs libcudart.so.11.0",
        "do install the package that has libcudart.so.11.0, or a build of f for another CUDA release",
        f"error unprovided: libcudart.so.13 {where}: e.so of e 1 is linked with it",
        "needs any version (e 1): nvidia-cuda-runtime, linked, None, e.so, needs libcudart.so.13",
        "do install the package that has libcudart.so.13, or a build of e for another CUDA release",
    ]


def test_what_is_declared_and_missing_is_said_once(made: Faked) -> None:
    """By the name of the package, which need not have that of the library."""
    made.wheel("a", "1", "nvidia-cuda-runtime", files=(made.put("a/a.so", CUDART_13),))
    made.wheel("b", "1", "nvidia-nccl-cu13", files=(made.put("b/b.so", "libnccl.so.2"),))
    made.wheel("c", "1", "nvidia-cuda-nvrtc", files=(made.put("c/c.so", CUDART_13),))
    assert [finding.what.partition(";")[0] for finding in made.audit().findings] == [
        "nvidia-cuda-nvrtc is missing", "nvidia-cuda-runtime is missing", "nvidia-nccl-cu13 is missing",
        "libcudart.so.13 is missing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("requires", "severity", "remedy"),
    [
        ("nvidia-nccl-cu12; extra == 'nccl'", "note", "nothing, if no program loads this file; else install x[nccl], "),
        ("Nvidia.NCCL_cu13>=2 ; python_version > '3' and extra == \"Comm-1\"", "note", "nothing, if no program loads "),
        ("nvidia-cudnn-cu12; extra == 'nccl'", "error", "install the package that has libnccl.so.2"),
        ("numpy; extra == 'nccl'", "error", "install the package that has libnccl.so.2"),
    ],
)
def test_library_for_which_an_extra_has_the_package(made: Faked, requires: str, severity: str, remedy: str) -> None:
    """It is a plug-in that users ask for, as cuDSS's for NCCL; an extra with other packages excuses nothing."""
    made.wheel("x", "1", requires, files=(made.put("x/a.so", "libnccl.so.2"),))
    (finding,) = made.audit().findings
    assert (finding.severity, finding.otherwise.startswith(remedy)) == (severity, True)


def test_library_whose_distribution_lost_its_metadata(made: Faked) -> None:
    """It is found where wheels have theirs, in the place that programs search."""
    made.wheel("a", "1", files=(made.put("a/a.so", CUDART_13),))
    made.put("nvidia/cu12/lib/libcudart.so.12")
    (missing,) = made.audit().findings
    assert missing.kind == "unprovided"
    made.put("nvidia/cu13/lib/libcudart.so.13")
    assert made.audit().findings == ()


def test_libraries_that_are_only_opened(made: Faked) -> None:
    """That nothing brings them is no fault: the program may do without."""
    for name, content in (("a", b"libnvJitLink.so.12\0" + LTOIR), ("b", JITIFY)):
        made.wheel(name, "1", files=(made.put(f"{name}.so", content=content),))
    assert made.audit().findings == ()
    made.wheel("nvidia-nvjitlink", "13.0.88", files=(made.put("n/libnvJitLink.so.13"),))
    assert made.audit().findings == ()


def test_a_library_of_either_major_will_do(made: Faked) -> None:
    """A distribution may have a file for each major, of which a program loads one."""
    made.wheel("x", "1", files=(made.put("x/a.so", CUDART), made.put("x/b.so", CUDART_13)))
    assert [finding.what.partition(" ")[0] for finding in made.audit().findings] == [CUDART_13]
    made.wheel("nvidia-cuda-runtime-cu12", "12.4.127", files=(made.put("n/libcudart.so.12"),))
    assert made.audit().findings == ()


def test_what_is_read_of_a_library(made: Faked) -> None:
    """LTO-IR counts where nvJitLink is opened, and not in NVIDIA's own wheels; what cannot be read is named."""
    names, inside = b"\0libnvJitLink.so.12\0", b"\0libnvJitLink \0NVJITLINK_TRACE_MESSAGES\0"
    contents = {"both": names + LTOIR, "alone": LTOIR, "nvidia-x": names + LTOIR, "jitify": JITIFY}
    contents["linker"] = inside + LTOIR
    for name, content in contents.items():
        made.wheel(name, "1", files=(made.put(f"{name}.so", content=content),))
    made.wheel("program", "1", files=("program.so",))
    (made.site / "program.so").write_bytes(names + LTOIR)
    for name in ("libcufft", "package"):
        library = made.put(f"conda/{name}.so", content=names + LTOIR)
        made.conda(name, "1", files=[os.path.relpath(made.path(library), made.prefix)])
    made.nvjitlink_wheel()
    made.wheel("damaged", "1", files=(made.put("a.so"), made.put("b.so"), made.put("c.so", JITLINK)))
    made.read[made.path("a.so")] = ValueError("its header is damaged")
    made.read[made.path("b.so")] = PermissionError(13, "Permission denied", "b.so")
    audited = made.audit()
    says = "declares no requirement on nvidia-nvjitlink-cu12"
    jitify = "opens libnvJitLink through jitify, which refuses one older than its build; built with CUDA 12.9"
    assert [claim_line(claim) for claim in audited.claims] == [
        f">=12.9 (both 1): nvidia-nvjitlink-cu12, ltoir, False, both.so, has LTO-IR of CUDA 12.9; both {says}",
        f">=12.9 (jitify 1): nvidia-nvjitlink-cu12, opened, False, jitify.so, {jitify}; jitify {says}",
        f">=12.9 (package 1): nvidia-nvjitlink-cu12, ltoir, False, package.so, has LTO-IR of CUDA 12.9; package {says}",
    ]
    assert audited.unreadable == (
        Unreadable(made.path("a.so"), "its header is damaged: install damaged 1 again"),
        Unreadable(made.path("b.so"), "Permission denied: install damaged 1 again"),
    )


def test_what_cuda_toolkit_alone_pins_is_a_note(made: Faked) -> None:
    """It has no files, and its parts may be of several releases; what another distribution requires is an error."""
    made.wheel("cuda-toolkit", "12.6.3", "nvidia-cuda-nvrtc-cu12==12.6.85.*; extra == 'nvrtc'")
    made.wheel("x", "1", "cuda-toolkit[nvrtc]==12.*")
    made.wheel("nvidia-cuda-nvrtc-cu12", "12.9.86")
    (note,) = made.audit().findings
    assert (note.kind, note.severity) == ("version", "note")
    made.wheel("y", "1", "nvidia-cuda-nvrtc-cu12<12.9")
    (error,) = made.audit().findings
    assert (error.kind, error.severity) == ("version", "error")


def test_floors_that_nobody_can_judge(made: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of the system, or of a package that tells no release, is taken as it is."""
    made.wheel("bundle", "1", files=(made.put("b/libnvJitLink.so.12"),))
    user = made.put("x/x.so", JITLINK, CUDART, __nvJitLinkCreate_12_9=JITLINK, cudaGetDriverEntryPointByVersion=CUDART)
    made.wheel("x", "1", files=(user,))
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: ("/usr/lib/libcudart.so.12",))
    assert made.audit().findings == ()


def test_the_release_that_is_asked_for_will_do(made: Faked) -> None:
    """A floor is met by its own release; one that is newer than the table has its own number."""
    made.nvjitlink_wheel("12.9.86")
    made.wheel("x", "1", files=(made.put("x/x.so", JITLINK, __nvJitLinkCreate_12_9=JITLINK),))
    assert made.audit().findings == ()
    made.wheel("y", "1", files=(made.put("y/y.so", JITLINK, __nvJitLinkCreate_12_99=JITLINK),))
    (finding,) = made.audit().findings
    assert finding.what.startswith("nvidia-nvjitlink-cu12 is 12.9.86; expected >=12.99 (y 1): ")


def test_an_installed_package_without_its_library(made: Faked) -> None:
    """That the package is there does not bring the library."""
    made.wheel("nvidia-cuda-runtime", "13.0.96")
    made.wheel("a", "1", "nvidia-cuda-runtime", files=(made.put("a/a.so", CUDART_13),))
    made.wheel("b", "1", files=(made.put("b/b.so", CUDART_13, "libnccl.so.2"),))
    assert [(finding.kind, bool(finding.fix)) for finding in made.audit().findings] == [
        ("unprovided", True), ("unprovided", True), ("unprovided", False),
    ]  # fmt: skip


def test_an_older_library_outside(made: Faked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The advice is about the variable only where that names the folder."""
    made.wheel("x", "1", files=(made.put("x/x.so", JITLINK, __nvJitLinkCreate_12_9=JITLINK),))
    (old := tmp_path / JITLINK).write_bytes(b"\0__nvJitLinkCreate_12_4\0")
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: [str(old)])
    there = "put one of CUDA 12.9 or newer there, or before it in LD_LIBRARY_PATH if x.so has no RPATH"
    wants = "x.so of x 1 wants __nvJitLinkCreate_12_9 of CUDA 12.9"
    for where, remedy in ((str(tmp_path), there), ("LD_LIBRARY_PATH", f"take {tmp_path} out of LD_LIBRARY_PATH")):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path) if where == "LD_LIBRARY_PATH" else "")
        assert told(made.audit()) == [
            f"error floor: {JITLINK} is that of CUDA 12.4 in {where}; expected 12.9 or newer: {wants}",
            f"there {old}",
            f"do {remedy}",
        ]


# -- declared


def installed(label: str, *requires: str, path: str = "/x", manager: str = "pip") -> Installed:
    return Installed(*label.split(" ", 1), manager, path, requires)


NVRTC = "nvidia-cuda-nvrtc-cu12"
AGAIN, FORM = "install the distribution again", "expected NAME[EXTRAS] SPECIFIER; MARKER"
RANGES = ",".join(f"!=1.{n}" for n in range(80))


@pytest.mark.parametrize(
    ("distributions", "claims", "faults"),
    [
        ([installed("a 1", f"{NVRTC}>=12", "numpy", "NVIDIA_cufft.cu12"), installed(f"{NVRTC} 12.9")],
         [f">=12 (a 1): {NVRTC} True", "any version (a 1): nvidia-cufft-cu12 None"], []),
        ([installed("a 1", f"{NVRTC}>=12", manager="conda"), installed("b 1", f"{NVRTC}>=12", manager="uv")],
         [f">=12 (b 1): {NVRTC} None"], []),
        ([installed("middle 2", f"{NVRTC}; extra == 'All_of-it'", "nvidia-x; extra == 'no'"),
          *(installed(f"{name} 1", "middle[all-of-it]") for name in "dbca")],
         [f"any version (middle 2, for a 1, b 1, c 1): {NVRTC} None"], []),
        ([installed("b 1", "c[Y_z]; extra == 'x'"), installed("a 1", "b[x]"),
          installed("c 1", f"{NVRTC}; extra == 'y-z'")], [f"any version (c 1, for b 1): {NVRTC} None"], []),
        ([installed("c 1", f"{NVRTC}; extra == 'y'"), installed("b 1", "c[y]; extra == 'x'")], [], []),
        ([installed("a 1", "cuda-x"), installed("cuda-x 1", NVRTC)],
         ["any version (a 1): cuda-x True", f"any version (cuda-x 1): {NVRTC} None"], []),
        ([installed("a 1", "nvidia[x]", "cudaless", "cuda_core")], ["any version (a 1): cuda-core None"], []),
        ([installed("a 1", f"{NVRTC}; os_name ~= 'x'", f"{NVRTC}; python_version == '3.12'")],
         [f"any version (a 1): {NVRTC} None"], []),
        ([installed(f"{NVRTC} {'twelve' * 20}", path="/n"), installed("numpy twelve")], [],
         [("/n", f"version is {('twelve' * 20)[:80]!r}; expected one such as 12.9.86: {AGAIN}")]),
        ([installed("a 1", f"nvidia-x =={'9' * 300}x", "x[ ==", "x; [")], [],
         [("/x", f"Requires-Dist is 'nvidia-x =={'9' * 189}'; {FORM}: install it again")]),
    ],
)  # fmt: skip
def test_what_distributions_declare(
    distributions: list[Installed], claims: list[str], faults: list[tuple[str, str]]
) -> None:
    """Requirements on CUDA's, those of an extra where another distribution requires it; what is invalid is named."""
    unreadable: list[Unreadable] = []
    listed = list(declared_claims(Place(Path("/x"), (), "3.12"), distributions, unreadable))
    assert [f"{claim}: {claim.name} {claim.satisfied}" for claim in listed] == claims
    assert [(unread.path, unread.text) for unread in unreadable] == faults
    assert all((claim.how, claim.file) == ("declared", "") for claim in listed)


def test_evidence_of_a_requirement() -> None:
    """Three hundred characters of its line."""
    line = f"nvidia-x{RANGES}"
    (claim,) = declared_claims(Place(Path("/x"), (), "3.12"), [installed("a 1", line), installed("nvidia-x 1.7")], [])
    assert claim.evidence == f"Requires-Dist: {install_targets.parse_requirement(line)}"[:300]
    assert (len(claim.evidence), claim.satisfied) == (300, False)


@pytest.mark.parametrize(
    ("tags", "windows", "holding"),
    [
        ([], False, "linux s390x 3.12"),
        ([], True, "win32 AMD64 3.12"),
        (["cp312-cp312-manylinux_2_28_aarch64"], False, "linux aarch64 3.12"),
        (["cp312-abi3-macosx_11_0_arm64", "cp312-cp312-manylinux_2_28_aarch64"], False, "darwin arm64 3.12"),
        (["py3-none-any", "cp311-cp311-win_arm64", "cp312-cp312-win_amd64"], False, "win32 AMD64 3.12"),
        (["cp311-cp311-win_arm64"], False, "linux s390x 3.12"),
    ],
)
def test_the_target_of_an_environment(
    tags: list[str], windows: bool, holding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform of a wheel for one platform and this Python, else this machine."""
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    text = "".join(f"Tag: {tag}\n" for tag in tags)
    (tmp_path / "WHEEL").write_bytes(b"Generator: \xff\n" + text.encode())
    system, machine, python = holding.split()
    marker = f"sys_platform == '{system}' and platform_machine == '{machine}' and python_version == '{python}'"
    distributions = [installed("x 1", path="/missing"), installed("a 1", f"nvidia-x; {marker}", path=str(tmp_path))]
    place = Place(tmp_path, (), "3.12", windows=windows)
    assert [claim.name for claim in declared_claims(place, distributions, [])] == ["nvidia-x"]


def test_what_conda_packages_claim() -> None:
    """What they depend on, and what they constrain if it is there; the driver is asked where there is one."""
    rules, driver = conda.rules(), conda.virtual_driver("13.0")
    assert rules is not None
    depends = ("cuda-nvcc >=12", "__cuda >=12", f"libcublas {'>=12,' * 80}<13", "numpy", "cuda-nvrtc >=)")
    constrains = ("cudnn >=9", "cuda-nvcc <12", "nccl <2")
    packages = [
        CondaPackage(installed("x 1", *depends, path="/r"), "0", 0, constrains),
        *(CondaPackage(installed(label), "0", 0, ()) for label in ("cuda-nvcc 12.9", "cudnn 8")),
    ]
    for given, asked in ((driver, [(">=12", "__cuda", "depends", True)]), (None, [])):
        unreadable: list[Unreadable] = []
        listed = list(conda_claims(packages, rules, unreadable, given))
        assert [(c.versions, c.name, c.how, c.satisfied) for c in listed if c.name != "libcublas"] == [
            (">=12", "cuda-nvcc", "depends", True), *asked, (">=9", "cudnn", "constrains", False),
            ("<12", "cuda-nvcc", "constrains", False),
        ]  # fmt: skip
        assert [(claim.by, claim.evidence, claim.file) for claim in listed if claim.name in ("cudnn", "libcublas")] == [
            ("x 1", f"depends: {depends[2]}"[:300], ""), ("x 1", "constrains: cudnn >=9", ""),
        ]  # fmt: skip
        (fault,) = unreadable
        assert fault.path == "/r"
        assert fault.text.startswith("'cuda-nvrtc >=)' is not a match specification of conda")
        assert fault.text.endswith(": install the package again with conda")


def test_packages_of_conda_do_not_serve_requirements_of_wheels(made: Faked) -> None:
    """The other manager does not see them, and its command is the one to give."""
    made.conda("cuda-nvrtc", "12.8")
    made.wheel("x", "1", "cuda-nvrtc>=1")
    (finding,) = made.audit().findings
    assert finding.what == "cuda-nvrtc is missing; expected >=1 (x 1)"
    assert [claim.by for claim in finding.evidence] == ["x 1"]
    assert str(finding.fix) == f"pip --python {made.prefix} install 'cuda-nvrtc>=1'"


def test_rules_of_versions(made: Faked) -> None:
    """Wheels and conda packages are compared by the rules of their own managers."""
    made.conda("cuda-version", "12.8")
    made.conda("y", "1", "cuda-version 12.8.*")
    made.conda("z", "1", "cuda-version >=12.9")
    made.wheel("nvidia-cublas-cu12", "12.8.4.1")
    made.wheel("a", "1", "nvidia-cublas-cu12===12.8.4.1")
    made.wheel("b", "1", "nvidia-cublas-cu12>=12.9")
    assert [(finding.kind, str(finding.fix)) for finding in made.audit().findings] == [
        ("pair", f"conda update --prefix {made.prefix} y z"),
        ("pair", f"pip --python {made.prefix} install --upgrade a b"),
    ]


def test_pairs(made: Faked) -> None:
    """Each bound from above, with those that contradict it; of those without a version a pair says enough."""
    made.wheel("nvidia-cuda-nvrtc-cu12", "12.8.93")
    made.wheel("torch", "2", "nvidia-cuda-nvrtc-cu12==12.8.93", "nvidia-cublas-cu12<12.5", installer="uv")
    made.wheel("b", "1", "nvidia-cuda-nvrtc-cu12>=12.9", "nvidia-cublas-cu12>=12.6")
    made.wheel("c", "1", "nvidia-cuda-nvrtc-cu12>=12.9.5", "nvidia-cublas-cu12")
    made.wheel("d", "1", "nvidia-cuda-nvrtc-cu12<12.7")
    made.wheel("f", "1", "nvidia-cufft==1", "nvidia-cufft==2")
    nvrtc, none = "nvidia-cuda-nvrtc-cu12", "which no version satisfies"

    def claim(versions: str, by: str, satisfied: str, name: str = nvrtc) -> str:
        return f"needs {versions} ({by}): {name}, declared, {satisfied}, , Requires-Dist: {name}{versions}"

    high = [claim(">=12.9", "b 1", "False"), claim(">=12.9.5", "c 1", "False")]
    there = f"there {nvrtc} 12.8.93 (@/nvidia_cuda_nvrtc_cu12-12.8.93.dist-info)"
    assert told(made.audit()) == [
        f"error pair: nvidia-cublas-cu12 is missing; expected <12.5 (torch 2) and >=12.6 (b 1), {none}",
        claim("<12.5", "torch 2", "None", "nvidia-cublas-cu12"),
        claim(">=12.6", "b 1", "None", "nvidia-cublas-cu12"),
        "do uv pip install --python @ --upgrade torch b",
        "or put torch and b into separate environments",
        f"error pair: {nvrtc} is 12.8.93; expected <12.7 (d 1) and >=12.9 (b 1), {none}",
        claim("<12.7", "d 1", "False"),
        *high,
        claim("==12.8.93", "torch 2", "True"),
        there,
        "do pip --python @ install --upgrade d b",
        "or put d and b into separate environments",
        f"error pair: {nvrtc} is 12.8.93; expected ==12.8.93 (torch 2) and >=12.9 (b 1), {none}",
        claim("==12.8.93", "torch 2", "True"),
        *high,
        there,
        "do uv pip install --python @ --upgrade torch b",
        "or put torch and b into separate environments",
        f"error pair: nvidia-cufft is missing; expected ==1 (f 1) and ==2 (f 1), {none}",
        claim("==1", "f 1", "None", "nvidia-cufft"),
        claim("==2", "f 1", "None", "nvidia-cufft"),
        "do pip --python @ install --upgrade f",
    ]


def test_a_pair_and_a_version(made: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement that is in no pair is judged by itself; only so many specifiers are compared."""
    made.wheel("nvidia-cuda-nvrtc-cu12", "12.8.93")
    made.wheel("a", "1", "nvidia-cuda-nvrtc-cu12<12.5")
    made.wheel("b", "1", "nvidia-cuda-nvrtc-cu12>=12.6")
    made.wheel("c", "1", "nvidia-cuda-nvrtc-cu12!=12.8.93")
    assert [finding.kind for finding in made.audit().findings] == ["pair", "version"]
    monkeypatch.setattr(environment, "_MOST_SPECIFIERS", 2)
    (finding,) = made.audit().findings
    assert finding.what == "nvidia-cuda-nvrtc-cu12 is 12.8.93; expected <12.5 (a 1) and 1 more"


def test_declared_and_measured(made: Faked) -> None:
    """The measured floor is named first, and the command has all bounds, each once."""
    made.wheel("nvidia-nvjitlink-cu12", "12.6.20", files=(made.put("n/libnvJitLink.so.12"),))
    user = made.put("a/a.so", JITLINK, __nvJitLinkCreate_12_8=JITLINK)
    made.wheel("a", "1", "nvidia-nvjitlink-cu12>=12.7,<13", files=(user,))
    made.wheel("b", "1", "nvidia-nvjitlink-cu12>=12.8", "nvidia-cuda-nvrtc-cu12", installer="uv")
    made.wheel("c", "1", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvrtc-cu12>=12")
    made.wheel("d", "1", "nvidia-cuda-nvrtc-cu12>=12")
    wants = "wants __nvJitLinkCreate_12_8 of CUDA 12.8; a declares <13,>=12.7"
    assert [line for line in told(made.audit()) if not line.startswith("needs")] == [
        "error missing: nvidia-cuda-nvrtc-cu12 is missing; expected any version (b 1) and 2 more",
        "do uv pip install --python @ 'nvidia-cuda-nvrtc-cu12>=12'",
        f"error version: nvidia-nvjitlink-cu12 is 12.6.20; expected >=12.8 (a 1) and 2 more: {wants}",
        "there nvidia-nvjitlink-cu12 12.6.20 (@/n/libnvJitLink.so.12)",
        "do pip --python @ install 'nvidia-nvjitlink-cu12<13,>=12.7,>=12.8'",
    ]


# -- several copies


def test_copies(made: Faked) -> None:
    """The owners of one file, two releases of one name, and two majors."""
    made.wheel("b", "1", files=(made.put("n/libnvJitLink.so.12"),), installer="uv")
    made.wheel("c", "2", files=("n/libnvJitLink.so.12",))
    made.nvjitlink_wheel("12.6.20", "m")
    old = made.put("conda/libnvJitLink.so.12")
    made.conda("libnvjitlink", "12.9.86", files=[os.path.relpath(made.path(old), made.prefix)])
    made.wheel("nvidia-nvjitlink", "13.0.88", files=(made.put("o/libnvJitLink.so.13"),))
    made.wheel("unknown", "1", files=(made.put("p/libnvJitLink.so.12"),))
    twelve = "CUDA 12.6 by nvidia-nvjitlink-cu12 12.6.20 and CUDA 12.9 by libnvjitlink 12.9.86"
    assert told(made.audit()) == [
        (
            "error same-file: @/n/libnvJitLink.so.12 is installed by b 1 and c 2 with other contents; "
            "expected one of them: the last install won"
        ),
        "there @/n/libnvJitLink.so.12",
        "do uv pip uninstall --python @ b && pip --python @ install c==2",
        (
            f"error copies: libnvJitLink.so.12 is installed as {twelve}; "
            "expected one release: which one a process gets depends on what loads first"
        ),
        "there @/m/libnvJitLink.so.12, @/conda/libnvJitLink.so.12",
        "do keep one of libnvjitlink, nvidia-nvjitlink-cu12",
        (
            f"note copies: libnvJitLink is installed as CUDA 13.0 by nvidia-nvjitlink 13.0.88 and {twelve}; "
            "expected one major, unless the programs that use them differ"
        ),
        "there @/o/libnvJitLink.so.13, @/m/libnvJitLink.so.12, @/conda/libnvJitLink.so.12",
        "do nothing, if this is on purpose",
    ]
    made.wheel("again", "1", files=(old,))
    (_, same) = (finding for finding in made.audit().findings if finding.kind == "same-file")
    assert str(same.fix) == (
        f"pip --python {made.prefix} uninstall -y again && conda install --prefix {made.prefix} libnvjitlink==12.9.86"
    )


@pytest.mark.parametrize(
    ("names", "files", "digest", "expected"),
    [
        (("nixl-cu12", "nixl-cu13"), ("ep/a.py", "ep/b.py"), "", "error @/ep/a.py and 1 more are installed by"),
        (("nixl-cu12", "nixl-cu13"), ("ep/a.py",), "same", None),
        (("a", "b"), ("ep/a.py", "ep/_c.so"), "", "error @/ep/_c.so and 1 more are installed by a 1 and b 1 with"),
        (("a", "b"), ("tests/__init__.py",), "", "note @/tests/__init__.py is installed by a 1 and b 1 with"),
        (("mine-cuda12x", "mine-cuda13x"), ("m.py",), "", "error @/m.py is installed by"),
    ],
)
def test_files_of_two_distributions(made: Faked, names, files, digest, expected) -> None:
    """Other contents are an error of libraries and of variants of one project; a note has no command to uninstall."""
    for name in names:
        made.wheel(name, "1", files=files, digest=digest)
    findings = made.audit().findings
    texts = [f"{finding.severity} {finding.what}" for finding in findings]
    assert [bool(finding.fix) for finding in findings] == [finding.severity == "error" for finding in findings]
    assert all(finding.fix or finding.otherwise == "nothing, if no program imports this file" for finding in findings)
    wanted = (expected or "").replace("@", str(made.site))
    assert [text.startswith(wanted) for text in texts] == ([True] if expected else []), texts


def digest_of(text: str) -> str:
    """The hash of a file as a RECORD has it."""
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("requires", "content", "severity"),
    [
        (("nccl-cu12",), b"cu12", "note"), (("nccl-cu12",), b"cu11", "error"),
        (("nccl-cu11", "nccl-cu12"), b"cu12", "error"), ((), b"cu12", "error"), (("nccl-cu12",), None, "error"),
    ],
)  # fmt: skip
def test_a_variant_that_nothing_requires(made: Faked, requires, content, severity: str) -> None:
    """Nothing is broken where the files are those of the variant that something requires."""
    if content:
        (made.site / "nccl.h").write_bytes(content)
    for name in ("nccl-cu11", "nccl-cu12"):
        (made.wheel(name, "1") / "RECORD").write_text(f"nccl.h,{digest_of(name[-4:])},4\n", encoding="utf-8")
    for name in requires:
        made.wheel(f"user-{name}", "1", name)
    (finding,) = (finding for finding in made.audit().findings if finding.kind == "same-file")
    assert (finding.severity, bool(finding.fix)) == (severity, severity == "error")
    assert finding.place == str(made.site / "nccl.h")
    assert ("those of nccl-cu12" in finding.otherwise) == (severity == "note")


@pytest.mark.parametrize(
    ("file", "content", "other", "driver", "severity"),
    [
        ("libx.so", b"cu13", "x-cu12 1", "", "note"),
        ("libx.so", b"cu13", "x-cu12 1", "13.2", "note"),
        ("libx.so", b"cu13", "x-cu12 1", "12.8", "error"),  # its CUDA runtime answers 35
        ("libx.so", b"cu12", "x-cu12 1", "12.8", "note"),
        ("libx.so", b"????", "x-cu12 1", "13.2", "error"),
        ("libx.so", b"cu13", "x-cu12 2", "13.2", "error"),
        ("_core.so", b"cu13", "x-cu12 1", "13.2", "error"),
        ("x.h", b"cu13", "x-cu12 1", "13.2", "error"),
        ("libx.so", b"cu13", "y-cu12 1", "13.2", "error"),  # no variant of it
        ("libx.so", b"x", "x 1", "13.2", "error"),
        ("libx.so", b"cu13", "nvidia-x-cu12 1", "13.2", "error"),
    ],
)
def test_a_library_of_another_variant(made: Faked, monkeypatch, file, content, other: str, driver, severity) -> None:
    """It serves the programs of both, as librmm's of one release, if nothing else differs and the driver runs it."""
    made.put(f"x/{file}", content=content)
    for name, version in (other.split(), (f"{'nvidia-' * other.startswith('nvidia')}x-cu13", "1")):
        (made.wheel(name, version) / "RECORD").write_text(f"x/{file},{digest_of(name[-4:])},4\n", encoding="utf-8")
    made.wheel("user", "1", "x-cu12")
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    (finding,) = (finding for finding in made.audit().findings if finding.kind == "same-file")
    on_old = (f.severity for f in audit_environment(made.prefix, driver="12.8").findings if f.kind == "same-file")
    assert [*on_old] == ["note" if content == b"cu12" else "error"]
    alone = content == b"cu12"  # which something requires, and not the other
    assert (finding.severity, "serve the others" in finding.otherwise) == (severity, severity == "note" and not alone)


@pytest.mark.parametrize(
    ("requires", "version", "words"),
    [
        ('cudnn-cu12<10,>=9.8; extra == "with-cuda"', "9.5", "extra with-cuda of plugin 1 asks for <10,>=9.8"),
        ('cudnn-cu12<10,>=9.8; extra == "with-cuda"', "9.8", ""),
        ('cudnn-cu12<10,>=9.8; extra == "with-cuda"', "8.1", ""),  # that of another extra
        ('cudnn<10,>=9.8; extra == "with-cuda"', "9.5", ""),
    ],
)
def test_an_extra_that_nobody_asked_for(made: Faked, requires: str, version: str, words: str) -> None:
    """Its versions are those that a package was tried with: others are a note, and an error where it was asked for."""
    made.wheel("plugin", "1", requires, 'cudnn-cu12<9; extra == "old"')
    made.wheel(requires.partition("<")[0], version)
    findings = made.audit().findings
    assert [finding.severity for finding in findings] == ["note"] * bool(words)
    remedy = "install 'plugin[with-cuda]' where plugin uses it"
    note = ("version", remedy, f"cudnn-cu12 {version}")
    assert [(finding.kind, finding.otherwise, finding.place) for finding in findings] == [note] * bool(words)
    assert all(words in finding.what for finding in findings)
    made.wheel("framework", "1", "plugin[with-cuda]")
    assert [finding.severity for finding in made.audit().findings] == ["error"] * (bool(words) or version == "8.1")


@pytest.mark.parametrize(
    ("listed", "there", "lost"),
    [
        ("n/lib/libnvrtc.so.12", None, True),
        ("n/lib/libnvrtc.so.12", 9, False),  # without its symbols; the loader takes it
        ("n/include/nvrtc.h", 9, True), ("n/include/nvrtc.h", 10, False), ("n/include/nvrtc.h", 11, False),
        ("n/bin/ptxas", None, True), ("n/nvvm/libdevice/libdevice.10.bc", 9, True), ("n/m.py", None, True),
        ("n/lib/libnvrtc_static.a", None, False), ("n/README", None, False), ("../../bin/tool", None, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["nvidia-cuda-nvrtc-cu12", "other"])
def test_files_that_are_gone(made: Faked, name, listed, there, lost: bool) -> None:
    """What the RECORD of one of CUDA's distributions lists and programs use is there, in its size."""
    metadata = made.wheel(name, "12.8.93", installer="uv")
    (metadata / "RECORD").write_text(f"{listed},sha256=x,10\nn/nosize.so,,\n", encoding="utf-8")
    if there is not None:
        path = made.site / listed
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * there)
    lines = [line for line in told(audit_environment(made.prefix, measure=False)) if "lacks" in line or "do " in line]
    said = f"error lost: {name} 12.8.93 lacks @/{listed}: missing or cut off; expected what its RECORD lists"
    fix = f"do uv pip install --python @ --reinstall --no-deps {name}==12.8.93"
    assert lines == ([said, fix] if lost and name != "other" else [])


@pytest.mark.parametrize(
    ("name", "requires", "there", "expected"),
    [
        ("librmm-cu13", "rapids-logger==0.1.*", "", ["rapids-logger is missing"]),
        ("librmm-cu13", "rapids-logger==0.1.*", "rapids-logger", ["rapids-logger is 1; expected ==0.1.*"]),
        ("librmm-cu13", 'rapids-logger; extra == "test"', "", []),
        ("cuda-tile", "typing_extensions>=4; python_version > '3'", "", ["typing-extensions is missing"]),
        ("cuda-tile", "numpy>=1", "numpy", []),
        ("rmm", "librmm-cu13==2.*", "", ["librmm-cu13 is missing"]),
        ("rmm", "librmm-cu13[x]==2.*", "librmm-cu13", ["librmm-cu13 is 1; expected ==2.*"]),
        ("other", "numpy", "", []),
    ],
)
def test_whatever_a_distribution_of_cuda_requires(made: Faked, name, requires, there, expected) -> None:
    """It counts where it is missing or of another version, as in ``pip check``; of others, what concerns CUDA."""
    made.wheel(name, "1", requires)
    if there:
        made.wheel(there, "1")
    assert [error.what[: len(text)] for error, text in zip(made.audit().errors, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("line", "red"),
    [
        ('__version__ = importlib.metadata.version("nvmath-python")', True),
        ("VERSION=metadata.version('nvmath_python')", True),
        ('try:\n    __version__ = importlib.metadata.version("nvmath-python")\nexcept Exception: ...', False),
        ('__version__ = packaging.version.parse("nvmath-python")', False),
        ('__version__ = importlib.metadata.version("there")', False),
        ('__version__ = importlib.metadata.version("damaged")', False),
    ],
)
@pytest.mark.parametrize("package", ["nvmath", "cuda/nvmath"])
def test_a_package_whose_metadata_is_gone(made: Faked, package: str, line: str, red: bool) -> None:
    """It cannot be imported if it asks for its version outside of all blocks; what is damaged has another finding."""
    made.wheel("there", "1")
    (made.site / "damaged-1.dist-info").mkdir()
    (made.site / package).mkdir(parents=True)
    (made.site / package / "__init__.py").write_text(f"import importlib.metadata\n{line}\n", encoding="utf-8")
    name = "nvmath_python" if "_python" in line else "nvmath-python"
    rows = [(finding.severity, finding.kind, finding.place, str(finding.fix)) for finding in made.audit().findings]
    place = made.path(f"{package}/__init__.py")
    assert rows == ([("error", "lost", place, f"pip --python {made.prefix} install {name}")] if red else [])


@pytest.mark.parametrize(("kept", "expected"), [("", ["other 1"]), ("o/__init__.py", [])])
@pytest.mark.parametrize("requires", ["other", "numpy"])
def test_a_requirement_whose_files_are_gone(made: Faked, requires: str, kept: str, expected: list[str]) -> None:
    """It counts as a whole, where one of CUDA's distributions requires it: an image may leave out its tests."""
    made.wheel("librmm-cu13", "1", requires)
    made.wheel("numpy", "1")
    rows = "o/__init__.py,sha256=x,1\no/tests/test_o.py,sha256=y,1\n"
    (made.wheel("other", "1") / "RECORD").write_text(rows, encoding="utf-8")
    if kept:
        made.put(kept, content=b"x")
    lost = [error for error in made.audit().errors if error.kind == "lost"]
    assert [error.place for error in lost] == (expected if requires == "other" else [])
    assert all("/o/__init__.py and 1 more: " in error.what for error in lost)


@pytest.mark.parametrize(
    ("left", "by_conda", "severity"),
    [(False, "libnvrtc.so.13", "note"), (True, "libnvrtc.so.13", "error"), (False, "libnvrtc.so.12", "error")],
)
def test_metadata_that_stayed_where_conda_has_the_files(made: Faked, left: bool, by_conda: str, severity: str) -> None:
    """Nothing is broken where none of its libraries is left, and conda has one of them."""
    rows = "n/libnvrtc.so.13,sha256=x,1\nn/libnvrtc-builtins.so.13.0,sha256=y,1\n"
    (made.wheel("nvidia-cuda-nvrtc", "13.0.48") / "RECORD").write_text(rows, encoding="utf-8")
    if left:
        made.put("n/libnvrtc-builtins.so.13.0", content=b"x")
    (made.prefix / "lib" / by_conda).touch()
    made.conda("cuda-nvrtc", "13.1.115", files=[f"lib/{by_conda}"])
    assert [finding.severity for finding in made.audit().findings if finding.kind == "lost"] == [severity]


def test_files_of_a_release_that_left_its_list(made: Faked) -> None:
    """Which release is there counts, not what another one left: its files are of other sizes, or gone."""
    for version, size in (("12.6.20", 20), ("12.8.93", 10)):
        rows = f"n/include/nvrtc.h,sha256=x,{size}\nn/include/{version}.h,sha256=x,1\n"
        (made.wheel("nvidia-cuda-nvrtc-cu12", version) / "RECORD").write_text(rows, encoding="utf-8")
    (made.site / "n/include").mkdir(parents=True)
    for name, size in (("nvrtc", 10), ("12.8.93", 1)):
        (made.site / f"n/include/{name}.h").write_bytes(b"x" * size)
    assert audit_environment(made.prefix, measure=False).findings == ()


def test_a_list_of_files_that_cannot_be_read(made: Faked) -> None:
    """It is named, and the other distributions are compared."""
    record = made.wheel("a", "1", files=("m.so",)) / "RECORD"
    record.write_text('"m.so\0,sha256=x,1\n' + "x" * 200_000, encoding="utf-8")
    assert any(unread.path == str(record) or "RECORD" in unread.what for unread in made.audit().unreadable)


def test_order_of_copies(made: Faked) -> None:
    """By path, and by library; conda removes a file of two of its packages."""
    paths = [made.put(f"{name}/libnv{stem}.so.12") for name in "ba" for stem in ("rtc", "JitLink")]
    inside = [os.path.relpath(made.path(path), made.prefix) for path in paths]
    made.conda("one", "1", files=inside)
    made.conda("two", "2", files=inside)
    for name, stem in (("nvidia-cuda-nvrtc-cu12", "rtc"), ("nvidia-nvjitlink-cu12", "JitLink")):
        made.wheel(name, "12.8.93", files=(made.put(f"new/libnv{stem}.so.12"),))
        for minor, letter in enumerate("hfge" if stem == "rtc" else "zxyw", 3):
            path = made.put(f"{letter}/libnv{stem}.so.12")
            made.wheel(f"cuda-{letter}-of-conda", f"12.{minor}.20", files=(path,), installer="conda")
        made.wheel(name.removesuffix("-cu12"), "13.0.88", files=(made.put(f"13/libnv{stem}.so.13"),))
    lines = told(made.audit())
    assert [line.partition(" is installed")[0] for line in lines if line.startswith(("do keep", "note copies"))] == [
        "do keep one of cuda-w-of-conda, cuda-x-of-conda, cuda-y-of-conda, cuda-z-of-conda, nvidia-nvjitlink-cu12",
        "do keep one of cuda-e-of-conda, cuda-f-of-conda, cuda-g-of-conda, cuda-h-of-conda, nvidia-cuda-nvrtc-cu12",
        "note copies: libnvJitLink",
        "note copies: libnvrtc",
    ]
    assert [line.partition(" is installed")[0] for line in lines if line.startswith("error")] == [
        *(f"error same-file: @/{folder}/libnv{name}.so.12" for folder in "ab" for name in ("JitLink", "rtc")),
        "error copies: libnvJitLink.so.12",
        "error copies: libnvrtc.so.12",
    ]
    assert lines[2] == "do conda remove --prefix @ one && conda install --prefix @ two==2"


def test_order_of_owners(made: Faked) -> None:
    """By name, however many have a file."""
    library = os.path.relpath(made.path(made.put("n/libnvrtc.so.12")), made.prefix)
    for name in "dbeca":
        made.conda(name, "1", files=[library])
        made.wheel(f"wheel-{name}", "1", files=("ep/_c.so",))
    (of_wheels, _, _, of_conda, *_) = told(made.audit())
    assert "is installed by a 1 and b 1 and c 1 and d 1 and e 1;" in of_conda
    assert " and ".join(f"wheel-{name} 1" for name in "abcde") in of_wheels


def test_combinations_that_are_known_to_fail(made: Faked) -> None:
    """What is there is named in one order; of an entry that depends on the machine the rest is said."""
    made.wheel("cuda-core", "1.0.0")
    made.conda("cuda-bindings", "13.0.3")
    made.wheel("numba", "0.61.2")
    findings = [finding for finding in made.audit().findings if finding.kind == "known-bad"]
    assert "cuda-bindings 13.0.3, cuda-core 1.0.0" in [finding.place for finding in findings]
    (note,) = (finding for finding in findings if finding.severity == "note")
    assert note.what.endswith("; only on drivers >=580")
    assert all((finding.severity, finding.what[-1]) == ("error", ")") for finding in findings if finding is not note)
    for driver, numba in (("12.8", []), ("13.0", [("note", note.what.partition(";")[0])])):
        on_it = audit_environment(made.prefix, driver=driver).findings
        assert [(finding.severity, finding.what) for finding in on_it if "numba" in finding.what] == numba


def test_libraries_of_the_system_that_are_known_to_fail(made: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC of a toolkit outside counts where cuda-bindings looks for it."""
    nvrtc = made.path(made.put("libnvrtc.so.13", content=b"libnvrtc-builtins.so.13.3"))
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: [nvrtc])
    made.wheel("nvidia-cuda-cccl", "13.0.85")
    made.wheel("nvidia-cuda-runtime-cu12", "12.6.77")
    assert told(made.audit()) == []
    made.wheel("cuda-bindings", "12.9.0")
    of_cccl, of_bindings = (finding.what for finding in made.audit().findings if finding.kind == "known-bad")
    assert ("without NVRTC 12" in of_bindings, "CCCL of CUDA 13" in of_cccl) == (True, True)
    jitlink = made.path(made.put(JITLINK, content=b"\0__nvJitLinkCreate_12_8\0"))
    made.wheel("cuda-core", "1.0.0")
    for systems, expected in (([nvrtc], (True, False)), ([nvrtc, jitlink], (False, True))):
        monkeypatch.setattr(library_search, "_system_libraries", lambda _, systems=systems: systems)
        known = [finding for finding in made.audit().findings if finding.kind == "known-bad"]
        assert (any("links by the driver" in f.what for f in known), "" in [f.place for f in known]) == expected


def test_gpus_that_are_known_to_fail(made: Faked) -> None:
    """Which ones is said where no GPU is asked about."""
    made.nvjitlink_wheel()
    made.wheel("nvidia-cuda-nvrtc", "13.0.88")
    made.wheel("cuda-bindings", "13.3.0")
    made.wheel("nvidia-cufile", "1.20.0.1")
    (reported,) = (finding for finding in made.audit().findings if "cufile" in finding.place)
    assert (reported.kind, reported.severity) == ("known-bad", "error")  # on every machine
    cubin = "if it links cubin"
    for gpu, said in (("", [f"for sm_100, sm_100f, sm_120, {cubin}"]), ("B200", [cubin]), ("H100", [])):
        findings = audit_environment(made.prefix, driver="13.0", gpu=gpu).findings
        known = [finding for finding in findings if finding.kind == "known-bad" and finding.place != reported.place]
        assert [finding.what.partition("; only ")[2] for finding in known] == said


@pytest.mark.parametrize(
    ("manager", "start"),
    [("uv", "uv pip install --python {} '"), ("conda", "conda install --prefix {} cuda-bindings=12.9")],
)
def test_command_for_what_is_known_to_fail(made: Faked, manager: str, start: str) -> None:
    """It is for the environment that was audited, by what installed the package."""
    for name, version in (("cuda-core", "1.0.0"), ("cuda-bindings", "12.8.0")):
        made.conda(name, version) if manager == "conda" else made.wheel(name, version, installer=manager)
    findings = [finding for finding in made.audit().findings if finding.fix]
    fixes = [str(finding.fix) for finding in findings if not finding.otherwise]
    assert 0 < len(fixes) == len(findings)
    assert all(fix.startswith(start.format(made.prefix)) for fix in fixes), fixes


def test_advice_where_conda_has_no_such_package(made: Faked) -> None:
    """The wheels that an entry names are not packages of conda: there is no command, and the advice instead."""
    made.conda("nvidia-cuda-nvcc", "13.0.1")
    made.conda("nvidia-nvvm", "13.0.1")
    made.conda("nvidia-cuda-crt", "13.1.1")
    (finding,) = (finding for finding in made.audit().findings if finding.kind == "known-bad")
    assert [finding.otherwise] == [*finding.remedies] == [known_bad.entries()[1].advice]


# -- where a library comes from


@pytest.mark.parametrize(
    ("stem", "owner", "release"),
    [
        ("libnvJitLink", "pip nvidia-nvjitlink 13.0.88", "13.0"),
        ("libnvJitLink", "conda libnvjitlink 12.9.86", "12.9"),
        ("libnvJitLink", "pip torch 12.9.86", None), ("libnvJitLink", "conda pytorch 2.9.1", None),
        ("libcublas", "conda pytorch 12.8.4.1", None),
        ("libnvJitLink", "uv nvidia-nvjitlink-cu12 99.9.1", "99.9"),
        ("libcublas", "pip nvidia-cublas-cu12 12.8.4.1", "12.8"),
        ("libcublas", "conda libcublas 12.8.4.1", "12.8"),
        ("libcublas", "conda libcublas 99.9", None), ("libcublas", "pip torch 12.8.4.1", None),
        ("libcupti", "conda cuda-cupti 12.9", "12.9"), ("libcupti", "conda cuda-cupti 12.9a", None),
        ("libcupti", "conda cuda-cupti 12345.9", None), ("libcupti", "pip cuda-cupti 12.9.86", None),
        ("libnvrtc", "pip nvidia-cuda-nvrtc-cu12 12.9.x", "12.9"),
        ("libcudnn", "conda cudnn 9.1", None),
    ],
)  # fmt: skip
def test_release_of_a_library(stem: str, owner: str, release: str | None) -> None:
    """By the version of NVIDIA's package, or of CUDA's of conda; others have numbers of their own."""
    manager, name, version = owner.split()
    assert str(library_search.release_of(stem, Installed(name, version, manager, ""))) == str(release)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("a/libcudart.so.12", True), ("a/libcudart.so.12.9.79", True), ("a/libcudart.so", False),
        ("a/libcudart-0a1b2c3d.so.12.9.79", False), ("a/libcudart.so.99", False), ("a/libnvrtc.alt.so.12", False),
        ("a/stubs/libcudart.so.12", False), ("a/libcuda.so.1", False), ("a/libnvidia-ml.so.1", False),
        ("a/libtorch.so.1", False),
    ],
)  # fmt: skip
def test_libraries_that_others_load(path: str, counts: bool) -> None:
    """Those of the toolkit under their own names: a copy that auditwheel has renamed serves its own wheel alone."""
    there = Providers([Installed("x", "1", "pip", "", files=(path,))])
    assert [(copy.library, copy.path, str(copy)) for copy in there.all] == [(path[2:], path, "x 1")] * counts


def test_who_provides_a_library(made: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that the RPATH of the file names, then wheels, then conda, then the system; links are one file."""
    names = ("conda/libnvrtc.so.12.9", "old/libnvrtc.so.12", "new/libnvrtc.so.12", "conda/libnvrtc.so.13")
    files = {name: made.path(made.put(name)) for name in names}
    link = made.site / "conda/libnvrtc.so.12"
    link.symlink_to(files["conda/libnvrtc.so.12.9"])
    nvrtc = Installed("cuda-nvrtc", "12.9.86", "conda", "", files=(files["conda/libnvrtc.so.12.9"], str(link)))
    other = Installed("other", "13.0", "conda", "", files=(str(link), str(link), files["conda/libnvrtc.so.13"]))
    new, old = (Installed(name, "1", "pip", "", files=(files[f"{name}/libnvrtc.so.12"],)) for name in ("new", "old"))
    there = Providers([nvrtc, other, new, old])
    assert [(copy.library, str(copy.owner)) for copy in there.all] == [
        ("libnvrtc.so.12", "cuda-nvrtc 12.9.86"), ("libnvrtc.so.13", "other 13.0"), ("libnvrtc.so.12", "new 1"),
        ("libnvrtc.so.12", "old 1"),
    ]  # fmt: skip
    assert there.owners() == {str(link): [nvrtc, other, other]}
    user = made.path(made.put("x/x.so"))
    for links, real in (("links", "conda/libnvrtc.so.12.9"), ("inside", "old/libnvrtc.so.12")):
        (made.site / links).mkdir()
        (made.site / links / "libnvrtc.so.12").symlink_to(files[real])
    rows = [((), "new 1"), (("$ORIGIN/../old",), "old 1"), (("/x", "${ORIGIN}/../conda"), "cuda-nvrtc 12.9.86")]
    rows += [(("$ORIGIN/../links",), "cuda-nvrtc 12.9.86")]
    rows += [(("$ORIGIN/../inside",), f"{made.site}/inside/libnvrtc.so.12 (system)")]
    for rpaths, owner in rows:
        made.read[user] = LoadableLibrary("x.so", (), rpaths, (), (), frozenset(), frozenset())
        assert str(there.of("libnvrtc", 12, user)) == owner
    for damage in (ElfError("damaged"), OSError("missing"), None):
        made.read[user] = damage
        assert str(there.of("libnvrtc", 12, user)) == "new 1"
    older = Installed("older", "12.8", "conda", "", files=(files["old/libnvrtc.so.12"],))
    for several, first in (([nvrtc, other], nvrtc), ([older, nvrtc], older), ([nvrtc, new], new)):
        assert str(Providers(several).of("libnvrtc", 12, user)) == str(first)
    assert str(there.of("libnvrtc", 13, user)) == "other 13.0"
    assert there.of("libcudart", 12, user) is None
    curand = Providers([Installed("nvidia-curand-cu12", "10.3.9.90", "pip", "", files=("c/libcurand.so.10",))])
    assert [curand.of("libcurand", major, user) is None for major in (12, 13)] == [False, True]
    systems = [f"/s/{name}" for name in ("libcudart.so", "libnvrtc.so.12", "libcudart.so.12", "libcudart.so.12.9")]
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: systems)
    there = Providers([])
    assert there.of("libcudart", 12, user) == Provider("libcudart.so.12", systems[2], None, None)
    assert [*map(str, (there.of("libcudart", 12, user), there.of("libcudart", 13, user)))] == [
        f"{systems[2]} (system)", "None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "library", "variable", "errors"),
    [
        ("nvidia-curand", "libcurand.so.10", False, 1),
        ("nvidia-curand", "libcurand.so.10", True, 0),
        ("nvidia-cusolvermp-cu13", "libcusolverMp.so.0", False, 0),
        ("other", "_x.so", False, 0),
    ],
)
def test_a_runtime_where_the_loader_does_not_look(
    made: Faked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, library: str, variable: bool, errors: int
) -> None:
    """In a toolkit that nothing names: a program may load it first, but none does before NVIDIA's own libraries."""
    (toolkit := tmp_path / CUDART_13).touch()
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: (str(toolkit),))
    monkeypatch.setattr(loader_search, "found_by_name", tuple)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path) if variable else "")
    made.wheel(name, "1", files=(made.put(f"n/{library}", CUDART_13),))
    assert [error.kind for error in made.audit().errors] == ["unprovided"] * errors
    made.wheel("nvidia-cuda-runtime", "13.0.96", files=(made.put("r/libcudart.so.13"),))
    assert made.audit().errors == ()


def test_parts_of_another_cudnn(made: Faked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts open each other by name: an error if one of them comes from elsewhere, and none if all of them do."""
    graph = b"libcudnn_ops.so\0libcudnn_engines_tensor_ir.so\0"
    files = ("c/libcudnn.so.9", "c/libcudnn_graph.so.9", "c/libcudnn_ops.so.9")
    made.wheel("nvidia-cudnn-cu13", "9.20.0.48", files=[made.put(file, content=graph) for file in files])
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
    assert told(made.audit()) == []
    (other / "libcudnn_cnn.so.9").touch()  # which nothing here opens
    (other / "libcudnn_ops.so.9").write_bytes(graph)  # of the same release
    assert told(made.audit()) == []
    (other / "libcudnn_engines_tensor_ir.so.9").touch()
    cached = [("", f"{other}/libcudnn_engines_tensor_ir.so.9")]
    monkeypatch.setattr(loader_search, "loader_cache", lambda: cached)
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert told(made.audit())[2].startswith("do remove the other cuDNN from the system")
    cached.clear()
    assert told(made.audit()) == []
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
    error, _, remedy = told(made.audit())
    assert error.startswith(
        f"error copies: {other}/libcudnn_engines_tensor_ir.so.9 lies in another folder than the part"
    )
    assert str(other) in remedy
    for name in ("graph", "ops"):
        (other / f"libcudnn_{name}.so.9").write_bytes(graph * 2)
    assert told(made.audit()) == []


def test_parts_of_cudnn_8(made: Faked) -> None:
    """Its first part opens all others."""
    files = [made.put(f"d/libcudnn{part}.so.8", content=b"libcudnn_x.so.8") for part in ("", "_x")]
    made.wheel("nvidia-cudnn-cu12", "8.9.7.29", files=files)
    assert told(made.audit()) == []


def test_parts_that_nobody_opens(made: Faked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A part that is linked is one finding; who links cuDNN does not answer for that of a wheel, nor for NVRTC."""

    def missing(*systems: Path) -> list[str]:
        monkeypatch.setattr(library_search, "_system_libraries", lambda _: list(map(str, systems)))
        return [finding.what.partition(" ")[0] for finding in made.audit().findings]

    part = b"\0libcudnn_ops.so.9\0"
    (nvrtc := tmp_path / "libnvrtc.so.13").write_bytes(part)
    (cudnn := tmp_path / "libcudnn.so.8").touch()
    made.wheel("d", "1", files=(made.put("d/d.so", cudnn.name),))
    assert (missing(nvrtc), missing(nvrtc, cudnn)) == ([cudnn.name], [])
    assert library_search.parts_named_in(str(tmp_path / "none")) == set()
    made.wheel("a", "1", files=(made.put("a/libcudnn.so.9", content=part),))
    made.wheel("b", "1", files=(made.put("b/b.so", "libcudnn.so.9", nvrtc.name),))
    made.wheel("c", "1", files=(made.put("c/libcudnn.so.9", "libcudnn_ops.so.9"),))
    assert missing(nvrtc) == ["libcudnn_ops.so.9"]


def test_libraries_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader's cache, ``$CUDA_PATH`` before ``$CUDA_HOME``, as pathfinder, and the rest."""
    folders = {name: tmp_path / name for name in ("cached", "path/lib64", "home/lib64", "system")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        for name in ("libnvrtc.so.12", "libcudart.so.12", "libcudart.so", "libtorch.so.1"):
            (folder / name).touch()
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(library_search, "_SYSTEM", (str(folders["system"]),))
    cached = [("", f"{folders['cached']}/{name}") for name in ("libcudart.so.12", "libtorch.so.1", "libcufft.so.11")]
    monkeypatch.setattr(loader_search, "loader_cache", lambda: cached)  # the last one is gone
    names_in = loader_search.names_in  # those of the system's own folders are of the machine
    monkeypatch.setattr(loader_search, "names_in", lambda at: names_in(at) if at.startswith(str(tmp_path)) else [])
    every = [folder / name for folder in folders.values() for name in ("libcudart.so.12", "libnvrtc.so.12")]
    every.remove(folders["cached"] / "libnvrtc.so.12")
    assert list(map(Path, SYSTEM_LIBRARIES(loader_search.found_by_name()))) == every
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name)
    cached.clear()
    assert list(map(Path, SYSTEM_LIBRARIES(loader_search.found_by_name()))) == every[-2:]


@pytest.mark.parametrize(
    ("path", "version_file", "content", "release"),
    [
        *((name, "", "", None) for name in ("libcudart.so.12", "libcublas.so.12.9.1.4")),
        *(("libcudart.so.12.9.79", "", "", "12.9"), ("libnvJitLink.so.12", "", "", "12.4")),
        ("libnvrtc.so.12", "", "", "12.6"),
        ("a/b/c/d/libcublas.so.12.9.1.4", "", '{"cuda": {"version": "12.8.1"}}', None),
        ("a/libcublas.so.12.9.1.4", "a", '{"cuda": {"version": "12.8.1"}}', "12.8"),
        *((name, "", '{"cuda": {"version": "12.8.1"}}', "12.8") for name in (
            "a/b/c/libcublas.so.12.9.1.4", "libnvvm.so.4.0.0", "libcupti.so.2025.3.1",
        )),
        *(("libcublas.so.12.9.1.4", "", text, None) for text in (
            "{", "[" * 100_000, "{}", "[]", '{"cuda": {"version": 7}}', '{"cuda": {"version": "x"}}',
        )),
    ],
)  # fmt: skip
def test_release_of_a_library_of_the_system(
    path: str, version_file: str, content: str, release: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the whole name of the file that the link leads to, or by the version.json of its toolkit, three folders up."""
    library, link = tmp_path / path, tmp_path / f"{path.rpartition('/')[2].partition('.')[0]}.so.12"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"\0__nvJitLinkCreate_12_4\0libnvrtc-builtins.so.12.6\0")
    if library != link:
        link.symlink_to(library)
    if content:
        (tmp_path / version_file / "version.json").write_text(content, encoding="utf-8")
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: [str(link)])
    provider = Providers([]).of(library_search.stem_of(link.name), 12, "")
    assert provider is not None
    assert str(provider.release) == str(release)


# -- conda


def test_conda_packages_of_any_version(made: Faked) -> None:
    """The command has no bound where none is asked for."""
    made.conda("x", "1", "cuda-nvrtc", "cuda-nvrtc *")
    (finding,) = made.audit().findings
    assert str(finding.fix) == f"conda install --prefix {made.prefix} cuda-nvrtc"


def test_conda(made: Faked) -> None:
    """Its packages are installed by conda, the driver by hand; a wheel that uses them gets conda's command, too."""
    made.conda("cuda-version", "12.8")
    library, user = made.put("lib/libnvJitLink.so.12"), made.put("y/y.so", JITLINK, __nvJitLinkCreate_12_9=JITLINK)
    made.conda("libnvjitlink", "12.8.93", files=[os.path.relpath(made.path(library), made.prefix)])
    depends = "__cuda >=13.1", "__cuda >=13.2", "cuda-nvrtc >=12.9", "cuda-version >=12.9"
    made.conda("y", "1", *depends, files=[os.path.relpath(made.path(user), made.prefix)])
    wheel = made.put("x/x.so", JITLINK, __nvJitLinkCreate_12_9=JITLINK)
    made.wheel("x", "1", files=(wheel,), installer="uv")
    made.wheel("known-to-conda", "1", files=(user,), installer="conda")
    made.wheel("unknown-to-conda", "1", files=(made.put("z.so"),), installer="conda")
    audited = made.audit()
    wants = "wants __nvJitLinkCreate_12_9 of CUDA 12.9; x declares no requirement on libnvjitlink"
    assert [line for line in told(audited) if not line.startswith("needs")] == [
        "error version: __cuda is 13.0; expected >=13.1 (y 1) and 1 more",
        "there __cuda 13.0 (the driver)",
        "do install a driver of CUDA >=13.1 and >=13.2",
        "error missing: cuda-nvrtc is missing; expected >=12.9 (y 1)",
        "do conda install --prefix @ 'cuda-nvrtc >=12.9'",
        "error version: cuda-version is 12.8; expected >=12.9 (y 1)",
        "there cuda-version 12.8 (@/conda-meta/cuda-version-12.8-h0_0.json)",
        "do conda install --prefix @ 'cuda-version >=12.9'",
        f"error floor: libnvjitlink is 12.8.93; expected >=12.9 (x 1) and 1 more: {wants}",
        "there libnvjitlink 12.8.93 (@/lib/libnvJitLink.so.12)",
        "do conda install --prefix @ 'libnvjitlink >=12.9'",
    ]
    assert (audited.distributions, audited.files) == (5, 4)


@pytest.mark.parametrize(
    ("variable", "driver", "told"),
    [
        ("12.4", None, ["__cuda is 12.4"]), ("13.2", None, []), ("", "12.4", []),
        (None, (12, 4), ["__cuda is 12.4"]), (None, (13, 2), []), (None, None, []), (None, OSError("no"), []),
    ],
)  # fmt: skip
def test_driver_of_conda(variable: str | None, driver: object, told: list[str], made: Faked, monkeypatch) -> None:
    """``$CONDA_OVERRIDE_CUDA`` goes before the driver of this machine, as with conda; without both nothing is asked."""

    def version() -> CudaVersion | None:
        if isinstance(driver, Exception):
            raise driver
        return CudaVersion(*driver) if driver else None

    monkeypatch.setattr(probes, "driver_version", version)
    monkeypatch.delenv("CONDA_OVERRIDE_CUDA")
    if variable is not None:
        monkeypatch.setenv("CONDA_OVERRIDE_CUDA", variable)
    made.conda("y", "1", "__cuda >=13.1")
    audited = made.audit()
    assert [finding.what.partition(";")[0] for finding in audited.findings] == told
    assert audited.unreadable == ()


RECORD = {"name": "x", "version": "1", "build": "h0_0", "build_number": 3, "depends": ["a"], "constrains": ["b"]}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, CondaPackage(Installed("x", "1", "conda", "", ("a",)), "h0_0", 3, ("b",))),
        ({"name": "y" * 201, "version": "1" * 300},
         CondaPackage(Installed("y" * 201, "1" * 200, "conda", "", ("a",)), "h0_0", 3, ("b",))),
        (
            {
                "build_number": "3",
                "depends": None,
                "constrains": [],
                "files": ["l/a.so", "l/no.so", "l/b.txt", "l/../l/c.so.1", "\0.so", "f.so"],
            },
            CondaPackage(Installed("x", "1", "conda", "", (), ("l/a.so", "l/c.so.1")), "h0_0", 0, ()),
        ),
        ({"name": "X"}, "name is 'X'; expected lower-case letters, digits, '.', '_' and '-'"),
        ({"name": "y" * 202}, f"name is '{'y' * 80}'; expected lower-case letters, digits, '.', '_' and '-'"),
        ({"name": 7}, "name is '7'; expected lower-case letters, digits, '.', '_' and '-'"),
        ({"version": ""}, "version is '', build is 'h0_0'; expected texts"),
        ({"version": ["1" * 80]}, f"version is \"['{'1' * 78}\", build is 'h0_0'; expected texts"),
        ({"build": 7 * 10**90}, f"version is '1', build is '7{'0' * 79}'; expected texts"),
        ({"depends": "a" * 90}, f"depends is '{'a' * 80}'; expected a list of texts"),
        ({"constrains": ["a", 7]}, "constrains is \"['a', 7]\"; expected a list of texts"),
        ([], "it is a list; expected an object"),
    ],
)  # fmt: skip
def test_records_of_conda(changed: Any, expected: CondaPackage | str, tmp_path: Path) -> None:
    """What a record says, with those of its libraries that are there; a value that conda does not write is named."""
    for path in ("conda-meta/a", "l/a.so", "l/b.txt", "l/c.so.1", "f.so/x"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    record = tmp_path / "conda-meta/x.json"
    record.write_text(json.dumps(RECORD | changed if isinstance(changed, dict) else changed), encoding="utf-8")
    if isinstance(expected, str):
        text = f"conda's record is invalid ({expected}): install the package again with conda"
        assert conda.read_packages(tmp_path) == ([], [Unreadable(str(record), text)])
        return
    kept = tuple(f"{tmp_path}/{path}" for path in expected.installed.files)
    for files, packages in ((kept, conda.read_packages(tmp_path)), ((), conda.read_packages(tmp_path, files=False))):
        installed = replace(expected.installed, path=str(record), files=files)
        assert packages == ([replace(expected, installed=installed)], [])


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    """In the order of their names, with the reason in short; other files are no records."""
    (tmp_path / "conda-meta/b.json").mkdir(parents=True)
    for name in ("d.json", "f.json", "a.json", "history", "e.json"):  # without a name
        (tmp_path / "conda-meta" / name).write_text("{}", encoding="utf-8")
    (tmp_path / "conda-meta/a.json").write_text(json.dumps({"name": "x", "version": 10**79, "build": 10**79}))
    os.mkfifo(tmp_path / "conda-meta/c.json")
    packages, unreadable = conda.read_packages(tmp_path)
    assert packages == []
    assert [Path(unread.path).name[0] for unread in unreadable] == [*"abcdef"]
    texts = [unread.text.removeprefix("conda's record is invalid (").partition("): ")[0] for unread in unreadable]
    number = f"'1{'0' * 79}'"
    assert texts[0] == f"version is {number}, build is {number}; expected texts"[:200]
    assert texts[1:4] == [
        "Is a directory",
        "a folder, a pipe or a device; expected a regular file",
        "name is ''; expected lower-case letters, digits, '.', '_' and '-'",
    ]


X = CondaPackage(Installed("x", "12.9.1", "conda", ""), "h0_0", 3, ())


@pytest.mark.parametrize(
    ("spec", "name", "versions", "matches"),
    [
        ("x", "x", "*", True), ("X >=12,<13", "x", ">=12,<13", True),
        (" conda-forge::x >=13", "x", ">=13", False), ("x 12.9.1 h0_0", "x", "==12.9.1", True),
        ("x 12.9.1 h1_0", "x", "==12.9.1", False), ("x[build_number='>3']", "x", "*", False),
        ("__cuda", "__cuda", "*", False), ("x >=)", "x", None, None),
    ],
)  # fmt: skip
def test_match_specifications(spec: str, name: str, versions: str | None, matches: bool | None) -> None:
    """Name and versions of one, and whether a package satisfies it; one that is invalid is named, as far as it goes."""
    rules = conda.rules()
    assert rules is not None
    assert conda.name_of(spec) == name
    if versions is None:
        wrong = spec.ljust(300, ")")
        said = f"{wrong[:200]!r} is not a match specification of conda; expected NAME [VERSION [BUILD]]"
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            rules.version_part(wrong)
    else:
        assert (rules.version_part(spec), rules.matches(spec, X)) == (versions, matches)
    odd = replace(X, installed=replace(X.installed, version="!" * 100))
    said = f"x {'!' * 80!r} cannot be compared with {f'{spec:<300}'[:200]!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        rules.matches(f"{spec:<300}", odd)


def test_what_conda_packages_ask_of_cuda() -> None:
    """Those that must be there, and those that must fit if they are; by the names of CUDA's packages."""
    names = ["cuda", "cuda-nvcc >=12", "libcublas", "libcublas-dev", "nccl", "__cuda", "xcuda", "libcurl", "cudax", "*"]
    package = replace(X, installed=replace(X.installed, requires=tuple(names)), constrains=("cudnn <9", "numpy"))
    assert list(conda.cuda_specs(package)) == [
        *((name.partition(" ")[0], name, True) for name in names[:6]),
        ("cudnn", "cudnn <9", False),
    ]
    assert conda.name_of("*") == ""
    driver = conda.virtual_driver("13.0")
    virtual = driver.installed
    assert (str(virtual), virtual.path, virtual.manager) == ("__cuda 13.0", "the driver", "conda")
    rules = conda.rules()
    assert rules is not None
    specs = "__cuda >=13", "__cuda 13.0 0", "__cuda >=13.1"
    assert [rules.matches(spec, driver) for spec in specs] == [True, True, False]
    # a pre-release comes before its release; what is no version satisfies nothing
    asked = (("13.0a0", ">=13.0"), ("12.9.1", "=12.9"), ("12.9.1", "==12.9"), ("no version", "*"), ("1", "*"))
    assert [rules.accepts(versions, version) for version, versions in asked] == [False, True, False, False, True]


def test_a_distribution_that_conda_knows(made: Faked) -> None:
    """What conda installed is one package, by the files that its record lists; others are read by their metadata."""
    for name in ("a.so", "b.so"):
        made.put(name)
    made.conda("x", "1", files=[os.path.relpath(made.path("a.so"), made.prefix)])
    made.wheel("x-of-conda", "1", files=("a.so",), installer="conda")
    assert (made.audit().distributions, made.audit().files) == (1, 1)
    made.wheel("y", "1", files=("b.so",), installer="conda")
    made.wheel("z", "1", files=("a.so",))
    assert (made.audit().distributions, made.audit().files) == (3, 3)


# -- the whole


def test_order(made: Faked) -> None:
    """Requirements first, then libraries, copies and combinations that are known to fail."""
    made.wheel("a", "1", "nvidia-cublas-cu12", files=(made.put("a.so", CUDART_13), made.put("n/libnvJitLink.so.12")))
    made.wheel("b", "1", files=("n/libnvJitLink.so.12",))
    made.wheel("cuda-core", "1.0.0")
    made.wheel("cuda-bindings", "13.0.3")
    kinds = ["missing", "unprovided", "same-file", "known-bad"]
    assert list(dict.fromkeys(finding.kind for finding in made.audit().findings)) == kinds
    seconds = [made.audit().seconds for _ in range(3)]
    assert all(0 <= second < 600 and round(second, 3) == second for second in seconds)
    declared = audit_environment(made.prefix, measure=False)
    assert list(dict.fromkeys(finding.kind for finding in declared.findings)) == ["missing", "known-bad"]
    assert declared.files == 0


def test_what_is_there_without_measuring(made: Faked) -> None:
    """No libraries are looked for, be it of a wheel or of a conda package: the metadata is shown."""
    made.nvjitlink_wheel()
    made.conda("cuda-nvrtc", "12.8", files=[os.path.relpath(made.path(made.put("l/libnvrtc.so.12")), made.prefix)])
    made.wheel("x", "1", "nvidia-nvjitlink-cu12>=12.9")
    made.conda("y", "1", "cuda-nvrtc >=12.9")
    lines = told(audit_environment(made.prefix, measure=False))
    assert [line for line in lines if line.startswith("there")] == [
        "there cuda-nvrtc 12.8 (@/conda-meta/cuda-nvrtc-12.8-h0_0.json)",
        "there nvidia-nvjitlink-cu12 12.8.93 (@/nvidia_nvjitlink_cu12-12.8.93.dist-info)",
    ]


FINDING = Finding("error", "x is missing", otherwise="install x", kind="missing")
NOTE = Finding("note", "two", otherwise="nothing", kind="copies")


@pytest.mark.parametrize(
    ("findings", "unreadable", "files", "code", "summary"),
    [
        ((), (), 0, 0, "no errors: 1 distribution, declared requirements only, in /p"),
        ((NOTE,), (), 1, 0, "no errors: 1 distribution, 1 library measured, in /p"),
        ((NOTE, FINDING), (), 2, 1, "1 error: 1 distribution, 2 libraries measured, in /p"),
        ((NOTE,), (Unreadable("/f", "no"),), 1, 2,
         "no errors, 1 not readable: 1 distribution, 1 library measured, in /p"),
        ((FINDING, FINDING), (Unreadable("/f", "no"),), 0, 1,
         "2 errors, 1 not readable: 1 distribution, declared requirements only, in /p"),
    ],
)  # fmt: skip
def test_verdict(findings, unreadable, files: int, code: int, summary: str) -> None:
    """Notes do not count, and errors outweigh what cannot be read, as in the doctor's verdict."""
    audited = EnvironmentAudit("/p", "3.12", 1, (), findings, unreadable, files, 1.0)
    assert (audited.exit_code, audited.verdict, audited.summary) == (code, VERDICTS[code], summary)
    content = audited.to_json()
    assert [content[name] for name in ("verdict", "summary", "exit_code")] == [VERDICTS[code], summary, code]
    reasons = ["  x is missing: install x"] * len(audited.errors) + ["  /f: no"] * len(unreadable)
    if code:
        with pytest.raises(AssertionError) as caught:
            audited.check()
        assert str(caught.value) == "\n".join(["/p", *reasons])
    else:
        audited.check()
    assert audited == EnvironmentAudit("/p", "3.12", 1, (), findings, unreadable, files, 2.0)


def test_the_own_environment(made: Faked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip, where it is installed, needs no prefix for the environment that it runs in."""
    made.wheel("a", "1", "nvidia-cublas-cu12")
    (made.site / "pip.py").touch()
    monkeypatch.syspath_prepend(str(made.site))
    monkeypatch.setattr(sys, "prefix", str(made.prefix))
    assert str(made.audit().findings[0].fix) == "pip install nvidia-cublas-cu12"


# -- versions that contradict each other


@pytest.mark.parametrize(
    ("specifier", "version", "accepted"),
    [
        (">=1", "2", True), (">=1", "2a1", True), (">=3", "2", False), ("", "2", True),
        (" ", "no", True), (">=1", "no", False),
    ],
)  # fmt: skip
def test_accepted_versions(specifier: str, version: str, accepted: bool) -> None:
    """Pre-releases count, and what is no version satisfies only what accepts every one."""
    assert install_targets.accepts(specifier, version) is accepted


@pytest.mark.parametrize(
    ("line", "said"),
    [(f"a>={'9' * 5000}", "Exceeds the limit"), (f"a; {'(' * 9000}", r"nested (too|more than \d+ levels) deep")],
)
def test_requirements_that_cannot_be_compared(line: str, said: str) -> None:
    """They are refused when they are read."""
    with pytest.raises(ValueError, match=said):
        install_targets.parse_requirement(line)
    assert str(install_targets.parse_requirement("a>=1; python_version > '3'")).startswith("a>=1")


def test_versions_that_are_tried() -> None:
    """What is written, then in order each number, the one right above it, and one with each of its parts raised."""
    tried = list(install_targets.versions_around(["==1.2", ">=3a1"]))
    assert tried == ["1.2", "3a1", "0", "0.0.1", "1", "1.0.1", "1.2", "1.2.1", "1.3", "2", "3", "3.0.1", "4"]


@pytest.mark.parametrize(
    ("specifier", "others", "rank"),
    [("==1", ["==10"], 2), ("==10", ["==1"], 5), ("==10", ["==1a1"], 5), (">=1", ["==10"], 7), ("<0", ["==1"], -1)],
)
def test_highest_version(specifier: str, others: list[str], rank: int) -> None:
    """Its place among the versions that are tried, as numbers; -1 for none."""
    assert install_targets.highest_version(specifier, others) == rank
