"""Small faults put into a module's source, one at a time: each is a mutant that some test should notice."""

import ast
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

Either = TypeVar("Either")


def both_ways(*pairs: Sequence[Either]) -> dict[Either, Either]:
    """Return what stands for what: each of a pair for the other."""
    return {first: second for pair in pairs for first, second in (pair, pair[::-1])}


_TEXT_METHODS = ("strip", "lower", "removeprefix", "removesuffix")
_OTHER_FUNCTION = {"any": "all", "all": "any", "min": "max", "max": "min", "sorted": "list"}
#: Comparisons with their bound moved, where they have one, and their opposites.
_MOVED: dict[type[Any], type[Any]] = both_ways((ast.Lt, ast.LtE), (ast.Gt, ast.GtE))
_OPPOSITE: dict[type[Any], type[Any]] = both_ways(
    *((ast.Lt, ast.GtE), (ast.LtE, ast.Gt), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn))
)
_ARITHMETIC: dict[type[Any], type[Any]] = {
    **both_ways((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.BitOr, ast.BitAnd)),
    ast.Mod: ast.Mult,
}
#: Arguments that only say what holds anyway: zip's.
_ASSERTIONS = ("strict",)
#: What is short enough to show around a constant.
_CONTEXTS = (
    *(ast.Call, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Tuple, ast.List, ast.Subscript),
    *(ast.Slice, ast.Starred, ast.Attribute, ast.NamedExpr, ast.keyword, ast.Assign, ast.AnnAssign, ast.Return),
)
#: One changed text for so many other changes, or fewer: a test of a text that is written twice shows little.
_OTHERS_FOR_A_TEXT = 9


@dataclass(frozen=True)
class Change:
    """What the mutants of both languages have."""

    function: str  # around the place: "Row.fits", or the entry point that a macro defines
    change: str  # as `survivors.txt` has it, with a number where a function has several alike
    is_text: bool  # whether only the words of a text change


AnyMutant = TypeVar("AnyMutant", bound=Change)


@dataclass(frozen=True)
class Mutant(Change):
    """One change of one place in a module's syntax tree: "len(fitting) != 1 => len(fitting) != 2"."""

    tree: ast.Module  # the tree that `apply` changes; all mutants of a module share it
    parent: ast.AST
    field: str
    index: int | None
    replacement: ast.AST
    statements: tuple[ast.stmt, ...]  # those around the place, the innermost last

    def apply(self) -> ast.Module:
        """Return the tree with the change in it, for good."""
        _put(self.parent, self.field, self.index, self.replacement)
        return ast.fix_missing_locations(self.tree)


def mutants(source: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its source.

    The bodies of functions and classes are changed, with their defaults. Tables at the level of the module are data,
    which other tests compare with what CUDA ships; annotations and docstrings change nothing.
    """
    tree = ast.parse(source)
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return numbered(mutant for node in definitions for mutant in _inside(tree, node, node.name, (node,)))


def numbered(made: Iterable[AnyMutant]) -> list[AnyMutant]:
    """Return mutants of which those that read the same, in one function, have a number."""
    seen: Counter[tuple[str, str]] = Counter()
    every = []
    for mutant in made:
        place = mutant.function, mutant.change
        seen[place] += 1
        every.append(replace(mutant, change=f"{mutant.change} (#{seen[place]})") if seen[place] > 1 else mutant)
    return every


def weighed(every: Sequence[AnyMutant]) -> list[AnyMutant]:
    """Return the mutants of a file without some that change texts, so that at most a tenth of the rest does.

    Their names decide which stay, so that few others do after an edit.
    """
    texts = sorted(
        (m for m in every if m.is_text), key=lambda mutant: zlib.crc32(f"{mutant.function}: {mutant.change}".encode())
    )
    left_out = {id(text) for text in texts[(len(every) - len(texts)) // _OTHERS_FOR_A_TEXT :]}
    return [mutant for mutant in every if id(mutant) not in left_out]


def _inside(tree: ast.Module, node: ast.AST, function: str, statements: tuple[ast.stmt, ...]) -> Iterator[Mutant]:
    """The mutants of what is in a node."""
    for parent, field, index, child in _children(node):
        inner = (*statements, child) if isinstance(child, ast.stmt) else statements
        name = f"{function}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else function
        # a constant is known by what it is part of
        context = node if isinstance(node, _CONTEXTS) else child
        for replacement in _replacements(child, node, field):
            around = context if isinstance(child, ast.Constant | ast.Compare | ast.Name) else child
            before, place = _text(around), (parent, field, index)
            _put(*place, replacement)
            after = _text(replacement if around is child else around)
            _put(*place, child)
            is_text = isinstance(replacement, ast.Constant) and isinstance(replacement.value, str)
            yield Mutant(name, f"{before} => {after}", is_text, tree, *place, replacement, inner)
        yield from _inside(tree, child, name, inner)


def _children(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """What a node holds that can be changed, each with its place."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "pattern", "type"):
            continue
        if isinstance(node, ast.keyword) and node.arg in _ASSERTIONS:
            continue
        if isinstance(node, ast.JoinedStr) and field == "values":
            # the words of a message are changed all at once; the values in it one by one
            yield from ((node, field, n, c) for n, c in enumerate(value) if isinstance(c, ast.FormattedValue))
        elif isinstance(value, list):
            skip = 1 if field == "body" and _has_docstring(node) else 0
            yield from ((node, field, n, c) for n, c in enumerate(value) if n >= skip and isinstance(c, ast.AST))
        elif isinstance(value, ast.AST) and not (isinstance(node, ast.FormattedValue) and field == "format_spec"):
            yield node, field, None, value


def _replacements(node: ast.AST, parent: ast.AST, field: str) -> Iterator[ast.AST]:
    """What may stand in the place of a node: each a fault that an author could make."""
    condition = field in ("test", "ifs")
    if condition:
        yield from (ast.Constant(value) for value in (True, False) if not (value and isinstance(parent, ast.While)))
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            if moved := _MOVED.get(type(operator)):
                yield ast.Compare(left, [moved()], [right])
            if not condition and not isinstance(parent, ast.BoolOp | ast.UnaryOp):
                yield ast.Compare(left, [_OPPOSITE[type(operator)]()], [right])
        case ast.UnaryOp(op=ast.Not(), operand=operand) if not condition:
            yield operand
        case ast.Constant() | ast.JoinedStr():
            yield from _constants(node)
        case ast.Call():
            yield from _calls(node)
        case ast.expr():
            yield from _operations(node)
        case _:
            yield from _statements(node)


def _constants(node: ast.Constant | ast.JoinedStr) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)):
            yield ast.Constant(f"XX{value}")
        case ast.JoinedStr():
            yield ast.Constant("")


def _operations(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.BoolOp(op=op, values=values):
            for number in range(len(values)):
                rest = [value for other, value in enumerate(values) if other != number]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield ast.BinOp(left, _ARITHMETIC[type(op)](), right)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    match node.func:
        case ast.Name(id=name) if name in _OTHER_FUNCTION:
            keywords = [] if name == "sorted" else node.keywords
            yield ast.Call(ast.Name(_OTHER_FUNCTION[name], ast.Load()), node.args, keywords)
        case ast.Attribute(value=value, attr=name) if name in _TEXT_METHODS:
            yield value
        case ast.Attribute(attr="get") if len(node.args) == 2:
            yield ast.Call(node.func, node.args[:1], [])
    for number in (number for number, keyword in enumerate(node.keywords) if keyword.arg not in _ASSERTIONS):
        yield ast.Call(node.func, node.args, [k for other, k in enumerate(node.keywords) if other != number])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Raise() | ast.Continue() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def _has_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node, clean=False) is not None


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
