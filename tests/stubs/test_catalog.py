"""The catalog's reader: prototypes, and symbol files with anything in them."""

import string
import tomllib
from collections.abc import Callable
from unittest.mock import patch

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.stubs import c_source, catalog
from pytest_cudalink.stubs.catalog import CatalogError, load_catalog


@pytest.fixture(scope="module")
def load_own(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict], catalog.Catalog]:
    """Reads a symbol file over a catalog of few functions: the shipped one takes longer than all else of an example."""
    content = tomllib.loads(catalog.CATALOG_FILE.read_text(encoding="utf-8"))
    for functions in content["functions"].values():
        for name in [*functions][3:]:
            if name != "cudaMalloc":
                del functions[name]
    folder = tmp_path_factory.mktemp("small")
    (folder / "catalog.toml").write_text(tomli_w.dumps(content), encoding="utf-8")

    def load(own: dict) -> catalog.Catalog:
        (folder / "own.toml").write_text(tomli_w.dumps(own), encoding="utf-8")
        with patch.object(catalog, "CATALOG_FILE", folder / "catalog.toml"):
            return load_catalog(folder / "own.toml")

    return load


names = st.from_regex(r"[a-z][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: name not in {"void", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "size_t"}
)
types = st.sampled_from(
    ["int", "unsigned int", "size_t", "const char", "void *", "float", "CUstream", "enum cudaMemcpyKind"]
)
parameters = st.lists(st.tuples(types, st.integers(0, 2), names), max_size=9, unique_by=lambda p: p[2])


@given(parameters=parameters, result=st.sampled_from(["int", "void *", "const char *", "cudaError_t"]), data=st.data())
def test_prototypes_are_read_as_written(parameters, result, data, load_own) -> None:
    """Types, stars and names come out as they went in, however the spaces and stars are set."""
    space = st.sampled_from(["", " ", "  ", "\n"])
    written = []
    for kind, stars, name in parameters:
        glue = data.draw(space) or (" " if not stars and not kind.endswith("*") else "")
        written.append(f"{data.draw(space)}{kind} {'*' * stars}{glue}{name}{data.draw(space)}")
    nothing, end = data.draw(st.sampled_from(["", "void"])), data.draw(st.sampled_from(["", ";"]))
    prototype = f"{result} f({','.join(written) or nothing}){end}"
    own = {"only": ["f"], "functions": {"cudart": {"f": {"prototype": prototype}}}}
    (function,) = load_own(own).libraries["cudart"].functions
    assert [parameter.name for parameter in function.parameters] == [name for _, _, name in parameters]
    for (kind, stars, _), parameter in zip(parameters, function.parameters, strict=True):
        assert parameter.type.replace(" ", "") == f"{kind.removeprefix('enum ')}{'*' * stars}".replace(" ", "")
        assert parameter.is_pointer == (bool(stars) or kind.endswith("*"))
    assert function.result.replace(" ", "") == result.replace(" ", "")


keys = st.sampled_from(
    """prototype tier since out error symbol answer adapter older stem names cuda cudart functions libraries types
    headers only 11 cudaMalloc hint results missing_symbol""".split()  # noqa: SIM905
)
values = st.recursive(
    st.one_of(
        st.integers(-(2**40), 2**40),
        st.text(string.printable, max_size=12),
        st.booleans(),
        st.sampled_from(["int f(int a)", "int f(void)", "name", "text"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=12,
)


#: A function whose keys are right more often than by chance.
entries = st.fixed_dictionaries(
    {"prototype": st.sampled_from(["int f(void)", "int f(int a)", "const char *f(int a)", "int f(int a, char **b)"])},
    optional={
        "answer": st.sampled_from(["name", "text"]),
        "out": st.lists(st.sampled_from(["a", "b", "b[a]", "b:8"]), max_size=2),
        "error": st.integers(-(2**33), 2**33),
        "tier": st.sampled_from(["core", "optional"]),
    },
)
functions = entries.map(lambda entry: {"functions": {"cudart": {"f": entry}}})


@given(content=st.one_of(st.dictionaries(keys, values, max_size=4), functions))
def test_any_symbol_file(content, load_own, tmp_path_factory) -> None:
    """Whatever a symbol file holds, it is used or refused with a text that names it."""
    try:
        own = load_own(content)
        usable = [name for name, library in own.libraries.items() if library.functions]
        c_source.generate(own, usable, tmp_path_factory.getbasetemp() / "any-symbol-file")
    except CatalogError as error:
        assert "small0/own.toml" in str(error)
