"""The keys of a cell: their valid values, and what is said of the others."""

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.compat import names
from pytest_cudalink.matrix import keys
from pytest_cudalink.matrix.keys import KEYS, REQUIREMENTS, VERSION, CellValues
from pytest_cudalink.versions import CudaVersion

LONG, MOST = 128 << 10, "at most 131071 bytes"
RELEASE = "a CUDA release such as '13.0'"
DRIVERS = "'auto' or 'real' or 'absent' or a CUDA version that can be emulated: "
ARCH = f"an architecture that can be emulated: {', '.join(names.EMULATED_ARCHITECTURES)}"
NUL = "a text without NUL, which no program can be given"
PROJECT = "a name of letters, digits, '.', '_' and '-', or of these and {major}"
REQUIREMENT = "a requirement such as 'numpy<2.5', or the path or address of a package, without options"
HIDDEN = "an absolute path or pattern below a folder of the root, such as '/usr/local/cuda*'"
VARIABLES = "names of environment variables: visible ASCII characters except '='"
VERSIONS = "'lowest', 'latest', a version such as '1.0.0' or '12.9.*', or a specifier such as '>=1,<2'"
MODULE = "the name of a module, such as 'mylib.core'"
COMMAND = "a command"

#: The values of each key that are valid, and what is needed instead of others.
TEXTS = {
    "kind": (["test", "bare"], {"": "one of 'test', 'bare'"}),
    "python": (["3.12", "3.9", "3.14t"], dict.fromkeys(["3.123", "3.x", "12", "3.12\n"], "a Python such as '3.12'")),
    "ctk": (["13.0", "none", "latest"], {"x": f"'none' or 'latest' or {RELEASE}"}),
    "driver": (["auto", "real", "absent", "13.0"], {
        "new": f"{DRIVERS}'new' is not a CUDA version; write MAJOR.MINOR, such as '13.0'",
        "575": f"{DRIVERS}'575' is a branch of drivers, which came with CUDA 12.9; write a version of CUDA, "
        "such as 12.9",
        "12.9.1": f"{DRIVERS}'12.9.1' has three numbers, and drivers of one CUDA release answer alike; write 12.9",
    }),
    "nvjitlink": (["auto", "absent", "12.9"], {"x": f"'auto' or 'absent' or {RELEASE}"}),
    "backend": (["auto", "driver", "nvjitlink", "each"], {"x": "one of 'auto', 'driver', 'nvjitlink', 'each'"}),
    "install": (["editable", "wheel", "none"], {"x": "one of 'editable', 'wheel', 'none'"}),
    "provenance": (["any", "wheels", "system", "conda", "/opt"], {
        "opt": "'any' or 'wheels' or 'system' or 'conda' or the absolute path of a folder",
    }),
    "local": (["", "x", "x" * (LONG - 1)], {"\0": NUL, "x" * LONG: MOST, "é" * 70_000: MOST}),
    "description": (["", "one line"], dict.fromkeys(["a\nb", "\x1b"], "one line without control characters")),
    "command": (["", "a 'b c'"], {
        " ": COMMAND, "'": "a command with balanced quotes (No closing quotation)", "a\0": NUL,
    }),
    "hidden": (["/usr/cuda*", "/a//b"], dict.fromkeys(["usr/a", "/usr", "/usr/", "/a/../b", "/a/\n"], HIDDEN)),
    "extras": (["cu{major}", "a.b"], dict.fromkeys(["", "a b", "{minor}"], PROJECT)),
    "groups": (["cu{major}"], {"-": PROJECT}),
    "packages": (
        [
            *("numpy<2.5", "x-cu{major}", "./p.whl", "a+b.whl", "/opt/p[extra]", "git+https://example.org/p@main"),
            *("a[b,c]>=1,<2 ; python_version < '3.12'", "a @ https://e.org/a.whl", "git+ssh://git@e.org/p.git", "../p"),
            *("https://e.org/a-1-py3-none.whl", "dist/a.whl", "file:///opt/a.whl", "~/p"),
        ],
        dict.fromkeys(
            [
                *("-e .", "a b", "./a b", "p.zip;", "./p\x7f", "p+", "a; python_version < '\x1b'", "-r x", "-r"),
                *("--index-url=https://evil.example/", "--pre", "", " ", "foo; import os", "foo;__import__('os')"),
                *("foo # comment", "foo\nbar", "foo\0", "foo==", "foo>=1 -r x", "$(touch x)/p", "`x`/p", "./p; rm"),
                *("./p|x", "git+https://example.org/p --pre"),
            ],
            REQUIREMENT,
        ),
    ),
    "imports": (["a.b_c", "é", "e\u0301"], dict.fromkeys(["", "a..b", "a-b", "a²"], MODULE)),
    "tests": (["", "-k x"], {"\0": NUL}),
    "tags": (["a.b-c"], dict.fromkeys(["", "a b", ".a"], "a word of letters, digits, '.', '_' and '-'")),
    "runs-on": (["a b"], dict.fromkeys(["", " ", "a\n"], "a label of printable characters")),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    """Each value of a key is valid, or has what is needed instead of it."""
    key, (valid, wrong) = KEYS[name], TEXTS[name]
    listed = isinstance(key.default, tuple)
    assert [key.wrong([value] if listed else value) for value in valid] == [[]] * len(valid)
    for text, needed in wrong.items():
        assert key.wrong([text] if listed else text) == [(needed, text)]


def test_values_of_other_types() -> None:
    """A number that stands for a version is shown as the text that was meant."""
    assert KEYS["gpu"].wrong(True) == KEYS["tags"].wrong([]) == KEYS["env"].wrong({}) == []
    assert KEYS["gpu"].wrong("true") == [("true or false", "true")]
    assert KEYS["ctk"].wrong(13.0) == [("a string, as in '13.0'", 13.0)]
    assert KEYS["ctk"].wrong(13) == [("a string", 13)]
    assert KEYS["tests"].wrong("a") == [("a list of strings", "a")]
    assert KEYS["packages"].wrong(["a", 1]) == [("a list of strings, or a table of packages", ["a", 1])]
    assert KEYS["env"].wrong(["a"]) == [("a table of strings", ["a"])]
    assert KEYS["env"].wrong({"A": 1}) == [("a table of strings", {"A": 1})]
    assert KEYS["tags"].wrong(["a", " ", "b", ""]) == [(TEXTS["tags"][1][""], text) for text in (" ", "")]
    assert KEYS["arch"].wrong("sm_90") == []
    assert KEYS["arch"].wrong("sm_1") == [(ARCH, "sm_1")]


def test_variables() -> None:
    """The name and the value together are what a program is given."""
    assert KEYS["env"].wrong({"A~!": "\n", "B": "x" * (LONG - 3)}) == []
    text = "x" * (LONG - 2)
    wrong = {"A B": "1", "C=": "1", "": "1", "D": "\0", "E": text}
    assert KEYS["env"].wrong(wrong) == [
        *((VARIABLES, name) for name in ("A B", "C=", "")), (NUL, "D=\0"), (MOST, f"E={text}"),
    ]  # fmt: skip


def test_versions() -> None:
    """Words, versions and specifiers, and what they are as requirements."""
    requirements = {"lowest": "a", "latest": "a", "1.0.0": "a==1.0.0", "12.9.*": "a==12.9.*"}
    requirements |= {text: f"a{text}" for text in (">=1,<2", "~=1.2", "!=1.0", "==1", "<2", ">1")}
    assert [VERSION.wrong(text) for text in requirements] == [[]] * len(requirements)
    assert {text: keys.package_requirement("a", text) for text in requirements} == requirements
    for text in ("", " ", "new one", ">=", " 1", "1\n", "1 ", "x.y", "===1\x1b"):
        assert VERSION.wrong(text) == [(VERSIONS, text)]


def test_packages() -> None:
    """Names of keys are none of packages, however they are written."""
    assert [keys.package_fault(name) for name in ("numpy", "a.b-c_1", "x")] == [""] * 3
    for name in ("", "a b", "-a", "a-"):
        assert keys.package_fault(name) == "the name of a package, such as 'cuda-bindings'"
    for name in ("arch", "Runs-On"):
        assert keys.package_fault(name) == "a package whose name is not that of a key"
    assert [keys.distribution(text) for text in ("A_b[c]>1", "./p", "")] == ["a-b", "", ""]
    assert REQUIREMENTS.wrong(["./p", "-e ."]) == [(REQUIREMENT, "-e .")]
    assert [keys.version_of(version) for version in ("13.0", "auto")] == [CudaVersion(13, 0), None]
    assert keys.version_of("latest") == max(toolchains.releases())


def test_what_keys_are_for() -> None:
    """What they are by default, which can be axes, which add to the defaults, and which cells have them."""
    words = {"kind": "test", "ctk": "none", "source": "wheels", "install": "editable", "guard-rails": "off"}
    words |= dict.fromkeys(["driver", "nvjitlink", "backend"], "auto")
    assert {name: key.default for name, key in KEYS.items() if key.default} == words
    axes = {"python", "ctk", "source", "driver", "nvjitlink", "backend", "policy", "arch", "resolution", "provenance"}
    assert {name for name, key in KEYS.items() if key.axis} == axes
    assert {name for name, key in KEYS.items() if key.adds} == {"packages", "env", "tags"}
    assert {name for name, key in KEYS.items() if key.versions} == {"packages"}
    only = {"test": "ctk source local install extras groups packages tests", "bare": "imports command"}
    only["pytest"] = "nvjitlink backend policy guard-rails"
    assert {name: key.only for name, key in KEYS.items() if key.only} == {
        name: kind for kind, words in only.items() for name in words.split()
    }


def test_values_of_a_cell() -> None:
    """A key is found under its name in the file, and a package under its own; a copy keeps the rest."""
    first = CellValues(runs_on=("x",), versions={"numpy": "1"})
    assert [first.value(name) for name in ("runs-on", "numpy", "cupy", "kind")] == [("x",), "1", None, "test"]
    other = first.changed({"runs-on": ("y",), "gpu": True}, {"cupy": "2"})
    assert other == CellValues(runs_on=("y",), gpu=True, versions={"numpy": "1", "cupy": "2"})
    assert first.changed({}) == first
