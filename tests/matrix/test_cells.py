"""The language of ``cells.toml``: what a file may say, what it means, and what is said of a wrong one."""

import datetime as dt
import json
import time
import tomllib
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink import cli
from pytest_cudalink.matrix import Cell, CellsError, load_cells, reading
from pytest_cudalink.matrix.cells import REASONS, reasons_of, schema
from pytest_cudalink.matrix.keys import KEYS, CellValues

ROOT = Path(__file__).parents[2]
OURS = ROOT / "matrices" / "cells.toml"


@pytest.fixture
def cells(tmp_path):
    """Load a text, or collect its faults without the file's name."""

    def load(text: str):
        file = tmp_path / "cells.toml"
        file.write_text(text, encoding="utf-8")
        try:
            return {cell.name: cell for cell in load_cells(file)}
        except CellsError as error:
            assert all(fault.startswith(f"{file}:") for fault in error.faults)
            return [fault.removeprefix(f"{file}:") for fault in error.faults]

    return load


def test_toolkits_are_pinned() -> None:
    """Every toolkit's libraries are exact versions of its release; cuda-bindings is of its major version."""
    for cell in load_cells(OURS):
        for package in cell.packages:
            name, _, version = package.partition("==")
            if name.startswith("nvidia-") and cell.ctk != "latest":
                assert version.startswith(f"{cell.ctk}.")
            if name == "cuda-bindings" and cell.ctk != "latest" and name not in cell.versions:
                assert version == f"{cell.ctk}.*"


def test_defaults_axes_and_cells(cells) -> None:
    """A cell's value replaces the default's, except what adds up; axes make every combination."""
    made = cells(
        '[defaults]\ntests = ["t"]\nenv = { A = "1", B = "{ctk}" }\ntags = ["x"]\nguard-rails = "best_effort"\n'
        '[cells.one]\nctk = "12.5"\nenv = { A = "2" }\ntests = ["u"]\ntags = ["y"]\n'
        '[axes.a]\nctk = ["12.9", "13.0"]\ndriver = ["absent", "13.2"]\npython = "3.12"\n'
    )
    names = [f"ctk-{ctk}-driver-{driver}" for ctk in ("12.9", "13.0") for driver in ("absent", "13.2")]
    assert list(made) == ["one", *names]
    cell = made["one"]
    assert (cell.values.tests, cell.tags) == (("u",), ("x", "y"))
    variables = {"CUDALINK_CELL": "one", "CUDALINK_REPORT": "r/one.jsonl", "CUDALINK_GUARD_RAILS": "best_effort"}
    assert cell.environment("r") == variables | {"A": "2", "B": "12.5"}
    assert {"cuda-toolkit[cudart,nvjitlink,nvrtc]==12.5.1", "nvidia-nvjitlink-cu12==12.5.40"} <= set(cell.packages)
    assert "cuda-bindings==12.9.*" in cell.packages
    last = made["ctk-12.9-driver-13.2"]
    assert last.environment("r")["CUDALINK_DRIVER"] == "13.2"
    assert last.tags == ("x", "skew", "cross-major")
    assert last.environment("r")["CUDALINK_GUARD_RAILS"] == "off"
    for keys, mode in (('env = { CUDALINK_GUARD_RAILS = "strict" }', "strict"), ("", "off")):
        environment = cells(f'[cells.a]\nctk = "13.0"\n{keys}\n')["a"].environment("r")
        assert environment["CUDALINK_GUARD_RAILS"] == mode
    assert last.python == "3.12"
    assert cells('[cells.a]\ndriver = "12.7"\n')["a"].toolchains == (("12.8", "libs"),)
    old = cells('[cells.a]\ndriver = "13.0"\narch = "sm_70"\n')["a"]
    assert old.toolchains == (("13.0", "libs"), ("12.9", "libs"))
    assert old.environment("r")["CUDALINK_DEVICE"] == "sm_70"
    assert last.toolchains == (("13.2", "libs"),)


def test_local_cells_use_a_mini_toolkit(cells, monkeypatch, tmp_path) -> None:
    """A local cell has no toolkit wheels; CUDA_HOME is its folder, or the mini toolkit of the cache.

    A project may say which packages make a toolkit.
    """
    own = cells('[toolkits."13.0"]\npackages = ["mine==1"]\n[cells.a]\nctk = "13.0"\npackages = ["numpy"]\n')["a"]
    assert own.packages == ("mine==1", "numpy")
    assert cells('[toolkits.latest]\npackages = ["mine"]\n[cells.a]\nctk = "latest"\n')["a"].packages == ("mine",)
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    made = cells(
        '[cells.a]\nctk = "13.0"\nsource = "local"\n[cells.b]\nctk = "13.0"\nsource = "local"\nlocal = "/opt/cuda"\n'
    )
    assert made["a"].packages == ("cuda-bindings==13.0.*",)
    assert made["a"].environment("r")["CUDA_HOME"] == str(tmp_path / "toolchains" / "13.0-ctk")
    assert made["a"].toolchains == (("13.0", "ctk"),)
    assert made["b"].environment("r")["CUDA_PATH"] == "/opt/cuda"
    assert made["b"].toolchains == ()


AXES = '[axes.x]\nctk = ["13.0", "13.2"]\ndriver = ["12.9", "13.0", "13.2"]\n[[axes.x.exclude]]\n'
KNOWN_ISSUE = 'driver = "12.9"\nbecause = "known-issue"\nissue = "https://e.org/1"\nuntil = '


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ('ctk = "13.0"\ndriver = "13.0"\nbecause = "no-skew"', 5),
        ('driver = "12.9"\nbecause = "driver-too-old"', 4),
        ('driver = "12.9"\nctk = ["13.0", "13.2"]\nbecause = "driver-too-old"\nnote = "later"', 4),
        (f"{KNOWN_ISSUE}2999-01-01", 4),
        (f"{KNOWN_ISSUE}2999-01-01T01:02:03", 4),
    ],
)
def test_excludes_that_hold(exclude, left, cells) -> None:
    assert len(cells(AXES + exclude)) == left


@pytest.mark.parametrize("zone", ["UTC-14", "UTC+12"])
def test_a_date_passes_everywhere_at_once(cells, monkeypatch, zone: str) -> None:
    """At the end of its day in UTC, wherever the machine is; at any time one of the two has another date."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        today = dt.datetime.now(tz=dt.UTC).date()
        assert len(cells(f"{AXES}{KNOWN_ISSUE}{today}")) == 4
        (fault,) = cells(f"{AXES}{KNOWN_ISSUE}{today - dt.timedelta(days=1)}")
        assert "has passed" in fault
    finally:
        monkeypatch.undo()
        time.tzset()


BAD_EXCLUDES = {
    'driver = "13.0"\nbecause = "no-skew"':
        "6: axes.x.exclude.1.because: not true where ctk = '13.2', driver = '13.0': the driver ",
    f"{KNOWN_ISSUE}2020-01-01": "8: axes.x.exclude.1.until: 2020-01-01 has passed",
    'driver = "12.9"\nbecause = "known-issue"\nuntil = 2999-01-01': "4: axes.x.exclude.1: because = 'known-issue'",
    f'{KNOWN_ISSUE}"soon"': "4: axes.x.exclude.1: because = 'known-issue' needs the key 'until', a date",
    'driver = "12.9"\nbecause = "known-issue"\nissue = ""\nuntil = 2999-01-01': "needs the key 'issue'",
    'driver = "12.9"\nbecause = ["no-skew"]': "; found ['no-skew']",
    'drvier = "12.9"\nbecause = "no-skew"': "5: axes.x.exclude.1.drvier: unknown key; did you mean 'driver'?",
    'driver = "12.9"': "same-as, known-issue; found nothing",
    'zzz = "1"\ndriver = "12.9"\nbecause = "driver-too-old"':
        "5: axes.x.exclude.1.zzz: unknown key; known: ctk, driver, because, cell, issue, until, note",
    'driver = "12.9"\nbecause = "slow"': "6: axes.x.exclude.1.because: expected a reason that can be checked: ",
    'driver = "12.8"\nbecause = "no-skew"':
        "5: axes.x.exclude.1.driver: '12.8' is not a value of the axis; expected '12.9', ",
    'because = "no-skew"': "4: axes.x.exclude.1: needs a value of at least one axis: ctk, driver",
    'driver = "12.9"\nbecause = "same-as"\ncell = "a"': "7: axes.x.exclude.1.cell: there is no cell 'a' above",
    'driver = "12.9"\nbecause = "same-as"': "4: axes.x.exclude.1: because = 'same-as' (another cell has the same",
    'driver = "12.9"\nbecause = "driver-too-old"\n[[axes.x.exclude]]\ndriver = "12.7"\nbecause = "no-wheels"':
        "8: axes.x.exclude.2.driver: '12.7' is not a value of the axis",
}  # fmt: skip


@pytest.mark.parametrize("exclude", BAD_EXCLUDES)
def test_excludes_that_do_not_hold(exclude, cells) -> None:
    """An exclude without a reason that is true is an error, with its line."""
    faults = cells(AXES + exclude)
    assert any(BAD_EXCLUDES[exclude] in message for message in faults), faults


HOLDS = {
    "no-skew": [{"driver": "13.0"}, {"nvjitlink": "13.0"}, {"driver": "13.0", "nvjitlink": "13.0"}],
    "no-wheels": [{"ctk": "12.99"}, {"nvjitlink": "12.99"}],
    "driver-too-old": [{"driver": "12.9"}],
    "nvjitlink-unusable": [{"nvjitlink": "12.2"}],
    "other-soname": [{"nvjitlink": "12.9"}],
    "bindings-major": [{"versions": {"cuda-bindings": "==12.*"}}, {"versions": {"cuda-bindings": "12.9.1"}}],
    "arch-unsupported": [
        {"arch": "sm_70"},
        {"arch": "sm_100", "nvjitlink": "12.6"},
        {"arch": "sm_100", "driver": "12.6"},
    ],
    "python-unsupported": [{"python": "3.10"}, {"python": "3.9t"}],
}
FAILS = {
    "no-skew": [{}, {"driver": "13.0", "nvjitlink": "13.1"}, {"driver": "13.1", "nvjitlink": "13.0"}],
    "no-wheels": [{}, {"ctk": "none"}, {"nvjitlink": "12.9"}],
    "driver-too-old": [{}, {"driver": "13.0"}, {"driver": "13.1"}, {"ctk": "none", "driver": "12.9"}],
    "nvjitlink-unusable": [{}, {"nvjitlink": "12.3"}, {"nvjitlink": "13.0"}],
    "other-soname": [{}, {"nvjitlink": "13.1"}, {"ctk": "none", "nvjitlink": "12.9"}],
    "bindings-major": [
        *({}, {"versions": {"cuda-bindings": "13.0.*"}}, {"versions": {"cuda-bindings": "latest"}}),
        {"ctk": "none", "versions": {"cuda-bindings": "12.9.*"}},
    ],
    "arch-unsupported": [{}, {"arch": "sm_75"}, {"arch": "sm_100", "driver": "12.9", "nvjitlink": "13.0"}],
    "python-unsupported": [{}, {"python": "3.11"}, {"python": "3.14t"}],
}


@pytest.mark.parametrize("reason", REASONS)
def test_where_a_reason_holds(reason: str) -> None:
    """The toolkit is CUDA 13.0 where a case does not say another."""

    def holds(values: dict) -> bool:
        return reason in reasons_of(Cell("c", CellValues(**{"ctk": "13.0", **values}), ()))

    assert [values for values in HOLDS[reason] if not holds(values)] == []
    assert [values for values in FAILS[reason] if holds(values)] == []


PACKAGES = '[axes.packages]\ncuda-bindings = ["lowest", "12.9.*", "latest"]\ncuda-core = "1.0.0"\n'


def test_packages_of_an_exclude_without_such_axes(cells) -> None:
    (fault,) = cells(AXES + 'packages.numpy = "1"\ndriver = "12.9"\nbecause = "driver-too-old"')
    assert fault == "5: axes.x.exclude.1.packages: unknown key; known: ctk, driver, because, cell, issue, until, note"


def test_as_many_cells_as_are_allowed(cells, monkeypatch) -> None:
    monkeypatch.setattr(reading, "_MOST_CELLS", 4)
    axes = '[axes.x]\nctk = ["13.0", "13.2"]\ndriver = ["12.9", "13.0"{}]\n'
    assert len(cells(axes.format(""))) == 4
    assert cells(axes.format(', "13.2"')) == ["1: axes.x: makes 6 cells; expected at most 4"]


def test_packages_are_axes(cells) -> None:
    """In `[axes.packages]` or in a table of any axes; names of cells are deterministic, and an exclude names one."""
    made = cells(PACKAGES)
    assert list(made) == [f"cuda-bindings-{name}" for name in ("lowest", "12.9", "latest")]
    assert made["cuda-bindings-12.9"].packages == ("cuda-bindings==12.9.*", "cuda-core==1.0.0")
    assert made["cuda-bindings-lowest"].axes["cuda-bindings"] == "lowest"
    assert made["cuda-bindings-lowest"].axes["cuda-core"] == "1.0.0"
    assert made["cuda-bindings-latest"].packages == ("cuda-bindings", "cuda-core==1.0.0")
    keys = json.loads(made["cuda-bindings-12.9"].environment("r")["CUDALINK_CELL_KEYS"])
    assert keys == {"packages": {"cuda-bindings": "12.9.*", "cuda-core": "1.0.0"}}
    exclude = '[[axes.packages.exclude]]\n{}\nbecause = "known-issue"\nissue = "1"\nuntil = 2999-01-01\n'
    for words in ('cuda-bindings = "lowest"', 'packages.cuda_bindings = ["lowest"]'):
        assert list(cells(PACKAGES + exclude.format(words))) == ["cuda-bindings-12.9", "cuda-bindings-latest"]
    other = cells(
        '[defaults]\npackages = ["numpy"]\n[axes.x]\nname = "{ctk}-{numba-cuda}"\nctk = ["12.9", "13.0"]\n'
        'env = { A = "{numba_cuda}" }\n[axes.x.packages]\nNumba_CUDA = [">=0.3,<0.4", "0.4.0"]\n'
        'cuda-bindings = "12.9.1"\n[[axes.x.exclude]]\nctk = "13.0"\npackages.numba-cuda = "0.4.0"\n'
        'because = "bindings-major"\n'
    )
    assert list(other) == ["12.9-0.3-0.4", "12.9-0.4.0", "13.0-0.3-0.4"]
    named = cells('[axes.packages]\nname = "{torch}-on-{ctk}"\nctk = "13.0"\ntorch = ["2.7.*", "lowest"]\n')
    assert list(named) == ["2.7-on-13.0", "lowest-on-13.0"]
    assert list(cells('[axes.x]\nname = "a"\nctk = ["13.0"]\n')) == ["a"]
    # the version of the table replaces that of the toolkit
    bindings = [package for package in other["13.0-0.3-0.4"].packages if package.startswith("cuda-bindings")]
    assert bindings == ["cuda-bindings==12.9.1"]
    assert other["12.9-0.4.0"].versions == {"numba-cuda": "0.4.0", "cuda-bindings": "12.9.1"}
    assert other["12.9-0.4.0"].packages[-2:] == ("cuda-bindings==12.9.1", "numba-cuda==0.4.0")
    assert other["12.9-0.4.0"].environment("r")["A"] == "0.4.0"


@pytest.mark.parametrize("package", ["cython", "ipython", "pythonxy", "pythia", "gtest"])
def test_packages_that_are_named_like_a_key(package, cells) -> None:
    """A package that looks like a key, but not like a slip of the keyboard, is a package of `[axes.packages]`."""
    assert list(cells(f'[axes.packages]\n{package} = ["1.0", "2.0"]\n')) == [f"{package}-1.0", f"{package}-2.0"]


def test_package_that_looks_like_a_slip(cells) -> None:
    """The fault says how to name it, and so named it is a package."""
    (fault,) = cells('[axes.packages]\nctk = ["13.0"]\ndrivers = ["1.0"]\n')
    assert fault == (
        "3: axes.packages.drivers: unknown key; did you mean 'driver'? A package of that name is 'packages.drivers'."
    )
    assert list(cells('[axes.packages]\npackages.drivers = ["1.0"]\n')) == ["drivers-1.0"]
    assert cells('[cells.a]\ndrivers = "1.0"\n') == ["2: cells.a.drivers: unknown key; did you mean 'driver'?"]


def test_what_a_cell_hides_and_where_its_libraries_come_from(cells) -> None:
    """Keys that are no setting of the plugin reach the run in one variable, and the report as axes."""
    made = cells(
        '[cells.a]\nresolution = "lowest-direct"\nprovenance = "wheels"\nhidden = ["/usr/local/cuda*"]\n[cells.b]\n'
    )
    environment = made["a"].environment("r")
    assert environment["CUDALINK_PROVENANCE"] == "wheels"
    assert json.loads(environment["CUDALINK_CELL_KEYS"]) == {
        "axes": {"resolution": "lowest-direct", "provenance": "wheels"},
        "hidden": ["/usr/local/cuda*"],
    }
    assert made["a"].axes["hidden"] == "yes"
    assert made["a"].description == "no toolkit, resolution lowest-direct, provenance wheels, without /usr/local/cuda*"
    assert not {"CUDALINK_CELL_KEYS", "CUDALINK_PROVENANCE"} & set(made["b"].environment("r"))


def test_bare_cells(cells) -> None:
    """A bare cell takes over nothing that other cells have besides the project, and hides the usual places."""
    defaults = '[defaults]\nctk = "13.0"\ngroups = ["test"]\nextras = ["x"]\npackages = ["numpy"]\ntests = ["t"]\n'
    made = cells(
        defaults + 'backend = "driver"\nprovenance = "wheels"\nhidden = ["/odd/cuda"]\n'
        '[cells.a]\nkind = "bare"\nimports = ["m.n"]\n'
        'driver = "13.0"\npackages = { numpy = "lowest" }\n'
        '[cells.b]\nkind = "bare"\ncommand = "pytest --pyargs m"\nprovenance = "wheels"\nhidden = []\n'
        "[cells.c]\n"
    )
    a, b, c = made.values()
    assert (a.packages, a.ctk, a.values.install, a.values.extras, a.tags) == ((), "none", "wheel", (), ("bare",))
    assert (a.values.backend, b.values.backend, c.values.backend) == ("auto", "auto", "driver")
    assert a.values.hidden[0] == "/usr/local/cuda*"
    assert a.values.hidden[-1] == "/odd/cuda"
    assert (a.runs_pytest, a.tests, a.axes["kind"]) == (False, ("import::m.n",), "bare")
    assert a.description == "bare, emulated driver 13.0, numpy lowest, provenance wheels"
    assert a.environment("r")["CUDALINK_PROVENANCE"] == "wheels"
    assert (b.runs_pytest, b.tests, b.values.hidden) == (True, ("--pyargs", "m"), ())
    assert b.environment("r")["CUDALINK_PROVENANCE"] == "wheels"
    assert (c.ctk, c.tests) == ("13.0", ("t",))


def test_bare_defaults(cells) -> None:
    """Settings beside `kind = "bare"` reach the cells that can have them, and are a fault, once, where none can."""
    bare = '[defaults]\nkind = "bare"\nhidden = ["/odd/cuda"]\nbackend = "driver"\n'
    bare_cells = '[cells.a]\n{}\n[cells.b]\nkind = "bare"\n{}\n'
    for cell in cells(bare + 'command = "pytest"\n' + bare_cells.format("", "")).values():
        assert (cell.values.backend, cell.values.install, cell.values.hidden) == ("driver", "wheel", ("/odd/cuda",))
    backend, extras = cells(bare + 'extras = ["x"]\n' + bare_cells.format(*2 * ['imports = ["m"]']))
    assert backend.startswith("4: defaults.backend: is a setting of the plugin")
    assert extras.startswith("5: defaults.extras: is not for kind = 'bare'")
    (own,) = cells(bare + 'imports = ["m"]\n[cells.a]\nbackend = "nvjitlink"\n')
    assert own.startswith("7: cells.a.backend: is a setting of the plugin")
    (steps,) = cells('[defaults]\nkind = "bare"\n[cells.a]\n')
    assert steps.startswith("3: cells.a.kind: 'bare' needs imports")
    of_the_cell = "3: cells.a.backend: 'driver' cannot be forced where driver = 'absent'"
    assert cells('[defaults]\nbackend = "driver"\n[cells.a]\ndriver = "absent"\n') == [of_the_cell]


def test_defaults_of_a_cell(cells) -> None:
    """What fits is no contradiction: a default that is written, a toolkit that nothing hides, a setting of pytest."""
    made = cells(
        '[cells.a]\ninstall = "wheel"\n[cells.b]\ngpu = true\n[cells.c]\ngpu = true\ndriver = "real"\n'
        '[cells.d]\nsource = "local"\nlocal = "/opt/a"\nhidden = ["/opt/b"]\n'
        '[cells.e]\nkind = "bare"\nimports = ["m"]\ninstall = "wheel"\nhidden = []\n'
        '[cells.f]\nkind = "bare"\ncommand = "pytest"\nbackend = "driver"\n'
        f'[cells.{"x" * 100}]\nctk = "latest"\n'
    )
    assert list(made) == [*"abcdef", "x" * 100]
    latest = made["x" * 100]
    assert latest.packages == ("cuda-toolkit[cudart,nvjitlink,nvrtc]", "nvidia-nvjitlink", "cuda-bindings")


def test_the_major_release_of_the_toolkit(cells) -> None:
    """It is filled into extras, groups and requirements of a cell."""
    given = 'extras = ["cu{major}"]\ngroups = ["test-cu{major}"]\npackages = ["cupy-cuda{major}x"]\n'
    for ctk in ("12.9", "13.0", "latest"):
        cell = cells(f'[cells.a]\nctk = "{ctk}"\n{given}')["a"]
        major = "13" if ctk == "latest" else ctk[:2]
        assert (cell.values.extras, cell.values.groups) == ((f"cu{major}",), (f"test-cu{major}",))
        assert cell.packages[-1] == f"cupy-cuda{major}x"
    wanted = {"extras": "cu{major}", "groups": "test-cu{major}", "packages": "cupy-cuda{major}x"}
    assert cells(f'[cells.a]\nctk = "none"\n{given}') == [
        f"{line}: cells.a.{key}: '{text}' needs the release of a toolkit, found ctk = 'none'"
        for line, (key, text) in enumerate(wanted.items(), 3)
    ]


def test_same_as(cells) -> None:
    base = '[cells.a]\nctk = "13.0"\ndriver = "13.0"\n'
    axes = '[axes.x]\nctk = ["13.0"]\ndriver = ["13.0", "12.9"]\n[[axes.x.exclude]]\nbecause = "same-as"\ncell = "a"\n'
    assert list(cells(base + axes + 'driver = "13.0"')) == ["a", "ctk-13.0-driver-12.9"]
    (fault,) = cells(base + axes + 'driver = "12.9"')
    assert fault == (
        "9: axes.x.exclude.1.cell: 'a' is not the same as 'ctk-13.0-driver-12.9': driver is '13.0', not '12.9'"
    )
    for more in ('tags = ["x"]', 'tests = ["t"]', 'description = "d"'):
        assert list(cells(f'{base}{more}\n{axes}driver = "13.0"')) == ["a", "ctk-13.0-driver-12.9"]
    (fault,) = cells(f'{base}hidden = ["/opt/x"]\n{axes}driver = "13.0"')
    assert fault.endswith(": hidden is ('/opt/x',), not ()")
    real = axes.replace('"13.0", "12.9"', '"real"') + 'driver = "real"'
    (fault,) = cells(f'[cells.a]\nctk = "13.0"\ndriver = "real"\ngpu = true\n{real}')
    assert fault.endswith(": gpu is True, not False")
    bare = cells(f'[cells.a]\nkind = "bare"\nimports = ["m"]\n{real}')
    assert any(": kind is 'bare', not 'test'" in fault for fault in bare)
    (fault,) = cells(f"{axes.replace('cell = ', 'cell = 1 # ')}driver = '13.0'")
    assert "because = 'same-as' (another cell has the same values) needs the key 'cell'" in fault
    (fault,) = cells(
        f"{base}[cells.b]\n{axes.replace('cell = ', 'cell = `c` # ').replace('`', chr(34))}driver = '13.0'"
    )
    assert fault.endswith(": there is no cell 'c' above; known: a, b, ctk-13.0-driver-12.9")


def test_a_release_without_wheels_can_be_left_out(cells) -> None:
    axes = '[axes.x]\nctk = ["12.6", "12.7"]\n[[axes.x.exclude]]\nctk = "12.7"\nbecause = "no-wheels"\n'
    assert list(cells(axes)) == ["ctk-12.6"]


EXCLUDED = """[axes.packages]
a = ["1.0"]
b = ["1.0"]
ctk = ["13.0"]
[[axes.packages.exclude]]
ctk = "13.0"
packages.c = "1"
packages.a = "2"
because = "no-wheels"
"""


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("[cells", ["1: not TOML: "]),
        ("\n\n[cells", ["3: not TOML: "]),
        ("\n[cells\n\n\n", ["2: not TOML: "]),
        ("axes = 1", ["1: axes: expected a table, found a number (1)"]),
        ("toolkits = 1", ["1: toolkits: expected a table, found a number (1)"]),
        ("[axes]\nx = 1", ["2: axes.x: expected a table, found a number (1)", "2: axes.x: needs a list of values for"]),
        ('[cells.a]\nctk = ["13.0"]', ["2: cells.a.ctk: expected a string, found a list (['13.0'])"]),
        ("[cells.a]\nctk = true", ["2: cells.a.ctk: expected a string, found a boolean (True)"]),
        ('[cells.a]\nnvjitlink = "12.7"', ["2: cells.a.nvjitlink: NVIDIA published no wheels of CUDA 12.7; use 12."]),
        ('[cells.a]\nlocal = "/opt/cuda"\nhidden = ["/opt/cuda*"]', ["2: cells.a.local: is only for source"]),
        ('cells.a = "b"', ["1: cells.a: expected a table, found a string ('b')"]),
        ('[cells.a]\nnvjitlink = "absent"\nbackend = "nvjitlink"', ["3: cells.a.backend: 'nvjitlink' cannot be"]),
        ('[cells.a]\nkind = "bare"\nimports = ["m"]\ncommand = "pytest"',
         ["3: cells.a.imports: is not for a command of pytest, whose tests import what they need"]),
        (f"[cells.{'x' * 101}]",
         [f"1: cells.{'x' * 101}: the name of a cell has 101 characters; expected at most 100"]),
        ('[toolkits."13.0"]\npackages = []\nx = 1', ['3: toolkits."13.0".x: unknown key; known: packages']),
        ('[cells.a.packages]\nnumba-cuda = "1.0"\nnumba_cuda = "1.0"',
         ["3: cells.a.packages.numba_cuda: the package 'numba-cuda' is named twice"]),
        ('[axes.x]\nname = "{foo}"\nctk = ["13.0"]\ndriver = ["13.0"]',
         ["2: axes.x.name: {foo} is not an axis of this table; its axes: ctk, driver"]),
        ('[axes.x]\nnumpy = ["1.0"]\nctk = ["13.0"]', ["2: axes.x.numpy: unknown key; known: kind, "]),
        (
            EXCLUDED,
            [
                "7: axes.packages.exclude.1.packages.c: is not an axis of this table; its packages: a, b",
                "8: axes.packages.exclude.1.packages.a: '2' is not a value of the axis; expected '1.0'",
                "5: axes.packages.exclude.1: excludes nothing",
            ],
        ),
        (
            '[axes.packages]\na = ["1.0"]\n[[axes.packages.exclude]]\npackages = 1\nbecause = "no-wheels"',
            [
                "4: axes.packages.exclude.1.packages: expected a table, found a number (1)",
                "3: axes.packages.exclude.1: needs a value of at least one axis: a",
            ],
        ),
        (
            '[axes.packages]\nctk = ["13.0"]\n[[axes.packages.exclude]]\nscipy = "1"\nbecause = "no-wheels"',
            [
                "4: axes.packages.exclude.1.scipy: is not an axis of this table; its packages: none",
                "3: axes.packages.exclude.1: needs a value of at least one axis: ctk",
            ],
        ),
        ('[cells.a]\ncuda = "13.0"', ["2: cells.a.cuda: unknown key; known: kind, python, ctk, "]),
        ('[cell.a]\nctk = "13.0"', ["1: cell: unknown key; did you mean 'cells'?"]),
        ("[defaults]\npyhton = '3.12'", ["2: defaults.pyhton: unknown key; did you mean 'python'?"]),
        ("\ndefaults = 1", ["2: defaults: expected a table, found a number (1)"]),
        ("[cells]\na = 2020-01-01", ["2: cells.a: expected a table, found a value (datetime.date(2020, 1, 1))"]),
        ("[cells.a]\nctk = 13.0", ["2: cells.a.ctk: expected a string, as in '13.0', found a number (13.0)"]),
        ('[cells.a]\nctk = "14.0"', ["2: cells.a.ctk: no wheels of CUDA 14.0 are known; known: 12.0, "]),
        ('[cells.a]\n\nctk = "12.7"', ["3: cells.a.ctk: NVIDIA published no wheels of CUDA 12.7; use 12.6 or 12.8"]),
        ('[cells.a]\ntests = [\n "a",\n 1]', ["2: cells.a.tests: expected a list of strings, found a list (['a', 1])"]),
        ("[cells.a]\nenv.A = 1", ["2: cells.a.env: expected a table of strings, found a table ({'A': 1})"]),
        ('[cells.a]\nsource = "local"', ["2: cells.a.source: 'local' needs the release of the toolkit, or its folder"]),
        ('[cells.a]\nlocal = "/opt"', ["2: cells.a.local: is only for source = 'local'"]),
        ('[cells.a]\ngpu = true\ndriver = "13.0"', ["2: cells.a.gpu: a real GPU needs driver = 'real', found '13.0'"]),
        ('[cells.a]\ndriver = "absent"\nbackend = "driver"', ["3: cells.a.backend: 'driver' cannot be forced where"]),
        ('[cells."a b"]\nctk = "13.0"', ["1: cells.\"a b\": 'a b' is not a name; expected letters, digits"]),
        ("cells = 1", ["1: cells: expected a table, found a number (1)"]),
        ('[axes.x]\nctk = "13.0"', ["1: axes.x: needs a list of values for at least one of python, ctk, "]),
        ("[axes.x]\nctk = []", ["2: axes.x.ctk: an axis needs at least one value", "1: axes.x: needs a list"]),
        ('[axes.x]\nctk = ["13.0", 1, []]',
         ["2: axes.x.ctk: expected a string, found a number (1)", "2: axes.x.ctk: expected"]),
        ('[axes.x]\nname = "a"\nctk = ["13.0", "13.2"]',
         ["2: axes.x.name: needs {ctk}, else several cells have one name"]),
        ('[axes.x]\nname = 1\nctk = ["13.0"]', ["2: axes.x.name: expected a string, found a number (1)"]),
        ('[axes.x]\nctk = ["13.0"]\nexclude = 1', ["3: axes.x.exclude: expected an array of tables"]),
        ('[cells."ctk-13.0"]\nctk = "13.0"\n[axes.x]\nctk = ["13.0"]',
         ["3: axes.x.name: makes a second cell 'ctk-13.0'; the first is on line 1"]),
        (
            '[axes.packages]\nnumpy = ["1.*", "new one"]\ndrvier = ["13.0"]',
            [
                "2: axes.packages.numpy: expected 'lowest', 'latest', a version such as '1.0.0'",
                "3: axes.packages.drvier: unk",
            ],
        ),
        (
            '[cells.a.packages]\nnumpy = ["1.0"]\narch = "1"\n"a b" = "1"\n',
            [
                "2: cells.a.packages.numpy: expected a string, found a list",
                "3: cells.a.packages.arch: expected a package ",
                '4: cells.a.packages."a b": expected the name of a package',
            ],
        ),
        ('[axes.x]\npackages.numpy = []\nctk = ["13.0"]',
         ["2: axes.x.packages.numpy: an axis needs at least one value"]),
        ('[cells.a]\nkind = "bare"', ["2: cells.a.kind: 'bare' needs imports, a list of modules, or a command"]),
        ('[cells.a]\nkind = "bare"\nimports = ["a-b"]',
         ["3: cells.a.imports: expected the name of a module", "2: cells"]),
        (
            '[cells.a]\nkind = "bare"\nimports = ["m"]\nextras = ["x"]\nbackend = "driver"\ncommand = "\'"',
            [
                "6: cells.a.command: expected a command with balanced quotes",
                "4: cells.a.extras: is not for kind = 'bare'",
                "5: cells.a.backend: is a setting of the plugin; a bare cell has the plugin only where its command is",
            ],
        ),
        ('[cells.a]\nimports = ["m"]\ncommand = "pytest"',
         ["2: cells.a.imports: is only for kind = 'bare'", "3: cells.a.command: is only for kind = 'bare'"]),
        ('[cells.a]\nsource = "local"\nlocal = "/opt/cuda/13"\nhidden = ["/opt/cuda*"]',
         ["4: cells.a.hidden: '/opt/cuda*' hides the toolkit of the cell, local = '/opt/cuda/13'"]),
        ("[toolkits.x]\npackages = []",
         ["1: toolkits.x: expected 'latest' or a CUDA release such as '13.0', found 'x'"]),
        ('[toolkits."13.0"]', ['1: toolkits."13.0".packages: expected a list of strings, found nothing']),
    ],
)  # fmt: skip
def test_bad_files(text, faults, cells) -> None:
    """Every fault has its line, its key, what was expected and what was found."""
    messages = cells(text)
    assert isinstance(messages, list)
    for fault in faults:
        assert any(message.startswith(fault) for message in messages), messages
    assert len(messages) == len(faults)


@pytest.mark.parametrize(("length", "shown"), [(78, f"'{'x' * 78}'"), (79, f"'{'x' * 79}… (81 characters)")])
def test_long_values(length: int, shown: str, cells) -> None:
    """The beginning of a wrong value is enough; a file with several faults gets all, in the order of the lines."""
    faults = cells('[cells.a]\nctk = "9"\nx = 1\n[cells.b]\ngpu = 2\n')
    assert [fault.partition(":")[0] for fault in faults] == ["2", "3", "5"]
    faults = cells("\n\n[cells]\na.zzz = 1\n\n\n\n\n\nb = { zzz = 1, aaa = 2 }")
    assert [f.partition(": unknown")[0] for f in faults] == ["4: cells.a.zzz", "10: cells.b.zzz", "10: cells.b.aaa"]
    (fault,) = cells(f'[cells.a]\nctk = "{"x" * length}"\n')
    assert fault.endswith(f", found {shown}")
    (fault,) = cells(f"cells.a = [{'1' * 80}]")
    assert fault.endswith(f", found a list ([{'1' * 71}")


def test_schema_is_published() -> None:
    """The schema file is the one that the table of keys makes, which has each field; our own cells hold to it."""
    # the versions alone are no key: `packages` has them, as a table
    assert [field.name.replace("_", "-") for field in fields(CellValues)] == [*KEYS, "versions"]
    assert all(CellValues().value(name) == key.default for name, key in KEYS.items())
    published = json.loads((ROOT / "matrices" / "cells.schema.json").read_text(encoding="utf-8"))
    assert published == schema()
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(tomllib.loads(OURS.read_text(encoding="utf-8")), published)


WORDS = sorted({word for spec in KEYS.values() for word in spec.words} | {"13.0", "12.9", "3.12", "sm_90", "x"})
ANY = st.one_of(st.sampled_from(WORDS), st.booleans(), st.integers(), st.lists(st.sampled_from(WORDS), max_size=2))


@given(st.dictionaries(st.sampled_from([*KEYS, "other"]), ANY, max_size=3))
def test_schema_and_reader_agree(tmp_path_factory, table) -> None:
    """What the schema refuses, the reader refuses; what only the reader can know is no matter of types."""
    content = {"cells": {"a": table}}
    file = tmp_path_factory.getbasetemp() / "agree.toml"
    file.write_text(tomli_w.dumps(content), encoding="utf-8")
    valid = jsonschema.Draft202012Validator(schema()).is_valid(content)
    try:
        load_cells(file)
        faults = []
    except CellsError as error:
        shapes = (": expected ", "; expected at most", "unknown key")
        faults = [fault for fault in error.faults if any(words in fault for words in shapes)]
    if valid:  # which versions and architectures can be emulated is not in the schema
        faults = [fault for fault in faults if "can be emulated" not in fault]
    assert valid == (not faults), faults


def test_command(capsys, tmp_path, monkeypatch) -> None:
    """``check``, ``list``, ``show`` and ``github`` speak of one file."""
    (tmp_path / "matrices").mkdir()
    file = tmp_path / "matrices" / "cells.toml"
    file.write_text(
        '[cells.a]\nctk = "13.0"\ndriver = "12.9"\npython = "3.13"\n'
        '[cells.b]\ndriver = "real"\ngpu = true\nruns-on = ["self-hosted", "h200"]\nenv = { A = "1" }\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["matrix", "show", "b"]) == 0
    shown = capsys.readouterr().out
    assert '\n  env = { A = "1" }\n  runs-on = ["self-hosted", "h200"]\n\ntags\n  gpu\n\nenvironment\n' in shown
    assert cli.main(["matrix", "check"]) == 0
    assert capsys.readouterr().out == "matrices/cells.toml: 2 cells, no errors\n"
    assert cli.main(["matrix", "list", "--tags", "skew"]) == 0
    assert capsys.readouterr().out == "a  CUDA 13.0, emulated driver 12.9, Python 3.13  skew cross-major\n"
    assert cli.main(["matrix", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["axes"]["driver"] == "12.9"
    assert cli.main(["matrix", "show", "a"]) == 0
    shown = capsys.readouterr().out
    lines = {"  nvidia-nvjitlink==13.0.88", "  CUDALINK_DRIVER=12.9", "  cudalink toolchain add 12.9 --layout libs"}
    assert lines <= {*shown.splitlines()}
    output = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    assert cli.main(["matrix", "github"]) == 0
    include = json.loads(capsys.readouterr().out)["include"]
    assert [(row["cell"], row["python"], row["runs-on"]) for row in include] == [
        ("a", "3.13", ["ubuntu-latest"]),
        ("b", "3.12", ["self-hosted", "h200"]),
    ]
    matrix, some = output.read_text().splitlines()
    assert json.loads(matrix.removeprefix("matrix="))["include"] == include
    assert some == "any=true"
    assert cli.main(["matrix", "check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()
    file.write_text('[cells.a]\nctk = "1"\n', encoding="utf-8")
    assert cli.main(["matrix", "check"]) == 1
    assert "matrices/cells.toml:2: cells.a.ctk: " in capsys.readouterr().err
    assert cli.main(["matrix", "check", "--file", "none.toml"]) == 2
    words = "none.toml: No such file or directory; expected a file of cells; `cudalink init` writes one\n"
    assert words in capsys.readouterr().err
