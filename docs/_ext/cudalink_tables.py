"""Directives that print the project's data files, so that the documentation cannot say something else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx

from pytest_cudalink.compat.releases import NVVM_IR, PTX_ISA
from pytest_cudalink.compat.settings_table import OPTIONS, Option
from pytest_cudalink.linker.dispatch import Row, policies
from pytest_cudalink.loader.jitlink.jitlink_contract import rules
from pytest_cudalink.matrix.cells import REASONS, REASONS_WITH
from pytest_cudalink.matrix.keys import KEYS
from pytest_cudalink.report import records

sys.path.insert(0, str(Path(__file__).parents[2]))
from campaigns.suites.expectations import read_rows
from campaigns.suites.results import share

SUITE_COLUMNS = {
    "passed": "passed",
    "failed": "failed",
    "error": "error",
    "crashed": "crashed",
    "skipped": "skipped",
    "unsupported": "needs a GPU",
    "launch": "of these, launch a kernel",
}
DRIVERS = {
    "any": "any or unknown",
    "unknown": "unknown",
    "same": "M",
    "different": "D ≠ N",
    "newer": "D > N",
    "older": "D < N",
}


def words(values: Iterable[str]) -> nodes.paragraph:
    """What is typed or read by programs, as literals with commas between them."""
    result = nodes.paragraph()
    for value in filter(None, values):
        if result.children:
            result += nodes.Text(", ")
        result += nodes.literal(text=value)
    return result


def table(head: list[str], rows: Sequence[Sequence[str | nodes.Node]]) -> nodes.table:
    """A table; a cell is a text, or one node."""
    result, group = nodes.table(), nodes.tgroup(cols=len(head))
    result += group
    for _ in head:
        group += nodes.colspec(colwidth=1)
    header, body = nodes.thead(), nodes.tbody()
    group += header
    group += body
    for part, texts in ((header, head), *((body, cells) for cells in rows)):
        row = nodes.row()
        for text in texts:
            entry = nodes.entry()
            entry += nodes.paragraph(text=text) if isinstance(text, str) else text
            row += entry
        part.append(row)
    return result


def add_directives(app: Sphinx, *functions: Callable[[], list[nodes.Node]]) -> None:
    """Add a directive for each function, by its name: `cell_keys` makes ``cell-keys``."""
    for function in functions:
        run = {"run": lambda _self, function=function: function()}
        app.add_directive(function.__name__.replace("_", "-"), type(function.__name__, (Directive,), run))


def dispatch_row(row: Row) -> list[str]:
    """A row of the file in the words of the published table."""
    major = {"none": "none", "present": "(M, any)" if row.driver == "same" else "(N, any)"}[row.nvjitlink]
    inputs = {"no": "no", "yes": "yes, or the next column", "any": "any"}[row.lto]
    requested = {"no": "no", "yes": "yes", "any": "any"}[row.lto]
    result = row.result if row.result != "error" else f"RuntimeError: {row.message.split(';')[0]}"
    return [row.name, DRIVERS[row.driver], major, inputs, requested, result]


class Generated(Directive):
    """Markdown that a module makes from figures: the module, whose ``blocks`` returns texts by name, and a name.

    Headings in it have the level of the page.
    """

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        module, name = self.arguments
        text: str = import_module(module).blocks()[name]
        result = nodes.Element()
        self.state.nested_parse(
            StringList(text.splitlines(), source=module), self.content_offset, result, match_titles=True
        )
        return result.children


def dispatch_tables() -> list[nodes.Node]:
    """Every policy of matrices/dispatch.toml."""
    head = ["row", "driver", "nvJitLink", "LTO-IR input", "lto or ptx requested", "result"]
    result: list[nodes.Node] = []
    for policy in policies().values():
        section = nodes.section(ids=[f"policy-{policy.name}"])
        section += nodes.title(text=policy.name)
        section += nodes.paragraph(text=policy.summary)
        section += table(head, [dispatch_row(row) for row in policy.rows])
        result.append(section)
    return result


def settings_table() -> list[nodes.Node]:
    """Every setting of the plugin with its twins."""

    def values(option: Option) -> Sequence[str]:
        metavar = option.metavar or ""
        listed = re.fullmatch(r"\{([^{}]*)\}", metavar)
        return option.choices or (listed[1].split(",") if listed else [metavar])

    def written(option: Option) -> list[str]:
        return [name for name in (option.flag or option.ini, option.env) if name]

    head = ["option or ini entry, environment", "values", "default", "meaning"]
    rows = [[words(written(option)), words(values(option)), words([option.default]), option.help] for option in OPTIONS]
    return [table(head, rows)]


def version_table() -> list[nodes.Node]:
    """PTX ISA and NVVM IR versions of each release."""

    def number(pair: tuple[int, int] | None) -> str:
        return "{}.{}".format(*pair) if pair else "-"

    rows = [[str(release), number(isa), number(NVVM_IR.get(release))] for release, isa in PTX_ISA.items()]
    return [table(["CUDA", "PTX ISA", "NVVM IR (LTO-IR)"], rows)]


def cell_keys() -> list[nodes.Node]:
    """Every key of a cell."""

    def default(value: object) -> str:
        return "" if value in ("", (), {}) else str(value).lower() if isinstance(value, bool) else str(value)

    rows = [
        [words([name]), key.help, words([default(key.default)]), "yes" if key.axis else ""]
        for name, key in KEYS.items()
    ]
    return [table(["key", "meaning", "default", "axis"], rows)]


def exclude_reasons() -> list[nodes.Node]:
    """Every reason of an exclude."""
    rows = [[words([name]), meaning, ""] for name, meaning in REASONS.items()]
    rows += [[words([name]), meaning, words([companion])] for name, (companion, meaning) in REASONS_WITH.items()]
    return [table(["because", "must be true", "needs the key"], rows)]


def record_keys() -> list[nodes.Node]:
    """Every key of every event of a record file."""

    def kind(key: dict[str, Any]) -> str:
        if "anyOf" in key:
            return " or ".join(map(kind, key["anyOf"]))
        return "object" if "$ref" in key else key.get("type", "string" if "enum" in key else "any")

    def meaning(key: dict[str, Any]) -> str:
        values = ", ".join("none" if entry is None else str(entry) for entry in key.get("enum", ()))
        return "; ".join(filter(None, (key.get("description", ""), values)))

    definitions = records.schema()["$defs"]
    rows = [
        [words([event]), words([name]), kind(key), meaning(key)]
        for event, record in records.EVENTS.items()
        for name, key in definitions[record.__name__]["properties"].items()
        if name not in ("event", "time")
    ]
    return [table(["event", "key", "type", "meaning"], rows)]


def record_events() -> list[nodes.Node]:
    """Every event of a record file, in a sentence."""
    rows = [[words([event]), (record.__doc__ or "").partition("\n")[0]] for event, record in records.EVENTS.items()]
    return [table(["event", "what it is"], rows)]


def contract_rules() -> list[nodes.Node]:
    """Every rule of nvJitLink's contract: what is wrong, and what is right."""
    return [table(["rule", "violation", "expected"], [[words([name]), *texts] for name, texts in rules().items()])]


def suite_table() -> list[nodes.Node]:
    """What each published suite gave on the emulated driver when it was last run in full, and why it gave less."""
    head = ["suite", "driver", "backend", *SUITE_COLUMNS.values(), "pass, without launches", "commit"]
    rows = [
        [
            row["suite"],
            row["driver"],
            row["backend"],
            *(str(row[name]) for name in SUITE_COLUMNS),
            f"{share(row):.1f} %",
            row["commit"],
        ]
        for row in read_rows()
    ]
    result = table(head, rows)
    lowered = nodes.bullet_list()
    for row in read_rows():
        if row.get("because"):
            text = nodes.paragraph(text=f"{row['suite']}, {row['driver']}, {row['backend']}: {row['because']}")
            lowered += nodes.list_item("", text)
    return [result, lowered]


def skip_fields(_app: Sphinx, _what: str, _name: str, member: object, _skip: bool, _options: object) -> bool | None:
    """Leave out the fields of a named tuple: its docstring has them under "Attributes"."""
    return True if type(member).__name__ == "_tuplegetter" else None


def add_filter(app: Sphinx, pagename: str, *_: object) -> None:
    """Let readers look for rows where tables are long and the words of a call are known."""
    if pagename == "reference/waits":
        app.add_js_file("tables.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", add_filter)
    app.connect("autodoc-skip-member", skip_fields)
    app.add_directive("generated", Generated)
    add_directives(
        app,
        dispatch_tables,
        settings_table,
        cell_keys,
        exclude_reasons,
        version_table,
        contract_rules,
        record_events,
        record_keys,
        suite_table,
    )
    return {"parallel_read_safe": True}
