"""Packages that import a module when one of its names is first used."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import pytest_cudalink

FOLDER = Path(pytest_cudalink.__file__).parent
PACKAGES = sorted(
    ".".join(("pytest_cudalink", *file.parent.relative_to(FOLDER).parts))
    for file in FOLDER.rglob("__init__.py")
    if "names_of(" in file.read_text(encoding="utf-8")
)


def _seen_by_type_checkers(package: str) -> set[tuple[str, str]]:
    """Return the module and name of each import for type checkers."""
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and node.orelse]
    return {("." * node.level + node.module, one.name) for node in block.body for one in node.names}


def _given_at_run_time(package: str) -> set[tuple[str, str]]:
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    (call,) = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    modules = ast.literal_eval(call.args[1])
    return {(module, name) for module, names in modules.items() for name in names.split()}


def test_packages_were_found():
    assert {"pytest_cudalink.audit", "pytest_cudalink.linker"} <= {*PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_those_that_type_checkers_see(package):
    given = _given_at_run_time(package)

    assert given == _seen_by_type_checkers(package)
    module = import_module(package)
    assert {name for _, name in given} <= {*module.__all__} <= {*dir(module)}
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'pytest_cudalink\.audit' has no attribute 'audti'$"):
        _ = import_module("pytest_cudalink.audit").audti


def test_one_module_is_imported_without_the_others():
    code = (
        "import sys, pytest_cudalink.guardrails.can_link, pytest_cudalink.guardrails.provenance\n"
        "heavy = ('audit.wheel', 'guardrails.guard', 'linker._linker', 'emulator', 'stubs')\n"
        "print(*[one for one in heavy if f'pytest_cudalink.{one}' in sys.modules], *{'msgspec'} & {*sys.modules})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
