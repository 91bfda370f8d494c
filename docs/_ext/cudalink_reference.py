"""Directives that describe the command line, the variables, fixtures, marker and hooks from the code that has them."""

# argparse and pytest say what their objects have by no public name
# ruff: noqa: SLF001

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from cudalink_docstrings import split
from cudalink_tables import add_directives, table, words
from docutils import nodes
from sphinx.application import Sphinx

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.cli import COMMANDS, module_of
from pytest_cudalink.compat.settings_table import OPTIONS
from pytest_cudalink.plugin import fixtures, hookspecs, marker


def marked(text: str) -> nodes.paragraph:
    """A paragraph in which the parts between backticks are literals."""
    result = nodes.paragraph()
    for number, part in enumerate(re.split(r"`+([^`]+)`+", " ".join(text.split()))):
        if part:
            # a reference such as `pytest_cudalink.linker.Linker` or `~pathlib.Path` is shown as its name
            result += nodes.literal(text=part.lstrip("~")) if number % 2 else nodes.Text(part)
    return result


def definitions(rows: Iterable[tuple[nodes.Node, Sequence[nodes.Node], str]]) -> nodes.definition_list:
    """A list of terms with their meanings; each term can be linked to by its identifier."""
    result = nodes.definition_list()
    for term, meaning, identifier in rows:
        item = nodes.definition_list_item()
        head = nodes.term(ids=[identifier])
        head += term.children
        item += head
        item += nodes.definition("", *meaning)
        result += item
    return result


def section(title: str, identifier: str, *children: nodes.Node) -> nodes.section:
    """A section with a title and an identifier."""
    result = nodes.section(ids=[identifier], names=[identifier])
    result += nodes.title("", "", nodes.literal(text=title))
    result += children
    return result


def subcommands(parser: argparse.ArgumentParser) -> argparse._SubParsersAction | None:
    """The action of a parser that has its subcommands."""
    return next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)


def children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The subcommands of a parser, by name."""
    action = subcommands(parser)
    return dict(action.choices) if action else {}


def one_line_helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The help lines of a parser's subcommands."""
    verbs = subcommands(parser)
    return {verb.dest: verb.help or "" for verb in verbs._choices_actions} if verbs else {}


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, by its name."""
    parsers = {}
    for name in COMMANDS:
        module = import_module(module_of(name))
        parser = argparse.ArgumentParser(prog=f"cudalink {name}", description=module.DESCRIPTION)
        module.configure(parser)
        parsers[name] = parser
    return parsers


def arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and positional argument of a parser, without ``--help``."""
    for action in parser._actions:
        made = isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))
        if not made and action.help != argparse.SUPPRESS:
            yield action


def spelled(action: argparse.Action) -> str:
    """An argument as it is typed: ``--html FILE``."""
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest)
    if isinstance(value, tuple):
        value = " ".join(value)
    if not action.option_strings:
        return str(value)
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value if action.metavar or action.choices else value.upper()}"


def meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of an argument, as ``--help`` shows it."""
    return parser._get_formatter()._expand_help(action) if action.help else ""


def describe(parser: argparse.ArgumentParser, help_line: str = "") -> nodes.section:
    """A section on a command: what it does, usage, arguments, and its subcommands."""
    identifier = parser.prog.replace(" ", "-")
    result = section(parser.prog, identifier, marked(parser.description or help_line))
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    result += nodes.literal_block(text=usage, language="text", classes=["usage"])
    rows = [
        (
            words([spelled(action)]),
            [marked(meaning(parser, action))],
            f"{identifier}-{action.option_strings[-1].lstrip('-') if action.option_strings else action.dest}",
        )
        for action in arguments(parser)
        if action.help  # without one, usage and description say all
    ]
    if rows:
        result += definitions(rows)
    for name, child in children(parser).items():
        result += describe(child, one_line_helps(parser).get(name, ""))
    return result


def command_line() -> list[nodes.Node]:
    """Every command with its options, from the parsers of the program."""
    return [describe(parser) for parser in command_parsers().values()]


def commands() -> list[nodes.Node]:
    """The commands, one line each."""
    rows = []
    for name, line in COMMANDS.items():
        reference = nodes.paragraph()
        reference += nodes.reference("", "", nodes.literal(text=f"cudalink {name}"), refid=f"cudalink-{name}")
        rows.append([reference, line])
    return [table(["command", "what it does"], rows)]


def variables() -> dict[str, str]:
    """Every variable that a user of the project can set, with its meaning."""
    described = {option.env: f"{option.help} (`{option.flag or option.ini}`)" for option in OPTIONS if option.env}
    return dict(sorted((described | read_table("variables.toml")["parts"]).items()))


def internal_variables() -> dict[str, str]:
    """Every variable that our own processes pass on, with its meaning."""
    return dict(sorted(read_table("variables.toml")["internal"].items()))


def variables_table() -> list[nodes.Node]:
    """Every variable of the environment that a user can set."""
    return [table(["variable", "meaning"], [[words([name]), marked(text)] for name, text in variables().items()])]


def internal_variables_table() -> list[nodes.Node]:
    """Every variable of the environment that our own processes pass on."""
    rows = [[words([name]), marked(text)] for name, text in internal_variables().items()]
    return [table(["variable", "meaning"], rows)]


def fixture_functions() -> dict[str, object]:
    """The fixtures of the plugin, by name, in the order of their module."""
    functions = {}
    for name, fixture in vars(fixtures).items():
        if type(fixture).__name__ == "FixtureFunctionDefinition":
            function = fixture._get_wrapped_function()
            if function.__module__ == fixtures.__name__:
                functions[name] = function
    return functions


def hook_functions() -> dict[str, object]:
    """The hooks that other projects may implement."""
    return {name: getattr(hookspecs, name) for name in dir(hookspecs)}


def documented(functions: dict[str, object], prefix: str) -> nodes.definition_list:
    """Names with the text of their docstrings, without what they say of arguments."""
    rows = []
    for name, function in functions.items():
        text, _entries = split(inspect.getdoc(function) or "")
        paragraphs = [marked(paragraph) for paragraph in text.split("\n\n") if paragraph.strip()]
        rows.append((words([name]), paragraphs, f"{prefix}-{name.replace('_', '-')}"))
    return definitions(rows)


def fixtures_list() -> list[nodes.Node]:
    """Every fixture of the plugin."""
    return [documented(fixture_functions(), "fixture")]


def hooks_list() -> list[nodes.Node]:
    """Every hook of the plugin, with its arguments."""
    hooks = hook_functions().items()
    return [
        documented(
            {f"{name}({', '.join(inspect.signature(h).parameters)})": h for name, h in hooks},
            "hook",
        )
    ]


def marker_text() -> list[nodes.Node]:
    """The marker as ``pytest --markers`` explains it."""
    signature, _, _ = marker.MARKER.partition(": ")
    block = nodes.literal_block(text=f"@pytest.mark.{signature}", language="python", classes=["usage"])
    rows = [[words(keywords.split(", ")), meaning] for keywords, meaning in marker.MEANINGS.items()]
    return [block, table(["keyword", "meaning"], rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    add_directives(
        app, command_line, commands, variables_table, internal_variables_table, fixtures_list, hooks_list, marker_text
    )
    return {"parallel_read_safe": True}
