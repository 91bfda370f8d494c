"""``cudalink audit`` as it is typed: nothing that was asked for is passed over, and nothing reaches a terminal raw."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.audit.device_code import assemble, device_code
from pytest_cudalink.cli import main
from pytest_cudalink.emulator.worker import WorkerAnswer
from pytest_cudalink.toolchains import ToolchainError
from pytest_cudalink.versions import CudaVersion

DOCS = Path(__file__).parents[2] / "docs"
DATA = Path(__file__).parents[1] / "data"

#: A name that would colour a terminal, set its title, and begin a line of its own.
NAME = "x/\x1b[31mred\x1b]0;title\x07\nfails: x"
PTX = ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


@pytest.fixture
def user(cuda_library, built) -> Path:
    """A library that needs libcudart.so.13."""
    return built("libuse.so", {cuda_library("libcudart.so.13", "cudaMalloc"): "cudaMalloc"})


@pytest.mark.parametrize(
    "options", [(), ("--format=github",), ("--symbols",), ("--require", "12"), ("--gpu", "A100"), ("--device-code",)]
)
def test_names_in_a_wheel_are_shown_as_text(options, user, make_wheel, capsys) -> None:
    """The names of files reach the output with visible escapes, each in one line."""
    path = make_wheel("x-1-py3-none-any.whl", {f"{NAME}.so": user, f"{NAME}.ptx": PTX.encode()})
    assert main(["audit", str(path), *options]) == (0 if options == ("--device-code",) else 1)
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\x07" not in said
    assert not any(line.startswith("fails: x") for line in said.splitlines())
    assert "\\x1b[31mred" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device-code", "--require", "12"], "--require is given with an option of device code"),
        (["--device-code", "--symbols"], "--symbols is given with an option of device code"),
        (["--environment=/x", "--require", "12"], "--require is given with --environment"),
        (["--environment=/x", "--require-archs", "80"], "--require-archs is given with --environment"),
        (["--environment=/x", "--gpu", "L4", "--gpu", "A100"], "--gpu is L4, A100; expected one with --environment"),
        (["--environment=/x", "--gpu", "L4"], "gpu = 'L4' is given without a driver; name one, such as 12.8 or 570"),
        (["--environment=/x", "--driver", ">=570"], "driver '>=570': expected a release from 525 on"),
        (["--environment", ""], "--environment is empty"),
        (["--toolchain", "13.0"], "--toolchain is given without --assemble"),
        (["--require", ""], "--require is ''"), (["--require", " ,"], "--require is ' ,'"),
        (["--gpu", ""], "--gpu is empty"), (["--driver", ""], "--driver is empty"),
        (["--require-archs", ""], "--require-archs names no architecture"),
        (["--require-archs", ","], "--require-archs names no architecture"),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_never_passed_over(options, words, user, capsys) -> None:
    """An option that the audit would not look at, or that an unset variable left empty, ends the command with 2."""
    paths = [] if options[0].startswith("--environment") else [str(user)]
    assert main(["audit", *paths, *options]) == 2
    assert words in capsys.readouterr().err


def test_required_architectures_without_device_code(user, capsys) -> None:
    """A library that lost its device code does not have what is required; to ask about one GPU alone fails nothing."""
    assert main(["audit", str(user), "--require-archs", "80, 90"]) == 1
    assert "  fails: no device code; expected code for sm_80, sm_90\n" in capsys.readouterr().out
    assert main(["audit", str(user), "--require-archs", "80", "--format=github"]) == 1
    said = annotations(capsys.readouterr().out)
    assert ("error", str(user), "device code", "no device code; expected code for sm_80") in said
    assert main(["audit", str(user), "--gpu", "L4", "--gpu", "A100"]) == 0
    with pytest.raises(AssertionError, match="no device code; expected code for sm_90"):
        device_code(user).check(archs=["H100"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("k.ptx", b".version 99999999999999999999.9\n.target sm_80\n"),
        ("k.ptx", b".version 8.0\n.target sm_" + b"9" * 5000 + b"\n"),
        ("k.FATBIN", b"PK\3\4"),
    ],
    ids=["isa", "target", "not-a-fatbin"],
)
def test_file_of_device_code_without_any(name, content, tmp_path, capsys) -> None:
    """A file whose name promises device code, and which has none, is a fault and not a pass."""
    (tmp_path / name).write_bytes(content)
    (tmp_path / "notes.txt").write_bytes(content)
    assert main(["audit", str(tmp_path), "--gpu", "L4"]) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "unreadable" in line]
    fault = "has no device code that can be read; expected some, as its name says: build it again"
    assert said == [f"  unreadable: {name}: {fault}"]


def test_folder_of_wheels(user, make_wheel, tmp_path, capsys) -> None:
    """``dist`` for ``dist/*.whl`` is refused: the wheels would be passed over. Those further down are data."""
    (tmp_path / "dist/ensurepip").mkdir(parents=True)
    make_wheel("dist/ensurepip/y-1-py3-none-any.whl", {"y/libuse.so": user})
    shutil.copy(user, tmp_path / "dist")
    assert main(["audit", str(tmp_path / "dist")]) == 0
    make_wheel("dist/x-1-py3-none-any.whl", {"x/libuse.so": user})
    for options in ((), ("--device-code",)):
        assert main(["audit", str(tmp_path / "dist"), *options]) == 2
        said = f"{tmp_path}/dist: a folder with wheels, such as x-1-py3-none-any.whl; expected one of files; give "
        assert f"{said}{tmp_path}/dist/*.whl" in capsys.readouterr().err


ESCAPED = re.compile(r"::(error|notice) (?:file=([^,:]*),)?title=([^:,]*)::(.*)")


def annotations(text: str) -> list[tuple[str, str, str, str]]:
    """Level, file, title and text of each annotation, read as the runner of GitHub Actions reads them."""
    notes = [match.groups("") for line in text.splitlines() if (match := ESCAPED.fullmatch(line))]
    return [tuple(re.sub("%([0-9A-F]{2})", lambda hit: chr(int(hit[1], 16)), part) for part in note) for note in notes]


def test_annotations(user, make_wheel, tmp_path, monkeypatch, capsys) -> None:
    """Each error is annotated on its wheel, the text is a group, and the job summary has the verdict of each wheel."""
    summary = tmp_path / "summary.md"
    summary.write_text("# before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.chdir(tmp_path)
    make_wheel("x-1-py3-none-any.whl", {"x/100%,a:b.so": user})
    make_wheel("y-1-py3-none-any.whl", {"y/a.py": b""})
    code = main(["audit", "x-1-py3-none-any.whl", "y-1-py3-none-any.whl", "--require=12", "--format=github"])
    said = capsys.readouterr().out
    assert code == 1
    verdict = "x-1-py3-none-any.whl: 1 ELF file; loads with CUDA 13"
    assert f"::group::{verdict}\n  x/100%,a:b.so  needs libcudart.so.13" in said
    first, second = annotations(said)
    assert first[:3] == ("error", "x-1-py3-none-any.whl", "undeclared: x/100%,a:b.so")
    assert "no requirement brings nvidia-cuda-runtime: write " in first[3]
    assert second[2:] == ("required", "cannot be loaded with CUDA 12, because of libcudart.so.13")
    written = summary.read_text(encoding="utf-8")
    assert written.startswith("# before\n### cudalink audit\n")
    assert f"| fails | {verdict} |\n" in written
    assert "| passes | y-1-py3-none-any.whl: no library; loads with" in written
    assert "- **undeclared: x/100%,a:b.so**: wants cudaMalloc of CUDA 13.0" in written


def test_names_give_no_commands(user, make_wheel, tmp_path, monkeypatch, capsys) -> None:
    """The runner obeys no name in a wheel: neither a command of its own, nor one inside an annotation, nor markup."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    names = ("::stop-commands::x.so", "##[stop-commands]x.so", "x/a\n::error::x.so", "x/<b>|`.so")
    path = make_wheel("x-1-py3-none-any.whl", dict.fromkeys(names, user))
    assert main(["audit", str(path), "--format=github"]) == 1
    lines = capsys.readouterr().out.splitlines()
    commands = [line.split("::")[1].split(" ")[0] for line in lines if line.lstrip().startswith("::")]
    assert commands[:2] == ["group", "endgroup"]
    assert set(commands[2:]) == {"error"}
    assert not [line for line in lines if "##[" in line and not line.startswith("::")]
    assert not [line for line in lines if line.startswith("::error::")]
    assert "<b>" not in summary.read_text(encoding="utf-8")


def test_annotations_of_what_cannot_be_audited(tmp_path, monkeypatch, capsys) -> None:
    """A path that cannot be audited is annotated, too; a summary that cannot be written changes no exit code."""
    assert main(["audit", str(tmp_path / "none.whl"), "--format=github"]) == 2
    ((level, _, title, text),) = annotations(capsys.readouterr().err)
    assert (level, title) == ("error", "cudalink audit")
    assert text.endswith("there is no such file; give a wheel, a folder or a shared library")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    (tmp_path / "k.ptx").write_text(PTX, encoding="utf-8")
    assert main(["audit", str(tmp_path / "k.ptx"), "--device-code", "--format=github"]) == 0
    ((_, _, _, text),) = annotations(capsys.readouterr().err)
    assert text.endswith(": Is a directory; expected a file that can be written")


# -- assembling


def answer(code: int = 0, end: str = "", *, hung: bool = False, log: tuple[str, str] = ("", "")) -> WorkerAnswer:
    """What the link worker answers."""
    return WorkerAnswer(code, 0, False, end, 0, hung, *log, "", None)


class FakeLink:
    """A link that answers to its three calls, and notes what it is asked."""

    answers: Sequence[WorkerAnswer] = (answer(), answer(), answer())
    asked: ClassVar[list[Any]] = []

    def __init__(self, library: str, options: list[str]) -> None:
        self.asked.append((library, *options))
        self.answer = self.answers[0]

    def add(self, *arguments: object) -> WorkerAnswer:
        self.asked.append(arguments)
        return self.answers[1]

    def complete(self, kind: int) -> WorkerAnswer:
        self.asked.append(kind)
        return self.answers[2]

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture
def linked(monkeypatch) -> list[Any]:
    """What links are asked, which are none."""
    monkeypatch.setattr(assemble, "WorkerLink", FakeLink)
    monkeypatch.setattr(FakeLink, "asked", [])
    return FakeLink.asked


def assembled(path: Path, release: str = "13.0") -> list[assemble.Assembled]:
    """What comes of the PTX below a folder, by the nvJitLink of a release."""
    fake = SimpleNamespace(version=CudaVersion.parse(release), library=lambda name: f"/{release}/{name}")
    return list(assemble.assemble(path, fake))


@pytest.mark.parametrize(
    ("answers", "outcome", "log", "fails"),
    [
        ([answer(), answer(), answer(log=("Xptxas w\n\0", "\n\t info "))], "assembled", "Xptxas w\n\t info", False),
        ([answer(5)], "failed", "nvJitLink: error 5", True),
        ([answer(), answer(4, log=("", "Undefined Reference to f"))], "incomplete", "Undefined Reference to f", False),
        ([answer(), answer(), answer(3, log=("no", ""))], "failed", "no", True),
        ([answer(end="ended by SIGSEGV")], "crashed", "libnvJitLink 13.0 ended by SIGSEGV", True),
        ([answer(), answer(end="ended", log=("\0", "X"))], "crashed", "libnvJitLink 13.0 ended\nX", True),
        ([answer(), answer(), answer(7, "took 1 s", hung=True)], "unfinished", "libnvJitLink 13.0 took 1 s", False),
    ],
)
def test_what_comes_of_a_link(answers, outcome, log, fails, linked, tmp_path, monkeypatch) -> None:
    """The first call that fails decides, and no other follows; PTX ends in one NUL, and its name need not be UTF-8."""
    monkeypatch.setattr(FakeLink, "answers", answers)
    text = PTX.replace("sm_80", "sm_90a")
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/k\xff.ptx"))
    path.write_text(text, encoding="utf-8")
    (link,) = assembled(tmp_path)
    assert (link.path, link.arch, link.outcome, link.log, link.fails) == (path.name, "sm_90a", outcome, log, fails)
    assert (link.image.arch, link.image.data) == ("sm_90a", None)
    calls = [("/13.0/nvJitLink", "-arch=sm_90a"), (2, f"{text}\0".encode(), b"k\\udcff.ptx"), 0]
    assert linked == [*calls[: len(answers)], "close"]


@pytest.mark.parametrize(
    ("arch", "archs"),
    [
        ("sm_100", ["sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]),
        ("sm_100f", ["sm_100f", "sm_103f"]),
        ("sm_121a", ["sm_121a"]),
    ],
)
def test_for_which_architectures(arch: str, archs: list[str], linked, tmp_path) -> None:
    """Those for which the newest driver would compile it; equal PTX once."""
    for name in "ab":
        (tmp_path / f"{name}.ptx").write_text(PTX.replace("sm_80", arch), encoding="utf-8")
    assert [(outcome.path, outcome.arch, outcome.outcome) for outcome in assembled(tmp_path)] == [
        ("a.ptx", arch, "assembled") for arch in archs
    ]
    assert linked.count("close") == len(archs)


def test_ptx_beside_cubins(linked, monkeypatch) -> None:
    """Where a cubin of the same fatbin runs, PTX is not compiled; packed PTX cannot be."""
    size = DATA / "device_code/size.fatbin"
    assert [outcome.arch for outcome in assembled(size)] == ["sm_87", "sm_110", "sm_120", "sm_121"]
    del linked[:]
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (outcome,) = assembled(size)
    assert (outcome.outcome, outcome.log, outcome.path, outcome.arch) == (
        "not tried", "the package zstandard is not installed (pytest-cudalink[audit])", "size.fatbin", "sm_80",
    )  # fmt: skip
    assert linked == []


@pytest.mark.parametrize(
    ("change", "release", "said"),
    [
        (("sm_80", "sm_100a"), "12.0", "nvJitLink 12.0 does not link for sm_100a"),
        (("8.8\n.target sm_80", "9.1\n.target sm_121"), "13.0", "it needs CUDA 13.1; nvJitLink 13.0 reads PTX 9.0"),
        (("8.8\n.target sm_80", "9.1\n.target sm_90a"), "13.0", "it needs CUDA 13.1; nvJitLink 13.0 reads PTX 9.0"),
        (("8.8\n.target sm_80", "9.0\n.target sm_121"), "13.0", ""),
    ],
)
def test_what_a_release_cannot_assemble(change: tuple[str, str], release: str, said: str, linked, tmp_path) -> None:
    """Neither an architecture nor an ISA that is newer."""
    (tmp_path / "k.ptx").write_text(PTX.replace(*change), encoding="utf-8")
    (outcome,) = assembled(tmp_path, release)
    assert (outcome.outcome, outcome.log) == (("not tried", said) if said else ("assembled", ""))


def test_which_toolchain_assembles(monkeypatch) -> None:
    old, new = object(), object()
    monkeypatch.setattr(toolchains, "find", lambda release: ("found", release))
    monkeypatch.setattr(toolchains, "installed", lambda: [old, new])
    assert assemble.assembler() is new
    assert assemble.assembler("12.9") == ("found", CudaVersion(12, 9))
    monkeypatch.setattr(toolchains, "installed", list)
    monkeypatch.setattr(toolchains, "cache_root", lambda: "/c")
    monkeypatch.setattr(toolchains, "releases", lambda: (CudaVersion(12, 0), CudaVersion(13, 5), CudaVersion(13, 0)))
    with pytest.raises(ToolchainError, match="^no toolchain is in /c; run: cudalink toolchain add 13.5$"):
        assemble.assembler()


@pytest.mark.usefixtures("toolchain")
def test_unfinished_and_crashed(linked, tmp_path, monkeypatch, capsys) -> None:
    """PTX that takes too long is shown and fails nothing; PTX that ends nvJitLink fails. Other PTX is only counted."""
    (tmp_path / "k.ptx").write_text(PTX.replace("sm_80", "sm_90a"), encoding="utf-8")
    assert main(["audit", str(tmp_path), "--assemble", "--toolchain", "13.0"]) == 0
    assert capsys.readouterr().out.endswith("  assembled: 1 assembled\n")
    monkeypatch.setattr(FakeLink, "answers", [answer(end="took longer than 1 s", hung=True)])
    assert main(["audit", str(tmp_path), "--assemble", "--toolchain", "13.0"]) == 0
    said = capsys.readouterr().out
    assert "  assembled: 1 unfinished\n    unfinished: k.ptx: PTX 8.8 for sm_90a, on sm_90a\n" in said
    assert "took longer than 1 s" in said
    monkeypatch.setattr(FakeLink, "answers", [answer(end="ended by SIGSEGV")])
    assert main(["audit", str(tmp_path), "--assemble", "--toolchain", "13.0"]) == 1
    assert "    crashed: k.ptx: PTX 8.8 for sm_90a, on sm_90a\n" in capsys.readouterr().out


@pytest.mark.usefixtures("toolchain")
def test_assembling_without_ptx(user, capsys) -> None:
    assert main(["audit", str(user), "--assemble", "--toolchain", "13.0"]) == 0
    assert capsys.readouterr().out.endswith("  assembled: no PTX is there\n")


@pytest.mark.usefixtures("toolchain")
def test_invalid_limit(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "k.ptx").write_text(PTX, encoding="utf-8")
    monkeypatch.setenv("CUDALINK_LINK_TIMEOUT", "soon")
    assert main(["audit", str(tmp_path), "--assemble", "--toolchain", "13.0"]) == 2
    assert capsys.readouterr().err == (
        "cudalink audit: CUDALINK_LINK_TIMEOUT is 'soon'; expected 1 to 86400 (seconds)\n"
    )


def test_table_on_the_page(capsys) -> None:
    """The table of the page on device code is what the command prints."""
    assert main(["audit", str(DATA / "device_code/none.fatbin"), "--device-code"]) == 0
    shown = re.search(
        r"^```text\nnone.fatbin: (.*?)^```",
        (DOCS / "reference" / "device-code.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert shown is not None
    assert capsys.readouterr().out.partition("none.fatbin: ")[2] == shown[1]
    assert main(["audit", str(DATA / "device_code/none.fatbin"), "--gpu=sm_88"]) == 0  # of no GPU with a name
    assert "\n    sm_88   no driver  native\n" in capsys.readouterr().out


def test_majors_of_what_cannot_be_read(make_wheel, tmp_path, capsys) -> None:
    """The first line does not promise a major that an unreadable library may contradict."""
    path = make_wheel("x-1-py3-none-any.whl", {"x/libuse.so": b"\x7fELF" + b"\xff" * 60})
    assert main(["audit", str(path)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.endswith("no CUDA at all, as far as it can be read")
