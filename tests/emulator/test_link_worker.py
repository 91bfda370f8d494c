"""The emulated driver's links are in a worker: what nvJitLink does to its process costs a call, not the program."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink.emulator import worker
from tests.emulator.conftest import HEAD, programs
from tests.emulator.worker import fakes

START = """
start()
def archive(text):
    return b"!<arch>\\n" + b"%-16s%-12d%-6d%-6d%-8s%-10d`\\n" % (b"one/", 0, 0, 0, b"644", len(text)) + text
def ended():
    own = [one for one in events() if one.get("linker") in ("died", "late", "fatal", "killed", "printed")]
    return [{name: one[name] for name in one if name not in ("n", "pid", "thread")} for one in own]
def sound():
    code, image, log = link([(PTX, small_ptx())])
    assert (code, log) == (0, b""), (code, log)
CASES = {
    "ptx": (PTX, lambda word: small_ptx()[:-1] + b"// " + word + b"\\n\\0", 218),
    "cubin": (CUBIN, lambda word: artifact("13.0/main.cubin") + word + b"\\n", 209),
    "object": (OBJECT, lambda word: artifact("nvcc/user.o") + word + b"\\n", 200),
    "library": (LIBRARY, lambda word: archive(word + b"\\n"), 200),
}
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory) -> str:
    """The path of the fake library."""
    return str(fakes.build(tmp_path_factory.mktemp("fake")))


@pytest.fixture
def on_fake(on_driver, fake) -> Callable[..., str]:
    """Run a program on a driver that links through the fake library; gives its stderr."""

    def run(program: str, **env: str) -> str:
        done = on_driver("13.0", "-c", HEAD + START + program, env={"CUDALINK_EMULATOR_NVJITLINK": fake, **env})
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


@pytest.mark.parametrize("kind", ["ptx", "cubin", "object", "library"])
def test_deadly_inputs(on_fake, kind) -> None:
    """An input on which nvJitLink dies gets the code of a bad one, and a sentence; the next link works."""
    on_fake(f"""
kind, data, expected = CASES[{kind!r}]
code, image, log = link([(kind, data(b"!segv"))])
assert (code, log.decode()) == (expected, "error   : libnvJitLink 13.0 ended with signal 11 (SIGSEGV) while it read "
    "'input0'; the emulated driver goes on with a new link worker"), (code, log)
asked = {{"in": "add", "input": {kind!r}, "name": "input0"}}
assert ended() == [asked | {{"linker": "died", "signal": 11, "what": "ended with signal 11 (SIGSEGV)"}}], ended()
sound()
code, image, log = link([(kind, data(b"?abort"))])
assert (code, log.decode()) == (999, "error   : libnvJitLink 13.0 ended with signal 6 (SIGABRT) while it linked; "
    "the emulated driver goes on with a new link worker"), (code, log)
sound()
code, image, log = link([(kind, data(b"!fatal"))])
assert code == expected and b"printed 'fatal   : Internal error: on purpose' and reported success" in log, (code, log)
sound()
assert ended()[1:] == [
    {{"linker": "died", "in": "complete", "signal": 6, "what": "ended with signal 6 (SIGABRT)"}},
    asked | {{"linker": "fatal", "printed": "noise\\nfatal   : Internal error: on purpose\\n",
              "what": "printed 'fatal   : Internal error: on purpose' and reported success"}}], ended()
""")


@pytest.mark.parametrize("kind", ["ptx", "cubin", "object", "library"])
def test_killed_workers(on_fake, kind) -> None:
    """A killed worker is the driver's failure, and not the input's, which the same link takes again."""
    on_fake(f"""
kind, data, expected = CASES[{kind!r}]
error = ctypes.create_string_buffer(4096)
keys, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(error), 4096)
def killed(what):
    return (f"error   : the linker's process ended without a word, as by SIGKILL, while it {{what}}; "
            "the next link gets a new one")
def add(word):
    text = data(word)
    return cuda.cuLinkAddData_v2(state, kind, text, c_size_t(len(text)), b"one", 0, None, None)
state, image, size = c_void_p(), c_void_p(), c_size_t()
ok(cuda.cuLinkCreate_v2(2, keys, values, byref(state)))
assert add(b"!kill") == 999 and error.value.decode() == killed("read 'one'"), error.value
(event,) = (one for one in events() if "linker failed" in one)
assert event["call"] == "cuLinkAddData_v2" and "error   : " + event["linker failed"] == error.value.decode(), event
assert "image" not in event, event
ok(add(b"word"))
ok(cuda.cuLinkComplete(state, byref(image), byref(size)))
ok(cuda.cuLinkDestroy(state))
code, image, log = link([(kind, data(b"?kill"))])
assert (code, log.decode()) == (999, killed("linked")), (code, log)
killed = dict(linker="killed", what="ended without a word, as by SIGKILL")
assert ended() == [killed | {{"in": "add", "input": {kind!r}, "name": "one"}}, killed | {{"in": "complete"}}], ended()
sound()
""")


@pytest.mark.parametrize("value", ["0", "86400", "86401", "1.5", "soon"])
def test_wrong_limits(on_fake, value) -> None:
    """A limit that is not one is reported, and the default taken."""
    report = f"cudalink: CUDALINK_LINK_TIMEOUT is '{value}'; expected 1 to 86400 (seconds); taking 60\n"
    assert on_fake("sound()", CUDALINK_LINK_TIMEOUT=value) == (report if value != "86400" else "")


PROGRAMS = {
    "a_hang": """
# The limit ends the call; the sentence says how to set another.
before = time.monotonic()
code, image, log = link([(PTX, CASES["ptx"][1](b"!hang"))])
assert time.monotonic() - before >= 1
assert code == 218 and log.decode() == ("error   : libnvJitLink 13.0 did not finish within 1 s while it read 'input0'; "
    "the emulated driver goes on with a new link worker. CUDALINK_LINK_TIMEOUT sets another limit, in seconds"), log
assert ended()[0]["linker"] == "late"
sound()
assert [one["linker"].rpartition("/")[2] for one in events() if one.get("loaded")] == ["libfake.so"]  # said once
""",
    "modules_are_compiled_in_the_worker": """
# A load whose PTX ends the library fails as that of bad PTX does.
assert load(CASES["ptx"][1](b"!segv"))[0] == 218
assert "libnvJitLink" not in open("/proc/self/maps").read() and "libfake" not in open("/proc/self/maps").read()
""",
    "loads_whose_worker_is_killed": """
# A module and a library fail as the driver's linker did, with its reason in the log; what comes next works.
error = ctypes.create_string_buffer(4096)
keys, values = (c_int * 2)(5, 6), (c_void_p * 2)(ctypes.addressof(error), 4096)
text, module = CASES["ptx"][1](b"!kill"), c_void_p()
assert cuda.cuModuleLoadDataEx(byref(module), text, 2, keys, values) == 999
assert error.value.startswith(b"error   : the linker's process ended without a word, as by SIGKILL"), error.value
open_files = []
for _ in range(3):
    assert cuda.cuModuleLoadData(byref(module), text) == 999
    open_files.append(os.listdir("/proc/self/fd"))
assert open_files[0] == open_files[2]
assert cuda.cuLibraryLoadData(byref(module), text, None, None, 0, None, None, 0) in (0, 999)
assert [one["call"] for one in events() if "linker failed" in one][:2] == ["cuModuleLoadDataEx", "cuModuleLoadData"]
code, image, log = link([(CUBIN, artifact("13.0/main.cubin") + b"?undefined\\n")])
sound()
""",
    "a_module_is_compiled_once": """
# The library, which prints whenever it compiles, does so once for the same PTX and options, and again for others.
def text(padding=0, word=b"!print"):
    return small_ptx()[:-1] + b"// " + word + b"\\n//" + b" " * padding + b"\\n\\0"
def compiled(ptx, **options):
    before, library = len(ended()), c_void_p()
    keys, values = (c_int * 1)(*options.get("keys", [0])), (c_void_p * 1)(*options.get("values", [0]))
    count, load = len(options.get("keys", [])), options.get("load", cuda.cuModuleLoadDataEx)
    code = load(byref(c_void_p()), ptx, count, keys, values)
    assert code == 200, code  # it gives no cubin
    return len(ended()) - before
def as_library(*arguments):
    out, ptx, count, keys, values = arguments
    cuda.cuLibraryLoadData(out, ptx, keys, values, count, None, None, 0)
    return 200
ptx = text()
assert [compiled(ptx), compiled(ptx), compiled(ptx, load=as_library), compiled(ptx[:-1] + b"//\\0")] == [1, 0, 0, 1]
for key, values in {0: (32, 64), 7: (0, 4), 9: (80, 100), 11: (1,), 12: (1,), 13: (1,), 14: (1, 2)}.items():
    for value in values:
        assert [compiled(ptx, keys=[key], values=[value]) for _ in range(2)] == [1, 0], (key, value)
libc = ctypes.CDLL(None)
libc.setenv(b"CUDA_CACHE_DISABLE", b"1", 1)
assert [compiled(ptx), compiled(ptx)] == [1, 1]
libc.setenv(b"CUDA_CACHE_DISABLE", b"0", 1)
assert compiled(ptx) == 0
# what is refused is compiled again
before = len(ended())
assert [load(text(word=b"!fatal"))[0] for _ in range(2)] == [218] * 2 and len(ended()) == before + 2
# 64 MB of PTX and images, and the least recently used goes first
old, large, more = text(5_000_000), text(20_000_000), text(10_000_000)
assert [compiled(one) for one in (large, old, large, old, more, old, large)] == [1, 1, 0, 0, 1, 0, 1]
""",
    "a_worker_out_of_memory": """
# A library that ends its process because it got no memory has not refused the input.
code, image, log = link([(PTX, CASES["ptx"][1](b"!bad_alloc"))])
assert code == 999 and b"ended with signal 6 (SIGABRT) for want of memory, while it read 'input0'" in log, (code, log)
sound()
""",
}
test_programs = programs(PROGRAMS, fixture="on_fake", a_hang={"CUDALINK_LINK_TIMEOUT": "1"})


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("missing", "cannot be started: No such file or directory; if it is missing, install pytest-cudalink again"),
        ("plain", "cannot be started: Permission denied; if it is missing, install pytest-cudalink again"),
        ("ends", "ended without a word, as by SIGKILL, while it read its options; the next link gets a new one"),
        ("damaged.so", "cannot open nvJitLink 13.0: "),
    ],
)
def test_no_program(check, tmp_path, program, reason) -> None:
    """Without the program or its library an add, a complete and a load answer 999, and say which one they need."""
    (tmp_path / "plain").write_text("")
    (tmp_path / "damaged.so").write_text("no library")
    needed = "CUDALINK_EMULATOR_NVJITLINK" if program.endswith(".so") else "CUDALINK_EMULATOR_WORKER"
    (tmp_path / "ends").symlink_to("/bin/false")
    words = f" {reason}"
    check(
        START
        + f"""
code, image, log = link([(PTX, small_ptx())])
assert code == 999 and {words!r} in log.decode(), log
state = c_void_p()
ok(cuda.cuLinkCreate_v2(0, None, None, byref(state)))
assert cuda.cuLinkComplete(state, byref(c_void_p()), byref(c_size_t())) == 999
assert load(small_ptx())[0] == 999
failed = [one for one in events() if "linker failed" in one]
assert [one["call"] for one in failed] == ["cuLinkAddData_v2", "cuLinkComplete", "cuModuleLoadData"], failed
assert all({words!r} in one["linker failed"] for one in failed)
""",
        env={needed: str(tmp_path / program)},
    )


def test_a_fatbin_that_claims_more_than_it_has(check) -> None:
    """Its whole entries are linked (A7: zeros behind them are entries without an end)."""
    check(
        """
start()
main, data = (CUBIN, artifact("13.0/main.cubin")), artifact("nvcc/user-plain.fatbin")
expected = link([main, (FATBINARY, data)])
assert expected[0] == 0
assert link([main, (FATBINARY, data[:10] + b"\\2" + data[11:])]) == expected
"""
    )


def test_real_deaths(on_driver, toolchain) -> None:
    """The real nvJitLink dies of a cubin whose .nv.info grows over its neighbour, and the worker says so (A1)."""
    library = str(toolchain("13.0") / "lib64" / "libnvJitLink.so")
    folder = Path(__file__).parent.parent / "data" / "artifacts" / "13.0"
    damaged = bytearray((folder / "user.cubin").read_bytes())
    damaged[2400:2408] = (0x30).to_bytes(8, "little")
    link = worker.WorkerLink(library, ["-arch=sm_90"])
    assert link.add(1, (folder / "main.cubin").read_bytes(), b"main").code == 0
    assert link.add(1, bytes(damaged), b"user").end == ""
    assert link.complete(0).end == "ended with signal 11 (SIGSEGV)"
    link.close()


def test_a_deadly_flag(toolchain) -> None:
    """NvJitLink 12.9 dies of a cubin with a bit in its flags that no release sets; that of 13.0 does not."""
    cubin = bytearray((Path(__file__).parent.parent / "data" / "artifacts" / "12.9" / "main.cubin").read_bytes())
    cubin[49] |= 0x40
    for version, end in (("12.9", "ended with signal 11 (SIGSEGV)"), ("13.0", "")):
        link = worker.WorkerLink(str(toolchain(version) / "lib64" / "libnvJitLink.so"), ["-arch=sm_90"])
        assert link.add(1, bytes(cubin), b"main").end == end, version
        link.close()
