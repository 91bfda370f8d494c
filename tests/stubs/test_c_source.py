"""The generator, its C for other machines, and what the built libraries export and need."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from pytest_cudalink import stubs as stubs_package
from pytest_cudalink.base.compiler import CompilerError, SharedLibrary, build, find_compiler
from pytest_cudalink.cli import main
from pytest_cudalink.stubs import StubNotFoundError, c_source, describe
from pytest_cudalink.stubs.catalog import CatalogError, load_catalog

from .conftest import NOWHERE, compile_c, succeed

NATIVE = Path(stubs_package.__file__).parent / "native"
NATIVE_HEADERS = Path(stubs_package.__file__).parent / "include"
#: The functions that the field's stubs have, and the NVRTC functions that they lacked.
NEEDED = {
    "cuda": """
        cuGetErrorName cuGetErrorString cuCtxGetDevice cuCtxGetLimit cuCtxSetLimit cuCtxResetPersistingL2Cache
        cuDeviceGetName cuDeviceGetAttribute cuModuleLoadData cuModuleLoadDataEx cuModuleUnload
        cuModuleGetFunction cuModuleGetGlobal_v2 cuFuncSetAttribute cuLaunchKernel cuLaunchKernelEx
        cuLaunchCooperativeKernel cuMemsetD32_v2 cuStreamSetAttribute cuTensorMapEncodeTiled
        cuTensorMapEncodeIm2col""",
    "cudart": """
        cudaGetErrorString cudaGetLastError cudaPeekAtLastError cudaSetDevice cudaGetDevice cudaGetDeviceCount
        cudaDeviceGetAttribute cudaGetDeviceProperties cudaMemGetInfo cudaMalloc cudaFree cudaMallocHost
        cudaFreeHost cudaMemset cudaMemsetAsync cudaMemcpy cudaMemcpyAsync cudaMemcpyPeerAsync
        cudaStreamCreate cudaStreamCreateWithFlags cudaStreamDestroy cudaStreamSynchronize cudaStreamWaitEvent
        cudaEventCreate cudaEventDestroy cudaEventRecord cudaEventSynchronize cudaEventElapsedTime
        cudaDeviceSynchronize cudaStreamBeginCapture cudaStreamEndCapture cudaGraphInstantiate cudaGraphLaunch
        cudaGraphDestroy cudaGraphExecDestroy cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle
        cudaFuncSetAttribute""",
    "nvrtc": """
        nvrtcGetErrorString nvrtcVersion nvrtcCreateProgram nvrtcDestroyProgram nvrtcCompileProgram
        nvrtcGetPTXSize nvrtcGetPTX nvrtcGetProgramLogSize nvrtcGetProgramLog nvrtcGetCUBINSize nvrtcGetCUBIN
        nvrtcGetLTOIRSize nvrtcGetLTOIR nvrtcAddNameExpression nvrtcGetLoweredName""",
}


def dynamic(path: Path) -> tuple[set[str], list[str], str]:
    """Exported symbols, needed libraries, SONAME."""
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        exported = {
            symbol.name
            for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
        }
        section = elf.get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection)
        needed = [tag.needed for tag in section.iter_tags("DT_NEEDED")]
        (soname,) = (tag.soname for tag in section.iter_tags("DT_SONAME"))
    return exported, needed, soname


@pytest.mark.parametrize("file", sorted(NATIVE.glob("*.h")), ids=lambda file: file.name)
def test_files_that_compile_alone(file: Path, tmp_path) -> None:
    """Each file of the stubs says what it needs, so that an editor and a compiler understand it."""
    flags = ("-c", "-o", str(tmp_path / "a.o"), "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    command = [*find_compiler(), *flags, "-Wno-unused-variable", "-x", "c", str(file)]
    succeed(*command)


@pytest.mark.parametrize("name", NEEDED)
def test_exports_are_the_catalog(name: str, stubs, catalog) -> None:
    """The dynamic symbols are the catalog's, which has all of other projects' stubs, describe() and the marker."""
    exported, needed, soname = dynamic(stubs[name])
    symbols = {function.symbol for function in catalog.libraries[name].functions}
    assert exported == symbols | {f"stub_{name}_describe", "cudalink_stub_marker"}
    assert set(NEEDED[name].split()) <= symbols
    assert soname == stubs[name].name == f"libstub_{name}.so"
    assert all(re.fullmatch(r"lib(c|dl|pthread)\.so\.\d+|ld-linux.*", library) for library in needed)
    assert not any(sought in word for sought in ("libcudart", "libnvrtc") for word in (soname, *exported))


def test_prebuilt_headers_are_generated(tmp_path, catalog) -> None:
    """The headers in the package are what the generator writes, and so is the C where it was built."""
    for stub in c_source.generate(catalog, NEEDED, tmp_path):
        assert (NATIVE_HEADERS / stub.header.name).read_text() == stub.header.read_text()
        for source in stub.sources:
            built = NATIVE.with_name("generated") / source.name
            assert not built.exists() or built.read_text() == source.read_text()


def exports(stub: c_source.Stub) -> set[str]:
    """Every symbol that the built library exports."""
    return {function.symbol for function in stub.library.functions} | {stub.describe, "cudalink_stub_marker"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cuda", "cudart", "nvrtc"])
def test_generated_c_stands_alone(name: str, tmp_path, catalog) -> None:
    """The command in the file's head builds it, with warnings as errors, at -O0 and with link-time optimization."""
    (stub,) = c_source.generate(catalog, [name], tmp_path)
    text = stub.sources[0].read_text()
    assert not re.search(r"#include [<\"](cuda|nvrtc)", text)
    head = re.search(r"^ \* Build: cc (.*) \*/$", text, re.MULTILINE)
    for flags in ([], ["-O0"], ["-flto"], ["-O3", "-std=c17"]):
        command = [*find_compiler(), *shlex.split(head[1]), "-Wall", "-Wextra", "-Werror", *flags]
        succeed(*command, cwd=tmp_path)
        exported, _, soname = dynamic(tmp_path / stub.file)
        assert exported == exports(stub)
        assert soname == stub.file
        (tmp_path / stub.file).unlink()


def test_windows_is_refused(tmp_path, catalog, monkeypatch, capsys) -> None:
    """On Windows generator and command say one sentence, and nothing is written; so does its compiler."""
    (stub,) = c_source.generate(catalog, ["nvrtc"], tmp_path)
    command = [*find_compiler(), "-D_WIN32", "-fsyntax-only", str(stub.sources[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "cudalink stubs are written for Linux; there is no Windows implementation" in done.stderr
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(c_source.GeneratorError, match="written for Linux"):
        c_source.generate(catalog, ["cudart"], tmp_path / "out")
    for action in ("build", "generate"):
        assert main(["stubs", action, "-o", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("cudalink stubs: CUDA stubs are written for Linux")
    assert not (tmp_path / "out").exists()


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.skipif(find_spec("ziglang") is None, reason="needs the ziglang wheel")
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_cross_compiled(machine: str, tmp_path, catalog) -> None:
    """The ziglang wheel builds both architectures, for a glibc as old as 2.17, with the same exports."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17", "-O2", "-fPIC", "-shared"]
    for stub in c_source.generate(catalog, NEEDED, tmp_path):
        output = tmp_path / stub.file
        flags = ["-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{stub.file}", "-ldl"]
        succeed(*zig, *stub.sources, *flags, "-o", output)
        assert dynamic(output)[0] == exports(stub)
        with output.open("rb") as stream:
            elf = ELFFile(stream)
            assert elf["e_machine"] == f"EM_{machine.upper()}"
            needs = elf.get_section_by_name(".gnu.version_r").iter_versions()
            versions = {auxiliary.name for _, auxiliaries in needs for auxiliary in auxiliaries}
        numbers = [tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in versions if v.startswith("GLIBC_")]
        assert max(numbers) <= (2, 17)


def test_own_symbols_and_names(tmp_path, run) -> None:
    """A project's file adds a function with its type; the prefix names files, describe() and nothing else."""
    symbols = tmp_path / "own.toml"
    symbols.write_text(
        """
only = ["cudaGetDevice", "cudaMemPoolCreate"]
[types]
cudaMemPool_t = "struct CUmemPoolHandle_st *"
cudaMemPoolProps = "struct cudaMemPoolProps_"
[functions.cudart.cudaMemPoolCreate]
prototype = "cudaError_t cudaMemPoolCreate(cudaMemPool_t *memPool, const struct cudaMemPoolProps *poolProps)"
tier = "optional"
out = ["memPool"]
error = 999
""",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    words = ["--libs", "cudart", "--symbols", str(symbols), "--prefix", "my", "-o", str(out)]
    assert main(["stubs", "build", *words]) == 0
    stub = out / "libmy_cudart.so"
    exported, _, soname = dynamic(stub)
    assert exported == {"cudaGetDevice", "cudaMemPoolCreate", "my_cudart_describe", "cudalink_stub_marker"}
    assert soname == "libmy_cudart.so"
    assert "const char *my_cudart_describe(void);" in (out / "my_cudart.h").read_text()
    code = f"""
import ctypes
from pytest_cudalink.stubs import describe
p = ctypes.c_void_p(5)
print(ctypes.CDLL({str(stub)!r}).cudaMemPoolCreate(ctypes.byref(p), None), p.value, describe({str(stub)!r}).functions)
"""
    assert run(code, CUDALINK_STUBS_CUDART=NOWHERE).stdout == "999 None 2\n"


def test_symbol_list(tmp_path, capsys) -> None:
    """A list of names, with comments, chooses from the catalog; by the exact symbol or by the function's name."""
    names = tmp_path / "names.txt"
    names.write_text("# mine\ncuMemAlloc\ncuModuleGetGlobal_v2  # exact\n\ncudaMalloc\n", encoding="utf-8")
    assert main(["stubs", "list", "--libs", "cuda,cudart", "--symbols", str(names)]) == 0
    listed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(listed) == ["cuMemAlloc_v2", "cuModuleGetGlobal_v2", "cudaMalloc"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cudaFrobnicate\n", "cudaFrobnicate: not in the catalog"),
        ("[functions.cudart.f]\nprototype = 3", "functions.cudart.f: prototype = 3 must be str"),
        ("[functions.cudart.f]\ntier = 'core'", "functions.cudart.f: 'prototype' is missing"),
        ("[functions.cudart.f]\nprototype = 'int g(int a)'", "declares g, the symbol is f"),
        ("[functions.cudart.f]\nprototype = 'int f(thing_t a)'", "the type thing_t is not known; add it as [types]"),
        ("[functions.cudart.f]\nprototype = 'int f(int)'", "parameter 1, 'int', must be a type and a name"),
        ("[functions.cudart.f]\nprototype = 'int f(void (*g)(int))'", "not a prototype|parameter 1"),
        ("[functions.cudart.f]\nprototype = 'int f(int a)'\nout = ['a']", "a function cannot write to int"),
        ("[functions.cudart.f]\nprototype = 'int f(void *a)'\nout = ['a']", "give the size of what void . points to"),
        ("[functions.cudart.f]\nprototype = 'int f(int *a)'\nout = ['b']", "expected PARAMETER, PARAMETER.LENGTH."),
        ("[functions.cudart.f]\nprototype = 'int f(int *a)'\ntier = 'must'", "expected one of core, optional"),
        ("[functions.cudart.f]\nprototype = 'int f(int *a)'\nvolume = 1", "unknown key 'volume'"),
        ("[functions.cufft.f]\nprototype = 'int f(int *a)'", r"there is no \[libraries.cufft\]"),
        ("[things]\na = 1", "unknown table 'things'"),
        ("only = 3", "'only' must be a list"),
        ("[types]\na = 3", "types.a: expected a C name and a C type"),
        ("[types]\n'a-b' = 'int'", "types.a-b: expected a C name and a C type"),
        ("[functions.cudart.f]\nprototype = 'int f(int a, int a)'", "two parameters have the same name"),
        ("[libraries.A]\nwheels = []", "a library is named by small letters, digits and _"),
        ("[functions.cudart.f]\nprototype = 'int f(void)'\nanswer = 'name'", "expected an error code first"),
        ("[functions.cudart.f]\nprototype = 'int f(int a)'\nanswer = 'text'", "a text as result or in 'out'"),
        ("[functions.cudart.f]\nprototype = 'int f(int a)'\nerror = 99999999999", "must fit into an int of C"),
        (
            "[functions.cuda.cuMemAlloc_v2]\nprototype = 'int cuMemAlloc_v2(CUdeviceptr *p, size_t n)'",
            "cuMemAlloc_v2 is the symbol of functions.cuda.cuMemAlloc already; to replace that one, use its name",
        ),
        ("[functions", "Expected"),
    ],
)
def test_bad_symbol_files(text: str, words: str, tmp_path, capsys) -> None:
    """A wrong symbol file names itself, the entry and the fault; the command ends with code 2."""
    file = tmp_path / ("own.txt" if text.startswith("cuda") else "own.toml")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CatalogError) as caught:
        load_catalog(file)
    assert str(file) in str(caught.value)
    assert re.search(words.replace("[types]", r"\[types\]"), str(caught.value))
    assert main(["stubs", "list", "--symbols", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--libs", ""], "--libs '' names no library; expected some of cuda,cudart,nvrtc"),
        (["--libs", "cufft"], "no library 'cufft' in the catalog; expected cuda, cudart, nvrtc"),
        (["--libs", "nvrtc", "--symbols", "names.txt"], "leaves none of its functions"),
        (["--prefix", "my-stub"], "prefix 'my-stub': expected letters, digits and _"),
        (["--prefix", "libcudart"], "other programs take liblibcudart_cuda.so for the real libcudart"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str, tmp_path, monkeypatch, capsys) -> None:
    """What cannot be built is refused with one line that says why."""
    (tmp_path / "names.txt").write_text("cudaMalloc\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["stubs", "generate", "-o", str(tmp_path / "out"), *arguments]) == 2
    assert words in capsys.readouterr().err


def test_generate_leaves_the_sources(tmp_path, capsys) -> None:
    """``stubs generate`` writes C, assembler and header of each library once, and prints their names."""
    assert main(["stubs", "generate", "--libs", "cudart, nvrtc,cudart", "-o", str(tmp_path)]) == 0
    printed = [Path(line) for line in capsys.readouterr().out.splitlines()]
    names = [f"stub_{name}.{end}" for name in ("cudart", "nvrtc") for end in ("c", "S", "h")]
    assert [file.name for file in printed if file.is_file()] == names


def test_warnings_of_a_users_compiler(tmp_path, monkeypatch, capfd) -> None:
    """What a project's own compiler flags warn of does not stop its build."""
    monkeypatch.setenv("CC", f"{shlex.join(find_compiler())} -Wconversion -Wundef")
    assert main(["stubs", "build", "--libs", "nvrtc", "-o", str(tmp_path)]) == 0
    assert capfd.readouterr().out == f"{tmp_path / 'libstub_nvrtc.so'}\n"
    (tmp_path / "x.c").write_text("int f(long x) { return x; }\n")
    with pytest.raises(CompilerError, match="Wconversion"):  # our own has none
        build(SharedLibrary("x.so", (tmp_path / "x.c",)), tmp_path)
    for name in ("cc", "gcc", "clang"):
        monkeypatch.setattr(shutil, "which", lambda word, only=name: word if word == only else None)
        monkeypatch.delenv("CC", raising=False)
        assert find_compiler() == [name]


def test_describe_from_python(run, stubs, tmp_path) -> None:
    """describe() gives an object; a file that is no stub, and one that is not there, are refused."""
    code = f"""
from pytest_cudalink.stubs import describe
found = describe({str(stubs["nvrtc"])!r})
print(found.library, found.file, found.version, found.why, found.degraded, len(found.missing) == found.functions)
"""
    assert run(code, CUDALINK_STUBS_NVRTC=NOWHERE).stdout == "nvrtc None None not found ('core', 'optional') True\n"
    with pytest.raises(StubNotFoundError, match="no stub library at /nonexistent/libx.so"):
        describe("/nonexistent/libx.so")
    with pytest.raises(StubNotFoundError, match=r"no stub libstub_cufft.so in .*run 'cudalink stubs build'"):
        describe("cufft")
    with pytest.raises(StubNotFoundError, match="is not a stub of 'cudalink stubs build'"):
        describe(compile_c(tmp_path / "libother.so", "int x;"))


def test_describe_opens_the_file_that_is_named(run, stubs, tmp_path) -> None:
    """A path without a folder is a file of the working folder, not one that the loader searches for."""
    shutil.copy(stubs["nvrtc"], tmp_path)
    for word in ("'libstub_nvrtc.so'", "'./libstub_nvrtc.so'", "Path('libstub_nvrtc.so')"):
        code = f"""
import os
from pathlib import Path
from pytest_cudalink.stubs import describe
os.chdir({str(tmp_path)!r})
describe({word})
print([line.split()[-1] for line in open("/proc/self/maps") if "libstub_nvrtc" in line][0])
"""
        assert run(code).stdout == f"{tmp_path / 'libstub_nvrtc.so'}\n", word


def test_command_describe(stubs, tmp_path, monkeypatch, capsys) -> None:
    """It tells what a stub found, or where it looked, and what takes a wheel that is not above the stub."""
    wheel = tmp_path / "nvidia/cu13/lib/libnvrtc.so.13"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    monkeypatch.setenv("CUDALINK_STUBS_NVRTC", NOWHERE)
    hints = []
    for number, paths in enumerate(([str(tmp_path)], [])):
        monkeypatch.setattr(sys, "path", paths)
        (tmp_path / str(number)).mkdir()
        assert main(["stubs", "describe", shutil.copy(stubs["nvrtc"], tmp_path / str(number))]) == 0
        first, second, *hint = capsys.readouterr().out.splitlines()
        assert first == "libstub_nvrtc.so: no library (not found)"
        assert second.startswith(f"  looked in: CUDALINK_STUBS_NVRTC={NOWHERE}")
        hints.append(hint)
    assert hints == [[f"  installed, but not above the stub: CUDALINK_STUBS_NVRTC={wheel} takes it"], []]


def test_cmake_dir(capsys) -> None:
    """``cudalink stubs --cmake-dir`` prints the folder of the CMake package."""
    with pytest.raises(SystemExit, match="^0$"):
        main(["stubs", "--cmake-dir"])
    assert (Path(capsys.readouterr().out.strip()) / "cudalink_stubs-config.cmake").is_file()
