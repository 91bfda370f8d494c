"""Compiling with NVRTC."""

from types import SimpleNamespace

import pytest

from pytest_cudalink import probes
from pytest_cudalink.compat.releases import needs_for_ptx_isa, ptx_isa_of
from pytest_cudalink.linker import CompileError, Program, ProgramOptions
from pytest_cudalink.versions import Needs

SOURCE = "template <class T> __global__ void scale(T* x, T a) { x[threadIdx.x] *= a; }"


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_output_names_its_producer(kind: str, compiled, toolkit) -> None:
    """What NVRTC writes is of the kind asked for, sound, and names this toolkit."""
    code = compiled["main", kind]
    artifact = code.artifact
    assert (code.code_type, artifact.kind, artifact.problems) == (kind, kind, ())
    assert artifact.producer == toolkit
    assert code.name == "main.cu"
    if kind == "ptx":
        assert artifact.ptx_isa == ptx_isa_of(toolkit)
        assert artifact.needs == needs_for_ptx_isa(ptx_isa_of(toolkit))
    else:
        assert artifact.needs == Needs(toolkit)


def test_name_expressions() -> None:
    """Template instances are found under their lowered names."""
    with Program(SOURCE, "c++", ProgramOptions(arch="sm_90")) as program:
        code = program.compile("cubin", name_expressions=("scale<float>", "scale<double>"))
    assert set(code.symbol_mapping) == {"scale<float>", "scale<double>"}
    assert set(code.symbol_mapping.values()) == set(code.artifact.kernels)
    with Program(SOURCE, "c++", ProgramOptions(arch="sm_90")) as program:
        code = program.compile("cubin", name_expressions="scale<int>")
    assert set(code.symbol_mapping) == {"scale<int>"}
    with Program(SOURCE) as program, pytest.raises(TypeError, match="name_expressions takes a name or a sequence"):
        program.compile("ptx", name_expressions=(b"scale<int>",))  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["ptx", "cubin"])
def test_lto_makes_ltoir_only(target: str) -> None:
    """NVRTC would answer with nothing."""
    options = ProgramOptions(arch="sm_90", link_time_optimization=True)
    with Program('extern "C" __global__ void k() {}', options=options) as program:
        with pytest.raises(ValueError, match=rf"compile\('{target}'\): .*link_time_optimization.* makes LTO-IR only"):
            program.compile(target)  # type: ignore[arg-type]
        assert program.compile("ltoir").artifact.kind == "ltoir"


def test_without_nvrtc(monkeypatch) -> None:
    """cuda-bindings alone finds no NVRTC at the first call: the error says what to install."""
    from cuda.bindings import nvrtc
    from cuda.pathfinder import DynamicLibNotFoundError

    def fails(*_: object) -> None:
        raise DynamicLibNotFoundError("No such file: libnvrtc.so*\nand much more")

    monkeypatch.setattr(nvrtc, "nvrtcCreateProgram", fails)
    words = r"needs cuda.bindings and NVRTC; NVRTC was not found \(No such file: libnvrtc.so\*\); (uv )?pip install"
    with pytest.raises(RuntimeError, match=words):
        Program("")


@pytest.mark.parametrize(
    ("extra", "said"), [((), 'identifier "nonsense" is undefined'), ("--no-such-option", "no-such-option")]
)
def test_compile_error_carries_the_log(extra, said: str) -> None:
    """The message has the compiler's text, as of an option that it does not know, and the program's name."""
    options = ProgramOptions(name="bad.cu", arch="sm_90", extra_options=extra)
    words = rf": NVRTC_ERROR_\w+, compiling 'bad.cu'\n(?s:.*){said}"
    with (
        Program("__global__ void k() { nonsense; }", "c++", options) as program,
        pytest.raises(CompileError, match=words) as caught,
    ):
        program.compile("ptx")
    assert said in caught.value.log


def test_warnings_go_to_logs() -> None:
    """A writer gets the log of a successful compilation, if there is one."""
    written: list[str] = []
    for source in ("__global__ void k() { int unused; }", "__global__ void k() {}"):
        with Program(source, "c++", ProgramOptions(arch="sm_90")) as program:
            program.compile("ptx", logs=SimpleNamespace(write=written.append))
    (log,) = written
    assert "never referenced" in log
    assert "\0" not in log


def test_default_architecture(monkeypatch) -> None:
    """Without a device and without arch, PTX takes NVRTC's default, and a cubin asks for one."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    with Program('extern "C" __global__ void K() {}', options=ProgramOptions(define_macro="K=k")) as program:
        assert program.compile("ptx").artifact.kernels == ("k",)
    with Program("") as program, pytest.raises(ValueError, match="needs a real .* found: none given, and no"):
        program.compile("cubin")


def test_wrong_arguments() -> None:
    """Each wrong argument is named."""
    for arguments, error, words in (
        (("", "ptx"), ValueError, "code_type 'ptx' is not supported"),
        ((b"", "c++"), TypeError, "code must be the source text as str, got bytes"),
        (("", "c++", {"arch": "sm_90"}), TypeError, "ProgramOptions, got dict"),
        (("", "c++", {}), TypeError, "ProgramOptions, got dict"),
        (("", None), TypeError, "code_type must be the str 'c\\+\\+', got NoneType"),
    ):
        with pytest.raises(error, match=words):
            Program(*arguments)
    with Program("") as program, pytest.raises(ValueError, match="unknown target; known: 'ptx', 'cubin', 'ltoir'"):
        program.compile("elf")  # type: ignore[arg-type]


def test_closed() -> None:
    """A closed program says so; closing again is harmless."""
    program = Program("", "C++")
    program.close()
    program.close()
    assert program.is_closed
    with pytest.raises(RuntimeError, match="closed Program"):
        program.compile("ptx")
