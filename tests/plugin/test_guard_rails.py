"""The guard rails of a test run: option and twins, fixture, summary, workers; and the doctor's page."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import pytest

from pytest_cudalink import cli
from pytest_cudalink.guardrails import doctor, rules
from pytest_cudalink.guardrails.doctor import Copy, Finding, Report, examine
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.report import records
from pytest_cudalink.versions import CudaVersion

LOOKS_UP = """
import cuda.pathfinder as pf

def test_headers():
    assert pf.find_nvidia_header_directory("cudart")

def test_nothing():
    pass
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch, toolkit) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest on one module in a process of its own."""

    def go(module: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        pytester.makepyfile(module)
        if ini:
            pytester.makeini(f"[pytest]\n{ini}\n")
        return run_pytest(*arguments)

    return go


def test_off_by_default(run) -> None:
    """Without a word nothing is routed, nothing is imported, and nothing is said."""
    result = run(
        """
        import sys
        def test():
            assert not any(name.startswith("pytest_cudalink.guard") for name in sys.modules)
        """
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*guard rails*")


@pytest.mark.parametrize("source", ["option", "environment", "ini"])
def test_option_and_twins(run, monkeypatch, source: str) -> None:
    """The mode counts from collection to the end, and the header says where it is from."""
    module = """
        import cuda.pathfinder as pf
        from pytest_cudalink import guardrails
        from cuda.pathfinder import find_static_lib  # at collection
        def test():
            guard = guardrails.installed().guard
            assert guard.mode == "best_effort"
            assert find_static_lib is pf.find_static_lib is guard.find_static_lib
        """
    arguments = ["--cudalink-guard-rails=best_effort"] if source == "option" else []
    if source == "environment":
        monkeypatch.setenv("CUDALINK_GUARD_RAILS", "best_effort")
    result = run(module, *arguments, ini="cudalink_guard_rails = best_effort" if source == "ini" else "")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"cudalink: *, guard rails best_effort (from {source}*)"])


def test_wrong_mode(run) -> None:
    """Another mode is a usage error that lists the modes."""
    result = run("", "--cudalink-guard-rails=lenient")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--cudalink-guard-rails: invalid choice: 'lenient'*warning_only*"])


def test_strict_without_a_driver(run) -> None:
    """A refusal fails the test that made the look-up, and the summary has it with item, rule and test."""
    result = run(LOOKS_UP, "--cudalink-guard-rails=strict", "--cudalink-driver=absent")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*CompatibilityInsufficientMetadataError: whether the driver runs CUDA *(cudart headers) is not known*",
            "*= cudalink guard rails =*",
            "mode strict (from option): 1 insufficient metadata",
            "insufficient metadata (driver): whether the driver runs *",
            "    cudart headers at *include (found via *); CUDA *",
            "    fix: install the NVIDIA driver; or *; or take the mode best_effort, which lets pass what is not known",
            "    in test_strict_without_a_driver.py::test_headers",
        ]
    )
    result = run(LOOKS_UP, "--cudalink-guard-rails=best_effort", "--cudalink-driver=absent")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["    fix: install the NVIDIA driver; or say what it will be, *"])
    result.stdout.no_fnmatch_line("*take the mode*")


def test_strict_on_an_emulated_driver(run, toolkit) -> None:
    """With a driver that is new enough the same run passes, and the summary counts."""
    result = run(LOOKS_UP, "--cudalink-guard-rails=strict", "--cudalink-driver=13.2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mode strict (from option): 1 compatible"])


def test_best_effort_refuses_what_does_not_fit(run, toolkit) -> None:
    """A driver of an older major is refused in best_effort too, and warned of in warning_only."""
    refused = run(LOOKS_UP, "--cudalink-guard-rails=best_effort", "--cudalink-driver=12.8")
    if toolkit.major == 13:
        refused.assert_outcomes(passed=1, failed=1)
        refused.stdout.fnmatch_lines(["*DriverCtkCompatibilityError*", "    fix: *pip install 'cuda-toolkit*"])
        warned = run(LOOKS_UP, "--cudalink-guard-rails=warning_only", "--cudalink-driver=12.8")
        warned.assert_outcomes(passed=2, warnings=1)
        warned.stdout.fnmatch_lines(["*CompatibilityWarning: the driver does not run CUDA *"])


@pytest.mark.parametrize("mode", [None, "strict"])
def test_fixture(run, toolkit, mode) -> None:
    """A fresh guard for each test, with the run's mode, whose verdicts the summary has."""
    module = f"""
        import pytest
        from pytest_cudalink.guardrails import CompatibilityCheckError

        @pytest.mark.parametrize("number", [1, 2])
        def test_fits(guard_rails, number):
            assert guard_rails.mode == {mode or "best_effort"!r}
            assert guard_rails.remembered == ()
            guard_rails.load_nvidia_dynamic_lib("nvrtc")
            guard_rails.find_nvidia_header_directory("cudart")
            assert [str(item.version) for item in guard_rails.remembered] == ["{toolkit}"] * 2
        """
    arguments = ["--cudalink-guard-rails=strict"] if mode else []
    result = run(module, "--cudalink-driver=13.5", *arguments)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mode *: 4 compatible"])


def test_workers_send_their_verdicts(run) -> None:
    """With xdist the summary is that of all workers."""
    result = run(LOOKS_UP, "--cudalink-guard-rails=strict", "--cudalink-driver=13.5", "-n2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mode strict (from option): 1 compatible"])


def test_who_is_not_routed_is_named(run, pytester, monkeypatch) -> None:
    """What kept the old function before the run began is in the summary."""
    pytester.makepyfile(early="import cuda.pathfinder as pf\ndef find(name, by=pf.find_static_lib): return by(name)\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    result = run("def test(): pass", "-p", "early", "--cudalink-guard-rails=best_effort")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["calls cuda.pathfinder directly: find_static_lib: a default argument of find in early"]
    )


@pytest.mark.parametrize("arguments", [[], ["--cudalink-report=r.jsonl"]])
def test_look_ups_of_a_conftest(run, pytester, arguments) -> None:
    """They are routed and counted as well, before there is a session."""
    pytester.makeconftest("import cuda.pathfinder as pf\npf.find_static_lib('cudadevrt')\n")
    result = run(LOOKS_UP, "--cudalink-guard-rails=strict", "--cudalink-driver=13.5", *arguments)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mode strict (from option): 2 compatible"])
    if arguments:
        found = [one.items[0].partition(" at ")[0] for one in records.read(pytester.path / "r.jsonl").verdicts]
        assert found == ["cudadevrt static library", "cudart headers"]


def test_nested_runs(run) -> None:
    """A run inside of a run gives the outer one its guard back."""
    result = run(
        """
        from pytest_cudalink import guardrails
        pytest_plugins = ["pytester"]
        def test_outer(pytester):
            before = guardrails.installed().guard
            pytester.makepyfile("def test(): pass")
            pytester.inline_run("-p", "cudalink", "--cudalink-guard-rails=strict")
            assert guardrails.installed().guard is before
        """,
        "--cudalink-guard-rails=best_effort",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("arguments", [[], ["-n1"], ["--cudalink-isolate"]])
def test_verdicts_are_recorded(run, pytester, arguments: list[str]) -> None:
    """Each verdict is a line of the record file, under its test, from whichever process; the summary has it once."""
    module = LOOKS_UP + "\nimport cuda.pathfinder\ncuda.pathfinder.find_static_lib('cudadevrt')\n"
    result = run(
        module, "--cudalink-guard-rails=strict", "--cudalink-driver=13.5", "--cudalink-report=r.jsonl", *arguments
    )
    result.assert_outcomes(passed=2)
    verdicts = records.read(pytester.path / "r.jsonl").verdicts
    (verdict,) = [verdict for verdict in verdicts if verdict.nodeid]
    assert verdict.nodeid == "test_verdicts_are_recorded.py::test_headers"
    assert (verdict.status, verdict.rule) == ("compatible", "driver")
    assert "backward compatibility" in verdict.message
    assert verdict.items[0].startswith("cudart headers at ")
    assert any(one.nodeid is None and one.items[0].startswith("cudadevrt static") for one in verdicts)
    result.stdout.fnmatch_lines([f"mode strict (from option): {len(verdicts)} compatible"])


def test_the_plugin_itself_is_not_refused(run, pytester) -> None:
    """What the plugin asks for its records and requirements is no look-up of the suite."""
    module = (
        LOOKS_UP
        + """
import pytest
@pytest.mark.cudalink(nvjitlink=">=12.0")
def test_required(): pass
"""
    )
    result = run(module, "--cudalink-guard-rails=strict", "--cudalink-driver=absent", "--cudalink-report=r.jsonl")
    result.assert_outcomes(passed=2, failed=1)
    found = records.read(pytester.path / "r.jsonl")
    assert (found.run.versions["nvjitlink"]["found"] or "").startswith("1")
    assert [verdict.status for verdict in found.verdicts] == ["insufficient_metadata"]


# -- the doctor


def given(cuda: str | None, release: str | None = None) -> DriverFacts:
    """A driver as said."""
    return DriverFacts(CudaVersion.parse(cuda) if cuda else None, release)


#: What the wheels of every session bring; another toolkit of the machine is not looked at.
OF_THE_WHEELS = {
    "dynamic-libs": ("cudart", "nvrtc", "nvJitLink"),
    "headers": ("cudart", "nvrtc", "nvjitlink"),
    "static-libs": ("cudadevrt",),
}


def test_doctor_of_this_environment(toolkit) -> None:
    """Everything of the environment's toolkit is found, fits, and nothing of it is loaded for that."""
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


@pytest.fixture
def made(monkeypatch, toolkit):
    """A report on items that are given, as `examine` makes it of what it finds."""

    def make(*items: rules.Item, facts: DriverFacts, copies: tuple[Copy, ...] = (), arch: str | None = None) -> Report:
        def look(report: Report, kind: str, name: str) -> None:
            found = [item for item in items if (item.kind, item.name) == (kind, name)]
            report.items += found
            report.missing += [] if found else [name]

        monkeypatch.setattr(doctor, "_look_for", look)
        monkeypatch.setattr(doctor, "_in_process", lambda: iter(copies))
        monkeypatch.setattr(doctor, "_first_for_loader", lambda report: iter(()))
        driver = doctor._driver
        monkeypatch.setattr(doctor, "_driver", lambda facts: {**driver(facts), "arch": arch})
        return examine(facts=facts)

    return make


def item(name: str, version: str | None, kind: str = "dynamic-libs") -> rules.Item:
    release = CudaVersion.parse(version) if version else None
    return rules.Item(
        kind, name, f"/{version}/{name}", "site-packages", "ctk", release, "as the test says", f"w-{name}"
    )


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
def test_findings(made, items, cuda, release, arch, code, texts) -> None:
    """Exit code and findings for what can be there; each finding that counts has a command."""
    report = made(*items, facts=given(cuda, release), arch=arch)
    assert report.exit_code == code, report.findings
    found = "\n".join(finding.text for finding in report.findings)
    for text in texts:
        assert text in found
    assert all(f.fix.startswith("pip ") for f in report.findings if f.severity == "incoherent"), report.findings
    assert report.verdict == ["coherent", "incoherent", "not enough known"][code]
    assert bool(texts) == bool(report.findings)


def test_releases_that_share_an_isa(made) -> None:
    """PTX of CUDA 12.6 is what 12.5 reads: only the LTO-IR does not fit, and that is said once."""
    report = made(item("nvrtc", "12.6"), item("nvJitLink", "12.5"), facts=given("13.0"))
    (finding,) = report.findings
    assert finding.text.startswith("ltoir from nvrtc to nvJitLink")


def test_one_skew_has_one_command(made) -> None:
    """What PTX and LTO-IR suffer from is repaired by the same words."""
    report = made(item("nvrtc", "13.2"), item("nvJitLink", "13.0"), facts=given("13.2"))
    assert len({finding.fix for finding in report.findings}) == 1


def test_programs_have_no_wheel_up_to_cuda_12(made) -> None:
    """What a wheel brings has a command, what none brings has advice; neither is repeated for the other."""
    nvcc = replace(item("nvcc", "13.0", "binaries"), wheel="", found_via="the search for programs")
    report = made(*WHOLE, nvcc, facts=given("12.8"))
    refused = [finding for finding in report.findings if "does not run CUDA 13.0" in finding.text]
    assert [bool(finding.fix) for finding in refused] == [True, False]
    assert "nvcc" not in refused[0].fix
    assert refused[1].otherwise.startswith(
        "put the bin folder of a CUDA 12.8 toolkit first on PATH, or install a driver"
    )


def test_a_driver_older_than_every_wheel(made) -> None:
    """There is no cuda-toolkit before 11.8: only a newer driver helps."""
    report = made(*WHOLE, facts=given("11.4"))
    assert {(f.fix, f.otherwise[:27]) for f in report.findings} == {("", "install a driver for CUDA 1")}


def test_links_are_those_of_the_dispatch_table(made) -> None:
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


def test_copies(made) -> None:
    """Another copy of another release is a warning that names both; the same one is none."""
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


def test_page_and_json(made, capsys, monkeypatch) -> None:
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
def test_page_on_a_terminal(made, capsys, monkeypatch, columns) -> None:
    """Tables where they have room; in a narrow window paths and commands stand below, whole, to be copied."""
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
    """A specifier that is none is said, with exit code 2."""
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
    """It is escaped; the exit code stays that of the verdict."""
    code = (
        "from pytest_cudalink import cli\n"
        "from pytest_cudalink.guardrails import doctor\n"
        "report = doctor.Report(driver=dict.fromkeys(['version', 'witness']), missing=['caf\\xe9'])\n"
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
        assert Report(findings=[Finding(severity, "x") for severity in severities]).exit_code == code
