"""The audit of environments: made prefixes of wheels, of editable installs and of conda, sound ones and broken ones."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from pytest_cudalink import doctor
from pytest_cudalink.audit import install_targets
from pytest_cudalink.audit.environment import EnvironmentAudit, audit_environment, conda
from pytest_cudalink.audit.loadable import LoadableLibrary, cuda_functions, read_dynamic, read_elf
from pytest_cudalink.base import tables
from pytest_cudalink.base.elf import ElfError
from pytest_cudalink.base.finding import Finding
from pytest_cudalink.base.install_command import Command, install_command
from pytest_cudalink.cli import main
from pytest_cudalink.compat.releases import DRIVER_RELEASES
from pytest_cudalink.doctor.system import System
from pytest_cudalink.environment import installed, library_search, loader_search
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.guardrails.items import Fact
from tests.stubs.conftest import compile_c


@pytest.fixture(autouse=True)
def _no_system(monkeypatch) -> None:
    """No toolkit and no driver of the machine counts; conda sees a driver of CUDA 13.0."""
    monkeypatch.setattr(library_search, "_system_libraries", lambda _: ())
    monkeypatch.setattr(loader_search, "found_by_name", tuple)
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "13.0")


@pytest.fixture
def _alone(monkeypatch) -> None:
    """The command asks the audit alone: what the doctor adds takes seconds, and has its own tests."""
    monkeypatch.setattr(doctor, "examine_environment", audit_environment)


class Made:
    """A prefix that is made file by file."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.site = prefix / "lib/python3.12/site-packages"
        self.site.mkdir(parents=True)

    def wheel(
        self,
        name: str,
        version: str,
        *requires: str,
        files: tuple[str, ...] = (),
        installer: str = "pip",
        digest: str = "",
    ) -> Path:
        """Write the metadata of a distribution, each with other files unless they have a digest; its ``.dist-info``."""
        folder = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n\nA description\n", encoding="utf-8")
        (folder / "INSTALLER").write_text(f"{installer}\n", encoding="utf-8")
        sizes = {file: there.stat().st_size if (there := folder.parent / file).is_file() else "" for file in files}
        rows = "".join(f"{path},sha256={digest or name},{size}\n" for path, size in sizes.items())
        (folder / "RECORD").write_text(rows, encoding="utf-8")
        return folder

    def library(self, path: str, *symbols: str) -> str:
        """Compile a library that defines symbols, with their version if it is one of nvJitLink's; returns its path."""
        target = self.site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        script = self.prefix.parent / "versions.map"
        script.write_text(f"{target.name.replace('-', '_')} {{ global: *; }};", encoding="utf-8")
        source = "".join(f"int {symbol}(void) {{ return 0; }}\n" for symbol in symbols) or "int nothing;"
        compile_c(target, source, f"-Wl,--version-script={script}")
        return path

    def user(self, path: str, library: str, symbol: str, *flags: str) -> str:
        """Compile a library that is linked with another one, and calls a function of it; returns its path."""
        target = self.site / path
        source = f"extern int {symbol}(void); int use(void) {{ return {symbol}(); }}"
        compile_c(target, source, "-Wl,--no-as-needed", str(self.site / library), *flags)
        return path

    def nvjitlink(self, version: str, *, installer: str = "pip") -> str:
        """Install nvJitLink of CUDA 12; returns its path."""
        symbols = ("__nvJitLinkCreate_12_0", "__nvJitLinkCreate_12_8", "__nvJitLinkCreate_12_9")
        path = self.library("nvidia/nvjitlink/lib/libnvJitLink.so.12", *symbols)
        self.wheel("nvidia-nvjitlink-cu12", version, files=(path,), installer=installer)
        return path

    def conda(self, name: str, version: str, *depends: str, constrains: tuple[str, ...] = (), **more: object) -> Path:
        """Write the record of a conda package."""
        folder = self.prefix / "conda-meta"
        folder.mkdir(exist_ok=True)
        record = folder / f"{name}-{version}-h0_0.json"
        content = {
            "name": name, "version": version, "build": "h0_0", "build_number": 0, "subdir": "linux-64",
            "depends": list(depends), "constrains": list(constrains), "files": [], **more,
        }  # fmt: skip
        record.write_text(json.dumps(content), encoding="utf-8")
        return record

    def audit(self) -> EnvironmentAudit:
        return audit_environment(self.prefix)


@pytest.fixture
def made(tmp_path) -> Made:
    return Made(tmp_path / "prefix")


@pytest.mark.parametrize(
    ("names", "installed", "expected"),
    [
        ("libcublas.so.12", "libcublas.so.13",
         "libuser.so of user 1 names libcublas.so.12, and there is libcublas.so.13"),
        ("libcublas.so.11", "libcublas.so.12",
         "libuser.so of user 1 names libcublas.so.11, and there is libcublas.so.12"),
        ("libcublas.so.12", "libcublas.so.12", ""), ("libcublas.so.12", "libcudart.so.13", ""),
        ("libcublas.so.13 libcublas.so.12", "libcublas.so.13", ""),
        ("libcublas.so", "libcublas.so.13", ""),
    ],
)  # fmt: skip
def test_a_library_that_is_opened_by_name(made: Made, monkeypatch, names: str, installed: str, expected: str) -> None:
    """That of another CUDA major does not serve it where there is a driver; without any, the program does without."""
    major = installed[-2:]
    name = {"libcublas": "nvidia-cublas", "libcudart": "nvidia-cuda-runtime"}[installed.partition(".")[0]]
    made.wheel(name + "-cu12" * (major == "12"), f"{major}.8.1", files=(made.library(f"n/{installed}"),))
    code = " ".join(f'const char *name{number} = "{name}";' for number, name in enumerate(names.split()))
    (made.site / "u").mkdir()
    compile_c(made.site / "u/libuser.so", code)
    made.wheel("user", "1", files=("u/libuser.so",))
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")
    assert [finding.severity for finding in made.audit().findings] == ["note"] * bool(expected)
    assert len(audit_environment(made.prefix, driver="13.0").errors) == bool(expected)
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "13.0")
    errors = made.audit().errors
    assert [error.what[: len(expected)] for error in errors] == [expected] * bool(expected)
    remedy = f"pip --python {made.prefix} install nvidia-cublas-cu12"
    if "so.11" in names:
        remedy = "install a build of user for the CUDA release of nvidia-cublas-cu12 12.8.1"
    place = str(made.site / "u/libuser.so")
    assert [(e.kind, e.place, *e.remedies) for e in errors] == [("unprovided", place, remedy)] * bool(expected)


def test_what_files_use(made: Made) -> None:
    """Libraries with their majors; those that this project names are not ones that it needs."""
    libraries = ("libnvrtc", "libnvjpeg", "libcudart", "libnvJitLink")
    for name, major in (("user", 12), ("pytest-cudalink", 13)):
        names = ", ".join(f'"{library}.so.{major}"' for library in libraries)
        compile_c(made.site / name / "libx.so", f"const char *names[] = {{{names}}};")
        made.wheel(name, "1", files=(f"{name}/libx.so",))
    assert made.audit().used_libraries == ("libcudart 12", "libnvJitLink 12", "libnvjpeg 12", "libnvrtc 12")


CUDNN = "libcudnn-74a4c495.so.9.1.0", "libcudnn_graph.so", "libcudnn_ops.so"
NVRTC = "libnvrtc-d540eb83.so.12.1.55", "libnvrtc-builtins.so.12.1"
PARTS = "libcudnn_graph.so.9 libcudnn_ops.so.9"


@pytest.mark.parametrize(
    ("copy", "there", "path", "runpath", "severities"),
    [
        (CUDNN, "", "", "", ["note"]), (CUDNN, PARTS, "", "", ["error"]), (CUDNN, PARTS, "n", "", []),
        (CUDNN, PARTS, "", "$ORIGIN/../n", []), (CUDNN, "", "alone", "", ["note", "error"]),
        (NVRTC, "", "", "", ["error"]),
        (NVRTC, "libnvrtc-builtins.so.12.4", "n", "", ["error"]),
        (NVRTC, "libnvrtc-builtins.so.12.1", "n", "", []),
    ],
)  # fmt: skip
def test_a_copy_that_does_not_find_its_parts(made: Made, monkeypatch, copy, there, path, runpath, severities) -> None:
    """Inside of a wheel, as in CTranslate2 4.5.0 and TileLang 0.1.6, or alone in LD_LIBRARY_PATH."""
    name, *parts = copy
    code = "".join(f'const char *part{number} = "{name}";' for number, name in enumerate(parts))
    compile_c(made.site / "x" / name, code, *[f"-Wl,-rpath,{runpath}"] * bool(runpath))
    made.wheel("x", "1", files=(f"x/{name}",))
    files = tuple(made.library(f"n/{word}") for word in there.split())
    made.wheel("nvidia-cudnn-cu12", "9.1.0.70", files=files)
    if path == "alone":
        compile_c(made.site / "alone/libcudnn.so.9", f"{code} int cudnnCreate(void) {{ return 0; }}")
        made.wheel("y", "1", files=(made.user("y/y.so", "alone/libcudnn.so.9", "cudnnCreate"),))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(made.site / path) if path else "")
    findings = [finding for finding in made.audit().findings if f"opens {parts[0]}" in finding.what]
    assert [finding.severity for finding in findings] == severities
    assert all((finding.kind, finding.place.startswith(str(made.site))) == ("unprovided", True) for finding in findings)
    more = " and 1 more by name" if parts[1:] else " by name"
    assert all(f"opens {parts[0]}{more}" in finding.what for finding in findings)
    advice = f"put {made.site}/n into" if there and not path else f"put a folder with all parts of that {name[:6]}"
    assert all(finding.otherwise.startswith(advice) for finding in findings)


def kinds(audited: EnvironmentAudit) -> list[tuple[str, str]]:
    return [(finding.kind, finding.severity) for finding in audited.findings]


def test_pin_against_measured_floor(made) -> None:
    """RAPIDS beside torch: a library needs nvJitLink 12.9 and says so nowhere, torch pins 12.8: the pair is named."""
    jitlink = made.nvjitlink("12.8.93")
    user = made.user("libcudf/lib64/libcudf.so", jitlink, "__nvJitLinkCreate_12_9")
    made.wheel("libcudf-cu12", "26.2.1", files=(user,))
    made.wheel("torch", "2.9.1", 'nvidia-nvjitlink-cu12==12.8.93; platform_system == "Linux"', files=())
    audited = made.audit()
    assert kinds(audited) == [("pair", "error"), ("known-bad", "error")], audited.findings
    finding, known = audited.findings
    assert "NVIDIA/cudf#22784" in known.what
    assert finding.what == (
        "nvidia-nvjitlink-cu12 is 12.8.93; expected ==12.8.93 (torch 2.9.1) and >=12.9 (libcudf-cu12 26.2.1), which no "
        "version satisfies"
    )
    pin, floor = finding.evidence
    assert (pin.by, pin.how, pin.satisfied) == ("torch 2.9.1", "declared", True)
    assert (floor.by, floor.how, floor.satisfied) == ("libcudf-cu12 26.2.1", "symbols", False)
    assert floor.file == str(made.site / user)
    assert "__nvJitLinkCreate_12_9" in floor.evidence
    assert "declares no requirement on nvidia-nvjitlink-cu12" in floor.evidence
    assert finding.place == f"nvidia-nvjitlink-cu12 12.8.93 ({made.site / jitlink})"
    assert str(finding.fix) == f"pip --python {made.prefix} install --upgrade torch libcudf-cu12"
    assert finding.otherwise == "put torch and libcudf-cu12 into separate environments"
    assert audited.exit_code == 1
    with pytest.raises(AssertionError, match="which no version satisfies"):
        audited.check()


def test_pair_through_an_extra(made) -> None:
    """A pin that torch makes through an extra of cuda-toolkit is torch's; extras that nothing requires do not count."""
    made.wheel("nvidia-nvjitlink", "13.0.88")
    pins = 'nvidia-nvjitlink==13.0.88.*; extra == "nvjitlink"', 'nvidia-cufft==1; extra == "cufft"'
    made.wheel("cuda-toolkit", "13.0.2", *pins)
    made.wheel("torch", "2.12.0", 'cuda-toolkit[nvjitlink]==13.0.2; platform_system == "Linux"')
    assert made.audit().findings == ()
    made.wheel("libcudf-cu13", "26.8.0", "nvidia-nvjitlink>=13.1,<14")
    (finding,) = made.audit().findings
    pin = "==13.0.88.* (cuda-toolkit 13.0.2, for torch 2.12.0)"
    assert f"expected {pin} and <14,>=13.1 (libcudf-cu13 26.8.0)" in finding.what
    assert str(finding.fix).endswith("install --upgrade torch libcudf-cu13")


RELEASES = tables.read_table("toolchains.toml")["releases"]


@pytest.mark.parametrize("release", list(RELEASES))
def test_published_toolkits_are_sound(release, made) -> None:
    """The wheels of a CUDA release, with a cuda-toolkit that requires them, and a library for that release."""
    suffix = "-cu12" if release.startswith("12") else ""
    extras = []
    for wheel in RELEASES[release]["libs"]:
        extra = wheel["name"].removeprefix("nvidia-").removesuffix("-cu12").rpartition("-")[2]
        extras.append(f'{wheel["name"]}=={wheel["version"]}.*; extra == "{extra}"')
        if extra == "nvjitlink":
            path = made.library(
                f"nvidia/lib/libnvJitLink.so.{release[:2]}", f"__nvJitLinkCreate_{release.replace('.', '_')}"
            )
            made.wheel(wheel["name"], wheel["version"], files=(path,))
            user = made.user("x/libx.so", path, f"__nvJitLinkCreate_{release.replace('.', '_')}")
        else:
            made.wheel(wheel["name"], wheel["version"])
    made.wheel("cuda-toolkit", RELEASES[release]["toolkit"], *extras)
    pin = f"nvidia-nvjitlink{suffix}>={release},<{int(release[:2]) + 1}"
    made.wheel("x", "1", f"cuda-toolkit[nvjitlink,nvrtc,runtime]=={release}.*", pin, files=(user,))
    audited = made.audit()
    assert (audited.findings, audited.unreadable, audited.exit_code) == ((), (), 0)
    assert [claim.satisfied for claim in audited.claims if claim.file] == [True]
    audited.check()


def test_the_environment_of_this_process() -> None:
    """The default is the environment that runs the tests; all of it can be read, quickly without measuring."""
    audited = audit_environment(measure=False)
    assert (audited.unreadable, audited.files) == ((), 0)
    assert audited.prefix == sys.prefix
    assert "cuda-bindings" in {claim.by.partition(" ")[0] for claim in audited.claims}
    assert audited.seconds < 60  # 0.1 s on two idle cores


def test_conda_without_its_rules(made, monkeypatch) -> None:
    """Without py-rattler conda's requirements are not judged, and that is said where there are some on CUDA's."""
    made.conda("x", "1", "libcurl >=8")
    monkeypatch.setitem(sys.modules, "rattler", None)
    conda.rules.cache_clear()
    try:
        assert made.audit().unreadable == ()
        made.conda("y", "1", "cuda-version >=12.9")
        audited = made.audit()
    finally:
        conda.rules.cache_clear()
    assert audited.exit_code == 2
    assert install_command("pytest-cudalink[audit]") in audited.unreadable[0].text


METADATA, LIBRARY = (f"lib/python3.12/site-packages/{name}" for name in ("nvidia_x-1.dist-info/METADATA", "x.so"))
CONDA = "conda-meta/x-1-h0_0.json"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (METADATA, None),
        (METADATA, "Name: x; rm -rf $HOME \x1b[31m\nVersion: 1\n"),
        (METADATA, f"Name: x\nVersion: 1\nRequires-Dist: nvidia-y<2,>={'9' * 6000}\n"),
        (LIBRARY, "\x7fELF\2\1"), (CONDA, '{"name": "x'), (CONDA, "[" * 100_000),
        (CONDA, '{"name": "x", "version": "1", "depends": ["cuda-version >=)"]}'),
    ],
    ids=range(7),
)  # fmt: skip
@pytest.mark.usefixtures("_alone")
def test_what_cannot_be_read(path: str, content: str | None, made, capsys) -> None:
    """Broken metadata is exit code 2, one line with the file and what to do, and nothing that a terminal would obey."""
    made.wheel("nvidia-x", "1", files=("x.so",))
    made.conda("x", "1").unlink()
    file = made.prefix / path
    file.unlink(missing_ok=True)
    if content is None:
        os.mkfifo(file)
    else:
        file.write_text(content, encoding="utf-8")
    assert main(["audit", "--environment", str(made.prefix)]) == 2
    output = capsys.readouterr().out
    (line,) = [line for line in output.splitlines() if line.startswith("not readable: ")]
    assert str(made.prefix) in line
    assert "again" in line
    assert "\x1b" not in output


@settings(max_examples=60, deadline=None)
@given(metadata=st.binary(max_size=300), record=st.binary(max_size=200), meta=st.binary(max_size=200))
@example(metadata=b"Name: x\nVersion: 1\n", record=b'"\n.so,,\n"', meta=b'{"name": "x", "version": "1", "build": "0"}')
def test_any_metadata(metadata, record, meta, tmp_path_factory) -> None:
    made = Made(tmp_path_factory.mktemp("any") / "prefix")
    folder = made.wheel("nvidia-x", "1")
    (folder / "METADATA").write_bytes(b"Name: nvidia-x\nVersion: 1\n" + metadata)
    (folder / "RECORD").write_bytes(b"x.so,," + record)
    made.conda("x", "1").write_bytes(meta)
    assert made.audit().exit_code in (0, 1, 2)


@pytest.mark.usefixtures("_alone")
def test_command(made, capsys) -> None:
    """The verdict comes first; then the finding, what needs it, what is there, and what to do. JSON has the same."""
    made.wheel("nvidia-nvjitlink-cu12", "12.8.93")
    made.wheel("x", "1", "nvidia-nvjitlink-cu12>=12.9")
    assert main(["audit", "--environment", str(made.prefix)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        f"Verdict: incoherent: 1 error: 2 distributions, declared requirements only, in {made.prefix} ("
    )
    assert lines[1:] == [
        "",
        "error: nvidia-nvjitlink-cu12 is 12.8.93; expected >=12.9 (x 1)",
        "  needs  x 1: nvidia-nvjitlink-cu12 >=12.9 (Requires-Dist: nvidia-nvjitlink-cu12>=12.9)",
        "  there  nvidia-nvjitlink-cu12 12.8.93 (…/nvidia_nvjitlink_cu12-12.8.93.dist-info)",
        f"  do     pip --python {made.prefix} install 'nvidia-nvjitlink-cu12>=12.9'",
    ]
    assert main(["audit", "--format=json", "--environment", str(made.prefix)]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["summary"].startswith("1 error: ")
    assert content["findings"][0]["kind"] == "version"
    assert main(["audit", "--format=github", "--environment", str(made.prefix)]) == 1
    said = capsys.readouterr().out
    assert "\n::error title=version%3A nvidia-nvjitlink-cu12 12.8.93 (" in said
    assert ".dist-info)::nvidia-nvjitlink-cu12 is 12.8.93; expected >=12.9 (x 1); pip" in said
    for words in ([], ["x.whl", "--environment", str(made.prefix)], ["--format=json", "--environment=/no/such"]):
        assert main(["audit", *words]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("_alone")
def test_errors_come_first_and_a_command_once(made, capsys, monkeypatch) -> None:
    """At two in the morning a note above the error is read first, and a command twice is run twice."""
    fix = Command(("a",))
    findings = [Finding("note", "a note"), *(Finding("error", t, fix) for t in ("one", "two")), Finding("error", "x")]
    audited = replace(audit_environment(made.prefix), findings=tuple(findings))
    monkeypatch.setattr(doctor, "examine_environment", lambda *_, **__: audited)
    assert main(["audit", "--environment", str(made.prefix)]) == 1
    _, *lines = capsys.readouterr().out.splitlines()
    shown = [
        "error: one", "  do     pip install a", "error: two", "  do     the same command", "error: x",
        "note: a note",
    ]  # fmt: skip
    assert [line for line in lines if line] == shown
    warned = replace(
        audited, findings=(Finding("note", "n", kind="k"), Finding("warning", "w", fix, place="p", kind="k"))
    )
    monkeypatch.setattr(doctor, "examine_environment", lambda *_, **__: warned)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(made.prefix / "summary"))
    assert main(["audit", "--format=github", "--environment", str(made.prefix)]) == 0
    assert "\n::warning title=k%3A p::w; pip install a\n::notice title=k::n\n" in capsys.readouterr().out
    summary = (made.prefix / "summary").read_text(encoding="utf-8").partition("\n| passes | Verdict: coherent")[2]
    assert "\n- **k: p (warning)**: w; pip install a\n- **k (note)**: n\n" in summary


def test_what_the_doctor_adds(made, tmp_path, monkeypatch) -> None:
    """Its errors and unknowns, once; its command for a finding of both; two kinds of notes; nothing on Windows."""
    made.wheel("nvidia-nvjitlink-cu12", "12.8.93")
    made.wheel("x", "1", "nvidia-nvjitlink-cu12>=12.9")
    record = made.wheel("y", "1") / "RECORD"
    record.unlink()
    os.mkfifo(record)
    alone = audit_environment(made.prefix)
    (unread,) = alone.unreadable
    both = replace(alone.findings[0], fix=Command(("repairs-both",)))
    own = Finding("error", "an error"), Finding("unknown", "a doubt")
    left = Finding("warning", "no verdict"), Finding("unknown", f"{unread.path}: {unread.text}")
    part, unused = Finding("warning", "a part", kind="machine"), Finding("note", "not used", kind="doctor")
    asked = []

    def examine(*, facts: DriverFacts, system: System) -> doctor.DoctorReport:
        asked.append((facts, system))
        return doctor.DoctorReport(findings=[both, *own, *left, part, unused])

    monkeypatch.setattr(doctor, "examine", examine)
    audited = doctor.examine_environment(made.prefix, driver="12.8", gpu="A100")
    own = (*(replace(finding, kind="doctor") for finding in own), unused)
    assert audited.findings == (both, *own, replace(part, severity="note"))
    assert (audited.exit_code, audited.unreadable) == (1, alone.unreadable)
    ((facts, system),) = asked
    assert (str(facts.cuda().value), facts.release().value) == ("12.8", DRIVER_RELEASES[facts.cuda().value])
    assert system.driver(facts.cuda()).arch == "sm_80"
    assert system.environment().claims == alone.claims
    monkeypatch.setattr(sys, "prefix", str(made.prefix))
    doctor.examine_environment(made.prefix)
    doctor.examine_environment()
    assert [type(system).__name__ for _, system in asked] == ["Elsewhere", "System", "System"]
    assert [system.driver(Fact(None, "")).arch for _, system in asked[1:]] == [None, None]
    windows = tmp_path / "windows"
    (windows / "Lib").mkdir(parents=True)
    made.site.rename(windows / "Lib/site-packages")
    assert doctor.examine_environment(windows) == audit_environment(windows)
    assert len(asked) == 3


VERSION = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(lambda numbers: ".".join(map(str, numbers)))
CLAUSE = st.one_of(
    st.builds("{}{}".format, st.sampled_from(["==", ">=", "<=", "<", ">", "!="]), VERSION),
    st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), VERSION),
    st.builds("~={}.{}".format, st.integers(0, 3), VERSION),
)
SPECIFIER = st.lists(CLAUSE, min_size=1, max_size=3).map(",".join)


@pytest.mark.skipif(not hasattr(SpecifierSet, "is_unsatisfiable"), reason="needs packaging >= 26.1")
@settings(max_examples=400, deadline=None)
@given(first=SPECIFIER, other=SPECIFIER)
@example(first=">12.8", other="<12.8.0.1")
@example(first="==12.8.93", other=">=12.9")
def test_common_version(first, other) -> None:
    """A common version satisfies both; where there is none, packaging's own reasoning agrees."""
    common = install_targets.common_version([first, other])
    both = SpecifierSet(f"{first},{other}")
    if common is None:
        assert both.is_unsatisfiable()
    else:
        assert both.contains(common, prereleases=True)


def by_pyelftools(path: Path) -> LoadableLibrary:
    """What a library needs, by another reader."""
    with path.open("rb") as stream:
        file = ELFFile(stream)
        tags = list(next(segment for segment in file.iter_segments("PT_DYNAMIC")).iter_tags())
        needs = file.get_section_by_name(".gnu.version_r")
        versions = {
            auxiliary["vna_other"]: (library.name, auxiliary.name)
            for library, auxiliaries in (needs.iter_versions() if needs else ())
            for auxiliary in auxiliaries
        }
        numbers = file.get_section_by_name(".gnu.version")
        symbols = list(enumerate(file.get_section_by_name(".dynsym").iter_symbols()))
        named = [(at, pair) for at, pair in symbols if pair.name]
        undefined = [(at, pair) for at, pair in named if pair["st_shndx"] == "SHN_UNDEF"]
        given = [numbers.get_symbol(at)["ndx"] if numbers else 0 for at, _ in undefined]
        return LoadableLibrary(
            next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), None),
            tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            tuple(tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"),
            tuple(folder for tag in tags if tag.entry.d_tag == "DT_RUNPATH" for folder in tag.runpath.split(":")),
            tuple(
                (n.name, *(versions.get(number & 0x7FFF, ("", "")) if isinstance(number, int) else ("", "")))
                for (_, n), number in zip(undefined, given, strict=True)
            ),
            frozenset(),
            frozenset(n.name for _, n in named if n["st_shndx"] != "SHN_UNDEF" and n.name in cuda_functions()),
            frozenset(s.name for _, s in undefined if s["st_info"]["bind"] == "STB_WEAK"),
            {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[file["e_machine"]],
        )


def test_the_reader_agrees_with_pyelftools(made) -> None:
    """Both ways to read a library have what pyelftools reads, also of the libraries of this environment."""
    jitlink = made.nvjitlink("12.9.86")
    paths = [made.site / made.user("x/libx.so", jitlink, "__nvJitLinkCreate_12_9", "-Wl,-rpath,$ORIGIN:/opt")]
    distributions, _ = installed.read_distributions(installed.find_place())
    names = ("nvidia-nvjitlink", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "cuda-bindings")
    paths += [Path(path) for dist in distributions if dist.name in names for path in dist.files][:8]
    for path in paths:
        quick = read_dynamic(path)
        with path.open("rb") as stream:
            thorough = read_elf(stream)
        assert replace(thorough, wanted=frozenset()) == by_pyelftools(path), path
        parts = ("soname", "needed", "rpath", "runpath")
        assert [getattr(quick, part) for part in parts] == [getattr(thorough, part) for part in parts], path
        assert set(quick.undefined) <= set(thorough.undefined), path
    assert read_dynamic(paths[0]).undefined == (("__nvJitLinkCreate_12_9", "libnvJitLink.so.12", "libnvJitLink.so.12"),)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_quick_reader_of_damaged_libraries(data, tmp_path_factory) -> None:
    """A library that is cut or changed anywhere is read, or is an error of its own kind."""
    folder = tmp_path_factory.getbasetemp() / "damaged"
    if not folder.exists():
        made = Made(folder / "prefix")
        made.user("x/libx.so", made.nvjitlink("12.9.86"), "__nvJitLinkCreate_12_9")
    library = folder / "prefix/lib/python3.12/site-packages/x/libx.so"
    content = bytearray(library.read_bytes())
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynamic")["sh_offset"]
    places = st.one_of(st.integers(6, 512), st.integers(table, table + 400), st.integers(6, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(places)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content))) :]
    broken = folder / "broken.so"
    broken.write_bytes(content)
    try:
        read_dynamic(broken)
    except ElfError as error:
        assert str(error)
