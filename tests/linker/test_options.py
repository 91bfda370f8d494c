"""Options: checked when made, written for one backend."""

import dataclasses
import re
import warnings

import pytest

from pytest_cudalink.linker import LinkerOptions, ProgramOptions
from pytest_cudalink.linker.options import DriverOption
from pytest_cudalink.versions import CudaVersion

V13_0, V13_2, V13_3 = CudaVersion(13, 0), CudaVersion(13, 2), CudaVersion(13, 3)

#: A value of each option, and how nvJitLink has it; a switch that is False is not written.
WRITTEN = {
    "time": (True, "-time"),
    "verbose": (True, "-verbose"),
    "link_time_optimization": (True, "-lto"),
    "debug": (True, "-g"),
    "lineinfo": (True, "-lineinfo"),
    "optimize_unused_variables": (True, "-optimize-unused-variables"),
    "no_cache": (True, "-no-cache"),
    "max_register_count": (32, "-maxrregcount=32"),
    "optimization_level": (0, "-O0"),
    "ftz": (True, "-ftz=1"),
    "prec_div": (False, "-prec-div=0"),
    "prec_sqrt": (False, "-prec-sqrt=0"),
    "fma": (False, "-fma=0"),
    "split_compile": (0, "-split-compile=0"),
    "split_compile_extended": (2, "-split-compile-extended=2"),
}
#: What nvJitLink does with LTO only.
LTO_ONLY = frozenset({"ftz", "prec_div", "prec_sqrt", "fma", "variables_used"})
LISTS = {"kernels_used": "-kernels-used", "variables_used": "-variables-used", "ptxas_options": "-Xptxas"}


def nvjitlink(options: LinkerOptions, version=V13_2, arch: str = "sm_90", *, lto: bool = False) -> list[str]:
    return options.written("nvjitlink", version, arch, lto=lto)


def driver(options: LinkerOptions, arch: str = "sm_90") -> list[DriverOption]:
    return options.written("driver", None, arch, lto=False)


def test_default_options() -> None:
    """Unset options are not written."""
    assert nvjitlink(LinkerOptions()) == nvjitlink(LinkerOptions(variables_used=())) == ["-arch=sm_90"]
    assert driver(LinkerOptions()) == [DriverOption(9, "arch", 90)]


@pytest.mark.parametrize("field", WRITTEN)
def test_values(field: str) -> None:
    """A value is written with its name, a switch alone; a switch that is False is not written."""
    value, word = WRITTEN[field]
    assert word in nvjitlink(LinkerOptions(**{field: value}), lto=field in LTO_ONLY)
    if value is True and "=" not in word:
        assert nvjitlink(LinkerOptions(**{field: False})) == ["-arch=sm_90"]


@pytest.mark.parametrize(("field", "option"), LISTS.items())
@pytest.mark.parametrize("names", ["a", ("a", "b"), ["a", "b"], ()])
def test_names(field: str, option: str, names) -> None:
    """A name, a list and a tuple all count."""
    expected = ["a"] if names == "a" else list(names)
    words = nvjitlink(LinkerOptions(**{field: names}), lto=field in LTO_ONLY)
    assert [word for word in words if word.startswith(option)] == [f"{option}={name}" for name in expected]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 3),
        ("arch", 90),
        ("time", 1),
        ("ftz", "yes"),
        ("max_register_count", True),
        ("max_register_count", "32"),
        ("split_compile", 1.0),
        ("kernels_used", b"k"),
        ("kernels_used", [1]),
        ("kernels_used", {"k"}),
        ("kernels_used", [""]),
        ("policy", 3),
    ],
)
def test_wrong_types(field: str, value: object) -> None:
    """A value of another type names the field and itself."""
    with pytest.raises(TypeError, match=rf"LinkerOptions.{field} .*{re.escape(repr(value))}"):
        LinkerOptions(**{field: value})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arch": "sm_91"}, "unknown architecture 'sm_91'; known: "),
        ({"arch": "lto_90"}, "LinkerOptions.arch = 'lto_90': write sm_90"),
        ({"max_register_count": 0}, "max_register_count = 0, expected 1 to 255"),
        ({"optimization_level": 5}, "optimization_level = 5, expected 0 to 4"),
        ({"split_compile": -1}, "split_compile = -1"),
        ({"policy": "lenient"}, "unknown linker policy 'lenient'; known: strict-major"),
        ({"ptx": True, "link_time_optimization": False}, "ptx needs link_time_optimization"),
        ({"ptx": True, "incremental": True}, "exclude each other"),
    ],
)
def test_impossible_values(fields: dict[str, object], words: str) -> None:
    """An invalid value is rejected when the options are made."""
    with pytest.raises(ValueError, match=words):
        LinkerOptions(**fields)


#: What the driver refuses, and what is off there: neither refused, nor passed, nor warned about.
ON = {"time": True, "link_time_optimization": True, "ptx": True, "variables_used": ["v"], "ptxas_options": "-v"}
ON |= {"split_compile": 0, "split_compile_extended": 4, "no_cache": True, "incremental": True}
OFF = dict.fromkeys(("time", "link_time_optimization", "ptx", "no_cache", "optimize_unused_variables", "debug"), False)
OFF |= dict.fromkeys(("split_compile", "split_compile_extended"), 1)
OFF |= dict.fromkeys(("ptxas_options", "kernels_used", "variables_used"), ())


@pytest.mark.parametrize("field", ON)
def test_the_driver_refuses_what_it_cannot_honour(field: str) -> None:
    """The error names the option, its value and the backend."""
    value = str(ON[field]).strip("[]'")
    with pytest.raises(ValueError, match=rf"LinkerOptions.{field} = .*{value}.*: the driver backend"):
        driver(LinkerOptions(**{field: ON[field]}))


@pytest.mark.parametrize("field", OFF)
def test_what_is_off_is_off_on_the_driver(field: str) -> None:
    """A switch that is off adds nothing to the options."""
    with warnings.catch_warnings(action="error"):
        assert driver(LinkerOptions(**{field: OFF[field]})) == [DriverOption(9, "arch", 90)]


@pytest.mark.parametrize(
    ("fields", "situation", "words"),
    [
        # without LTO nvJitLink would drop every kernel
        ({"variables_used": "v"}, {}, r"LinkerOptions.variables_used = \('v',\): the nvjitlink .* only with LTO"),
        ({}, {"arch": "compute_90"}, "arch = 'compute_90': the nvjitlink backend"),
        ({"optimization_level": 4}, {}, "optimization_level = 4: the nvjitlink backend accepts 0 and 3"),
        ({"incremental": True}, {"version": V13_0}, "the nvjitlink backend needs nvJitLink 13.2 or newer, found 13.0"),
        ({"incremental": True}, {"lto": True}, "with LTO needs nvJitLink 13.3 or newer, found 13.2"),
    ],
)
def test_nvjitlink_refuses_what_it_cannot_honour(fields: dict, situation: dict, words: str) -> None:
    """With these inputs, or in this release."""
    with pytest.raises(ValueError, match=words):
        nvjitlink(LinkerOptions(**fields), **situation)


@pytest.mark.parametrize(
    ("fields", "situation", "written"),
    [
        ({"variables_used": "v", "link_time_optimization": True}, {}, "-variables-used=v"),
        ({"ptx": True}, {"arch": "compute_90"}, "-lto"),
        ({"incremental": True}, {}, "-r"),
        ({"incremental": True}, {"version": V13_3, "lto": True}, "-r"),
    ],
)
def test_what_nvjitlink_honours(fields: dict, situation: dict, written: str) -> None:
    """The same options with other inputs or another release."""
    assert written in nvjitlink(LinkerOptions(**fields), **situation)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("ftz", True, DriverOption(21, "ftz", 1)),
        ("prec_div", False, DriverOption(22, "prec_div", 0)),
        ("prec_sqrt", True, DriverOption(23, "prec_sqrt", 1)),
        ("fma", False, DriverOption(24, "fma", 0)),
        ("kernels_used", ["k", "l"], DriverOption(25, "kernels_used", ("k", "l"))),
        ("optimize_unused_variables", True, DriverOption(29, "optimize_unused_variables", 1)),
    ],
)
def test_deprecated_driver_options_warn(field: str, value: object, expected: DriverOption) -> None:
    """They are passed on, with a warning that names the option."""
    with pytest.warns(DeprecationWarning, match=f"LinkerOptions.{field} is deprecated on the driver backend"):
        written = driver(LinkerOptions(**{field: value}))
    assert expected in written


def test_driver_options() -> None:
    """The rest is written with the numbers of CUjit_option."""
    options = LinkerOptions(max_register_count=32, optimization_level=4, debug=True, verbose=True, lineinfo=True)
    written = [(9, 0x10000 + 90), (0, 32), (12, 1), (7, 4), (11, 1), (13, 1)]
    assert [(option.key, option.value) for option in driver(options, "sm_90a")] == written
    assert driver(LinkerOptions(), "sm_120f") == [DriverOption(9, "arch", 0x20000 + 120)]
    with pytest.raises(ValueError, match="arch = 'compute_90': the driver backend .*write sm_90"):
        driver(LinkerOptions(), "compute_90")


@pytest.mark.parametrize(
    ("target", "backend", "options", "version", "words"),
    [
        ("elf", "nvjitlink", {}, V13_2, "unknown target; known: 'cubin', 'ptx', 'ltoir'"),
        ("ptx", "driver", {}, None, "the driver backend makes cubins only"),
        ("ltoir", "driver", {}, None, "the driver backend makes cubins only"),
        ("ptx", "nvjitlink", {}, V13_2, r"needs LinkerOptions\(ptx=True\)"),
        ("cubin", "nvjitlink", {"ptx": True}, V13_2, "makes PTX only"),
        ("ltoir", "nvjitlink", {}, V13_2, "needs nvJitLink 13.3 or newer, found 13.2"),
        ("ltoir", "nvjitlink", {}, V13_3, "needs LTO-IR inputs"),
    ],
)
def test_targets(target: str, backend: str, options: dict[str, bool], version, words: str) -> None:
    """A target that cannot be made is refused with the option that is missing."""
    with pytest.raises(ValueError, match=words):
        LinkerOptions(**options).check_target(target, backend, version, lto=False)


def test_program_options() -> None:
    """Options are written as NVRTC spells them."""
    given = {"relocatable_device_code": True, "max_register_count": 32, "ftz": True, "prec_div": False, "std": "c++17"}
    given |= {"debug": True, "define_macro": ["A", "B=2"], "include_path": "/x", "extra_options": "-w"}
    assert ProgramOptions(**given).for_nvrtc("sm_90", lto=True) == [
        *("--gpu-architecture=sm_90", "--relocatable-device-code=true", "-dlto", "--device-debug", "--maxrregcount=32"),
        *("--ftz=true", "--prec-div=false", "--define-macro=A", "--define-macro=B=2", "--include-path=/x"),
        *("--std=c++17", "-w"),
    ]
    assert ProgramOptions().for_nvrtc(None, lto=False) == []
    with pytest.raises(TypeError, match="ProgramOptions.ftz"):
        ProgramOptions(ftz=1)  # type: ignore[arg-type]
    for wrong in ({"arch": "sm_91"}, {"max_register_count": 256}):
        with pytest.raises(ValueError, match="unknown architecture 'sm_91'|= 256, expected 1 to 255"):
            ProgramOptions(**wrong)


def test_options_are_written_once_for_each_situation() -> None:
    """The same list comes back; another release, architecture, backend or kind of link has its own.

    What is kept is no part of the options: they stay equal, and a changed copy starts with nothing.
    """
    options = LinkerOptions(arch="sm_90", max_register_count=32)
    first = options.written("nvjitlink", V13_2, "sm_90", lto=False)
    assert first == nvjitlink(options)
    assert options.written("nvjitlink", V13_2, "sm_90", lto=False) is first
    assert options.kept("nvjitlink", V13_2, lto=False) is first
    assert options.kept("nvjitlink", V13_3, lto=False) is None
    assert options.kept("driver", V13_2, lto=False) is None
    assert options.written("nvjitlink", V13_2, "sm_90", lto=True) == nvjitlink(options, lto=True)
    assert options.written("nvjitlink", V13_2, "sm_100", lto=False)[0] == "-arch=sm_100"
    assert options.written("driver", V13_2, "sm_90", lto=False) == driver(options)
    unused = LinkerOptions(arch="sm_90", max_register_count=32)
    assert (options, repr(options)) == (unused, repr(unused))
    assert dataclasses.replace(options, arch="sm_80").kept("nvjitlink", V13_2, lto=False) is None


@pytest.mark.parametrize(
    ("field", "value"), [("ftz", True), ("ftz", False), ("prec_div", True), ("prec_sqrt", False), ("fma", False)]
)
def test_floating_point_modes_need_lto(field: str, value: bool) -> None:
    """Without LTO they silently change nothing: every link warns of it, also one whose options were written before."""
    options, word = LinkerOptions(arch="sm_90", **{field: value}), f"-{field.replace('_', '-')}={value:d}"
    for _ in range(2):
        with pytest.warns(UserWarning, match=rf"LinkerOptions.{field} = {value} has no effect without LTO .*nvjitlink"):
            assert options.written("nvjitlink", V13_2, "sm_90", lto=False) == ["-arch=sm_90", word]
        assert options.kept("nvjitlink", V13_2, lto=False) is None
