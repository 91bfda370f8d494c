"""The doctor: what it finds, its page, its JSON and its exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_cudalink import cli
from pytest_cudalink.audit.environment import EnvironmentAudit, EnvironmentFinding
from pytest_cudalink.audit.installed import Unreadable
from pytest_cudalink.guardrails import doctor
from pytest_cudalink.guardrails.doctor import DoctorFinding, DoctorReport, examine
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.guardrails.items import Fact, Item, ItemKind
from pytest_cudalink.guardrails.system import Copy, DriverFile, System
from pytest_cudalink.versions import CudaVersion


@pytest.fixture(autouse=True)
def _clean(monkeypatch, toolkit) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


def given(cuda: str | None, release: str | None = None) -> DriverFacts:
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
        "from pytest_cudalink.guardrails import doctor\n"
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
    """A machine with these items and copies, and a device of this architecture."""

    audit = EnvironmentAudit("/prefix", "3.12", 0, (), (), (), 0, 0.0)
    installed: Mapping[str, str] = MappingProxyType({})

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

    def versions(self) -> dict[str, str]:
        return dict(self.installed)


def made(*items: Item, facts: DriverFacts, copies: tuple[Copy, ...] = (), arch: str | None = None) -> DoctorReport:
    """The report on a machine that has these items."""
    return examine(facts=facts, system=Machine(items, copies, arch))


def item(name: str, version: str | None, kind: str = "dynamic-libs") -> Item:
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{version}/{name}", "site-packages", "ctk", release, "as the test says", f"w-{name}")


WHOLE = [item("nvrtc", "13.0"), item("nvJitLink", "13.0"), item("cudart", "13.0", "headers")]


@pytest.mark.parametrize(
    ("items", "cuda", "release", "arch", "code", "texts"),
    [
        (WHOLE, "13.0", None, "sm_90", 0, []),
        (WHOLE, "13.2", None, None, 0, []),
        (WHOLE, None, None, None, 0, ["the driver rule was not judged: "]),
        ([], "13.0", None, None, 2, ["no part of a CUDA toolkit was found"]),
        ([item("nvrtc", None)], "13.0", None, None, 2, ["release of the nvrtc library is not known"]),
        (WHOLE, "12.8", None, None, 1, ["does not run CUDA 13.0 (nvrtc library and 2 more)", "(222)"]),
        (
            [item("nvrtc", "13.2"), item("cudart", "13.0", "headers")],
            "13.2",
            None,
            None,
            1,
            ["both must be of one CUDA release"],
        ),
        ([item("nvrtc", "13.2"), item("nvJitLink", "13.2")], "13.0", None, None, 2, ["from branch 580 on", "(222)"]),
        ([item("nvrtc", "13.2")], "13.0", "580.65.06", None, 1, ["(222)"]),
        ([item("nvrtc", "13.2"), item("nvJitLink", "13.2")], "13.0", "580.65.06", None, 0, ["(222)"]),
        (
            [item("nvrtc", "13.2"), item("nvJitLink", "13.0")],
            "13.2",
            None,
            None,
            1,
            ["understands up to 13.0", "PTX of NVRTC 13.2 (ISA 9.2) is refused by nvJitLink 13.0 (ISA up to 9.0)"],
        ),
        (WHOLE, "13.0", None, "sm_70", 1, ["nvrtc 13.0 does not know sm_70", "nvJitLink 13.0 does not know sm_70"]),
    ],
)
def test_findings(items, cuda, release, arch, code, texts) -> None:
    """Exit code and findings of each kind of fault; each finding that counts has a command."""
    report = made(*items, facts=given(cuda, release), arch=arch)
    assert report.exit_code == code, report.findings
    found = "\n".join(finding.text for finding in report.findings)
    for text in texts:
        assert text in found
    assert all(f.fix.startswith("pip ") for f in report.findings if f.severity == "incoherent"), report.findings
    assert report.verdict == ["coherent", "incoherent", "not enough known"][code]
    assert bool(texts) == bool(report.findings)


@pytest.mark.parametrize("name", ["nvJitLink", "nvrtc"])
def test_a_library_that_was_cut(name, toolkit, tmp_path) -> None:
    """The file is the first finding, with the command that restores it; the exit code is that of every fault."""
    found = System().item("dynamic-libs", name)
    assert found is not None
    whole = Path(found.path)
    file = tmp_path / "nvidia" / "lib" / whole.name
    file.parent.mkdir(parents=True)
    file.write_bytes(whole.read_bytes()[:100_000])
    information = tmp_path / "some_wheel-13.0.88.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: some-wheel\nVersion: 13.0.88\n")
    (information / "RECORD").write_text(f"nvidia/lib/{whole.name},,\n")
    cut = [replace(one, path=str(file)) if one.name == name else one for one in WHOLE]
    report = made(*cut, facts=given("12.8"))
    first = report.findings[0]
    assert first.text.startswith(f"{file} is cut off")
    assert first.fix == "pip install --force-reinstall --no-deps some-wheel==13.0.88"
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("cuda", "release", "severity", "end"),
    [
        ("13.0", "580.65.06", "warning", "(numba/numba#10188, numba/numba#10166, numba/numba#10237)"),
        (None, None, "note", "only on drivers >=580"),
        ("12.9", "575.51.03", None, ""),
    ],
)
def test_versions_that_are_known_to_fail(monkeypatch, cuda, release, severity, end) -> None:
    """A finding with thread and advice; a note where the driver is not known, and nothing where it decides."""
    monkeypatch.setattr(Machine, "installed", {"numba": "0.61.2", "cuda-core": "1.2.2"})
    report = made(*WHOLE, facts=given(cuda, release))
    found = [one for one in report.findings if one.text.startswith("known to fail: ")]
    assert [one.severity for one in found] == ([severity] if severity else [])
    for one in found:
        assert one.text.startswith("known to fail: numba 0.62 and older on drivers of CUDA 13: segmentation fault")
        assert one.text.endswith(end)
        assert one.otherwise.startswith("install numba 0.63 or newer")


def test_an_archive_that_nvjitlink_cannot_link() -> None:
    """The doctor judges the pair, and its finding has the command."""
    report = made(item("nvJitLink", "13.0"), item("cudadevrt", "13.1", "static-libs"), facts=given("13.1"))
    (finding,) = [one for one in report.findings if one.severity == "incoherent"]
    assert "must not be older" in finding.text
    assert finding.fix == "pip install 'cuda-toolkit[nvjitlink]==13.1.*' 'nvidia-nvjitlink==13.1.*'"
    assert report.exit_code == 1


def test_releases_that_share_an_isa() -> None:
    """PTX of CUDA 12.6 is what 12.5 reads: only the LTO-IR does not fit, and that is said once."""
    report = made(item("nvrtc", "12.6"), item("nvJitLink", "12.5"), facts=given("13.0"))
    (finding,) = report.findings
    assert finding.text.startswith("ltoir from nvrtc to nvJitLink")


def test_one_skew_has_one_command() -> None:
    """The faults of PTX and LTO-IR have the same repair."""
    report = made(item("nvrtc", "13.2"), item("nvJitLink", "13.0"), facts=given("13.2"))
    assert len({finding.fix for finding in report.findings}) == 1


def test_programs_have_no_wheel_up_to_cuda_12() -> None:
    """Items that a wheel has get a command, others get advice; neither is repeated for the other."""
    nvcc = replace(item("nvcc", "13.0", "binaries"), wheel="", found_via="the search for programs")
    report = made(*WHOLE, nvcc, facts=given("12.8"))
    refused = [finding for finding in report.findings if "does not run CUDA 13.0" in finding.text]
    assert [bool(finding.fix) for finding in refused] == [True, False]
    assert "nvcc" not in refused[0].fix
    assert refused[1].otherwise.startswith(
        "put the bin folder of a CUDA 12.8 toolkit first on PATH, or install a driver"
    )


def test_a_driver_older_than_every_wheel() -> None:
    """There is no cuda-toolkit before 11.8: only a newer driver helps."""
    report = made(*WHOLE, facts=given("11.4"))
    assert {(f.fix, f.otherwise[:27]) for f in report.findings} == {("", "install a driver for CUDA 1")}


def test_links_are_those_of_the_dispatch_table() -> None:
    """Every policy, for PTX and for LTO-IR, with the reason; an error stays one."""
    report = made(*WHOLE, facts=given("12.8"))
    links = {(link.policy, link.kind): link for link in report.links}
    assert len(links) == 6
    assert links["strict-major", "ptx"].backend == "driver"
    assert links["strict-major", "ltoir"].backend == "error"
    assert "matching major versions" in links["strict-major", "ltoir"].why
    assert links["released", "ltoir"].backend == "nvjitlink"
    alone = made(item("nvrtc", "13.0"), facts=given(None))
    assert "there is no driver, so the link fails" in next(link.why for link in alone.links if link.kind == "ptx")


def test_copies() -> None:
    """A copy of another release is a warning that names both; a copy of the same release is not."""
    other = Copy("nvrtc", "/opt/torch/libnvrtc.so.12", "loaded in this process", CudaVersion(12, 8), "its builtins")
    report = made(*WHOLE, facts=given("13.0"), copies=(other, replace(other, version=CudaVersion(13, 0))))
    (finding,) = report.findings
    assert (finding.severity, report.exit_code) == ("warning", 0)
    assert "/opt/torch/libnvrtc.so.12 (CUDA 12.8: its builtins)" in finding.text
    assert "/13.0/nvrtc (CUDA 13.0)" in finding.text
    assert "before anything loads the other copy" in finding.otherwise
    for_loader = replace(other, role="first for the loader as libnvrtc.so.13")
    (finding,) = made(*WHOLE, facts=given("13.0"), copies=(for_loader,)).findings
    assert finding.otherwise.startswith("put /13.0 first in LD_LIBRARY_PATH, or take /opt/torch out of it")


def test_page_and_json(capsys, monkeypatch) -> None:
    """The page has every part once, without colour in a pipe; --json has the same facts; both have the exit code."""
    report = made(*WHOLE, facts=given("12.8"))
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    assert cli.main(["doctor"]) == 1
    page = capsys.readouterr().out
    for title in ("Driver", "Toolkit", "Not found", "Copies", "Rules", "Links", "Findings"):
        assert sum(line.startswith(title) for line in page.splitlines()) == 1
    assert page.splitlines()[-1] == "Verdict: incoherent"
    assert "\x1b" not in page
    command = "pip install 'cuda-toolkit[cudart,nvjitlink,nvrtc]>=12.0,<12.9'"
    assert f"     pip uninstall -y w-cudart w-nvJitLink w-nvrtc && {command}" in page.splitlines()
    assert len(page.splitlines()) < 60
    assert cli.main(["doctor", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["verdict"], content["exit_code"]) == ("incoherent", 1)
    assert [one["version"] for one in content["items"]] == ["13.0"] * 3
    assert {one["rule"] for one in content["rules"]} >= {"driver", "same-ctk", "pipeline"}
    assert content["driver"]["kind"] == "given"


@pytest.mark.parametrize("columns", [80, 400])
def test_page_on_a_terminal(capsys, monkeypatch, columns) -> None:
    """Tables where they have room; in a narrow window paths and commands are below, whole, to be copied."""
    pytest.importorskip("rich")
    report = made(*WHOLE, facts=given("12.8"))
    report.items[0] = replace(report.items[0], path=f"/opt/{'long/' * 30}libnvrtc.so.13")
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in (("COLUMNS", str(columns)), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert cli.main(["doctor"]) == 1
    page = capsys.readouterr().out
    assert report.items[0].path in page
    assert all(finding.fix in page and finding.otherwise in page for finding in report.findings)
    assert ("┃" in page) == (columns == 400)
    assert "     or install a driver" in page or columns == 400
    assert "Verdict: incoherent" in page


def test_wrong_option(capsys) -> None:
    """An invalid specifier is reported, with exit code 2."""
    assert cli.main(["doctor", "--ctk-version", "13.2"]) == 2
    assert "PEP 440" in capsys.readouterr().err


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
        "from pytest_cudalink.guardrails import doctor\n"
        "report = doctor.DoctorReport(driver=dict.fromkeys(['version', 'witness']), missing=['caf\\xe9'])\n"
        "doctor.examine = lambda *_: report\n"
        "raise SystemExit(cli.main(['doctor']))\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "caf\\xe9" in done.stdout


@pytest.mark.parametrize("rich", [True, False])
def test_on_a_terminal(rich: bool) -> None:
    """With rich, tables and colours; without it, the plain page."""
    if rich:
        pytest.importorskip("rich")
    block = "" if rich else "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None; "
    code = f"{block}from pytest_cudalink.cli import main; raise SystemExit(main(['doctor']))"
    main, other = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen([sys.executable, "-c", code], stdout=other, stderr=other, env=environment) as child:
        os.close(other)
        text = b""
        while True:
            try:
                part = os.read(main, 1 << 16)
            except OSError:  # (the other end is closed)
                break
            if not part:
                break
            text += part
    os.close(main)
    assert child.returncode in (0, 1, 2)
    assert (b"\x1b[" in text) is rich
    assert b"Verdict: " in text
    assert b"Links" in text


def test_finding_severities() -> None:
    """Incoherent counts before unknown; warnings and notes do not count."""
    for severities, code in (
        ([], 0),
        (["note", "warning"], 0),
        (["unknown", "note"], 2),
        (["unknown", "incoherent"], 1),
    ):
        assert DoctorReport(findings=[DoctorFinding(severity, "x") for severity in severities]).exit_code == code


def test_environment() -> None:
    """A requirement that is not met makes the environment incoherent; metadata that cannot be read is a warning."""
    finding = EnvironmentFinding("version", "conflict", "x is 1; expected >=2 (y 1)", (), "x 1", "pip install 'x>=2'")
    note = EnvironmentFinding("copies", "note", "two majors", (), "", "nothing")
    broken = Unreadable("/site/z.dist-info", "METADATA is missing")
    machine = Machine(tuple(WHOLE), (), None)
    machine.audit = EnvironmentAudit("/prefix", "3.12", 3, (), (finding, note), (), 0, 0.0)
    report = examine(facts=given("13.0"), system=machine)
    assert DoctorFinding("incoherent", "x is 1; expected >=2 (y 1)", "pip install 'x>=2'") in report.findings
    assert (report.exit_code, "two majors" in str(report.findings)) == (1, False)
    machine.audit = EnvironmentAudit("/prefix", "3.12", 3, (), (), (broken,), 0, 0.0)
    report = examine(facts=given("13.0"), system=machine)
    assert DoctorFinding("warning", "/site/z.dist-info: METADATA is missing") in report.findings
    assert report.exit_code == 0
