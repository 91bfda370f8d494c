"""Calls of libnvJitLink from C: each counts once, for the object that made it, however that is bound.

A library that is made here stands in for libnvJitLink, and another one for the code that calls it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiled import compile_c

#: As the real one: a function for each release besides the one without a number, and a version for all.
LIBRARY = """
__attribute__((visibility("default"))) int calls;
#define EXPORT __attribute__((visibility("default"), noinline))
EXPORT int nvJitLinkComplete(int *handle) { __atomic_fetch_add(&calls, 1, 5); return *handle + 1; }
EXPORT int __nvJitLinkComplete_13_0(int *handle) { __atomic_fetch_add(&calls, 1, 5); return *handle + 2; }
EXPORT int nvJitLinkCalls(void) { return calls; }
EXPORT int nvJitLinkAddData(int *handle, int kind, const char *data, unsigned long size, const char *name) {
  return data && size && kind < 10 ? *data - 'A' : 3;
}
EXPORT int nvJitLinkAddFile(int *handle, int kind, const char *path) { return path ? 6 : 3; }
"""
#: Calls through the table of the object, through a pointer in its data, and through dlsym.
USER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#define EXPORT __attribute__((visibility("default"), noinline))
extern int nvJitLinkComplete(int *), __nvJitLinkComplete_13_0(int *);
int (*const volatile in_data[])(int *) = {__nvJitLinkComplete_13_0};
EXPORT int direct(void) { int handle = 10; return nvJitLinkComplete(&handle) + 0 * handle; }
EXPORT int of_data(void) { int handle = 10; return in_data[0](&handle) + 0 * handle; }
EXPORT int looked_up(void) {
  int handle = 10;
  int (*complete)(int *) = (int (*)(int *))dlsym(RTLD_DEFAULT, "nvJitLinkComplete");
  if (!complete) return -1;
  return complete(&handle) + 0 * handle;
}
EXPORT int looked_up_in(const char *path) {
  int handle = 10;
  int (*complete)(int *) = (int (*)(int *))dlsym(dlopen(path, RTLD_NOW), "nvJitLinkComplete");
  return complete(&handle) + 0 * handle;
}
EXPORT int next(void) { return !!dlsym(RTLD_NEXT, "nvJitLinkCalls"); } /* the library stands behind this object alone */
static void *thousand(void *unused) {
  for (int at = 0; at < 1000; at++) direct();
  return unused;
}
EXPORT void from_threads(int number) {
  pthread_t threads[64];
  for (int at = 0; at < number; at++) pthread_create(&threads[at], NULL, thousand, NULL);
  for (int at = 0; at < number; at++) pthread_join(threads[at], NULL);
}
"""
HEAD = """
import ctypes, os, sys, threading
from pathlib import Path
from pytest_cudalink.loader.jitlink import jitlink_calls
here = Path(sys.argv[1])
def calls():
    found = jitlink_calls.look()
    assert not found.refused
    return {Path(path).name: count for path, count in found.calls}, found.late
"""

#: How both are linked: all at once or at the first call, with read-only slots or without, and with the only table of
#: symbols that nvJitLink had up to 12.6.
BINDINGS = {
    "at once": ("-Wl,-z,now", "-Wl,-z,relro"),
    "at the first call": ("-Wl,-z,lazy", "-Wl,-z,norelro"),
    "without a table of calls": ("-fno-plt", "-Wl,-z,now"),
    "without a read-only part": ("-Wl,-z,now", "-Wl,-z,norelro"),
    "with DT_HASH alone": ("-Wl,--hash-style=sysv",),
}


#: Of a test whose facts do not depend on how the objects are linked.
usual_binding = pytest.mark.parametrize("folder", ["at once"], indirect=True, scope="module")


@pytest.fixture(params=BINDINGS, scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library that stands in for libnvJitLink, and one that calls it."""
    made = tmp_path_factory.mktemp("calls")
    library = compile_c(made / "libnvJitLink.so", LIBRARY, *BINDINGS[request.param])
    compile_c(made / "user.so", USER, *BINDINGS[request.param], str(library), "-Wl,-rpath,$ORIGIN")
    return made


@pytest.fixture
def run(folder: Path) -> Callable[[str], None]:
    """Run Python code in a fresh process, after `HEAD`."""

    def start(code: str) -> None:
        command = [sys.executable, "-c", HEAD + code, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr

    return start


def test_loaded_before(run) -> None:
    """An object that was bound before the watch begins is counted from then on, through every kind of slot; ctypes too.

    No page stays writable, or gets another protection.
    """
    run("""
user = ctypes.CDLL(here / "user.so")
def pages():
    access = {}
    for line in map(str.split, open("/proc/self/maps")):
        if len(line) > 5 and ".so" in line[5]:
            access |= {page: line[1] for page in range(*(int(end, 16) for end in line[0].split("-")), 4096)}
    return access
before = pages()
assert (user.direct(), user.of_data()) == (11, 12)
assert jitlink_calls.start()
after = pages()
assert {page: access for page, access in after.items() if page in before} == before
assert calls() == ({}, False)
assert (user.direct(), user.of_data(), user.direct()) == (11, 12, 11)
assert calls() == ({"user.so": 3}, False)
assert calls() == ({}, False)
library = ctypes.CDLL(here / "libnvJitLink.so")
assert library.nvJitLinkComplete(ctypes.byref(ctypes.c_int(10))) == 11
((caller, count),) = calls()[0].items()
assert count == 1 and caller.startswith(("libffi", "_ctypes", "python", "libpython")), caller
""")


@pytest.mark.parametrize("by", ["its path", "its name"])
def test_loaded_after(run, folder, by, monkeypatch) -> None:
    """An object that is loaded later is counted from its first call on, also where the loader searches for its name."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    run(f"""
assert jitlink_calls.start()
user = ctypes.CDLL("user.so" if {by!r} == "its name" else here / "user.so", ctypes.RTLD_GLOBAL)
assert (user.direct(), user.of_data(), user.looked_up()) == (11, 12, 11)
assert calls() == ({{"user.so": 3}}, False)
""")


@usual_binding
def test_the_loader_answers_its_caller(run, folder, tmp_path) -> None:
    """What C code loads and looks up itself is watched before it has the function, and all else is as without a watch.

    The loader looks beside the object that calls dlopen, as NVRTC opens its builtins; ``RTLD_NEXT`` means the objects
    behind the one that calls dlsym; ``dlerror`` and errno are those of the caller's call.
    """
    compile_c(tmp_path / "libother.so", LIBRARY.replace("+ 1", "+ 5"))
    compile_c(folder / "libbeside.so", LIBRARY.replace("+ 1", "+ 6"))
    run(f"""
user = ctypes.CDLL(here / "user.so")
assert jitlink_calls.start()
assert user.next() == 1
assert user.looked_up_in({str(tmp_path / "libother.so")!r}.encode()) == 15
assert calls() == ({{"user.so": 1}}, False)
assert user.looked_up_in(b"libbeside.so") == 16
def error_of(action):
    try:
        return action()
    except (OSError, AttributeError) as error:
        return str(error)
for path in ("/no/such/library.so", "libno-such-library.so"):
    assert path in error_of(lambda: ctypes.CDLL(path))
assert "no_such_function" in error_of(lambda: user.no_such_function)
""")


@usual_binding
def test_the_input_that_was_refused_last(run) -> None:
    """It is kept once, with the answer and the library; memory that is not there is not read."""
    run("""
assert jitlink_calls.start()
library = ctypes.CDLL(here / "libnvJitLink.so")
add, file, size = library.nvJitLinkAddData, library.nvJitLinkAddFile, ctypes.c_size_t
assert add(None, 1, b"A is taken", size(10), b"x") == 0
assert not jitlink_calls.look().refused_input
assert jitlink_calls.take_refused_input() is None
assert (add(None, 1, b"B", size(1), b"x"), add(None, 1, b"Dark", size(4), b"x")) == (1, 3)
assert jitlink_calls.look().refused_input
found = jitlink_calls.take_refused_input()
assert found == ("nvJitLinkAddData", 3, str(here / "libnvJitLink.so"), b"Dark"), found
assert jitlink_calls.take_refused_input() is None
assert not jitlink_calls.look().refused_input
assert file(None, 1, b"/a/path") == 6
assert jitlink_calls.take_refused_input() == ("nvJitLinkAddFile", 6, str(here / "libnvJitLink.so"), b"/a/path")
for data, count in ((None, 4), (ctypes.c_void_p(8), 4), (b"E", 0), (b"E", 1 << 46), (b"E", (1 << 64) - 1)):
    assert add(None, 10, data, size(count), b"x") == 3
assert file(None, 1, None) == 3
assert jitlink_calls.take_refused_input() is None
""")


@usual_binding
def test_covered(run) -> None:
    """What a thread covers is not counted, in that thread alone; every call still reaches the library."""
    run("""
assert jitlink_calls.start()
user = ctypes.CDLL(here / "user.so")
def link(cover):
    for _ in range(500):
        if cover: jitlink_calls.cover(on=True)
        user.direct()
        if cover: jitlink_calls.cover(on=False)
threads = [threading.Thread(target=link, args=(at % 2,)) for at in range(8)]
for thread in threads: thread.start()
user.from_threads(4)
for thread in threads: thread.join()
assert calls() == ({"user.so": 4 * 500 + 4000}, False)
assert ctypes.CDLL(here / "libnvJitLink.so").nvJitLinkCalls() == 8 * 500 + 4000
jitlink_calls.cover(on=True)  # an exception has interrupted what covers
count = jitlink_calls.counter()
assert count() == count()
user.direct()
before = count()
assert count() > before and calls() == ({"user.so": 1}, False)
assert count() == count() > before
""")


@usual_binding
def test_threads_while_libraries_are_loaded(run, folder, tmp_path) -> None:
    """Objects that are loaded by other threads while all are looked at: nothing crashes, and no call is lost."""
    for name in ("libnvJitLink", *(f"user{at}" for at in range(12))):
        (tmp_path / f"{name}.so").write_bytes((folder / f"{name.rstrip('0123456789')}.so").read_bytes())
    run(f"""
from collections import Counter
assert jitlink_calls.start()
total = Counter()
def load(at):
    user = ctypes.CDLL({str(tmp_path)!r} + f"/user{{at}}.so")
    user.from_threads(2)
def watch():
    for _ in range(300): total.update(calls()[0])
threads = [threading.Thread(target=load, args=(at,)) for at in range(12)] + [threading.Thread(target=watch)]
for thread in threads: thread.start()
for thread in threads: thread.join()
total.update(calls()[0])
assert total == {{f"user{{at}}.so": 2000 for at in range(12)}}, total
""")


@usual_binding
def test_fork(run) -> None:
    """Links that the parent made are the parent's; a child counts its own."""
    run("""
assert jitlink_calls.start()
user = ctypes.CDLL(here / "user.so")
user.direct()
child = os.fork()
if not child:
    user.direct(), user.direct()
    os._exit(0 if calls() == ({"user.so": 2}, False) else 1)
assert os.waitpid(child, 0)[1] == 0
assert calls() == ({"user.so": 1}, False)
""")


def test_unloaded_and_loaded_again(run) -> None:
    """A library that is unloaded leaves nothing behind; loaded again, it is watched again."""
    run("""
import _ctypes
assert jitlink_calls.start()
for _ in range(20):
    user = ctypes.CDLL(here / "user.so")
    assert user.direct() == 11
    assert calls() == ({"user.so": 1}, False)
    _ctypes.dlclose(user._handle)
""")


def test_extension_modules_wake_the_watch(tmp_path) -> None:
    """The watch begins before an extension module is loaded, and not for one of the standard library."""
    code = """
import sys
from pytest_cudalink.loader.jitlink import jitlink_calls
from importlib.machinery import ExtensionFileLoader as loader
assert jitlink_calls.look() == jitlink_calls.Look()  # where nothing is watched, nothing has happened
plain, woken = loader.create_module, []
cancel = jitlink_calls.postpone_until_native_code(woken.clear)
loader.create_module = other = lambda *_: plain(*_)
cancel()
assert loader.create_module is other  # its own place in the chain is another's business
loader.create_module = plain
jitlink_calls.postpone_until_native_code(lambda: woken.append(len(sys.modules)))
import _json, array, zlib
assert not woken
sys.path.insert(0, sys.argv[1])
try:
    import extension
except ImportError:
    pass
assert (len(woken), loader.create_module) == (1, plain)
import ctypes
assert len(woken) == 1
"""
    compile_c(tmp_path / "extension.so", "int nothing;")
    command = [sys.executable, "-S", "-c", code, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run(command, check=True, env=env, timeout=60)


#: As NVRTC: functions of up to six arguments, and no release in their names.
NVRTC = """
#define EXPORT __attribute__((visibility("default")))
EXPORT int nvrtcCreateProgram(int *out, long a, long b, int c, long d, long e) {
  *out = a + b + c + d + e;
  return a ? 0 : 3;
}
EXPORT int nvrtcDestroyProgram(int *program) { return *program ? 0 : 4; }
EXPORT int nvrtcCompileProgram(int program) { return program; }
EXPORT int nvrtcVersion(int *major) { return *major; }
"""


@usual_binding
def test_functions_of_nvrtc(run, tmp_path) -> None:
    """They are redirected on request alone, also in a library that is watched already, and their programs counted."""
    compile_c(tmp_path / "libnvrtc.so", NVRTC)
    run(f"""
assert jitlink_calls.start()
library, linker = ctypes.CDLL({str(tmp_path / "libnvrtc.so")!r}), ctypes.CDLL(here / "libnvJitLink.so")
assert calls() == ({{}}, False)
asked = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
def wanted(function):
    asked.append(function.decode())
    return 7 if function == b"nvrtcVersion" else -1
def all_of_them():
    program, handle, found = ctypes.c_int(), ctypes.c_int(10), []
    for function, *arguments in (
        ("nvrtcCreateProgram", ctypes.byref(program), *map(ctypes.c_long, range(1, 6))),
        ("nvrtcCompileProgram", 6), ("nvrtcVersion", ctypes.byref(handle)),
        ("nvrtcCreateProgram", ctypes.byref(handle), *map(ctypes.c_long, range(5))),
        ("nvrtcDestroyProgram", ctypes.byref(ctypes.c_int())),
    ):
        found.append(ctypes.CDLL(library._name)[function](*arguments))
    return found, program.value, linker.nvJitLinkComplete(ctypes.byref(ctypes.c_int(10)))
everything = ([0, 6, 10, 3, 4], 15, 11)
assert jitlink_calls.meddle(wanted, nvrtc=True)
assert (all_of_them(), asked, jitlink_calls.live_programs()) == (everything, ["nvJitLinkComplete"], 0)
functions = ["nvrtcCreateProgram", "nvrtcDestroyProgram", "nvrtcVersion"]
assert jitlink_calls.watch_nvrtc(functions)
asked.clear()
assert all_of_them() == ([0, 6, 7, 3, 4], 15, 11)
create, destroy, version = functions
assert asked == [create, version, create, destroy, "nvJitLinkComplete"]
assert jitlink_calls.live_programs() == 1
assert jitlink_calls.meddle(wanted, nvjitlink=False)
asked.clear()
assert (all_of_them(), asked, jitlink_calls.live_programs()) == (everything, [], 2)
assert not ctypes.CDLL(library._name).nvrtcDestroyProgram(ctypes.byref(ctypes.c_int(1)))
assert jitlink_calls.live_programs() == 1
(counts, late) = calls()
assert sum(counts.values()) == 3 and not late  # links alone are counted
""")
