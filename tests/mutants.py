"""Change the pure rules one operator at a time, and print each change that their tests let pass.

    python -m tests.mutants [MODULE ...] [--limit SECONDS] [--list]

A mutant swaps a comparison, a boolean operator, ``any`` and ``all``, or ``min`` and ``max``, negates a condition, or
adds one to a number. Each runs in a fork, with its module compiled from the changed syntax tree; no file is written.
`ACCEPTED` lists the survivors that no test can tell from the original, each with its reason. The exit code is 1 if
another one survives.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ACCEPTED", "TARGETS", "Mutant", "main", "mutants_of"]

#: The tests of each module.
TARGETS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        [f"pytest_cudalink.guardrails.{name}" for name in ("relations", "repair", "pipelines", "rules")],
        tuple(f"tests/guardrails/test_{name}.py" for name in ("relations", "repair", "pipelines", "rules")),
    ),
    "pytest_cudalink.versions": ("tests/test_versions.py",),
    "pytest_cudalink.environment.requirements": ("tests/environment/test_requirements.py",),
    "pytest_cudalink.linker.dispatch": ("tests/linker/test_dispatch.py",),
    "pytest_cudalink.report.explain": ("tests/report/test_report.py",),
    "pytest_cudalink.report.merge": ("tests/report/test_report.py",),
}

#: Survivors by module, line of source and change, with the reason why no test can tell them from the original.
ACCEPTED: Final[dict[tuple[str, str, str], str]] = {}

_SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_NAMES: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}
_PER_MUTANT: Final = 60  # seconds


class Mutant(NamedTuple):
    """A change of one node.

    Attributes
    ----------
    line : int
    change : str
        Such as ``"Lt -> LtE"``.
    tree : ast.Module
        The changed module.
    """

    line: int
    change: str
    tree: ast.Module


def _changes(node: ast.AST) -> Iterator[str]:
    """Change a node in each possible way, in place; yields the description while the change holds."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                ops[at] = _SWAPS[type(op)]()  # type: ignore[call-overload]
                yield f"{type(op).__name__} -> {type(ops[at]).__name__}"
                ops[at] = op
        case ast.BoolOp(op=op):
            node.op = _SWAPS[type(op)]()  # type: ignore[assignment]
            yield f"{type(op).__name__} -> {type(node.op).__name__}"
            node.op = op
        case ast.Constant(value=bool() | int() as value):
            node.value = not value if isinstance(value, bool) else value + 1
            yield f"{value} -> {node.value}"
            node.value = value
        case ast.Call(func=ast.Name(id=name) as function) if name in _NAMES:
            function.id = _NAMES[name]
            yield f"{name} -> {function.id}"
            function.id = name
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
            if isinstance(test, ast.Compare | ast.BoolOp):
                return
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            ast.fix_missing_locations(negated)
            if isinstance(node, ast.comprehension):
                node.ifs = [negated]
                yield "if -> if not"
                node.ifs = [test]
            else:
                node.test = negated
                yield "if -> if not"
                node.test = test


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run: no annotations, no decorators."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield node
                yield from _nodes(node)


def mutants_of(source: str) -> Iterator[Mutant]:
    """The mutants of a module, one at a time: the next one takes the change of the last back."""
    tree = ast.parse(source)
    for node in _nodes(tree):
        for change in _changes(node):
            line = getattr(node, "lineno", None) or getattr(getattr(node, "target", None), "lineno", 0)
            yield Mutant(line, change, tree)


def _survives(module: str, mutant: Mutant, tests: tuple[str, ...]) -> bool:
    """Whether the tests pass with the mutant in place of the module."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    signal.alarm(_PER_MUTANT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> object:
        return compile(mutant.tree, self.path, "exec") if name == module else original(self, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]
    import pytest

    code = 1
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]))
    finally:
        os._exit(min(code, 1))


def _run(module: str, limit: float) -> tuple[int, list[str]]:
    """The number of mutants that were tried, and a line for each that should not have survived."""
    spec = importlib.machinery.PathFinder.find_spec(module.rpartition(".")[2], [str(_folder(module))])
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    lines = source.splitlines()
    tried, survivors, end = 0, [], time.monotonic() + limit
    for mutant in mutants_of(source):
        if time.monotonic() > end:
            survivors.append(f"{module}: stopped after {limit:.0f} s, at line {mutant.line}")
            break
        tried += 1
        text = lines[mutant.line - 1].strip() if mutant.line else ""
        if _survives(module, mutant, TARGETS[module]) and (module, text, mutant.change) not in ACCEPTED:
            survivors.append(f"{module}:{mutant.line}: {mutant.change}: {text}")
            print(survivors[-1], flush=True)
    return tried, survivors


def _folder(module: str) -> Path:
    return Path(__file__).parent.parent.joinpath(*module.split(".")[:-1])


def main(arguments: list[str] | None = None) -> int:
    """Try the mutants of each module, and print the survivors and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", default=list(TARGETS), metavar="MODULE")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for each module (default: 600)")
    options = parser.parse_args(arguments)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for preloaded in ("pytest", "hypothesis.strategies", "packaging.specifiers"):  # once, not in every fork
        importlib.import_module(preloaded)
    tried, survived = 0, 0
    for module in options.modules:
        number, survivors = _run(module, options.limit)
        tried, survived = tried + number, survived + len(survivors)
        print(f"{module}: {number} mutants, {len(survivors)} survived", flush=True)
    print(f"killed {tried - survived} of {tried}: {100 * (tried - survived) / max(tried, 1):.1f} %")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
