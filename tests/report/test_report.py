"""The report: records of several cells in, one answer out, in every form."""

import re
import textwrap
from html import unescape
from importlib import metadata
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from pytest_cudalink import cli
from pytest_cudalink.report import html, records, text, views
from pytest_cudalink.report.cell_run import CellRun, Detail, UnsteeredLinks
from pytest_cudalink.report.compare import Comparison, OutcomeChange, figures
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.merge import merge
from pytest_cudalink.report.views import Section

from .forms import page
from .samples import SKEW, write


@pytest.fixture
def four(tmp_path) -> Path:
    """Four cells: two toolkits on two drivers, with one of everything that a report tells."""
    folder = tmp_path / "records"
    every = {"a": "passed", "skips": "skipped", "x": "xfailed", "doc": "passed"}
    write(folder, "c-12-12", {**every, "newer": "passed", "ctk": "passed"}, ctk="12.9", driver="12.9")
    write(folder, "c-12-13", {**every, "newer": "passed", "ctk": "passed"}, ctk="12.9", driver="13.0")
    worse = {**every, "newer": "failed", "doc": "documented", "ctk": "error", "cut": "cut"}
    write(folder, "c-13-12", worse, end=False, ctk="13.0", driver="12.9", asked="13.2", violations=["array freed"])
    write(folder, "c-13-13", {**every, "newer": "passed", "ctk": "failed"}, ctk="13.0", linked="driver", result="X")
    return folder


def test_cells_that_may_be_missing(tmp_path, capsys) -> None:
    """They are listed with the reason that their runner left; only those that are not allowed fail the report."""
    write(tmp_path / "records", "ran", {"a": "passed"})
    (tmp_path / "records" / "c-3.12.missing.txt").write_text("no Python 3.12 here;\ninstall it")
    cells = tmp_path / "cells.toml"
    cells.write_text('[cells.ran]\n[cells."c-3.12"]\npython = "3.12"\n[cells."c-3.13"]\npython = "3.13"\n')
    command = ["report", str(tmp_path / "records"), "--cells", str(cells)]
    assert cli.main(command) == 1
    captured = capsys.readouterr()
    assert re.search(r"c-3\.12\s+no records: no Python 3\.12 here; install it\n", captured.out)
    assert "incomplete: 2" in captured.err
    assert cli.main([*command, "--allow-missing=c-3.12"]) == 1
    assert "incomplete: 1" in capsys.readouterr().err
    assert cli.main([*command, "--allow-missing=c-3.12, *.13"]) == 0
    captured = capsys.readouterr()
    assert re.search(r"c-3\.12\s+no records: no Python 3\.12 here; install it \(allowed\)", captured.out)
    assert re.search(r"c-3\.13\s+no records \(allowed\)", captured.out)


def test_html_names_nothing_on_a_network(four) -> None:
    assert not re.findall(r"""src\s*=|href\s*=(?!"#)|url\(|@import|https?://""", html.render(merge([four])))


def test_command(four, tmp_path, capsys, monkeypatch) -> None:
    """The terminal names cells and causes; Markdown also goes to the job's summary; exit codes follow --fail-on."""
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    cells = tmp_path / "cells.toml"
    toolkits = {"c-12-12": "12.9", "c-12-13": "12.9", "c-13-12": "13.0"}
    others = "".join(f'[cells.{name}]\nctk = "{ctk}"\n' for name, ctk in toolkits.items())
    cells.write_text(f'[cells.c-13-13]\nctk = "13.2"\n{others}[cells.gone]\ngpu = true\n', encoding="utf-8")
    arguments = ["report", str(four), "--cells", str(cells), "--html", str(tmp_path / "r.html")]
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    for words in ("c-13-12", "ctk newer major than driver", "Skipped in every cell", "no records", "array freed"):
        assert words in captured.out
    assert "cudalink report: failed: 3 (a test fails)" in captured.err
    assert "cudalink report: incomplete: 2" in captured.err
    explained = "either ctk newer major than driver, or ctk 13.0 with driver 12.9"
    assert f"| tests/test\\_a.py::newer | {explained} | why newer | c-13-12 |" in summary.read_text()
    assert "| c-13-13 | ctk | 13.2 | 13.0.2 |" in summary.read_text()
    assert cli.main([*arguments, "-q", "--tags", "!gpu", "--fail-on", "mismatch"]) == 1
    assert "mismatch: 2" in capsys.readouterr().err
    assert cli.main(["report", str(four), "-q", "--fail-on", "none"]) == 0
    cells.write_text("[cells.c-13-13]\n", encoding="utf-8")
    assert cli.main(["report", str(four), "--cells", str(cells), "-q", "--fail-on", "crashed"]) == 0
    assert f"left out, because {cells} has no such cell: c-12-12, c-12-13, c-13-12" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["markdown", "save", "html"])
def test_a_form_on_stdout(form, four, tmp_path, monkeypatch, capfd) -> None:
    """A single - is stdout, for every form; the text goes to stderr then, and with -q nowhere."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", str(four), f"--{form}", "-", "--fail-on=none"]) == 0
    assert cli.main(["report", str(four), f"--{form}", "file", "--fail-on=none", "-q"]) == 0
    assert capfd.readouterr() == ((tmp_path / "file").read_text(), text.plain(merge([four])))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "records"]


REFUSED = """
import ctypes
import pytest
from pytest_cudalink.emulator import preload

PTX = b".version 9.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; }\\n\\0"

@pytest.mark.parametrize("number", [1, 2])
def test_loads(number):
    cuda, context, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0

def test_launches():
    preload.emulated_driver().refuse("cuLaunchKernel", "it executes no kernels")
    raise RuntimeError("801")

def test_fine(): pass
"""


def test_pytest_and_the_report_say_the_same(pytester, run_pytest, tmp_path) -> None:
    """The lines under a failure stand in every form of the report, once for two tests; a launch is another group."""
    pytester.makepyfile(REFUSED)
    file = tmp_path / "run.jsonl"
    result = run_pytest("--cudalink-driver=12.9", "-ocudalink_toolchains=cached", f"--cudalink-report={file}")
    result.assert_outcomes(passed=1, failed=3)
    printed = [line for line in result.outlines if re.match("error  |why    |fix    |       [a-z]", line)]
    first = printed.index(printed[0], 1)
    block, report = printed[:first], merge([file])
    assert block == printed[first : 2 * first]
    assert block[0].startswith("error  CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0")
    said = "2 tests fail in every cell that ran them; 1 test fails because it needs a GPU; 3 of 4 tests ran; "
    assert text.headline(report).endswith(f"{said}1 needs a GPU")
    assert "3 of 4 tests ran; 1 needs a GPU" in result.outlines
    assert [(len(group.tests), group.cause.kind) for group in report.groups] == [(2, "skew"), (1, "not_emulated")]
    lines = "\n".join(block)
    assert textwrap.indent(lines, "  ") in text.plain(report)
    assert f"```text\n{lines}\ntests  " in text.markdown(report)
    assert f'<pre class="cause">{lines}</pre>' in unescape(html.render(report))
    assert "cuLaunchKernel" in report.groups[1].cause.what


def test_the_page_of_an_empty_report(monkeypatch) -> None:
    """A report without tests still makes a page, which says what made it, if that is installed."""
    given = page(MatrixReport([]))
    assert (given["title"], given["header_height"], given["comparison"]) == ("Compatibility matrix", 24, None)
    assert page(MatrixReport([CellRun("a"), CellRun("b" * 5)]))["header_height"] == 64
    assert "0 tests in 0 cells" in html.render(MatrixReport([]))
    assert "<dd>1 test in 1 cell</dd>" in html.render(MatrixReport([CellRun("a", outcomes={"t": "P"})]))
    assert "<td>&lt;b&gt;" in re.sub("<t[dh][^>]*>", "<td>", html.render(MatrixReport([], ["<b>"])))
    assert f"Made by pytest-cudalink {metadata.version('pytest-cudalink')}." in html.render(MatrixReport([]))
    monkeypatch.setattr(metadata, "version", mock.Mock(side_effect=metadata.PackageNotFoundError))
    assert "Made by pytest-cudalink ." in html.render(MatrixReport([]))


def test_what_the_page_of_a_small_report_leaves_out(monkeypatch) -> None:
    """Figures that are 0, axes in which all cells are alike, and texts for which there is no room."""
    monkeypatch.setattr(html, "_TEXTS", 60)
    texts = ["b" * 4, "b" * 4, "c" * 56, "d", "b" * 4, "e"]
    outcomes = {f"t.py::{number}": "S" for number in range(len(texts))}
    details = {test: Detail(text) for test, text in zip(outcomes, texts, strict=True)}
    cells = []
    for name, more in (("a", {"gpu": "yes"}), ("b", {})):
        cell = CellRun(name * 50, outcomes=outcomes, details=details, finished=True)
        cell.axes = {"ctk": name, "python": "3.11", **more}
        cell.versions = {"cupy": {"found": "1"}, "warp": {"found": name}, "numba": {"found": "1", "requested": "2"}}
        cells.append(cell)
    more = [Section(name, "", ("a",), (("1",),), 1, "", "") for name in ("y", "z", "slowest")]
    more.insert(0, Section("x", "", ("a", "b", "c"), ((1, 0, ""),), 1, "", ""))
    sections = html.sections
    with monkeypatch.context() as patch:
        patch.setattr(html, "sections", lambda *given: [*sections(*given), *more])
        given = page(MatrixReport(cells))
        del more[:2]
        assert not any(section["half"] for section in page(MatrixReport([]))["sections"])
    assert [chip.text for chip in given["chips"]] == ["cells", "tests", "skipped", "skipped in every cell"]
    assert (given["axes"], given["header_height"]) == ([{"name": "ctk", "options": ["a", "b"]}], 320)
    several = page(MatrixReport([CellRun(name, finished=True, axes={"ctk": name}) for name in "hgfedcba"]))
    assert several["axes"] == [{"name": "ctk", "options": [*"abcdefgh"]}]
    left_out = "(left out to keep this page small; see the records)"
    assert given["data"]["texts"] == ["", *texts[1:3], left_out]
    assert [detail["0"][0] for detail in given["data"]["details"].values()] == [1, 1, 2, 3, 1, 3]
    shown = " ".join(section["id"] for section in given["sections"])
    assert shown == "skipped mismatch x y z cells versions slowest"
    assert [section["id"] for section in given["sections"] if section["half"]] == ["x", "y"]
    assert given["sections"][2]["head"] == ["a"]
    assert given["cells"]["same"] == [("python", "3.11")]
    assert given["cells"]["differing"] == ["ctk", "gpu"]
    assert (given["versions"]["same"], given["versions"]["head"]) == ([("cupy", "1")], ["numba", "warp"])
    alone = page(MatrixReport(cells[:1]))
    assert (alone["cells"]["same"], alone["cells"]["differing"], alone["versions"]["same"]) == ([], [], [])


def test_cards_of_failures() -> None:
    """A cause has a text where a failure of its first test has one; a test those of its failures without a cause."""
    other = {**SKEW, "why": "another"}
    details = [
        {"t": Detail(cause=SKEW), "u": Detail(cause=other), "v": Detail("", "E skew", SKEW), "w": Detail(cause=SKEW)},
        {"t": Detail("", "E 222", SKEW), "v": Detail("", "x\nlast\n")},
        {"t": Detail("known", "E known"), "u": Detail("known", "E known"), "v": Detail()},
    ]
    outcomes = [dict.fromkeys("tuvw", "F"), {"t": "F", "v": "F"}, {"t": "x", "u": "x", "v": "F"}]
    runs = zip("abc", outcomes, details, strict=True)
    report = MatrixReport([CellRun(name, outcomes=letters, details=more) for name, letters, more in runs])
    cards = page(report)["failures"]
    assert [(cause["title"], cause["has_text"]) for cause in cards["causes"]] == [("3 tests", True), ("1 test", False)]
    (card,) = cards["everywhere"]
    assert (card["test"], card["count"], card["has_text"]) == ("v", "2 of 3 cells", True)
    assert card["messages"] == [{"text": "last", "number": 1}]
    tables = {section.id: section for section in views.sections(report)}
    assert (cards["some"], tables["everywhere"].rows) == ([], (("v", ""),))
    assert [*tables] == ["incomplete", "causes", "everywhere", "not-run", "cells"]
    alone, *_, cells = views.sections(MatrixReport([CellRun("a", outcomes={"t": "F"}, finished=True)]))
    assert alone.title == "Fails in every cell that ran it"
    assert cells.head == ("cell", "failed", "links", "violations", "seconds", "what it is")
    refused = MatrixReport([CellRun("a", outcomes={"u": "U"}, finished=True)])
    assert [section.id for section in views.sections(refused)] == ["gpu", "cells"]


def test_cards_of_tests_that_fail_alike() -> None:
    """With one error in the same cells they are one; another error, other cells and tests without one stand alone."""
    outcomes = [dict.fromkeys("abcdeyz", "F"), {**dict.fromkeys("abcdez", "F"), "y": "P"}]
    details = {**{test: Detail("no ELF", f"E {test}") for test in "abcdy"}, "e": Detail("other"), "z": Detail()}
    runs = zip("vw", outcomes, strict=True)
    report = MatrixReport([CellRun(name, outcomes=letters, details=details) for name, letters in runs])
    cards = page(report)["failures"]
    several, *others = cards["everywhere"]
    expected = {"title": "4 tests", "block": "no ELF", "indexes": "0 1 2 3", "tests": [*enumerate("abcd")]}
    expected |= {"more_tests": 0, "count": "2 of 2 cells", "has_text": True, "picture": None, "whole": False}
    assert {name: several[name] for name in expected} == expected
    assert [(test["test"], "block" in test) for test in (*others, *cards["some"])] == [(name, False) for name in "ezy"]
    tables = {section.id: section for section in views.sections(report)}
    assert tables["everywhere"].rows == (("a, b, c and 1 more", "no ELF"), ("e", "other"), ("z", ""))
    assert tables["some"].rows == (("y", "no axis explains it", "no ELF", "v"),)
    silent = MatrixReport([CellRun("c", outcomes=dict.fromkeys("st", "F"))])
    assert [alike.tests for alike in views.alike(silent, dict.fromkeys("st", ""))] == [("s",), ("t",)]
    names = [*map(str, range(201))]
    long = MatrixReport([CellRun("c", outcomes=dict.fromkeys(names, "F"), details=dict.fromkeys(names, Detail("x")))])
    (card,) = page(long)["failures"]["everywhere"]
    assert (card["title"], len(card["tests"]), card["more_tests"]) == ("201 tests", 200, 1)


def test_rows_of_tables() -> None:
    """Verdicts and errors that are alike are one, regressions without a cause are not; long lists are cut."""

    def tables(*cells: CellRun, comparison: Comparison | None = None) -> dict[str, Section]:
        return {section.id: section for section in views.sections(MatrixReport([*cells]), comparison)}

    unknown = [records.VerdictRecord(kind="driver", what=text, why="error 999", evidence=[text]) for text in "ab"]
    loaded = [records.LibraryRecord(name="libb", path=text, for_whom=text) for text in "xyz"]
    loaded.append(records.LibraryRecord(name="liba"))
    cell = CellRun("a", finished=True, verdicts=unknown, libraries=loaded, durations={"t": 0.12345}, unlinked_modules=1)
    views_of_cell = tables(cell)
    words = "a (and 1 other for the same cause)"
    assert views_of_cell["verdicts"].rows == (("insufficient metadata", "driver", words, "", "a"),)
    rows = [row[:1] + row[3:5] for row in views_of_cell["libraries"].rows]
    assert rows == [("liba", "", "not known"), ("libb", "x and 2 more", "x, y and 1 more")]
    assert views_of_cell["slowest"].rows == ((0.12, "t", "a"),)
    assert "steered" not in text.plain(MatrixReport([cell]))
    errors = [("F", Detail(text)) for text in "xxy"] + [("S", Detail("z")), ("F", Detail("w", "", SKEW))]
    cells = [
        CellRun(str(number), outcomes={"t": letter, "u": "F"}, details={"t": detail, "u": Detail("z")})
        for number, (letter, detail) in enumerate(errors)
    ]
    assert tables(*cells)["everywhere"].rows == (("t", "x (and 1 other error)"), ("u", "z"))
    changes = [OutcomeChange("t", "a", "PF"), OutcomeChange("u", "gone", "PF")]
    rows = (("t", "a", "passed", "failed"), ("u", "gone", "passed", "failed"))
    for number in (1, 2):
        shown = tables(cell, comparison=Comparison(changes=changes[:number]))["regressions"]
        assert (shown.head, shown.rows) == (("test", "cell", "before", "now"), rows[:number])
    assert "regressions" not in tables(cell, comparison=Comparison())


def test_where_nothing_was_forced() -> None:
    """Nothing had to be steered: the terminal says nothing of it, and the other forms have one row for each place."""
    links = [UnsteeredLinks("cuda.bindings.driver", "cuLinkComplete", "a.py:3", "driver")]
    free = [CellRun(name, axes={"backend": "auto"}, unlinked_modules=1, unsteered=links) for name in "abcdefghijk"]
    named = "a, b, c, d, e, f and 5 more"
    tables = {section.id: section for section in views.sections(MatrixReport(free))}
    assert tables["unsteered"].rows == (
        ("cuda.bindings.driver", "cuLinkComplete", "a.py:3", "on the driver", "", 11, named),
        (views.NOT_SEEN, "", "", "", "", "at least 11", named),
    )
    assert "steered" not in text.plain(MatrixReport(free))
    assert "steered" not in " ".join(figure.text for figure in figures(MatrixReport(free)))
    forced = CellRun("z", axes={"backend": "driver"}, unlinked_modules=2)
    forced.unsteered = [replace(links[0], forced="driver")]
    shown = text.plain(MatrixReport([*free, forced]))
    assert "1 link not steered" in shown
    assert re.search(r"cuLinkComplete +a\.py:3 +on the driver +driver +1 +z\n", shown)
    assert re.search(r"at least 2 +z\n", shown)
