"""Hostile text: whatever a test, a cell or a version is called, every form is valid and obeys none of it."""

import dataclasses
import io
import re
import subprocess
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_cudalink import cli
from pytest_cudalink.base import safe_text
from pytest_cudalink.report import html, text
from pytest_cudalink.report.compare import compare
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import CauseRecord, OperationRecord, VersionRecord
from tests.report import forms

from .samples import OBEYED
from .test_merge import END, RUN, lines, result

HOSTILE = {
    "surrogate": "a\ud800b",
    "nul": "a\0b",
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://example.org\x1b\\here\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x85\x9d0;x\x9c",
    "right to left": "\u202egnp.exe\u2066\u200f\u061c",
    "no width": "a\u200b\u200d\ufeff\u2060b\xad",
    "line ends": "a\u2028b\u2029c\x0bd\x0ce\r",
    "tags": "a\U000e0041\U000e007f",
    "noncharacters": "\uffff\ufffe\U0001ffff\ufdd0",
    "cdata": "]]><![CDATA[x",
    "script": "</script><script>alert(1)</script>",
    "comment": "<!--<script>",
    "fence": "```\n```\n[x](javascript:alert(1))",
    "attribute": '" onmouseover="alert(1)" x="',
    "template": "{{ 7 * 7 }}{% raw %}",
    "table": "a|b\n|c|d|\n---\n# head\n```\n",
    "markup": "[x](javascript:alert(1)) ![y](http://z) `q` **b** <b> $x$ ~~s~~ &lt;",
    "rich": "[bold red]x[/] [link=http://z]",
    "prototype": "__proto__",
    "empty": "",
    "slash": "/",
    "dot": ".",
}


class Page(HTMLParser):
    """What is in a page: elements and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}


#: Texts that mean something to a form or to who reads a saved report, and the names of the fields of records.
MEANT = {*"CDEFPSUXx", "skew", "not_emulated", "schedule", "fault", "error", "warning", "note", "unknown"}
FIELDS = {name for kind in (CauseRecord, OperationRecord, VersionRecord) for name in kind.__annotations__}


def hostile(value: Any, nasty: str) -> Any:
    """Return a value with a text before each text in it."""
    if isinstance(value, str):
        return value if value in MEANT else f"{nasty}{value}"
    if isinstance(value, dict):
        return {key if key in FIELDS else hostile(key, nasty): hostile(value, nasty) for key, value in value.items()}
    if isinstance(value, list | tuple | set):
        made = (hostile(member, nasty) for member in value)
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        names = getattr(value, "__struct_fields__", None) or [f.name for f in dataclasses.fields(value) if f.init]
        return type(value)(**{name: hostile(getattr(value, name), nasty) for name in names})
    return value


def hostile_report(nasty: str) -> MatrixReport:
    """A report that has a text in every place that some form shows."""
    report = forms.report()
    report.cells[2].versions = report.cells[1].versions  # a cell of a saved report has whole versions
    return hostile(report, nasty)


def check_forms(report: MatrixReport, folder: Path) -> None:
    """Every form is made, is valid, and has no character that is obeyed or hidden."""
    comparison = compare(report, MatrixReport([], damaged={"x": "y"}))
    stream = io.StringIO()
    text.terminal(report, comparison, file=stream)
    written = {
        "terminal": stream.getvalue(),
        "plain": text.plain(report, comparison),
        "markdown": text.markdown(report, comparison),
        "html": html.render(report, comparison),
        "json": report.as_json(),
    }
    for name, content in written.items():
        assert not OBEYED.search(content), (name, OBEYED.search(content))
        assert content.encode("utf-8")
    page, plain = Page(written["html"]), Page(html.render(hostile_report("a"), comparison))
    assert page.tags.count("script") == 2
    assert page.names <= plain.names
    assert set(page.tags) <= set(plain.tags)
    assert "default-src 'none'" in written["html"]
    # in a fence nothing is markup; no text can end one
    unfenced = re.sub(r"^```text\n.*?^```$", "", written["markdown"], flags=re.MULTILINE | re.DOTALL)
    assert "```" not in unfenced
    assert "(javascript:" not in unfenced.replace("\\](javascript:", "")
    file = folder / "saved.json"
    file.write_text(written["json"], encoding="utf-8")
    again = MatrixReport.load(file)
    assert [cell.outcomes for cell in again.cells] == [cell.outcomes for cell in report.cells]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_in_every_place(name, tmp_path) -> None:
    check_forms(hostile_report(HOSTILE[name]), tmp_path)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), max_size=40))
def test_any_text_in_every_place(tmp_path, nasty) -> None:
    """Surrogates and characters that are not assigned included."""
    check_forms(hostile_report(nasty), tmp_path)


@pytest.mark.parametrize(
    ("raw", "line", "block"),
    [
        ("a\x00\x1b\x7fb\r", r"a\x00\x1b\x7fb\x0d", None),
        ("a\x9f\xadb", r"a\x9f\xadb", None),
        ("\u034f\u202e\ud800\uffff", r"\u034f\u202e\ud800\uffff", None),
        ("\U0001ffff\U000e0041", r"\U0001ffff\U000e0041", None),
        ("a\r\nb\tc\n\nd", "a b c  d", "a\nb\tc\n\nd"),
        ("é€😀", "é€😀", None),
    ],
)
def test_what_is_escaped(raw, line, block) -> None:
    """What is obeyed or hidden is shown by its number; what can be seen stays; a long text is cut and counted."""
    said = {2000: "", 2001: "… (1 more character)", 5000: "… (3,000 more characters)"}
    assert {length: safe_text.line("x" * length) for length in said} == {n: "x" * 2000 + end for n, end in said.items()}
    assert (safe_text.line(raw), safe_text.block(raw)) == (line, block or line)
    assert safe_text.markdown(f" {raw}|") == " ".join(line.split()).replace("\\", "\\\\") + r"\|"


def test_which_error_of_the_system_is_escaped(capsys) -> None:
    """Its file and reason are shown, without a number; one without a file or a reason shows what it says.

    What a command prints on either stream is escaped, too.
    """
    safe_text.say("a\x1bb", end="!")
    safe_text.say("c")
    safe_text.complain("c\x1bd")
    assert capsys.readouterr() == ("a\\x1bb!c\n", "c\\x1bd\n")
    errors = (OSError(13, "Denied", "/x\n"), OSError(13, "Denied"), OSError("why"), OSError(13, "", "/x"))
    shown = [safe_text.line(error) for error in errors]
    assert shown == ["/x : Denied", "[Errno 13] Denied", "why", "[Errno 13] : '/x'"]
    assert safe_text.block(OSError(13, "Denied", "/x\n")) == "/x\n: Denied"


@given(st.text(st.characters()))
def test_a_line_is_one_line_that_is_seen(any_text) -> None:
    r"""No end of a line, no control character, no mark of direction, nothing without width; the rest stays.

    A block keeps ``"\n"`` and tabs, and is valid XML.
    """
    block = safe_text.block(any_text)
    assert block.count("\n") == any_text.count("\n")
    assert not OBEYED.search(block)
    ET.fromstring(f"<a>{block.replace('&', '').replace('<', '')}</a>")
    assert safe_text.text_of(ValueError(any_text)) == any_text
    shown = safe_text.line(any_text)
    assert len(shown.splitlines()) <= 1
    assert not OBEYED.search(shown)
    assert not any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in shown)
    if any_text.isascii() and any_text.isprintable():
        assert shown == any_text
    shown.encode("utf-8")


@given(st.text(st.sampled_from("ab|`*_[]<>\\&~$\n\x1b\u202e ")))
def test_markdown_has_no_markup(any_text) -> None:
    """Every character that is markup has a backslash before it, so that a table has the columns that it had."""
    shown = safe_text.markdown(any_text)
    assert not re.search(r"(?<!\\)(?:\\\\)*[|`*_\[\]<>&~$]", shown)
    assert "\n" not in shown


@pytest.mark.slow
def test_ten_megabytes(tmp_path) -> None:
    """In every place at once, the page, the Markdown and the terminal stay small."""
    nasty = "\x1b\u202e<" * 3_500_000
    failed = result(f"t.py::{nasty}", "failed", reason=nasty, longrepr=nasty)
    file = lines(tmp_path / "c.jsonl", {**RUN, "cell": nasty}, failed, {"event": "violation", "text": nasty}, END)
    forms = {name: tmp_path / name for name in ("html", "markdown")}
    assert cli.main(["report", str(file), "-q", *(f"--{name}={path}" for name, path in forms.items())]) == 1
    for path in forms.values():
        assert 500 < path.stat().st_size < 1_000_000
        assert "more characters)" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("::error::x", r"\x3a:error::x"),
        (" \u3000::Warning file=a,line=1::x", " \u3000" + r"\x3a:Warning file=a,line=1::x"),
        ("a::error::x", "a::error::x"),
        ("::test_it::error::", "::test_it::error::"),
        ("::error", "::error"),
        ("a ##[group]b ##vso[x]##teamcity[y] ##", r"a \x23#[group]b \x23#vso[x]\x23#teamcity[y] ##"),
    ],
)
def test_commands_of_a_runner(word, shown) -> None:
    """What a CI runner obeys at the beginning of a line, or anywhere, begins with an escape; a node ID stays."""
    assert safe_text.line(word) == shown
    assert safe_text.block(f"{word}\n\n{word}") == f"{shown}\n\n{shown}"


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("", "''"),
        ("-x=a/b.py::c", "-x=a/b.py::c"),
        ("a'; $(b) `c` \\n!", """'a'"'"'; $(b) `c` \\n!'"""),
        ("é", "'é'"),
        ("a\n\nb\t", """a"$(printf '\\012\\012\\142')""$(printf '\\011')\""""),
        ("\x1b\u202e%\udcff", """"$(printf '\\033\\342\\200\\256')"%"$(printf '\\377')\""""),
        ("a##[b]##VSO[", r"""a"$(printf '\043')"'#[b]'"$(printf '\043')"'#VSO['"""),
    ],
)
def test_words_for_a_shell(word, quoted) -> None:
    """A word is itself, or in quotes where a shell obeys it, or escaped by it where it is invisible; some cannot be."""
    for lost in ("a\0b", "a\n", "\ud800"):
        with pytest.raises(ValueError, match="can"):
            safe_text.quote(lost)
    assert safe_text.quote(word) == quoted
    assert safe_text.line(quoted) == safe_text.block(quoted) == quoted


@settings(max_examples=20)
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20))
def test_a_shell_reads_any_word(word) -> None:
    if not word.endswith("\n"):
        done = subprocess.run(["sh", "-c", f"printf %s {safe_text.quote(word)}"], capture_output=True, check=True)
        assert done.stdout == word.encode()


def test_a_warning_points_at_the_code_outside() -> None:
    """Frames of the package are passed over, however many there are."""
    package: dict[str, Any] = {"warn": safe_text.warn}
    code = "def inner():\n    warn('careful', UserWarning)\ndef outer():\n    inner()"
    exec(compile(code, str(Path(safe_text.__file__).parents[1] / "inside.py"), "exec"), package)
    for call in (lambda: safe_text.warn("careful", UserWarning), package["inner"], package["outer"]):
        with pytest.warns(UserWarning, match="careful") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]
