"""nvJitLink's contract, call by call: what is reported, and what the library gets to see.

A library that is made here stands in for libnvJitLink. It writes down what it was called with.
"""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from native_build.sources import SHARED
from pytest_cudalink.loader.jitlink import jitlink_contract
from tests.compiled import compile_c
from tests.emulator.checkers import sanitizers_missing

#: As the real one: it has a code for a NULL handle, and gives a new handle the address of the last destroyed one.
LIBRARY = """
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#define EXPORT __attribute__((visibility("default"), noinline))
typedef struct { int is_alive; size_t log; } Handle;
static Handle handles[64];
EXPORT int seen; /* calls on a handle */
EXPORT int misused; /* of them, on one that is not alive */
static int use(Handle *handle) { seen++; misused += !handle->is_alive; return 0; }
EXPORT int nvJitLinkCreate(Handle **handle, unsigned count, const char **options) {
  if (!handle) return 10;
  int at = 0;
  while (handles[at].is_alive) at++;
  *handle = &handles[at];
  handles[at] = (Handle){1, 0};
  return count && !strcmp(options[0], "bad");
}
EXPORT int __nvJitLinkCreate_13_0(Handle **handle, unsigned count, const char **options) {
  return nvJitLinkCreate(handle, count, options);
}
EXPORT int nvJitLinkDestroy(Handle **handle) {
  if (!handle || !*handle) return 10;
  use(*handle);
  (*handle)->is_alive = 0;
  *handle = NULL;
  return 0;
}
EXPORT int nvJitLinkAddData(Handle *handle, int kind, const char *data, size_t size, const char *name) {
  if (!handle) return 10;
  use(handle);
  if (!strcmp(data, "slow")) usleep(300000);
  if (!strcmp(data, "long")) handle->log += 100;
  return !strcmp(data, "bad") ? 4 : 0 * (kind + (int)size + !name);
}
EXPORT int nvJitLinkAddFile(Handle *handle, int kind, const char *path) {
  return !handle ? 10 : use(handle) + 0 * (kind + !path);
}
EXPORT int nvJitLinkComplete(Handle *handle) { return !handle ? 10 : use(handle); }
EXPORT int __nvJitLinkComplete_13_0(Handle *handle) { return !handle ? 10 : use(handle); }
EXPORT int nvJitLinkGetLinkedCubinSize(Handle *handle, size_t *size) {
  return !handle || !size ? 10 : (*size = 5, use(handle));
}
EXPORT int nvJitLinkGetLinkedCubin(Handle *handle, char *cubin) {
  return !handle || !cubin ? 10 : (memset(cubin, 'c', 5), use(handle));
}
EXPORT int nvJitLinkGetErrorLogSize(Handle *handle, size_t *size) {
  return !handle || !size ? 10 : (*size = handle->log, use(handle));
}
EXPORT int nvJitLinkGetErrorLog(Handle *handle, char *log) {
  return !handle || !log ? 10 : (memset(log, 'l', handle->log), use(handle));
}
"""
HEAD = """
import ctypes, os, sys, threading
from pytest_cudalink.loader.jitlink import jitlink_contract
contract = jitlink_contract.start()
contract.check(strict=STRICT)
library = ctypes.CDLL(sys.argv[1] + "/libnvJitLink.so")
seen = ctypes.c_int.in_dll(library, "seen")
misused = ctypes.c_int.in_dll(library, "misused")
def create(*options, function=library.nvJitLinkCreate):
    handle = ctypes.c_void_p()
    result = function(ctypes.byref(handle), len(options), (ctypes.c_char_p * len(options))(*options))
    assert result == (b"bad" in options)
    return handle
def copy(handle): return ctypes.c_void_p(handle.value)
def destroy(handle): return library.nvJitLinkDestroy(ctypes.byref(handle))
def add(handle, data=b"data", name=b"name"): return library.nvJitLinkAddData(handle, 1, data, 4, name)
def size(handle, function=library.nvJitLinkGetErrorLogSize):
    number = ctypes.c_size_t()
    return function(handle, ctypes.byref(number)), number.value
def cubin_size(handle): return size(handle, library.nvJitLinkGetLinkedCubinSize)
buffer = ctypes.create_string_buffer(200)
def text(handle): return library.nvJitLinkGetErrorLog(handle, buffer)
complete = library.nvJitLinkComplete
"""
TAIL = """
found = contract.take()
assert not misused.value
for one in found: print(one.rule, one.call, one.handle, one.text.endswith("; the library answered"), sep=" ")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library that stands in for libnvJitLink."""
    return compile_c(tmp_path_factory.mktemp("contract") / "libnvJitLink.so", LIBRARY).parent


@pytest.fixture
def run(folder: Path) -> Callable[..., list[str]]:
    """Run Python code in a fresh process, between `HEAD` and `TAIL`, and return the violations."""

    def start(code: str, *, strict: bool = False) -> list[str]:
        program = HEAD.replace("STRICT", str(strict)) + code + TAIL
        command = [sys.executable, "-c", program, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return start


CASES = [
    ("h = create(); k = copy(h); destroy(h); assert size(k) == (10, 0)", "destroyed GetErrorLogSize 1 False"),
    ("h = create(); k = copy(h); destroy(h); assert destroy(k) == 10", "destroyed Destroy 1 False"),
    (
        (
            "h = create(function=library.__getattr__('__nvJitLinkCreate_13_0')); k = copy(h); destroy(h)\n"
            "assert library.__getattr__('__nvJitLinkComplete_13_0')(k) == 10"
        ),
        "destroyed Complete 1 False",
    ),
    (
        "assert complete(ctypes.c_void_p(ctypes.addressof(buffer))) == 10; assert seen.value == 0",
        "unknown Complete 0 False",
    ),
    ("assert add(create(), None) == 10", "null AddData 1 False"),
    ("assert library.nvJitLinkAddFile(create(), 1, None) == 10", "null AddFile 1 False"),
    ("assert library.nvJitLinkGetErrorLogSize(create(), None) == 10", "null GetErrorLogSize 1 False"),
    ("assert library.nvJitLinkCreate(None, 0, None) == 10", "null Create 0 True"),
    ("h = create(b'bad'); size(h); assert add(h) == 10; assert destroy(h) == 0", "refused AddData 1 False"),
    ("h = create(); complete(h); assert add(h) == 10", "completed AddData 1 False"),
    ("h = create(); complete(h); assert library.nvJitLinkAddFile(h, 1, b'x') == 10", "completed AddFile 1 False"),
    ("h = create(); complete(h); complete(h)", "twice Complete 1 True"),
    ("h = create(); cubin_size(h); library.nvJitLinkGetLinkedCubin(h, buffer)", "early GetLinkedCubinSize 1 True"),
    ("h = create(); assert add(h, b'bad') == 4; complete(h); cubin_size(h)", "failed GetLinkedCubinSize 1 True"),
    ("text(create())", "unsized GetErrorLog 1 True"),
    ("h = create(); complete(h); library.nvJitLinkGetLinkedCubin(h, buffer)", "unsized GetLinkedCubin 1 True"),
    (
        (
            "h = create(); add(h, b'long'); assert size(h) == (0, 100); add(h, b'long'); assert text(h) == 0\n"
            "assert buffer.raw == b'l' * 99 + bytes(101), buffer.raw"
        ),
        "grew GetErrorLog 1 False",
    ),
    (
        (
            "h = create(); other = threading.Thread(target=add, args=(h, b'slow')); other.start()\n"
            "while not seen.value: pass\n"
            "size(h); k = copy(h); assert destroy(k) == 10; other.join(); assert destroy(h) == 0"
        ),
        "busy GetErrorLogSize 1 True; busy Destroy 1 False",
    ),
    (
        (
            "name = ctypes.create_string_buffer(b'before'); h = create(); add(h, name=name); name.value = b'after'\n"
            "complete(h)"
        ),
        "name Complete 1 True",
    ),
    (
        (
            "import mmap\nlibc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p\n"
            "size = ctypes.c_size_t(4096); page = libc.mmap(None, size, 3, 0x22, -1, ctypes.c_long(0))\n"
            "page = ctypes.c_void_p(page); h = create(); add(h, name=page); libc.munmap(page, size)\ncomplete(h)"
        ),
        "name Complete 1 True",
    ),
    # the copy destroys the new handle: its owner is the one that is found, with the history
    (
        "h = create(); k = copy(h); destroy(h); h = create(); assert h.value == k.value; destroy(k); add(h)",
        "destroyed AddData 2 False",
    ),
    (
        (
            "def work():\n  h = create(); k = copy(h); destroy(h); size(k)\n"
            "t = threading.Thread(target=work, name='Other'); t.start(); t.join()"
        ),
        "destroyed GetErrorLogSize 1 False",
    ),
]


@pytest.mark.parametrize(("code", "text"), CASES)
def test_violation(run, code: str, text: str) -> None:
    """Each rule is found, once, and the library does not see a call that it would not survive."""
    said = "; ".join(run(code, strict=text.startswith("name")))
    assert said.replace("nvJitLink", "") == text
    assert {violation.split()[0] for _, text in CASES for violation in text.split("; ")} == {*jitlink_contract.rules()}


def test_strict_never_uses_an_address_again(run) -> None:
    """An old copy is recognized although a new handle would have got its address."""
    code = (
        "for _ in range(3):\n  h = create(); k = copy(h); destroy(h)\nh = create(); assert size(k) == (10, 0); add(h)"
    )
    assert run(code, strict=True) == ["destroyed nvJitLinkGetErrorLogSize 3 False"]


SOUND = """
def whole(data=b"data", name=b"name"):
    h = create(); add(h, data, name); library.nvJitLinkAddFile(h, 1, b"x"); assert complete(h) == 0
    size(h); text(h); assert cubin_size(h) == (0, 5); assert library.nvJitLinkGetLinkedCubin(h, buffer) == 0
    assert buffer.raw[:5] == b"ccccc"; assert destroy(h) == 0
for _ in range(5): whole()
h, k = create(), create(); add(h); add(k); complete(k); complete(h); destroy(k); destroy(h)  # two at a time
h = create(); add(h, b"bad"); size(h); text(h); destroy(h)  # a refused input
h = create(b"bad"); size(h); text(h); destroy(h)  # a refused option
h = create(); size(h); text(h); add(h, b"long"); size(h); text(h); destroy(h)  # a log read twice
h = create(); destroy(h); destroy(h); assert h.value is None  # NULL, which nvJitLink documents
threads = [threading.Thread(target=whole) for _ in range(8)]
h = create(); other = threading.Thread(target=add, args=(h,)); other.start(); other.join(); complete(h); destroy(h)
data = ctypes.create_string_buffer(b"data"); h = create(); add(h, data); data.value = b"gone"; complete(h); destroy(h)
h = create(); pid = os.fork()
if not pid: os._exit(add(h) or complete(h) or destroy(h) or len(contract.take()))
assert os.waitpid(pid, 0)[1] == 0; add(h); complete(h); destroy(h)
late = create()
"""


@pytest.mark.parametrize("strict", [False, True])
def test_sound_uses(run, strict: bool) -> None:
    """Nothing is found in sound uses: threads, forks, errors that are read, data that is freed after it was added."""
    assert run(SOUND + "assert len(contract.alive(0)) == 1", strict=strict) == []


def test_history(run) -> None:
    """A violation says where the handle was created and destroyed, and where it was used."""
    code = """
def maker(): return create()
def ender(handle): destroy(handle)
h = maker(); k = copy(h); ender(h); size(k)
one, = contract.take()
print(one.long_repr)
print(one)
"""
    text = "\n".join(run(code))
    where = r"<string>:\d+ in "
    assert re.search(
        rf"called from:\n  {where}<module>\n  {where}size\nThe handle was created at {where}create\.\n"
        rf"It was destroyed at {where}destroy\.\nnative frames:\n  .*ffi",
        text,
    )
    what = "a call on a destroyed handle; expected no call on a handle after nvJitLinkDestroy, in any thread"
    became = "the library did not get the call, and the caller got its answer to a NULL handle"
    assert text.endswith(f"nvJitLink handle 1: nvJitLinkGetErrorLogSize: {what}; {became}")


def test_thread_is_named(run) -> None:
    """A call of another thread has no Python stack; the thread and the object that called are named."""
    code = """
taken = threading.Event()
def work():
  h = create(); k = copy(h); destroy(h); size(k); taken.wait()
t = threading.Thread(target=work, name='Other'); t.start()
while not contract.violation_count(): pass
one, = contract.take(); taken.set(); t.join()
assert not one.python_stack; print(*one.native_stack)
"""
    assert re.search(r"ffi.*, in thread Other", run(code)[0])


def test_late_and_stopped(run) -> None:
    """A handle from before the library was watched is not an unknown one; of two runs, the last one ends the checks."""
    late = "assert not contract.take(); h = create(); contract.stop(); k = create(); contract.check(); add(k); add(h)"
    assert run(late) == []
    code = """
contract.check(); contract.stop()
text(create()); print(len(contract.take()))
contract.stop(); text(create())
"""
    assert run(code) == ["1"]


def test_library_that_goes_on_after_many_handles(run) -> None:
    """More destroyed handles than are kept: new ones are still checked."""
    code = "for _ in range(5000):\n  h = create(); destroy(h)\ntext(create())"
    assert run(code, strict=False) == ["unsized nvJitLinkGetErrorLog 5001 True"]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_random_calls_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    """Random calls of five threads: the library sees none on a handle that is not alive, and no memory is misused."""
    if missing := sanitizers_missing((f"-fsanitize={sanitizer}",)):
        pytest.skip(missing)
    sources, program = Path(jitlink_contract.__file__).parent / "native", tmp_path / "program"
    own = Path(__file__).parent / "native/jitlink_contract.c"
    files = [own, *sources.glob("jitlink_[ch][oa]n*.c"), *SHARED.glob("*.c"), f"-I{sources}", f"-I{SHARED}"]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, *files, "-o", program, "-pthread", "-ldl"], check=True)
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([program], capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
