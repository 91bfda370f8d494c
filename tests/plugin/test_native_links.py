"""Links that native code makes through libnvJitLink: seen, attributed to the object that made them, once."""

from collections import Counter
from pathlib import Path

import pytest

from pytest_cudalink import probes
from pytest_cudalink.base import compiler
from pytest_cudalink.report import Recording, read
from tests.nested import ALONE, BOTH

#: An extension module that calls libnvJitLink itself, written without Python's headers, which a machine may lack.
SOURCE = """
#include <stddef.h>
#define EXPORT __attribute__((visibility("default")))
extern int nvJitLinkCreate(void **, unsigned, const char **), nvJitLinkComplete(void *), nvJitLinkDestroy(void **);
extern int nvJitLinkAddData(void *, int, const void *, size_t, const char *);
static const char ptx[] = ".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; }\\n";
EXPORT int link_now(void) {
  const char *options[] = {"-arch=sm_90"};
  void *handle;
  int result = nvJitLinkCreate(&handle, 1, options);
  if (!result) result = nvJitLinkAddData(handle, 2, ptx, sizeof ptx, "k");
  if (!result) result = nvJitLinkComplete(handle);
  nvJitLinkDestroy(&handle);
  return result;
}
extern void *PyLong_FromLong(long), *PyModule_Create2(void *, int);
static void *of_python(void *self, void *arguments) { return PyLong_FromLong((long)(self && arguments) + link_now()); }
typedef struct { const char *name; void *(*function)(void *, void *); int flags; const char *doc; } Method;
static Method methods[] = {{"link_now", of_python, 4, NULL}, {0}};
static struct { size_t head[5]; const char *name, *doc; ptrdiff_t size; Method *methods; void *rest[4]; } definition = {
    {1}, "native_links_extension", NULL, -1, methods, {0}};
EXPORT void *PyInit_native_links_extension(void) { return PyModule_Create2(&definition, 1013); }
"""
HEAD = """
import ctypes, os, sys, threading
import pytest
sys.path.insert(0, {folder!r})
EXTENSION = {folder!r} + "/native_links_extension.so"

def through_python():
    from cuda.bindings import nvjitlink
    ptx = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {{ ret; }}\\n"
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "k")
    nvjitlink.complete(handle)
    nvjitlink.destroy(handle)

def through_the_bundled_linker():
    from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
    ptx = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {{ ret; }}\\n"
    Linker(ObjectCode.from_ptx(ptx), options=LinkerOptions(arch="sm_90"), backend="nvjitlink").link("cubin")
"""
VIA = "libnvJitLink, called by native_links_extension.so"


@pytest.fixture(scope="module")
def extension(toolkit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension module, bound to the libnvJitLink of this environment."""
    folder = tmp_path_factory.mktemp("extension")
    source = folder / "extension.c"
    source.write_text(SOURCE)
    path = Path(probes.nvjitlink().path or "")
    flags = (f"-L{path.parent}", f"-l:{path.name}", f"-Wl,-rpath,{path.parent}")
    library = compiler.SharedLibrary("native_links_extension.so", (source,), flags=flags)
    return compiler.build(library, folder, strict=False)


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, extension):
    """Run a module that links natively; returns the result and the records."""

    def go(module: str, *arguments: str) -> tuple[pytest.RunResult, Recording]:
        module = HEAD.format(folder=str(extension.parent)) + module
        result = run_pytest("--cudalink-report=run.jsonl", *arguments, module=module)
        return result, read(pytester.path / "run.jsonl")

    return go


def counts(records: Recording) -> Counter[tuple[str, str]]:
    """Number of links that no target steers, by test and by what linked."""
    return Counter(((record.nodeid or "").rpartition("::")[2], record.via) for record in records.unsteered)


TWO = """
def test_imports():
    import native_links_extension
    assert native_links_extension.link_now() == 0
    assert native_links_extension.link_now() == 0
def test_nothing(): pass
def test_rests(): pass
def test_opens(): assert ctypes.CDLL(EXTENSION).link_now() == 0
"""


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_native_links_are_seen(run, extension, arguments) -> None:
    """Each link counts once, for its test or for none, in whatever process, and names who called libnvJitLink."""
    result, records = run(f"{TWO}\nctypes.CDLL(EXTENSION).link_now()\n", *arguments)
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines([f"4 links in your code ({VIA}): 4 on nvJitLink"])
    assert counts(records) == {("", VIA): 1, ("test_imports", VIA): 2, ("test_opens", VIA): 1}
    assert {(record.call, record.where, record.backend) for record in records.unsteered} == {
        ("nvJitLinkComplete", str(extension), "nvjitlink")
    }
    assert [test.unsteered for test in records.tests] == [2, 0, 0, 1]


@pytest.mark.parametrize("module", ["def test_nothing(): pass\n", TWO], ids=["first", "again"])
def test_forced_after_the_last_test(run, pytester, toolkit, extension, module) -> None:
    """A native link as the session ends fails the run, whether or not the tests had such links, too."""
    pytester.makeconftest(
        f"import ctypes\ndef pytest_sessionfinish():\n    ctypes.CDLL({str(extension)!r}).link_now()\n"
    )
    result, _records = run(module, f"--cudalink-driver={toolkit}", "--force-backend=driver")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"outside of tests: cudalink: forced to driver by *, but {extension} linked on *"])


def test_threads_count_exactly(run) -> None:
    """Eight threads that link natively, through cuda.bindings and through a target at once: nothing counts twice."""
    module = """
def test_all():
    native = ctypes.CDLL(EXTENSION)
    ways = [native.link_now] * 4 + [through_python] * 2 + [through_the_bundled_linker] * 2
    through_python(), through_the_bundled_linker()  # imports, in one thread
    def repeat(way):
        for _ in range(10): way()
    threads = [threading.Thread(target=repeat, args=(way,)) for way in ways]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    result, records = run(module)
    result.assert_outcomes(passed=1)
    assert counts(records) == {("test_all", VIA): 40, ("test_all", "cuda.bindings.nvjitlink"): 21}
    assert Counter(link.target for link in records.links) == {"bundled": 21}


def test_loaded_unnoticed(run, tmp_path) -> None:
    """A library that comes in by a way that is not watched is said, with the test; from then on it is watched."""
    source = tmp_path / "library.c"
    source.write_text('__attribute__((visibility("default"))) int nvJitLinkComplete(int handle) { return handle; }')
    library = compiler.SharedLibrary("libnvJitLink.so.99", (source,))
    path = str(compiler.build(library, tmp_path))
    module = f"""
def test_unnoticed():
    loader = ctypes.CDLL(None)  # the loader's own functions, called without a slot
    loader.dlopen.restype = loader.dlsym.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(loader.dlopen({path!r}.encode(), 2))
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(loader.dlsym(handle, b"nvJitLinkComplete"))(7) == 7
    ctypes.CDLL(EXTENSION)  # what is opened by a path later hides nothing
def test_noticed():
    assert ctypes.CDLL({path!r}).nvJitLinkComplete(7) == 7
"""
    result, records = run(module)
    result.assert_outcomes(passed=2)
    when = "it was loaded during *::test_unnoticed, before it could be watched"
    result.stdout.fnmatch_lines([f"libnvJitLink is not watched: {when}; links may have been missed"])
    assert counts(records) == {("test_noticed", "libnvJitLink, called by ctypes"): 1}
    assert [record.where for record in records.unsteered] == [""]


def test_not_built(run, pytester) -> None:
    """Without the native part, a run that loaded libnvJitLink says that native links are not counted."""
    pytester.makepyfile(
        not_built="from pathlib import Path\n"
        "from pytest_cudalink.loader.jitlink import jitlink_calls\n"
        "jitlink_calls._OURS = Path('/no/such/library.so')\n"
    )
    result, records = run(TWO, "-p", "not_built")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        ["libnvJitLink is not watched: the plugin's native part is missing or not for this system; *"]
    )
    assert not records.unsteered


LOADS = """
from pathlib import Path
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

@pytest.fixture(scope="module")
def cuda():
    library = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert library.cuInit(0) == library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxSetCurrent(context) == 0
    return library

def image(name, backend):
    ptx = f".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry {name}() {{ ret; }}\\n"
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=LinkerOptions(arch="sm_90"), backend=backend)
    return bytes(linker.link("cubin").code)

def load(cuda, code):
    assert cuda.cuModuleLoadData(ctypes.byref(ctypes.c_void_p()), code) == 0
"""


def test_modules_of_seen_links(run, toolkit) -> None:
    """A module that a seen link made is not said, on either backend, however often it is loaded; nor is PTX."""
    module = """
@pytest.mark.parametrize("backend", ["driver", "nvjitlink"])
def test_linked(cuda, backend):
    code = image(backend, backend)
    load(cuda, code)
    load(cuda, code)

def test_ptx(cuda):
    load(cuda, b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; }\\n")
"""
    result, _records = run(LOADS + module, f"--cudalink-driver={toolkit}")
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*that no seen link made*")


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_modules_without_a_seen_link(run, toolkit, pytester, arguments) -> None:
    """Modules that no seen link made are counted, each content once; they fail nothing, even where one is forced."""
    module = """
import subprocess, sys
@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("precompiled")
    program = Path(__file__).with_name("elsewhere.py")
    subprocess.run([sys.executable, str(program), str(folder)], check=True)  # a link that this process does not see
    return [folder.joinpath(name).read_bytes() for name in "ab"]

def test_precompiled(cuda, codes):
    for code in codes * 2:
        load(cuda, code)
"""
    pytester.path.joinpath("elsewhere.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode\n"
        + LOADS[LOADS.index("def image") : LOADS.index("def load")].replace("\\\\", "\\")
        + "for name in 'ab':\n    Path(sys.argv[1], name).write_bytes(image(name, 'nvjitlink'))\n"
    )
    result, recorded = run(LOADS + module, f"--cudalink-driver={toolkit}", "--force-backend=driver", *arguments)
    result.assert_outcomes(passed=1)
    said = "precompiled code, NVRTC, or a static copy of nvJitLink"
    result.stdout.fnmatch_lines([f"the emulated driver loaded at least 2 modules that no seen link made: {said}"])
    assert recorded.end.unlinked_modules == 2
