"""The page of the libraries shows the results in its file, and nothing that did not run as passed."""

from __future__ import annotations

import pytest

from tests.findings import libraries

__all__ = ()


def test_page() -> None:
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
def test_verdict(run: dict[str, object], said: str) -> None:
    """A run that did not happen, or a test that was skipped, never counts as passed."""
    assert libraries.verdict(run) == said
