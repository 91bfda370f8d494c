"""Every form of a report with something in every place is the one in the folder of `tests.report.forms`."""

import io
import sys

import pytest

from pytest_cudalink.report import text
from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.compare import Comparison, OutcomeChange, Step
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.origin import Origin
from pytest_cudalink.report.views import section
from tests.report import forms

FORMS = forms.forms()


@pytest.mark.parametrize("name", FORMS)
def test_the_forms(name: str) -> None:
    """After a change of words, ``python -m tests.report.forms`` writes the files, whose difference is then read."""
    assert FORMS[name] == (forms.FOLDER / name).read_text(encoding="utf-8")


def test_where_there_are_no_colours(monkeypatch, capsys) -> None:
    """A stream that is no terminal gets the plain text, and so does every stream without rich."""
    terminal, pipe, report = io.StringIO(), io.StringIO(), forms.report()
    terminal.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")  # a container may say "dumb"
    long = [section("history", ("a",), [("x",)] * 205)]
    with monkeypatch.context() as patch:
        patch.setattr(text, "sections", lambda *_: long)
        for stream in (terminal, pipe):
            text.terminal(report, file=stream)
        assert (pipe.getvalue(), "\x1b[1m" in terminal.getvalue()) == (text.plain(report), True)
    assert "… and 185 more changes" in terminal.getvalue()  # its number has no colour of its own
    plain = text.plain(report)
    monkeypatch.setitem(sys.modules, "rich", None)
    terminal.truncate(terminal.seek(0))
    text.terminal(report, file=terminal)
    text.terminal(report)
    assert terminal.getvalue() == capsys.readouterr().out == plain


def test_what_a_long_report_leaves_out(monkeypatch) -> None:
    """Rows, the columns behind a wide one, and sections for which a summary has no room."""
    empty, wide = MatrixReport([]), "x" * 70
    long = [section("history", ("a", "b"), [(wide, str(number)) for number in range(205)])]
    shown = [
        "Changes over these reports",
        f"{'a':60}  b",
        *(f"{wide}  {number}" for number in range(20)),
        "… and 185 more changes",
    ]
    sections = text.sections
    assert all(section.what and isinstance(section.note, str) for section in sections(forms.report()))
    monkeypatch.setattr(text, "sections", lambda *given: [*sections(*given), *long])
    assert text.plain(empty).splitlines()[-23:] == shown
    assert [*forms.printed(empty)][-1] == "… and 185 more changes {} {'style': 'dim'}"
    whole = text.markdown(empty)
    assert whole.endswith(f"\n| {wide} | 199 |\n\n… and 5 more changes.\n")
    size = len(whole.encode()) - 7  # without what joins the parts
    with monkeypatch.context() as patch:
        patch.setattr(text, "_MARKDOWN_SIZE", size)
        assert text.markdown(empty) == whole
        patch.setattr(text, "_MARKDOWN_SIZE", size - 1)
        long *= 2
        cut = "… the rest is too long for a summary; see the HTML page.\n"
        assert text.markdown(empty) == f"{whole.partition('### Changes over')[0]}{cut}"
    monkeypatch.setattr(text, "sections", sections)
    plain = text.plain(MatrixReport([CellRun("a", finished=True, origins=[Origin("a-" * 50)])])).splitlines()
    assert (plain[0], text.plain(empty).splitlines()[2]) == (f"{'a-' * 50}:", "cell  links  seconds")
    reports = tuple(Step(str(number), Origin(), {}) for number in range(25))
    changes = [OutcomeChange(str(number), "a", "FFF") for number in range(21)]
    plain = text.plain(empty, Comparison(reports, changes)).splitlines()
    assert {"… and 5 more reports", "… and 1 more changes"} <= {*plain}
    assert "Changes over these reports" not in text.plain(empty, Comparison(reports))
    assert "oldest first" not in text.plain(empty, Comparison(reports[:2], changes))  # the differences say it all
    good = MatrixReport([CellRun("a", outcomes={"t": "P"}, finished=True), CellRun("b")])
    assert "  cell {} (left, fold): a {}; b {bold}" in [*forms.printed(good)]
