"""``cudalink report`` as a command: its first line, its streams, its errors, several older reports, the browser."""

import os
import re
import subprocess
import sys
import webbrowser
from dataclasses import replace

import pytest

from pytest_cudalink import cli
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.report import text
from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.compare import FAIL_ON
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.origin import Origin
from pytest_cudalink.report.records import LibraryRecord, ViolationRecord
from tests.report.samples import OBEYED, write

SHA = "0123456789abcdef0123456789abcdef01234567"
ORIGIN = Origin("solver", SHA, "topic|x", "https://ci.example/runs/1", "2026-11-22T10:00:00Z", False)


def report(outcomes="PF", origin=ORIGIN, **cell):
    tests = {f"tests/test_a.py::{chr(ord('a') + number)}": letter for number, letter in enumerate(outcomes)}
    return MatrixReport([CellRun("one", outcomes=tests, origins=[origin], **{"finished": True, **cell})])


@pytest.fixture
def records(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    write(folder, "one", {"a": "passed", "b": "failed"})
    return folder


@pytest.mark.parametrize(
    ("origins", "subject"),
    [
        ([ORIGIN], "solver at 0123456789: "),
        ([Origin("solver", SHA, dirty=True)], "solver at 0123456789 with changes: "),
        ([Origin("solver")], "solver: "),
        ([Origin("solver", SHA), Origin("solver", SHA[::-1])], "solver at several commits: "),
        ([Origin()], ""),
        ([Origin("evil\x1b[2J\n")], "evil\\x1b[2J : "),
    ],
)
def test_the_first_line_is_the_verdict(origins, subject):
    made = report()
    made.cells[0].origins = origins
    first = text.plain(made).splitlines()[0]
    assert first == f"{subject}1 test fails in every cell that ran it"
    assert len(first) <= 80


def test_sentences_fit_80_columns():
    """A long verdict goes on in the next line, and no word is cut."""
    made = report(violations=[ViolationRecord(text="v")], finished=False)
    made.missing = ["two"]
    lines = text.plain(made).partition("\n\n")[0].splitlines()
    sentences = [line for line in lines if not re.match(r"cell  |one  ", line)]
    assert max(map(len, sentences)) <= 80 < len(text.headline(made))
    assert " ".join(sentence.strip() for sentence in sentences).startswith(text.headline(made))


def test_markdown_has_what_the_report_is_of():
    """The address is a link only if no character of it ends one."""
    lines = text.markdown(report()).splitlines()
    assert lines[2] == "**solver at 0123456789: 1 test fails in every cell that ran it**"
    assert lines[4] == r"branch topic\|x · 2026-11-22T10:00:00Z · [CI run](https://ci.example/runs/1)"
    assert "CI run" not in text.markdown(report(origin=Origin(ci_url="https://h/) <b>")))
    assert text.markdown(report(origin=Origin())).splitlines()[4].startswith("**1** cell · ")


def run_without(names, *arguments, cwd):
    """Run the command in a process in which some packages cannot be imported."""
    code = f"import sys; sys.modules.update(dict.fromkeys({names!r}))"
    code += "; from pytest_cudalink.cli import main; sys.exit(main())"
    environment = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    command = [sys.executable, "-c", code, "report", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_a_pipe_gets_the_same_text_without_rich(records, tmp_path):
    """Neither colours nor widths depend on what is installed."""
    whole = run_without((), "records", cwd=tmp_path)
    forms = [f"--{name}={name}" for name in ("markdown", "save")]
    bare = run_without(("rich", "jinja2"), "records", *forms, cwd=tmp_path)
    assert all((tmp_path / name).stat().st_size > 100 for name in ("markdown", "save"))
    assert (bare.returncode, bare.stderr) == (whole.returncode, whole.stderr)
    assert bare.stdout == whole.stdout == text.plain(merge([records]))
    assert not OBEYED.search(bare.stdout)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--fail-on=failed,typo", f"--fail-on 'typo' is unknown; known: {', '.join(FAIL_ON)}, none"),
        ("--fail-on=regressions", "--fail-on regressions needs an older report: --against OLD"),
        ("--tags=skew", "--tags needs a file of cells: --cells FILE"),
        ("--allow-missing=one", "--allow-missing needs a file of cells: --cells FILE"),
        ("--html=- --markdown=-", "--html and --markdown are both -, stdout; expected at most one; name a file"),
        ("--open --html=-", "--open shows a file, and --html is -, stdout; name a file, or leave --html out"),
        # a misspelt tag expects no cell, so that a report of nothing would be green
        ("--cells=c.toml --tags=nihgtly", "no cell of c.toml has the tag 'nihgtly'; did you mean nightly?"),
        (
            "--cells=c.toml --allow-missing=no",
            "--allow-missing 'no' matches no cell; `cudalink matrix list` shows them",
        ),
    ],
)
def test_options_that_cannot_be_used(options, said, records, tmp_path, monkeypatch, browser, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text('[cells.one]\nctk = "13.0"\ndriver = "12.9"\ntags = ["nightly"]\n')
    assert cli.main(["report", "records", *options.split()]) == 2
    assert (capsys.readouterr().err, browser) == (f"cudalink report: {said}\n", [])
    assert cli.main(["report", "records", "--cells=c.toml", "--tags=nightly"]) == 1


@pytest.mark.parametrize(("options", "named"), [(["--html=page"], "--html"), (["--open"], "--open")])
def test_the_page_without_jinja2_is_refused_before_the_work(options, named, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert cli.main(["report", "no/such/records", *options]) == 2
    install = install_command("pytest-cudalink[report]")
    assert capsys.readouterr().err == f"cudalink report: {named} needs jinja2, which is not installed; {install}\n"


@pytest.fixture
def browser(monkeypatch):
    """A browser that keeps what it is asked to show; it is not there once ``missing`` is set."""
    shown = []
    monkeypatch.setattr(webbrowser, "open", lambda address: shown.append(address) or "missing" not in shown)
    return shown


def test_open_shows_the_page(records, tmp_path, monkeypatch, browser, capsys):
    """Without --html the page goes into .cudalink."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", "records", "--open", "-q", "--fail-on=none"]) == 0
    assert cli.main(["report", "records", "--open", "-q", "--html=page.html"]) == 1
    assert browser == [(tmp_path / ".cudalink/report.html").as_uri(), (tmp_path / "page.html").as_uri()]
    assert (tmp_path / ".cudalink/report.html").read_text() == (tmp_path / "page.html").read_text()
    browser.append("missing")
    assert cli.main(["report", "records", "--open", "-q", "--fail-on=none"]) == 2
    assert "--open finds no browser; the page is .cudalink/report.html; open it yourself" in capsys.readouterr().err


def test_a_page_that_is_not_written_is_not_shown(records, tmp_path, browser):
    assert cli.main(["report", str(records), "--open", "-q", f"--html={tmp_path / 'no' / 'page.html'}"]) == 2
    assert browser == []


@pytest.mark.parametrize("folder", ["no-such", "empty"])
def test_a_wrong_folder_names_those_with_records(folder, records, tmp_path, monkeypatch, capsys):
    """A file of another program is not a record; a pipe is not waited for."""
    for name in ("empty", "project/.cudalink", "other"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path / "project/.cudalink", "two", {"a": "passed"})
    (tmp_path / "other" / "log.jsonl").write_text("{}\n")
    for name in ("other/pipe.jsonl", *(f"records/{number}.jsonl" for number in range(9))):
        os.mkfifo(tmp_path / name)
    (tmp_path / "link").symlink_to("records")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", folder]) == 2
    words = capsys.readouterr().err
    assert words.endswith("; records are in project/.cudalink, records\n")
    assert words.count("\n") == 1
    monkeypatch.chdir(tmp_path / "empty")
    assert cli.main(["report", "no-such"]) == 2
    assert capsys.readouterr().err == (
        "cudalink report: the path of records is no-such: No such file or directory; expected a folder, a record file "
        "or a saved report; correct the path, or run the cells first\n"
    )


def test_without_a_folder_the_records_of_this_project_count(tmp_path, monkeypatch, capsys):
    (tmp_path / ".cudalink").mkdir()
    write(tmp_path / ".cudalink", "two", {"a": "passed"})
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report"]) == 0
    assert "1 cell, 1 test, 1 passed" in capsys.readouterr().out


def libraries(name, *loaded):
    facts = [LibraryRecord(soname=s, version=version, place="wheels", path=f"/{s}") for s, version in loaded]
    return CellRun(name, outcomes={"test_a.py::a": "P"}, finished=True, libraries=facts)


def test_libraries_of_a_terminal_are_those_that_differ():
    """What every cell loaded explains no difference; with one cell all are shown. Other forms have all, with files."""
    first = libraries("one", ("libcuda.so.1", "13.0"), ("libnvJitLink.so.12", "12.9"))
    two = libraries("two", ("libcuda.so.1", "13.0"), ("libnvJitLink.so.13", "13.0"))
    shown = text.plain(MatrixReport([first, two]))
    assert shown.partition("\n\n")[2].splitlines() == [
        "CUDA libraries that only some cells loaded",
        "library             release  from    cells",
        "libnvJitLink.so.12  12.9     wheels  one",
        "libnvJitLink.so.13  13.0     wheels  two",
    ]
    assert "CUDA libraries" not in text.plain(MatrixReport([first, replace(first, name="two")]))
    alone = text.plain(MatrixReport([first])).splitlines()
    assert {"CUDA libraries that were loaded", "libcuda.so.1        13.0     wheels  one"} <= {*alone}
    assert "| libcuda.so.1 | 13.0 | wheels | /libcuda.so.1 | not known | one, two |" in text.markdown(
        MatrixReport([first, two])
    )


def test_a_locale_without_utf_8(tmp_path):
    """Every form is written all the same: as files of UTF-8, and on the terminal in what it can show."""
    write(tmp_path, "one", {"b[é€]": "failed"})
    forms = {name: tmp_path / name for name in ("html", "markdown", "save")}
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "pytest_cudalink.cli", "report", str(tmp_path)]
    command += [f"--{name}={file}" for name, file in forms.items()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "b[\\xe9\\u20ac]" in done.stdout
    assert "é" in forms["html"].read_text(encoding="utf-8")


def saved(folder, name, outcomes, day):
    started = f"2026-11-{day:02}T00:00:00Z" if day else None
    file = folder / f"{name}.json"
    file.write_text(report(outcomes, Origin("solver", SHA, started=started)).as_json())
    return file


def test_several_older_reports_are_a_history(tmp_path, capsys):
    """The reports are sorted by date; the newest of them decides what a regression is."""
    oldest, newest = saved(tmp_path, "x", "PFPF", 1), saved(tmp_path, "y", "FPPF", 2)
    now = saved(tmp_path, "now", "PPFF", 3)
    forms = ["--markdown", str(tmp_path / "markdown"), "--html", str(tmp_path / "html")]
    assert cli.main(["report", str(now), "--against", str(newest), "--against", str(oldest), *forms]) == 1
    out, err = capsys.readouterr()
    assert err == (
        "cudalink report: regressions: 1 (the older report does not have this failing test, crash, violation, finding "
        "or incomplete cell)\n"
    )
    lines = out.splitlines()
    start = lines.index("Changes over these reports")
    rows = [re.split(" {2,}", line) for line in lines[start + 1 : start + 5]]
    changes = [("new failure", "c", "PPF"), ("flaky", "a", "PFP"), ("still fails", "d", "FFF")]
    expected = [[what, f"tests/test_a.py::{test}", "one", letters] for what, test, letters in changes]
    assert rows == [["what", "test", "cell", "oldest to newest"], *expected]
    start = lines.index("Reports, oldest first")
    rows = [re.split(" {2,}", line) for line in lines[start + 2 : start + 5]]
    names = (str(oldest), str(newest), "this report")
    expected = [[name, "0123456789", f"2026-11-0{day}T00:00:00Z", "2", "2"] for day, name in enumerate(names, 1)]
    assert rows == expected
    assert "| flaky | tests/test\\_a.py::a | one | PFP |" in (tmp_path / "markdown").read_text()
    assert "flaky" in (tmp_path / "html").read_text()
