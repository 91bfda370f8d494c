"""The README: its test is red as shown, its first commands are where tools look for them."""

import re
import tomllib
from pathlib import Path

from pytest_cudalink.linker import sample
from tests import sessions

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_red_test_is_red_as_shown(toolkit, tmp_path) -> None:
    """The test is the demo's, and prints what the README shows, but for the time."""
    (code,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert code == sample.SKEW_TEST
    assert toolkit.major == 13
    (tmp_path / "test_kernel.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    shown = re.sub(r"in \d+\.\d+s", "in ...", sessions.blocks(TEXT))
    assert "1 failed in ..." in shown
    sessions.check(shown, tmp_path)


def test_first_commands() -> None:
    """The clone comes before the marked commands; the extra exists."""
    clone, main, tests = (
        TEXT.index(words)
        for words in ("git clone https://", "<!-- fresh-start: main -->", "<!-- fresh-start: tests -->")
    )
    assert clone < main < tests
    for name, last in (("main", "cudalink demo"), ("tests", "nox -s tests")):
        block = re.search(rf"<!-- fresh-start: {name} -->\n```console\n(.*?)```", TEXT, re.DOTALL)
        assert block is not None
        assert block[1].splitlines()[-1] == last
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\[(cu\d+)\]", TEXT)) <= extras.keys()


def test_the_home_page_begins_as_the_readme_does() -> None:
    """It includes the red test with its output and the install line, and shows the picture of its own folder."""
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    included = ""
    for block in re.findall(r"^```\{include\} \.\./README\.md\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        start, end = re.findall(r'^:(?:start-after|end-before): "(.*)"$', block, re.MULTILINE)
        assert TEXT.count(start) == 1
        included += TEXT.partition(start)[2].partition(end)[0]
    assert sample.SKEW_TEST in included
    assert 'pip install "pytest-cudalink[cu13]"' in included
    assert "1 failed in" in included
    assert "](images/report.png)" in page.partition("## I want to learn it")[0]
    assert "raw.githubusercontent.com" not in included
