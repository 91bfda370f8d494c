"""Writes the forms again."""

from tests.report.forms import FOLDER, forms

for name, content in forms().items():
    (FOLDER / name).write_text(content, encoding="utf-8")
