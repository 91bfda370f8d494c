"""The doctor: what it finds, its page, its JSON and its exit codes."""

import _ctypes
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given as given_examples
from hypothesis import strategies as st

from pytest_cudalink import cli, doctor, probes
from pytest_cudalink.audit.environment import Claim, EnvironmentAudit
from pytest_cudalink.base.finding import Finding
from pytest_cudalink.base.install_command import Command, Installer
from pytest_cudalink.cli.doctor import page
from pytest_cudalink.doctor import DoctorReport, examine, system
from pytest_cudalink.doctor.system import Copy, DriverFile, Elsewhere, ResolutionError, System
from pytest_cudalink.environment.installed import Place, Unreadable
from pytest_cudalink.guardrails import DRIVER_COMPATIBILITY_VARIABLE, _pathfinder
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.guardrails.items import ALREADY_LOADED, Fact, Item, ItemKind
from pytest_cudalink.versions import CudaVersion


@pytest.fixture(autouse=True)
def _clean(monkeypatch) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


def facts_of(cuda: str | None, release: str | None = None) -> DriverFacts:
    """A driver with given facts."""
    return DriverFacts(CudaVersion.parse(cuda) if cuda else None, release)


#: What the wheels of every session bring; another toolkit of the machine is not looked at.
OF_THE_WHEELS = {
    "dynamic-libs": ("cudart", "nvrtc", "nvJitLink"),
    "headers": ("cudart", "nvrtc", "nvjitlink"),
    "static-libs": ("cudadevrt",),
}


def test_doctor_of_this_environment(toolkit) -> None:
    """The whole toolkit of this environment is found and fits, and none of it is loaded."""
    code = (
        "from pytest_cudalink import doctor\n"
        f"doctor.LOOKED_FOR = {OF_THE_WHEELS!r}\n"
        "from pytest_cudalink.guardrails.driver import DriverFacts\n"
        "from pytest_cudalink.versions import CudaVersion\n"
        "report = doctor.examine(facts=DriverFacts(CudaVersion(99, 0)))\n"
        "print(report.exit_code, report.missing, {str(item.version) for item in report.items}, report.findings)\n"
        "print(any(name in open('/proc/self/maps').read() for name in ('libnvrtc', 'libnvJitLink', 'libcudart')))\n"
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    first, loaded = done.stdout.splitlines()
    assert first.startswith(f"0 [] {{'{toolkit}'}} "), first
    assert loaded == "False"


class Machine(System):
    """A machine with these items, copies and cuda-bindings, and a device of this architecture."""

    audit = EnvironmentAudit("/prefix", "3.12", 0, (), (), (), 0, 0.0)
    installed: Mapping[str, str] = MappingProxyType({"nvmath-python": "9"})  # which links at run time
    programs: tuple[str, ...] = ()

    def __init__(self, items: tuple[Item, ...], copies: tuple[Copy, ...], arch: str | None) -> None:
        self.items = {(item.kind, item.name): item for item in items}
        self.copies, self.arch = copies, arch

    def driver(self, cuda: Fact) -> DriverFile:
        return super().driver(cuda)._replace(arch=self.arch)

    def item(self, kind: ItemKind, name: str) -> Item | None:
        return self.items.get((kind, name))

    def copies_in_process(self) -> Iterator[Copy]:
        return iter(self.copies)

    def copies_for_loader(self) -> Iterator[Copy]:
        return iter(())

    def environment(self) -> EnvironmentAudit:
        return self.audit

    def installer(self, items: object) -> Installer:
        return Installer()

    def versions(self) -> dict[str, str]:
        return dict(self.installed)

    def program(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.programs else None

    def has_bindings(self) -> bool:
        return True


def made(
    *items: Item,
    facts: DriverFacts,
    copies: tuple[Copy, ...] = (),
    arch: str | None = None,
    ctk_version: str | None = None,
    installed: Mapping[str, str] = Machine.installed,
    **audit: object,
) -> DoctorReport:
    """The report on a machine that has these items and distributions; `audit` is what the environment's audit says."""
    machine = Machine(items, copies, arch)
    machine.installed, machine.audit = installed, replace(Machine.audit, **audit)
    return examine(ctk_version, facts=facts, system=machine)


def fixes(report: DoctorReport) -> list[str]:
    """The commands of the errors."""
    return [str(finding.fix) for finding in report.findings if finding.severity == "error"]


def item(name: str, version: str | None, kind: str = "dynamic-libs") -> Item:
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{version}/{name}", "site-packages", "ctk", release, "as the test says", f"w-{name}")


def several(text: str) -> list[Item]:
    """Items by their names, releases and kinds, such as ``"nvrtc 13.2, nvrtc 13.0 headers"``; ? is not known."""
    words = [(*word.split(), "dynamic-libs")[:3] for word in text.split(", ") if word]
    return [item(name, None if version == "?" else version, kind) for name, version, kind in words]


def outside(text: str) -> list[Item]:
    """The same in a toolkit outside of the environment."""
    return [replace(item, wheel="", found_via="CUDA_HOME", path=f"/out/{item.name}") for item in several(text)]


WHOLE = several("nvrtc 13.0, nvJitLink 13.0, cudart 13.0 headers")
NO_DRIVER = "note: the driver rule was not checked: * <no driver here: the toolkit was not compared with one>"
NO_LTO = "note: the policy strict-major does not link LTO-IR here: "
NO_NVJITLINK = f"{NO_LTO}there is no nvJitLink => "
NO_LINK = "error: nothing here links PTX or LTO-IR: there is no driver, and "
INSTALL = "pip install 'cuda-toolkit[nvjitlink]==13.{0}.*' 'nvidia-nvjitlink==13.{0}.*'"
REST = "pip install 'cuda-toolkit[nvjitlink,nvrtc]==13.2.*' 'nvidia-nvjitlink==13.2.*'"
MIXED = "/ nothing else <the toolkit's parts come from several releases: CUDA 13.0, 13.2>"
UNUSED = "note: not used: parts of CUDA 13.2, unknown outside of this environment"


@pytest.mark.parametrize(
    ("items", "driver", "arch", "code", "texts"),
    [
        (WHOLE, "13.0", "sm_90", 0, []), (WHOLE, "13.2", None, 0, []), (WHOLE, "", None, 0, [NO_DRIVER]),
        (several("nvJitLink 12.3"), "", None, 0, [NO_DRIVER]),
        ([], "13.0", None, 2, ["unknown: no part of a CUDA toolkit was found => pip install 'cuda-toolkit["]),
        (several("nvrtc ?"), "13.0", None, 2, [
            "unknown: * release of the nvrtc library * <the release of some parts of the toolkit is not known>",
            NO_NVJITLINK,
        ]),
        (WHOLE, "12.8", None, 1, [
            "error: the driver does not run CUDA 13.0 (nvrtc library and 1 more): * => pip * w-cudart * / install a",
            "(ISA 9.0) * CUDA 12.8 (ISA up to 8.7): * (222) => pip * <the driver of CUDA 12.8 is too old for the",
            f"{NO_LTO}the policies * do => no command",
        ]),
        (WHOLE, "11.4", None, 1, [
            "error: * => no command / install a driver for CUDA 13.0",
            f"{NO_LTO}the policies released do => no command",
        ]),
        (several("nvrtc 13.2, nvrtc 13.0 headers"), "13.2", None, 1, [
            f"error: * both must be of one CUDA release * => pip install * {MIXED}",
            f"{NO_NVJITLINK}{INSTALL.format(2)}",
        ]),
        (several("nvrtc 13.2, nvJitLink 13.2"), "13.0", None, 2, [
            "unknown: * from branch 580 on * <not known whether the driver of CUDA 13.0 runs the toolkit>",
            "warning: * (222) => pip install 'cuda-toolkit[nvrtc]>=13.0,<13.1' * <the driver of CUDA 13.0 refuses the",
        ]),
        (several("nvrtc 13.2"), "13.0 580.65.06", None, 1, ["error: PTX * (222) => pip", NO_NVJITLINK]),
        (several("nvrtc 13.2, nvJitLink 13.2"), "13.0 580.65.06", None, 0, ["warning: PTX of NVRTC 13.2 (ISA 9.2)"]),
        (several("nvrtc 11.8"), "11.4 470.42.01", None, 0, [f"{NO_NVJITLINK}pip install 'cuda-toolkit[nvjitlink]=="]),
        (several("nvrtc 13.2, nvJitLink 13.0"), "13.2", None, 1, [
            f"error: * understands up to 13.0 * => {INSTALL.format(2)} {MIXED}",
            f"error: * (ISA 9.2) * nvJitLink 13.0 (ISA up to 9.0) => {INSTALL.format(2)} {MIXED}",
        ]),
        (several("nvrtc 12.6, nvJitLink 12.5"), "13.0", None, 1,
         ["error: ltoir from nvrtc to nvJitLink", f"{NO_LTO}the policies newer-driver-ok and released do => no"]),
        (several("nvJitLink 13.0, cudadevrt 13.1 static-libs"), "13.1", None, 1,
         [f"error: * must not be older * => {INSTALL.format(1)}"]),
        (WHOLE, "13.0", "sm_70", 1, [
            "error: nvrtc 13.0 does not know sm_70, the device here; it knows sm_75 to sm_121f => pip uninstall",
            "error: nvJitLink 13.0 does not know sm_70 * ==12.9.*' * <the toolkit does not know sm_70, the device",
        ]),
        (several("nvrtc 12.9"), "13.0", "sm_88", 1,
         ["does not know sm_88, * => pip install 'cuda-toolkit[nvrtc]>=13.0,<13.1'", NO_NVJITLINK]),
        (several("nvrtc 13.0"), "13.0", "sm_200", 1,
         ["nvrtc 13.0 does not know sm_200 * => no command", NO_NVJITLINK]),
        (several("nvrtc 13.0"), "", None, 1, [
            NO_DRIVER,
            f"{NO_LINK}there is no nvJitLink; * => {INSTALL.format(0)} / install the NVIDIA driver <nothing here links",
        ]),
        (several("nvrtc 13.2, nvrtc 13.0 headers"), "", None, 1, [
            f"error: * both must be of one CUDA release * => {REST} {MIXED}",
            NO_DRIVER,
            f"{NO_LINK}there is no nvJitLink; * => {REST} / install the NVIDIA driver",
        ]),
        (several("nvrtc 12.1, nvJitLink 12.1"), "", None, 1, [
            "error: cuda-bindings calls no nvJitLink 12.1, * => pip install * / nothing else",
            NO_DRIVER,
            f"{NO_LINK}nvJitLink 12.1 is older than 12.3; * => pip install * / install the NVIDIA driver",
        ]),
        ([*several("nvrtc 13.2"), *outside("nvJitLink 13.0")], "13.2", None, 1, ["ltoir", "ISA"]),
        ([*several("nvrtc 12.8"), *outside("nvJitLink 13.2")], "13.2", None, 0,
         ["warning: ltoir from nvrtc to nvJitLink: * (measured for sm_90: works)"]),
        ([*WHOLE, *outside("cudart 12.6 headers, cudadevrt 13.5 static-libs, cudart 12.6")], "13.5", None, 0,
         ["note: not used"]),
        (outside("nvfatbin 13.0"), "12.8", None, 1, ["does not run CUDA 13.0 (nvfatbin library)", NO_NVJITLINK]),
        ([*WHOLE, *outside("nvvm 13.0")], "13.0", None, 0, []),
        (several("nvrtc 13.2, nvrtc 13.0 headers, nvfatbin ?"), "13.2", None, 1,
         ["unknown: * release of the nvfatbin library", f"error: * nvrtc headers * {MIXED}", NO_NVJITLINK]),
        (several("nvrtc 13.0, ptxas 13.0 binaries"), "12.7", None, 1, [
            "CUDA 13.0 (nvrtc library): * && pip install 'cuda-toolkit[nvrtc]>=12.0,<12.8' * or, where the forward-",
            "CUDA 13.0 (ptxas binary): * => no command / uninstall w-ptxas, and put the bin folder of a CUDA 12.7",
            "ISA up to 8.6 * => pip", NO_NVJITLINK,
        ]),
        (several("nvrtc 12.8, nvJitLink 12.8, nvdisasm 13.5 binaries, cccl 13.5 headers"), "12.8", None, 0, []),
        (several("nvrtc 13.2, nvrtc 13.1 headers"), "12.8", None, 1,
         ["several releases: CUDA 13.1, 13.2>", "run CUDA 13.2 (nvrtc library):", "ISA up to 8.7", NO_NVJITLINK]),
        (several("nvrtc 12.9, nvJitLink 12.9"), "12.0 520.30.01", None, 1, [
            "error: * branch 525 * [nvjitlink,nvrtc]>=12.0,<12.1' * <the driver of CUDA 12.0 is too old",
            "warning: PTX * => pip install 'cuda-toolkit[nvrtc]>=12.0,<12.1' * <the driver of CUDA 12.0 refuses the",
        ]),
        (several("nvrtc 13.2, nvrtc 13.0 headers"), "13.0 580.65.06", None, 1,
         [f"nvrtc headers * {MIXED}", "error: PTX * <the driver of CUDA 13.0 refuses the PTX", NO_NVJITLINK]),
        (several("nvrtc 13.2, nvJitLink 13.1"), "12.8", None, 1,
         ["ltoir from", "run CUDA 13.1", "run CUDA 13.2", "the driver of CUDA 12.8 (ISA up to 8.7)", NO_LTO]),
        ([*WHOLE, replace(item("nvrtc", "13.0", "headers"), wheel="other")], "13.0", "sm_70", 1,
         ["nvrtc 13.0 does not know * -y other w-cudart w-nvJitLink w-nvrtc &&", "nvJitLink 13.0 does not know"]),
        ([*WHOLE, *outside("nvvm 13.2, nvcc ? headers, ptxas 13.1 binaries, nvlink 12.9 binaries")], "13.5", None, 0,
         ["note: not used: parts of CUDA 12.9, 13.1, 13.2, unknown outside of this"]),
        ([*WHOLE, *outside("nvvm 13.2, nvcc ? headers")], "13.5", None, 0,
         [f"{UNUSED} (nvvm library at /out/nvvm and 1 more) do not fit * => no command / nothing else <not used: "]),
    ],
)  # fmt: skip
def test_findings(items, driver, arch, code, texts) -> None:
    """Exit code, and each finding with its command, its other remedy and its cause, as far as the text says."""
    report = made(*items, facts=facts_of(*driver.split()) if driver else facts_of(None), arch=arch)
    assert report.exit_code == code, report.findings
    assert report.verdict == ["coherent", "incoherent", "not enough known"][code]
    lines = [
        f"{f.severity}: {f.what} => {f.fix or 'no command'} / {f.otherwise or 'nothing else'} <{f.why}>"
        for f in report.findings
    ]
    assert len(lines) == len(texts), lines
    assert {finding.severity for finding in report.findings} <= {"error", "unknown", "warning", "note"}
    for line, text in zip(lines, texts, strict=True):
        assert all(part in line for part in text.split(" * ")), line


def test_a_driver_that_does_not_say_its_version() -> None:
    """A toolkit's stub, which answers 34, is not the absence of a driver: nothing is known, and it is said why."""

    class Stub(DriverFacts):
        def cuda(self) -> Fact:
            return Fact(None, "cuDriverGetVersion failed: unknown CUresult (34)")

    report = made(*WHOLE, facts=Stub())
    (finding,) = report.findings
    assert (report.exit_code, finding.severity, finding.why[:10]) == (2, "unknown", "the driver")
    assert "(34)" in finding.what
    assert "stubs" in finding.otherwise


def claim(name: str, versions: str, how: str = "declared") -> Claim:
    return Claim("framework 1.0", name, versions, how, "", satisfied=True)


def broken(kind: str, wanted: str, *needs: Claim) -> Finding:
    """A conflict whose fix installs what is wanted, if anything."""
    return Finding("error", "broken", Command((wanted,)) if wanted else Command(), evidence=needs, kind=kind)


OF_CONDA, OF_PIP = (Command(("a==1.2.*",)).by(Installer(name)) for name in ("conda", "pip"))
NVRTC, CUFFT = "nvidia-cuda-nvrtc-cu12", "nvidia-cufft-cu12"


@pytest.mark.parametrize(
    ("claims", "conflict", "fix"),
    [
        ([], None, "pip install 'cuda-toolkit[nvrtc]==12.9.*'"),
        ([claim(NVRTC, "==12.8.93")], None, f"pip install 'cuda-toolkit[nvrtc]==12.8.*' {NVRTC}==12.8.93"),
        ([claim(NVRTC, "<12.9"), claim(NVRTC, ">=12.8")], None,
         f"pip install 'cuda-toolkit[nvrtc]==12.8.*' '{NVRTC}<12.9,>=12.8'"),
        ([claim(NVRTC, "==12.8.93", "conda")], None, "pip install 'cuda-toolkit[nvrtc]==12.9.*'"),
        ([claim(NVRTC, ""), claim("other", "<1")], None, "pip install 'cuda-toolkit[nvrtc]==12.9.*'"),
        ([], broken("version", "", claim(CUFFT, "<13")), "pip install 'nvidia-cufft-cu12<13'"),
        ([claim(CUFFT, "<13")], broken("version", "", claim(CUFFT, "<13")), "pip install 'nvidia-cufft-cu12<13'"),
        ([claim("a", ">=1")], broken("missing", "", claim("a", "")), "pip install 'a>=1'"),
        ([], broken("missing", "", claim(CUFFT, "")), "pip install nvidia-cufft-cu12"),
        ([], broken("version", "own", claim(CUFFT, "<13", "conda")), "pip install own"),
        ([], broken("version", "own", claim(CUFFT, "<13"), claim(CUFFT, "<13", "conda")), "pip install own"),
        ([], broken("pair", "own", claim(CUFFT, "<13")), "pip install own"),
        ([], broken("version", "own"), "pip install own"),
        ([claim("a", "<2")], broken("known-bad", "a>=1"), "pip install 'a<2,>=1'"),
        ([claim("a", "<2")], broken("known-bad", ""), ""),
        ([], replace(broken("known-bad", ""), fix=OF_CONDA), "conda install a=1.2"),
        ([claim("a", "<2")], replace(broken("known-bad", ""), fix=OF_PIP), "pip install 'a<2,==1.2.*'"),
        ([claim("a", "<2")], broken("version", "a>=1"), "pip install 'a>=1'"),
        ([], broken("missing", "own", claim("a", "<2,>=2")), "pip install own"),
    ],
)  # fmt: skip
def test_what_distributions_require(claims, conflict, fix) -> None:
    """The command keeps it, and is also that of a conflict which pip can end; others keep their own."""
    parts = "nvrtc 12.9, nvJitLink 12.9" if conflict else "nvrtc 12.8, nvJitLink 12.9, nvrtc 12.9 headers"
    there = {"claims": tuple(claims), "findings": (conflict,) if conflict else ()}
    assert fixes(made(*several(parts), facts=facts_of("12.9"), **there)) == [fix]


MISSING = {"findings": (broken("missing", "", claim(CUFFT, "<13")),)}


def test_parts_that_fit_stay() -> None:
    """A newer nvJitLink links what NVRTC writes: a package that is missed is no reason to move either."""
    report = made(*several("nvrtc 12.8, nvJitLink 12.9"), facts=facts_of("12.9"), **MISSING)
    assert [str(finding.fix) for finding in report.findings] == [f"pip install '{CUFFT}<13'"]


def test_what_no_command_repairs_keeps_its_own_advice() -> None:
    """A command that installs a missing package, and leaves all other faults, is that of the package alone."""
    parts = several("nvrtc 12.8, nvrtc 12.9 headers, nvJitLink 12.9")
    loaded = [replace(item, found_via=ALREADY_LOADED) for item in parts]
    other, own = fixes(made(*loaded, item("nvfatbin", "12.9"), facts=facts_of("12.9"), **MISSING))
    assert (own, own == other) == (f"pip install '{CUFFT}<13'", False)
    conflict = broken("missing", "own", claim("a", "<2,>=2"))
    toolkit, ptx, _, own = made(*WHOLE, facts=facts_of("12.8"), findings=(conflict,)).findings
    assert (str(toolkit.fix), str(own.fix)) == (str(ptx.fix), "pip install own")
    assert "cudart,nvjitlink,nvrtc" in str(toolkit.fix)


def test_a_newer_library_that_no_distribution_lists() -> None:
    """No command removes it, and it would be found before what one installs: a user deletes it."""
    report = made(replace(item("nvrtc", "13.2"), wheel=""), item("cudart", "13.2"), facts=facts_of("12.9"))
    assert {(str(error.fix), error.otherwise) for error in report.findings if error.severity == "error"} == {
        ("", "delete /13.2/nvrtc: no distribution lists what a command would have to remove")
    }


def test_a_wheel_that_a_package_is_linked_with_stays() -> None:
    """No command takes it away for an older driver: a newer driver is the remedy."""
    linked, bindings = (claim("w-nvJitLink", ">=13.0", "symbols"),), {"cuda-bindings": "13.0.3"}
    report = made(*WHOLE, facts=facts_of("12.9"), installed=bindings, claims=linked)
    advised = [error for error in report.findings if error.severity == "error" and error.otherwise]
    assert {str(error.fix) for error in advised} == {""}
    assert all("install a driver" in error.otherwise for error in advised)


def test_what_holds_cuda_bindings_is_installed_with_it() -> None:
    """A distribution that accepts no older major comes in another release, as cuda-python does."""
    claims = (claim("cuda-bindings", "~=13.0.3"), replace(claim("cuda-bindings", "<14,>=12.9.1"), by="nvmath 1"))
    report = made(*WHOLE, facts=facts_of("12.9"), installed={"cuda-bindings": "13.0.3"}, claims=claims)
    assert "pip install 'cuda-bindings==12.*' framework" in {str(finding.fix) for finding in report.findings}


def test_a_conflict_without_a_toolkit() -> None:
    report = made(facts=facts_of("12.9"), findings=(broken("version", "own", claim(CUFFT, "<13")),))
    commands = [str(finding.fix).partition("[")[0] for finding in report.findings]
    assert commands == ["pip install 'cuda-toolkit", "pip install own"]


@pytest.mark.parametrize(
    ("installed", "by", "used", "inside", "code"),
    [
        ("numpy", "", "", "", 0),
        ("pytest-cudalink cuda-pathfinder", "pytest-cudalink", "", "", 0),
        ("pytest-cudalink cuda-pathfinder own", "own", "", "", 1),
        ("cuda-pathfinder", "", "", "", 1), ("cupy-cuda12x", "", "", "", 1),
        ("numpy", "", "libnvrtc 13", "", 1), ("numpy", "", "libnvrtc 12", "", 0),
        ("numpy", "", "libcudart 13", "", 0), ("numpy", "", "libnvrtc 13", "cudart 12.8", 1),
        ("numpy", "", "", "cudart 12.8", 0), ("cuda-bindings", "", "", "cudart 12.8", 1),
    ],
)  # fmt: skip
def test_a_toolkit_outside_counts_for_what_uses_it(installed, by, used, inside, code) -> None:
    """Whatever looks one up, or opens its libraries; that this project requires cuda-pathfinder makes no use of it."""
    items = [*several(inside), *outside("nvrtc 13.0, nvcc 13.0 binaries")]
    claims = (replace(claim("cuda-pathfinder", ""), by=f"{by} 1"),) if by else ()
    there, libraries = dict.fromkeys(installed.split(), "12.8"), (used,) if used else ()
    report = made(*items, facts=facts_of("12.8"), installed=there, claims=claims, used_libraries=libraries)
    assert report.exit_code == code, report.findings
    assert code or "not used: parts of CUDA 13.0 outside of this" in "".join(f.what for f in report.findings)


@pytest.mark.parametrize("name", ["nvJitLink", "nvrtc"])
def test_a_library_that_was_cut(name, toolkit, tmp_path) -> None:
    """The file is the first finding, with the command that restores it; the exit code is that of every fault."""
    item = System().item("dynamic-libs", name)
    assert item is not None
    whole = Path(item.path)
    file = tmp_path / "nvidia" / "lib" / whole.name
    file.parent.mkdir(parents=True)
    file.write_bytes(whole.read_bytes()[:100_000])
    information = tmp_path / "some_wheel-13.0.88.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some-wheel\nVersion: 13.0.88\n")
    (information / "RECORD").write_text(f"nvidia/lib/{whole.name},,\n")
    cut = [replace(item, path=str(file)) if item.name == name else item for item in WHOLE]
    report = made(*cut, facts=facts_of("12.8"))
    first = report.findings[0]
    assert first.what.startswith(f"{file} is cut off")
    assert str(first.fix) == "pip install --force-reinstall --no-deps some-wheel==13.0.88"
    assert report.exit_code == 1


def test_a_library_without_a_file_that_it_opens(toolkit, tmp_path) -> None:
    """NVRTC without its builtins compiles nothing; with them it is as it was installed."""
    item = System().item("dynamic-libs", "nvrtc")
    assert item is not None
    (tmp_path / "libnvrtc.so.13").symlink_to(tmp_path / "elsewhere" / "libnvrtc.so.13")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "libnvrtc.so.13").write_bytes(Path(item.path).read_bytes())
    link = str(tmp_path / "libnvrtc.so.13")
    parts = [replace(part, path=link) if part.name == "nvrtc" else part for part in WHOLE[:-1]]
    report = made(*parts, facts=facts_of("13.0"))
    assert (report.exit_code, [finding.why for finding in report.findings]) == (
        1, ["the nvrtc library lacks libnvrtc-builtins.so.13.0"],
    )  # fmt: skip
    assert (
        "opens libnvrtc-builtins.so.13.0, which is missing: without it every compilation fails"
        in report.findings[0].what
    )
    for folder in (tmp_path, tmp_path / "elsewhere"):
        (folder / "libnvrtc-builtins.so.13.0").touch()
        assert made(*parts, facts=facts_of("13.0")).findings == []
        (folder / "libnvrtc-builtins.so.13.0").unlink()


def test_a_library_that_does_not_find_what_it_opens(tmp_path, monkeypatch) -> None:
    """NVRTC 13.0 has no RUNPATH: outside of wheels the loader may not look into its folder for the builtins."""
    (tmp_path / "libnvrtc.so.13").symlink_to(_ctypes.__file__)
    (tmp_path / "libnvrtc-builtins.so.13.0").touch()
    there = replace(WHOLE[0], name="nvrtc", path=str(tmp_path / "libnvrtc.so.13"), found_via="CUDA_PATH")
    parts = [there if item.name == "nvrtc" else item for item in WHOLE[:-1]]
    asked = []
    monkeypatch.setattr(_pathfinder, "run_child", lambda _, *words: asked.append(words))
    (fault,) = made(*parts, facts=facts_of("13.0")).findings
    assert (fault.severity, fault.why) == ("error", "the nvrtc library does not find libnvrtc-builtins.so.13.0")
    assert fault.otherwise == f"put {tmp_path} into LD_LIBRARY_PATH"
    assert asked[0][-2:] == ("nvrtc", "libnvrtc-builtins.so.13.0")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert made(*parts, facts=facts_of("13.0")).findings == []
    monkeypatch.delenv("LD_LIBRARY_PATH")

    def fail(*_: str) -> None:
        raise ResolutionError

    monkeypatch.setattr(_pathfinder, "run_child", fail)
    assert made(*parts, facts=facts_of("13.0")).findings == []  # not known


def test_nvvm_without_libdevice() -> None:
    """Wherever the look-up finds it, it will do; what nothing uses needs none."""
    (fault,) = made(*WHOLE, item("nvvm", "13.0"), facts=facts_of("13.0")).findings
    assert (fault.severity, fault.why) == ("error", "the nvvm library is without the device bitcode library")
    device = item("device", "13.0", "bitcode-libs")
    assert made(*WHOLE, item("nvvm", "13.0"), device, facts=facts_of("13.0")).findings == []
    assert made(*WHOLE, *outside("nvvm 13.0"), facts=facts_of("13.0")).findings == []


@pytest.mark.parametrize(
    ("versions", "driver", "fix"),
    [
        ({"cuda-bindings": "13.4.0"}, "12.8", "pip install 'cuda-bindings==12.*'"),
        ({"cuda-bindings": "13.4.0"}, "13.0 580.65.06", None),
        ({"cuda-bindings": "12.9.4"}, "13.0", None), ({"cuda-bindings": "13.4.0"}, "", None),
        ({"cuda-bindings": "unknown"}, "12.8", None), ({"numpy": "13.4"}, "12.8", None),
    ],
)  # fmt: skip
def test_a_runtime_inside_a_distribution(versions, driver, fix) -> None:
    """The driver must run it as it runs the toolkit's."""
    facts = facts_of(*driver.split()) if driver else facts_of(None)
    report = made(*several("nvrtc 12.6, nvJitLink 12.6"), facts=facts, installed=versions)
    findings = [finding for finding in report.findings if "contains the CUDA runtime" in finding.what]
    assert [(finding.severity, str(finding.fix)) for finding in findings] == ([("error", fix)] if fix else [])


@pytest.mark.parametrize(
    ("versions", "driver", "said"),
    [
        ({"nvidia-cublas": "13.0.2.14"}, "12.8", "nvidia-cublas 13.0.2.14: its CUDA runtime 13.0"),
        ({"nvidia-cublas": "13.0.2.14"}, "13.0 580.65.06", ""),
        ({"nvidia-cublas": "13.0.2.14"}, "", ""),
        ({"nvidia-cublas": "13.0.2.14", "nvidia-cublas-cu12": "12.9.1.4"}, "12.8", ""),
        ({"nvidia-cublas": "13.0.2.14", "nvidia-cusparse": "99"}, "12.8", "14 and 1 more: its CUDA runtime 13.0"),
        ({"nvidia-cusparse": "99"}, "12.8", "nvidia-cusparse 99: its CUDA runtime 13.0"),
        ({"nvidia-cublas-cu12": "12.9.1.4"}, "12.6", ""),
    ],
)
def test_a_runtime_inside_a_library(versions, driver: str, said: str) -> None:
    """That of a newer major than the driver is of no use beside parts that the driver runs."""
    facts = facts_of(*driver.split()) if driver else facts_of(None)
    report = made(*several("nvrtc 12.6, nvJitLink 12.6"), facts=facts, installed=versions)
    findings = [finding for finding in report.findings if "its CUDA runtime" in finding.what]
    assert [said in finding.what for finding in findings] == [True] * bool(said)
    names = [name for name in versions if said]
    command = f"pip uninstall -y {' '.join(names)} && pip install {' '.join(f'{name}-cu12' for name in names)}"
    assert [str(finding.fix) for finding in findings] == [command] * bool(said)


@pytest.mark.parametrize(
    ("cuda", "release", "severity", "end"),
    [
        ("13.0", "580.65.06", "warning", "(numba/numba#10188, numba/numba#10166, numba/numba#10237)"),
        (None, None, "note", "only on drivers >=580"),
        ("12.9", "575.51.03", None, ""),
    ],
)
def test_versions_that_are_known_to_fail(cuda, release, severity, end) -> None:
    """A finding with thread and advice; a note where the driver is not known, and nothing where it decides."""
    installed = {"numba": "0.61.2", "cuda-core": "1.2.2", "cuda-bindings": "12.9.4"}
    report = made(*WHOLE, facts=facts_of(cuda, release), installed=installed)
    findings = [finding for finding in report.findings if finding.what.startswith("known to fail: ")]
    assert [finding.severity for finding in findings] == ([severity] if severity else [])
    for finding in findings:
        assert finding.what.startswith("known to fail: numba 0.62 and older on drivers of CUDA 13: segmentation fault")
        assert finding.what.endswith(end)
        assert finding.otherwise.startswith("install numba 0.63 or newer")


def test_what_decides_whether_versions_fail(monkeypatch) -> None:
    """The versions here, the GPU and the driver; what none of them decides is said."""
    asked: list[object] = []

    def conditions(**facts: object) -> list[str]:
        asked.append(facts)
        return ["on Windows"]

    def known(versions: dict[str, str], **facts: object) -> list[SimpleNamespace]:
        asked.append((versions, facts))
        entry = SimpleNamespace(open_conditions=conditions, text="x crashes", advice="install y", install=())
        entry.sentence = partial(doctor.known_bad.KnownBad.sentence, entry)
        return [entry]

    monkeypatch.setattr(doctor.known_bad, "known_bad", known)
    finding = made(*WHOLE, facts=facts_of("13.0", "580.65.06"), arch="sm_90").findings[-1]
    decides = {"arch": "sm_90", "driver": "580.65.06"}
    assert asked == [(dict(Machine.installed), decides), {}, decides]
    for place, (name, more) in enumerate((("numpy", {}), ("cuda-bindings", {"nvidia-nvjitlink": "13.2"})), 1):
        made(*outside("nvJitLink 13.2, nvrtc 13.2 headers"), facts=facts_of("13.2"), installed={name: "12.9.0"})
        assert asked[3 * place][0] == more | {name: "12.9.0"}
    assert finding == Finding("note", "known to fail: x crashes; only on Windows", otherwise="install y")


CUDA_TILE = {"cuda-tile": "1.7.0"}
TILEIRAS = {"nvidia-cuda-tileiras": "13.2.86", "nvidia-cuda-nvcc": "13.2.78", "nvidia-nvvm": "13.2.86"}


@pytest.mark.parametrize(
    ("installed", "programs", "arch", "text"),
    [
        ({}, (), "sm_75", ""), (TILEIRAS, (), "sm_75", ""),
        (CUDA_TILE, (), "sm_89", "tileiras, which compiles its kernels, is neither installed nor on the PATH"),
        (CUDA_TILE, ("tileiras",), "sm_75", ""), (CUDA_TILE | TILEIRAS, (), "sm_89", ""),
        (CUDA_TILE | TILEIRAS, (), None, ""),
        (CUDA_TILE | TILEIRAS, (), "sm_90", "tileiras 13.2 does not compile for sm_90, the device here; 13.3 is the"),
        (CUDA_TILE | TILEIRAS, (), "sm_75", "no known tileiras compiles for sm_75"),
        (CUDA_TILE | TILEIRAS | {"nvidia-nvvm": "13.3.73"}, (), "sm_89", "nvcc 13.2.78, nvidia-nvvm 13.3.73)"),
        (CUDA_TILE | TILEIRAS | {"nvidia-nvvm": "13.3.73"}, ("tileiras",), "sm_89", ""),
        (CUDA_TILE | {"nvidia-cuda-tileiras": "13.2.86"}, (), "sm_89", "nvidia-cuda-nvcc is missing"),
        (CUDA_TILE | dict.fromkeys(TILEIRAS, "13.2rc1"), (), "sm_75", "no known tileiras compiles for sm_75"),
        (CUDA_TILE | dict.fromkeys(TILEIRAS, "x"), (), "sm_89", "(nvidia-cuda-tileiras x, nvidia-cuda-nvcc x, "),
    ],
)  # fmt: skip
def test_what_cuda_tile_lacks(monkeypatch, installed, programs, arch, text) -> None:
    """A missing tileiras, one that cuda-tile passes over, and one that does not know the GPU are warnings."""
    monkeypatch.setattr(Machine, "programs", programs)
    report = made(*WHOLE, facts=facts_of("13.0"), arch=arch, installed=installed)
    findings = [finding for finding in report.findings if "tileiras" in finding.what]
    assert [finding.severity for finding in findings] == (["warning"] if text else [])
    assert report.exit_code == 0
    assert {finding.kind for finding in findings} <= {"machine"}, "which the audit of the environment shows as a note"
    assert all(text in f.what and f.what.startswith(("cuda-tile ", "tileiras ", "no known")) for f in findings)
    fixes = ("pip install 'cuda-tile[tileiras]'", "pip install 'cuda-toolkit[nvcc,nvvm,tileiras]>=13.3'")
    assert all(str(finding.fix) in fixes or "no known" in finding.what for finding in findings)


@pytest.mark.parametrize("place", ["PATH", "CUDA_HOME", "CUDA_PATH"])
def test_where_programs_are_looked_for(monkeypatch, tmp_path: Path, place: str) -> None:
    """The PATH counts first, then the toolkits of the two variables, then the usual one."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "toolkit" / "bin" / "tileiras"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    asked = []
    monkeypatch.setattr(
        shutil, "which", lambda name, path=None, find=shutil.which: asked.append(path) or find(name, path=path)
    )
    assert System().program("tileiras") is None
    assert asked == [None, "/usr/local/cuda/bin"]
    monkeypatch.setenv(place, str(program.parent if place == "PATH" else program.parents[1]))
    assert System().program("tileiras") == str(program)


def test_items_that_look_ups_find(monkeypatch) -> None:
    """Each kind of look-up has its own form of answer; only a search that cannot answer is an error."""
    located = SimpleNamespace(abs_path="/x", found_via="conda")
    answers: dict[str, object] = {
        "locate_static_lib": located,
        "locate_bitcode_lib": SimpleNamespace(abs_path=None, found_via=None),
        "locate_nvidia_header_directory": None,
        "find_nvidia_binary_utility": "/bin/ptxas",
    }
    monkeypatch.setattr(_pathfinder, "plain", lambda lookup: lambda name: answers[lookup])
    asked = []

    def resolve_all(names: Iterable[str]) -> dict[str, object]:
        asked.append({*names})
        searched = {name: _pathfinder.Resolved(f"/{name}", "site-packages") for name in asked[-1]}
        return searched | {"nvvm": None, "nvfatbin": ResolutionError("it dies")}

    monkeypatch.setattr(_pathfinder, "resolve_all", resolve_all)
    monkeypatch.setattr(_pathfinder, "program_names", lambda: frozenset({"ptxas"}))
    monkeypatch.setattr(system, "make_item", lambda *words: words)
    kinds: list[tuple[ItemKind, str]] = [
        *[("dynamic-libs", "nvrtc"), ("static-libs", "cudadevrt"), ("bitcode-libs", "device"), ("headers", "cccl")],
        *[("binaries", "ptxas"), ("binaries", "nvcc")],
    ]
    assert [System().item(kind, name) for kind, name in kinds] == [
        ("dynamic-libs", "nvrtc", "/nvrtc", "site-packages"),
        ("static-libs", "cudadevrt", "/x", "conda"),
        *[None, None],
        ("binaries", "ptxas", "/bin/ptxas", "the search for programs"),
        None,
    ]
    monkeypatch.setattr(_pathfinder, "program_of_wheels", lambda name: f"/w/{name}")
    assert System().item("binaries", "nvcc") == ("binaries", "nvcc", "/w/nvcc", "site-packages")
    assert System().item("static-libs", "cudadevrt") == ("static-libs", "cudadevrt", "/x", "conda")
    asked.clear()
    machine = System()
    assert machine.other_libraries() == sorted(machine.other_libraries())
    assert [machine.item("dynamic-libs", name)[1] for name in ("nvrtc", "cudart", "cublas", "cufft")] == [
        *("nvrtc", "cudart", "cublas", "cufft")
    ]
    assert machine.item("dynamic-libs", "nvvm") is None
    with pytest.raises(ResolutionError, match="it dies"):
        machine.item("dynamic-libs", "nvfatbin")
    assert asked == [{*system.LIBRARIES}, {*machine.other_libraries()}], "asked twice, for the page and for the rest"

    def fail(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(_pathfinder, "plain", lambda _: fail)
    assert machine.item("headers", "cccl") is None


@pytest.mark.parametrize(
    ("items", "libraries", "code", "texts"),
    [
        ("", 0, 2, ["no part of a CUDA toolkit was found"]),
        ("", 3, 0, []),  # NCCL, say, which the audit has measured
        ("cublas 13.0", 3, 1, ["the driver does not run CUDA 13.0 (cublas library)"]),
        ("cublas 12.8, nvjpeg 12.8", 3, 0, []),
    ],
)
def test_a_toolkit_without_what_compiles_and_links(items, libraries, code, texts) -> None:
    """Its other libraries are judged where there is nothing else; one that is not a toolkit's is not an unknown."""
    report, without = (
        made(*several(items), facts=facts_of(cuda), installed={}, cuda_libraries=libraries) for cuda in ("12.8", None)
    )
    starts = [finding.what.partition(":")[0] for finding in report.findings if finding.severity in ("error", "unknown")]
    assert (report.exit_code, starts) == (code, texts)
    assert "cublas library" not in report.missing
    assert items or "nothing here links PTX or LTO-IR" not in [finding.why for finding in without.findings]


@pytest.mark.parametrize(
    ("value", "witness", "emulated", "kind", "path"),
    [
        (None, "no driver", True, None, None),
        ("13.0", "given as driver_cuda_version", True, "given", None),
        ("13.0", "faked by pytest_cudalink.probes.fake", True, "given", None),
        ("13.0", "cuDriverGetVersion answers 13000", True, "emulated", "file of libcuda.so.1"),
        ("13.0", "cuDriverGetVersion answers 13000", False, "real", "file of libcuda.so.1"),
    ],
)
def test_the_driver_library(monkeypatch, value, witness, emulated, kind, path) -> None:
    """Only one that answered itself has a file and a device."""
    from pytest_cudalink.emulator import preload

    monkeypatch.setattr(preload, "emulated_driver", lambda: emulated)
    monkeypatch.setattr(system, "loaded_file", lambda name: f"file of {name}")
    monkeypatch.setattr(probes, "device_arch", lambda: "sm_90")
    arch = "sm_90" if path else "sm_80" if kind == "given" else None
    assert System(arch="sm_80").driver(Fact(value, witness, stated=kind == "given")) == DriverFile(kind, path, arch)
    with probes.fake(driver=(13, 0)):
        assert (DriverFacts().cuda().stated, facts_of("13.0").cuda().stated) == (True, True)


def test_what_this_machine_has(monkeypatch) -> None:
    """Where an item lies, what installs it, what the loader finds, and what is asked of other parts."""
    nvrtc = item("nvrtc", "13.0")
    alone = replace(nvrtc, wheel="")
    for place, outside in (
        (replace(nvrtc, path="/x", found_via="CUDA_HOME"), False),
        (replace(alone, path="/x", found_via="CUDA_HOME"), True),
        (replace(alone, path=f"{sys.prefix}/x", found_via="CUDA_HOME"), False),
        *((replace(alone, path="/x", found_via=via), False) for via in ("site-packages", "conda", ALREADY_LOADED)),
    ):
        assert System().is_outside(place) is outside
    toolkit = replace(alone, path="/usr/local/cuda/nvvm/lib64/libnvvm.so", found_via="CUDA_HOME")
    for prefix, outside in (("/usr", True), ("/usr/local", True), ("/usr/local/cuda", False)):
        monkeypatch.setattr(sys, "prefix", prefix)
        here, there = System(), Elsewhere(Place(Path(prefix), (), "3.12"), Machine.audit)
        assert (here.is_outside(toolkit), there.is_outside(toolkit)) == (outside, outside)
    monkeypatch.setattr(system, "installer_here", lambda *, by_conda: by_conda)
    assert [System().installer(items) for items in ([], [alone], [alone, nvrtc])] == [True, True, False]
    monkeypatch.setattr(_pathfinder, "stems", lambda: {"libnvrtc": "nvrtc"})
    first = {"libnvrtc.so.13": "/n", "libother.so.1": "/o"}
    monkeypatch.setattr(_pathfinder, "first_for_loader", lambda names: first)
    monkeypatch.setattr(system.attribution, "attribute", lambda path: Fact(None, f"of {path}"))
    assert list(System().copies_for_loader()) == [
        Copy("nvrtc", "/n", "first for the loader as libnvrtc.so.13", None, "of /n"),
        Copy("libother.so.1", "/o", "first for the loader as libother.so.1", None, "of /o"),
    ]
    monkeypatch.setattr(system.elf, "damage", lambda path: f"damage of {path}")
    monkeypatch.setattr(system, "find_place", lambda: "here")
    installed = {"here": ([SimpleNamespace(name="a", version="1")], [])}
    monkeypatch.setattr(system, "read_distributions", lambda place, *, files: files or installed[place])
    monkeypatch.setattr(system, "audit_environment", lambda: "audit")
    assert System().damage(nvrtc) == "damage of /13.0/nvrtc"
    assert (System().versions(), System().environment()) == ({"a": "1"}, "audit")


def test_another_environment(tmp_path) -> None:
    """Its files answer: what it has and runs, what installs there, and what is outside of it."""
    prefix, site = tmp_path / "its env", tmp_path / "its env/site"
    there = Elsewhere(Place(prefix, (site,), "3.12"), Machine.audit, "sm_80")
    for name in ("pip", "nvidia_cuda_nvcc"):
        (site / f"{name}-1.dist-info").mkdir(parents=True)
        (site / f"{name}-1.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    record, program = site / "nvidia_cuda_nvcc-1.dist-info/RECORD", site / "nvidia/cu13/bin/nvcc"
    record.write_text("nvidia/cu13/bin/nvcc,,\n")
    program.parent.mkdir(parents=True)
    program.touch()
    nvcc = there.item("binaries", "nvcc")
    assert (nvcc.path, nvcc.wheel) == (str(program), "nvidia-cuda-nvcc")
    assert [*there.copies_in_process()] == []
    assert (there.driver(Fact("13.0", "", stated=True)).arch, there.environment()) == ("sm_80", Machine.audit)
    assert (there.versions(), there.has_bindings()) == ({"pip": "1", "nvidia-cuda-nvcc": "1"}, False)
    alone = [replace(nvcc, wheel="", path="/x", found_via=via) for via in ("CUDA_HOME", "conda", "site-packages")]
    assert [*map(there.is_outside, (nvcc, replace(nvcc, path="/x", found_via="CUDA_HOME"), *alone))] == [
        False, False, True, False, False,
    ]  # fmt: skip
    assert there.installer([]) == Installer("pip", f" --python '{prefix}'")
    (prefix / "conda-meta").mkdir()
    assert there.installer(alone) == Installer("conda", f" --prefix '{prefix}'")
    assert there.installer([*alone, nvcc]).name == "pip"
    (site / "pip-1.dist-info").rename(site / "cuda_bindings-1.dist-info")
    (site / "cuda_bindings-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: cuda-bindings\nVersion: 1\n")
    assert (there.installer([nvcc]).name, there.has_bindings()) == ("uv", True)


def test_bindings(monkeypatch, tmp_path) -> None:
    """Their module of nvJitLink counts, and is not imported; without cuda-bindings there is no package to look in."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert not System().has_bindings()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", {"cuda": spec}.get)
    assert not System().has_bindings()
    (tmp_path / "bindings").mkdir()
    (tmp_path / "bindings" / "nvjitlink.abi3.so").write_bytes(b"cut off")
    assert System().has_bindings()


@pytest.mark.parametrize("driver", [None, "12.9"])
def test_nvjitlink_that_cuda_bindings_does_not_call(driver) -> None:
    """It is a fault in the environment, and outside where there is no driver, with which cuda-core links instead."""
    for parts, severity in (
        (several("nvJitLink 12.2"), "error"),
        (outside("nvJitLink 12.2"), "warning" if driver else "error"),
    ):
        made_of = made(*parts, facts=facts_of(driver)).findings
        assert [finding.severity for finding in made_of if "nvJitLinkVersion" in finding.what] == [severity]


def test_nothing_links_and_nothing_would() -> None:
    """It is a fault only where an installed distribution links at run time, which is named, also without a toolkit."""
    (_, fault) = made(*several("nvrtc 13.0"), facts=facts_of(None)).findings
    assert (fault.what, fault.severity) in [(f.what, f.severity) for f in made(facts=facts_of(None)).findings]
    assert [finding.severity for finding in made(facts=facts_of("13.0")).findings] == ["unknown"]
    assert (fault.severity, fault.what.endswith("; nvmath-python links at run time")) == ("error", True)
    (_, note) = made(*several("nvrtc 13.0"), facts=facts_of(None), installed={"numpy": "2"}).findings
    assert (note.severity, note.what, str(note.fix)) == ("note", fault.what.partition(";")[0], str(fault.fix))


@pytest.mark.parametrize(
    ("version", "bindings", "driver", "more", "lacks"),
    [
        ("1.2.1", "13.0.3", "13.0", "", ["cudart"]), ("1.2.1", "13.0.3", "13.0", "cudart 13.0", []),
        ("1.1.1", "13.0.3", "13.0", "", []), ("1.1.1", "12.9.4", None, "", []),
        ("1.1.1", "12.9.4", "13.0", "", ["nvrtc", "nvJitLink"]),
        ("1.1.1", "12.9.4", "13.0", "libnvrtc.so.12", ["nvJitLink"]),
    ],
)  # fmt: skip
def test_what_a_module_loads_as_it_is_imported(version, bindings, driver, more, lacks) -> None:
    """No metadata requires it; cuda.compute loads libraries of cuda-bindings' major: the first found, or the loader's.

    `more`: another item, or what the loader finds.
    """
    cached = [Copy("nvrtc", "/n", f"first for the loader as {more}", None, "")] * more.startswith("lib")
    parts, installed = [*WHOLE, *several("" if cached else more)], {"cuda-cccl": version, "cuda-bindings": bindings}
    report = made(*parts, facts=facts_of(driver), copies=(*cached,), installed=installed)
    first = "first that of CUDA 13.0; expected CUDA 12, as cuda-bindings has", "'cuda-bindings==13.*'"
    assert [(f.severity, f.what, str(f.fix)) for f in report.findings if "cuda.compute" in f.what] == [
        (
            "error",
            f"cuda-cccl {version} loads the {name} library as cuda.compute is imported, and there is {there}",
            f"pip install {fix}",
        )
        for name in lacks
        for there, fix in [("none", "'cuda-toolkit[cudart]==13.0.*'") if name == "cudart" else first]
    ]


@pytest.mark.parametrize(
    ("items", "driver", "installed", "errors"),
    [
        ("nvrtc 12.8, nvvm 12.8, nvJitLink 12.8", "12.8", "numba-cuda", []),
        ("nvrtc 12.8, nvJitLink 12.8", "12.8", "numba-cuda", ["loads the nvvm library as it compiles a kernel"]),
        ("nvvm 12.8, nvJitLink 12.8", None, "numba-cuda", ["loads the nvrtc library as it compiles a kernel"]),
        ("nvrtc 12.4, nvvm 12.8", "12.4", "numba-cuda",
         ["of NVVM 12.8 (ISA 8.7) is refused by the driver of CUDA 12.4"]),
        ("nvrtc 12.4, nvvm 12.8, nvJitLink 12.4", "12.8", "numba-cuda",
         ["PTX of NVVM 12.8 (ISA 8.7) is refused by nvJ"]),
        ("nvrtc 12.4, nvvm 12.8, nvJitLink 12.8", "12.4", "numba-cuda", []),
        ("nvrtc 12.4, nvvm 12.8", "12.4", "other", []),
    ],
)  # fmt: skip
def test_what_numba_cuda_compiles_with(items, driver, installed, errors) -> None:
    """It needs NVRTC and NVVM, whose PTX the driver takes, or nvJitLink; see numba-cuda#163."""
    device = [item("device", "12.8", "bitcode-libs")] * ("nvvm" in items)
    report = made(*several(items), *device, facts=facts_of(driver), installed={installed: "0.30.4"})
    texts = [f.what for f in report.findings if f.severity == "error" and "must be of one" not in f.what]
    assert len(texts) == len(errors), texts
    assert all(text in what for text, what in zip(errors, texts, strict=True)), texts


def test_links_are_those_of_the_dispatch_table() -> None:
    """Every policy, for PTX and for LTO-IR, with the reason; an error stays one."""
    report = made(*WHOLE, facts=facts_of("12.8"))
    links = {(link.policy, link.kind): link for link in report.links}
    assert len(links) == 6
    assert links["strict-major", "ptx"].backend == "driver"
    assert links["strict-major", "ltoir"].backend == "error"
    assert "matching major versions" in links["strict-major", "ltoir"].why
    assert links["released", "ltoir"].backend == "nvjitlink"
    for cuda, nvjitlink in ((None, "13.0"), (None, None), ("12.8", None)):
        there = [item("nvrtc", "13.0"), *([item("nvJitLink", nvjitlink)] if nvjitlink else [])]
        for link in made(*there, facts=facts_of(cuda)).links:
            fails = link.why.endswith("; but there is no driver, so the link fails")
            assert fails == (cuda is None and link.backend == "driver")


def test_copies() -> None:
    """A copy of another release is a warning that names both; a copy of the same release is not."""
    other = Copy("nvrtc", "/opt/torch/libnvrtc.so.12", "loaded in this process", CudaVersion(12, 8), "its builtins")
    report = made(*WHOLE, facts=facts_of("13.0"), copies=(other, replace(other, version=CudaVersion(13, 0))))
    (finding,) = report.findings
    assert (finding.severity, report.exit_code) == ("warning", 0)
    assert "/opt/torch/libnvrtc.so.12 (CUDA 12.8: its builtins)" in finding.what
    assert "/13.0/nvrtc (CUDA 13.0)" in finding.what
    assert "before anything loads the other copy" in finding.otherwise
    assert finding.why == "other copies are loaded from /opt/torch"
    for_loader = replace(other, role="first for the loader as libnvrtc.so.13", version=CudaVersion(13, 1))
    of_12 = replace(other, role="first for the loader as libnvrtc.so.12")
    same = replace(other, path="/13.0/nvrtc", version=None)
    of_none = replace(other, name="nvvm")
    headers = item("nvrtc", "12.8", "headers")
    findings = made(*WHOLE, headers, facts=facts_of("12.8"), copies=(same, of_none, of_12, for_loader)).findings
    (finding,) = (finding for finding in findings if finding.what.startswith("another "))
    assert finding.why == "other copies come first for the loader, from /opt/torch"
    assert finding.otherwise.startswith("put /13.0 first in LD_LIBRARY_PATH, or remove /opt/torch from it")
    *_, finding = made(item("nvrtc", None), facts=facts_of("13.0"), copies=(other,)).findings
    assert finding.what.endswith("finds /None/nvrtc (CUDA unknown)")
    (finding,) = made(*WHOLE, facts=facts_of("13.0"), copies=(replace(other, version=None),)).findings
    assert "libnvrtc.so.12 (CUDA unknown: its builtins)" in finding.what


def test_page_and_json(capsys, monkeypatch) -> None:
    """The verdict and its command come first; --verbose has every part once, --json the same facts; one exit code."""
    report = made(*WHOLE, facts=facts_of("12.8"))
    report.driver["path"] = "/x/libcuda.so.1"
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    assert cli.main(["doctor"]) == 1
    page = capsys.readouterr().out.splitlines()
    assert page[:5] == [
        "Verdict: incoherent",
        "First:   pip uninstall -y w-cudart w-nvJitLink w-nvrtc && pip install \\",
        "         'cuda-toolkit[cudart,nvjitlink,nvrtc]>=12.0,<12.9' \\",
        "         'nvidia-nvjitlink-cu12>=12.0,<12.9'",
        "",
    ]
    assert page[5] == "NO the driver of CUDA 12.8 is too old for the toolkit (2 findings)"
    assert page[6].startswith("   or install a driver for CUDA 13.0")
    assert "Driver   CUDA 12.8, given" in page
    assert f"Toolkit  CUDA 13.0, {len(report.items)} parts; not found: {len(report.missing)}" in page
    assert "Links    PTX by the driver, LTO-IR fails (strict-major; others differ)" in page
    assert cli.main(["doctor", "--verbose"]) == 1
    page = capsys.readouterr().out.splitlines()
    for title in ("Driver", "Toolkit", "Not found", "Copies", "Rules", "Links", "Findings"):
        assert sum(line.startswith(title) and "    " not in line for line in page) == 1
    assert page[0] == "Verdict: incoherent"
    assert re.fullmatch("  kind +given +/x/libcuda.so.1", page[page.index("Driver") + 3])
    assert any(line.startswith("  NO  driver ") for line in page)
    command = "pip install 'cuda-toolkit[cudart,nvjitlink,nvrtc]>=12.0,<12.9' 'nvidia-nvjitlink-cu12>=12.0,<12.9'"
    assert f"     pip uninstall -y w-cudart w-nvJitLink w-nvrtc && {command}" in page
    links = page[page.index("Links") + 1 : page.index("Findings") - 1]
    assert [line.split("  ")[1] for line in links][:1] == ["strict-major"]
    assert len(links) < 6
    assert cli.main(["doctor", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["verdict"], content["exit_code"]) == ("incoherent", 1)
    assert [item["version"] for item in content["items"]] == ["13.0"] * 3
    assert {rule["kind"] for rule in content["rules"]} >= {"driver", "pipeline"}
    assert content["driver"]["kind"] == "given"


def test_a_machine_without_a_driver(capsys, monkeypatch) -> None:
    report = made(*WHOLE, facts=facts_of(None))
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    assert cli.main(["doctor"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("Verdict: coherent\nFirst:   nothing to repair\n")
    assert page.count("driver") == 1
    assert "Links    PTX and LTO-IR by nvJitLink (any policy)" in page


SEVERAL = "the toolkit's parts come from several releases"
TEXT = st.text(st.characters(codec="ascii", exclude_characters="()"), min_size=1, max_size=200).filter(
    lambda text: text.strip()
)
FINDING = st.builds(
    Finding,
    st.sampled_from(["error", "unknown", "warning", "note"]),
    TEXT,
    st.lists(TEXT, max_size=2).map(lambda words: Command(tuple(words))),
    st.one_of(st.just(""), TEXT),
)


@given_examples(
    st.lists(st.tuples(st.integers(0, 4), FINDING), max_size=9),
    st.booleans(),
    st.sampled_from([{}, {"version": "12.9", "kind": "real", "release": "5" * 90, "arch": "sm_90"}]),
)
def test_any_page(numbered, verbose, driver) -> None:
    """The verdict is first, each cause has one line, and without --verbose no line is wider than 80 columns."""
    findings = [replace(finding, why=f"<cause {number}> {'x' * 20 * number}") for number, finding in numbered]
    report = DoctorReport(driver=driver, findings=findings)
    lines = [text for text, _ in page(report, verbose=verbose)]
    assert lines[0] == f"Verdict: {report.verdict}"
    assert verbose or max(map(len, lines)) <= 80
    for number, _ in numbered:
        assert sum(f"<cause {number}>" in line for line in lines) == 1
    assert sum("<cause " in line for line in lines) == len({number for number, _ in numbered})
    severities = ["error", "unknown", "warning", "note"]
    ranks = [severities.index(cause.severity) for cause in report.causes]
    assert ranks == sorted(ranks)


@given_examples(st.lists(st.characters(codec="ascii"), min_size=1, max_size=120))
def test_a_command_on_several_lines_is_one_command(characters) -> None:
    """What is printed is the command for a shell; only a word that is longer than a line is cut."""
    words = [f"cuda {'x' * (len(characters) % 40)}", *("y" * (ord(character) % 30) for character in characters)]
    command = Command(tuple(filter(None, words)), ("a b",))
    report = DoctorReport(findings=[Finding("error", "a", command)])
    lines = [text for text, _ in page(report)][1:]
    shown = "\n".join(lines[: lines.index("")]).removeprefix("First:")
    assert shlex.split(shown.replace("\\\n", " ")) == shlex.split(str(command))


def test_the_releases_that_are_wanted(monkeypatch, capsys) -> None:
    """A number alone means that release, as in the marker; a wrong value is reported by the name of the flag."""
    asked = []
    monkeypatch.setattr(doctor, "examine", lambda wanted: asked.append(wanted) or DoctorReport())
    for text in ("13", " 13.2 ", ">=13.2,<14"):
        assert cli.main(["doctor", "--ctk-version", text]) == 0
    assert cli.main(["doctor"]) == 0
    assert [str(constraint) for constraint in asked] == ["==13.*", "==13.2.*", "<14,>=13.2", "None"]
    capsys.readouterr()
    for text, words in (
        ("new", "'new'; expected a PEP 440 specifier such as '>=13.2,<14', or a release such as 13.2\n"),
        ("", "''; expected"),
        ("13.2.1", "'==13.2.1.*': '==13.2.1.*' has a patch number"),
        ("575", "'==575.*': '575' is a branch of drivers, which came with CUDA 12.9; write a version of CUDA, such as"),
        ("12.10", "'==12.10.*': no release of CUDA is; expected 12.0 to 12.9, 13.0 to 13.5, or a newer one\n"),
    ):
        assert cli.main(["doctor", "--ctk-version", text]) == 2
        assert capsys.readouterr().err.startswith(f"cudalink doctor: --ctk-version = {words}")


def test_interrupted(monkeypatch, capsys) -> None:
    """Ctrl-C ends any subcommand with 130 and without a traceback."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "examine", interrupt)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "cudalink: interrupted\n"


def test_a_path_that_the_terminal_cannot_show(tmp_path) -> None:
    """Such a path is escaped, and the exit code stays that of the verdict."""
    code = (
        "from pytest_cudalink import cli\n"
        "from pytest_cudalink import doctor\n"
        "report = doctor.DoctorReport(driver=dict.fromkeys(['version', 'witness']), missing=['caf\\xe9'])\n"
        "doctor.examine = lambda *_: report\n"
        "raise SystemExit(cli.main(['doctor', '-v']))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "caf\\xe9" in done.stdout


@pytest.mark.parametrize(
    ("variables", "terminal", "coloured"),
    [
        ({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)  # fmt: skip
def test_colours(capsys, monkeypatch, variables, terminal, coloured) -> None:
    """A pipe gets the same text without colour; NO_COLOR and FORCE_COLOR are obeyed."""
    report = made(*WHOLE, facts=facts_of("12.8"))
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("Verdict: \x1b[1;31mincoherent\x1b[0m\n") is coloured
    assert ("\x1b" in text) is coloured
    plain = "".join(f"{line}\n" for line, _ in page(report))
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == plain


def test_causes() -> None:
    """Each has the findings of one cause or a lone one, its worst severity and each remedy once; the worst is first."""
    findings = [
        Finding("note", "a", otherwise="wait"),
        Finding("warning", "h", why="a"),
        Finding("warning", "b", why="c"),
        Finding("unknown", "d", Command(("x",)), "wait", "c"),
        Finding("error", "e", Command(("y",)), "", "c"),
        Finding("unknown", "f", Command(("x",)), "wait", "c"),
        Finding("error", "g"),
    ]
    causes = DoctorReport(findings=findings).causes
    assert [(cause.what, cause.severity, cause.counts, cause.fixes, cause.otherwise) for cause in causes] == [
        ("c", "error", True, (Command(("x",)), Command(("y",))), ("wait",)),
        ("g", "error", True, (), ()),
        ("a", "warning", False, (), ("wait",)),
    ]


def test_what_is_said_of_the_machine(monkeypatch) -> None:
    """The driver with its witnesses, what was not found, and what the loader cannot be asked."""

    def refuse(_: Machine) -> Iterator[Copy]:
        raise ResolutionError("the loader does not answer")

    monkeypatch.setattr(Machine, "copies_for_loader", refuse)
    monkeypatch.setattr(Machine, "damage", lambda _, item: "is cut off" if item.name == "nvrtc" else "")
    monkeypatch.setattr(doctor.attribution, "owner", lambda path: SimpleNamespace(name=f"wheel-of{path}", version="1"))
    report = made(*WHOLE, facts=facts_of("13.0", "580.65.06"), arch="sm_90")
    assert report.driver == {
        "version": "13.0",
        "witness": "given as driver_cuda_version",
        "release": "580.65.06",
        "release_witness": "given as driver_release_version",
        "kind": "given",
        "path": None,
        "arch": "sm_90",
    }
    assert "cudart library" in report.missing
    cut, note = report.findings
    assert (str(cut.fix), cut.otherwise) == ("pip install --force-reinstall --no-deps wheel-of/13.0/nvrtc==1", "")
    assert note == Finding("note", "the loader does not answer")
    nothing = made(*WHOLE, facts=facts_of(None, "580.65.06")).driver
    assert (nothing["version"], nothing["release"], nothing["release_witness"]) == (None, None, "no driver")
    monkeypatch.undo()
    monkeypatch.setattr(doctor, "System", lambda: Machine(tuple(WHOLE), (), None))
    monkeypatch.setattr(doctor, "DriverFacts", lambda: facts_of("13.0"))
    assert examine().findings == []


def test_damage_is_the_first_finding(monkeypatch) -> None:
    """Before what could not be looked for, each reason once; other files that are damaged are no libraries."""

    def look_for(machine: Machine, kind: ItemKind, name: str) -> Item | None:
        if name in ("nvvm", "nvfatbin"):
            raise ResolutionError(kind)
        return machine.items.get((kind, name))

    monkeypatch.setattr(Machine, "item", look_for)
    monkeypatch.setattr(Machine, "damage", lambda _, item: "is cut off" if item.name in ("nvrtc", "cudart") else "")
    report = made(*WHOLE, facts=facts_of("13.0"))
    assert report.findings == [
        Finding(
            "error",
            "/13.0/nvrtc is cut off: a process that loads it gets an error, or ends with SIGBUS",
            Command(),
            "reinstall the toolkit that this file belongs to",
            "the nvrtc library is damaged",
        ),
        Finding("unknown", "dynamic-libs"),
        Finding("unknown", "headers"),
    ]
    assert DoctorReport(items=[item("nvrtc", "13.0", "headers")]).version_of("nvrtc") is None


def test_what_the_user_asks_for(monkeypatch) -> None:
    """The wanted releases and the variable of forward compatibility count, as in the guard; so does the installer."""
    refused = made(*WHOLE, facts=facts_of("12.9"), ctk_version="<13")
    causes = {cause.what for cause in refused.causes}
    assert "the toolkit's release is not one that --ctk-version accepts" in causes
    assert "the driver of CUDA 12.9 is too old for the toolkit" in causes
    (verdict, *_) = (rule for rule in refused.rules if rule.rule == "driver")
    assert DRIVER_COMPATIBILITY_VARIABLE in verdict.otherwise
    monkeypatch.setattr(Machine, "has_bindings", lambda _: False)
    monkeypatch.setattr(Machine, "installer", lambda _self, _items: Installer("uv"))
    monkeypatch.setenv(DRIVER_COMPATIBILITY_VARIABLE, "assume_forward_compatibility")
    assumed = made(*WHOLE, facts=facts_of("12.9", "575.51.03"))
    assert {rule.status for rule in assumed.rules} == {"compatible"}
    assert not [finding for finding in assumed.findings if "does not run" in finding.what]
    mixed = made(*several("nvrtc 13.2, nvJitLink 13.0"), facts=facts_of("13.2"), ctk_version="==13.0.*").findings
    refused_first, *_, ptx = (finding.why for finding in mixed if finding.severity == "error")
    assert refused_first == "the toolkit's release is not one that --ctk-version accepts"
    assert ptx == "the toolkit's parts come from several releases: CUDA 13.0, 13.2"
    assert [
        (finding.severity, str(finding.fix)) for finding in assumed.findings if "needs cuda-bindings" in finding.what
    ] == [("warning", "uv pip install 'cuda-bindings==13.*'")]
    alone = made(*several("nvrtc 13.0"), facts=facts_of("13.0"))
    assert not [finding for finding in alone.findings if "cuda-bindings" in finding.what]


def test_environment() -> None:
    """A requirement that is not met makes the environment incoherent; with unreadable metadata too little is known."""
    finding = Finding("error", "x is 1; expected >=2 (y 1)", Command(("x>=2",)), place="x 1", kind="version")
    note = Finding("note", "two majors", otherwise="nothing", kind="copies")
    broken = Unreadable("/site/z.dist-info", "METADATA is missing")
    for code, audit, shown in (
        (1, {"findings": (finding, note)}, replace(finding, fix=Command(("x>=2",), installer=Installer()))),
        (2, {"unreadable": (broken,)}, Finding("unknown", "/site/z.dist-info: METADATA is missing")),
    ):
        report, alone = made(*WHOLE, facts=facts_of("13.0"), **audit), replace(Machine.audit, **audit)
        assert (report.exit_code, alone.exit_code, report.verdict) == (code, code, alone.verdict)
        assert (shown in report.findings, "two majors" in str(report.findings)) == (True, False)
