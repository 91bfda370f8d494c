"""Every form of a report with something in every place is the one beside `tests.report.forms`."""

from __future__ import annotations

import pytest

from tests.report import forms

FORMS = forms.forms()


@pytest.mark.parametrize("name", FORMS)
def test_the_forms(name: str) -> None:
    """After a change of words, ``python -m tests.report.forms`` writes the files, whose difference is then read."""
    assert FORMS[name] == (forms.FOLDER / name).read_text(encoding="utf-8")
