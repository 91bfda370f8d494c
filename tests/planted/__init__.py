"""A small library with planted bugs, each beside a twin without it: a fault sweep has to tell them apart."""

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

Programs = dict[str, Callable[..., None]]
Function = TypeVar("Function", bound=Callable[..., None])


def expected(module: str) -> dict[str, Any]:
    """Return by function what must find each bug of a module of this folder, which opens the driver when imported."""
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    calls = [(node.name, call) for node in functions for call in node.decorator_list if isinstance(call, ast.Call)]
    return {name: ast.literal_eval(call.args[0]) for name, call in calls}


def twins(
    within: Callable[[], AbstractContextManager[object]],
) -> tuple[Programs, Programs, Callable[[object], Callable[[Function], Function]]]:
    """Return the programs with a bug, those without it, and the decorator that enters a function in both.

    The decorator has what `expected` returns. The function is called with what it uses, which is freed behind it, with
    what the program is given, and with whether it is mended.
    """
    broken, mended = Programs(), Programs()

    def planted(_expected: object) -> Callable[[Function], Function]:
        def enter(function: Function) -> Function:
            def run(*values: object, is_mended: bool) -> None:
                with within() as use:
                    function(use, *values, is_mended)

            broken[function.__name__] = lambda *values: run(*values, is_mended=False)
            mended[function.__name__] = lambda *values: run(*values, is_mended=True)
            return function

        return enter

    return broken, mended, planted
