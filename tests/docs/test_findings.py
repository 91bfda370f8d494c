"""The pages of ``docs/findings`` agree with their data and their reproducers; ``nox -s findings`` runs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

from tests import sessions
from tests.findings import catalog, libraries

__all__ = ()

ROOT = Path(__file__).parents[2]
FINDINGS = catalog.read()
IDS = [one.id for one in FINDINGS]
RELEASES = tomllib.loads((ROOT / "matrices" / "sessions.toml").read_text(encoding="utf-8"))["findings"]


def test_pages_and_data_agree() -> None:
    """Each finding has a page and a folder with its reproducer, and each of these belongs to a finding."""
    assert len(set(IDS)) == len(IDS)
    assert {one.stem for one in catalog.PAGES.glob("*.md")} == {*IDS, "index", "libraries"}
    assert {one.name for one in catalog.EXAMPLES.iterdir()} == {*IDS, "libraries"}


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_page(finding: catalog.Finding) -> None:
    """A page has the title and the releases from the data, shows every file of the reproducer, and runs its command."""
    text = finding.page.read_text(encoding="utf-8")
    assert text.startswith(f"# {finding.title}\n")
    assert f"```{{finding}} {finding.id}\n```" in text
    files = [file.name for file in catalog.EXAMPLES.joinpath(finding.id).glob("*.py")]
    included = [f"literalinclude}} ../examples/findings/{finding.id}/{name}\n" for name in files]
    assert [one for one in included if one not in text] == []
    if finding.runs:
        commands = [command for _, command, _ in sessions.environment_steps(sessions.environment_blocks(text))]
        assert any(finding.command.replace("{}", finding.bad[-1]) in one for one in commands), commands


@pytest.mark.parametrize("finding", FINDINGS, ids=IDS)
def test_data(finding: catalog.Finding) -> None:
    """A finding has a pattern that compiles, and releases that stand in one list alone."""
    assert re.compile(finding.shows).pattern or not finding.runs
    assert finding.bad
    assert not set(finding.bad) & set(finding.good)


def test_environments() -> None:
    """The pages name each environment of the session, and no other."""
    assert catalog.environments(IDS) == set(RELEASES)


def test_ranges() -> None:
    """Releases are one range where all between them that ran have the fault; a later one without it has mended it."""
    runs = (catalog.Runs((), bad=("1.0", "1.10"), good=("1.9", "2.0")), catalog.Runs((), bad=("1.1",), good=()))
    finding = catalog.Finding("x", "x", "crash", "", "", "", "", runs)

    assert finding.ranges == "1.0 to 1.1, 1.10"
    assert (finding.mended, finding.outcome) == ("2.0", "2.0")
    assert [Version(one) for one in finding.bad] == sorted(map(Version, finding.bad))


def test_not_mended() -> None:
    """A fault of the newest release that ran is not mended, as of a date."""
    finding = catalog.Finding("x", "x", "crash", "", "", "", "", (catalog.Runs((), bad=("1.1",), good=("1.0",)),))

    assert finding.outcome == f"not mended in 1.1 as of {catalog.as_of()}"


def test_page_of_the_libraries() -> None:
    """The table is made from the results."""
    page = libraries.PAGE.read_text(encoding="utf-8")
    assert libraries.rendered(page, libraries.kept()) == page


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"not run": "does not install"}, "not run"),
        ({"tests": {}, "not collected": "ImportError"}, "does not import"),
        ({"tests": {"a": "passed", "b": "violation: x", "c": "skipped: y"}}, "1 passed, 1 violation, 1 not run"),
    ],
)
def test_verdict_on_a_library(run: dict[str, object], said: str) -> None:
    """A run that did not happen, or a test that was skipped, never counts as passed."""
    assert libraries.verdict(run) == said
