"""Linking for real through cuLink*, on memory that the backend owns."""

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

from pytest_cudalink import probes
from pytest_cudalink.emulator import preload
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode, Program, ProgramOptions
from pytest_cudalink.linker.backends import driver
from pytest_cudalink.linker.backends.driver import LOG_SIZE, DriverLinkState
from pytest_cudalink.probes import libcuda


def linker(*codes: ObjectCode, **options) -> Linker:
    return Linker(*codes, options=LinkerOptions(**options), backend="driver")


@pytest.fixture
def both(compiled) -> Callable[..., Linker]:
    """Makes linkers of the two units of the sample, with options."""
    return partial(linker, compiled["main", "ptx"], compiled["user", "ptx"])


@pytest.mark.parametrize("kinds", [("ptx", "ptx"), ("cubin", "cubin"), ("ptx", "cubin")])
def test_links(kinds: tuple[str, str], compiled, guarded) -> None:
    """Every sound mixture becomes an executable cubin; all memory is released by close, once."""
    with linker(compiled["main", kinds[0]], compiled["user", kinds[1]]) as link:
        code = link.link()
        assert link.handle
        assert not any(block.released for block in guarded)
    artifact = code.artifact
    assert (artifact.kind, artifact.relocatable, artifact.undefined, artifact.problems) == ("cubin", False, (), ())
    assert artifact.kernels == ("apply_transform",)
    assert len(guarded) == 4
    assert all(block.released for block in guarded)
    assert link.handle == 0
    assert (link.get_error_log(), link.get_info_log()) == ("", "")


@pytest.mark.parametrize("kind", ["fatbin", "o", "a"])
def test_containers(kind: str, compiled, sample_code, device, guarded) -> None:
    """Fatbins, objects and libraries link."""
    if device != "sm_90" or (probes.driver_version() or (0, 0)) < (13, 0):
        pytest.skip("the sample is for sm_90, made by nvcc 13.0")
    with linker(compiled["main", "ptx"], sample_code(f"nvcc/user.{kind}")) as link:
        assert link.link().artifact.undefined == ()


def test_undefined_symbol(compiled, guarded) -> None:
    """Some drivers call it a success; here it is an error, and the log survives the failed link and close."""
    link = linker(compiled["main", "ptx"])
    with pytest.raises(LinkError, match="Undefined reference to 'user_transform'") as caught:
        link.link()
    assert caught.value.call == "cuLinkComplete"
    link.close()
    assert "Undefined reference" in link.get_error_log()
    assert all(block.released for block in guarded)


def test_syntax_error(compiled, guarded) -> None:
    """A failed add names call, code and input, and everything is released at once."""
    broken = ObjectCode.from_ptx(compiled["main", "ptx"].code.replace(b"\tret;", b"\trett;"), name="broken.ptx")
    with pytest.raises(LinkError) as caught:
        linker(broken)
    error = caught.value
    assert (error.call, error.code, error.code_name) == ("cuLinkAddData_v2", 218, "CUDA_ERROR_INVALID_PTX")
    assert error.input_name == "broken.ptx"
    assert "Not a name of any known instruction: 'rett'" in error.error_log
    assert len(guarded) == 4
    assert all(block.released for block in guarded)


def test_ptx_newer_than_the_driver(compiled) -> None:
    """Refused by us with both versions; without the check by the driver, with its log."""
    newer = ObjectCode.from_ptx(
        compiled["user", "ptx"].code.replace(b".version ", b".version 99.", 1), name="newer.ptx"
    )
    with pytest.raises(LinkError, match="linker understands up to") as caught:
        linker(newer)
    assert caught.value.call == ""
    with pytest.raises(LinkError, match="CUDA_ERROR_UNSUPPORTED_PTX_VERSION.*") as caught:
        linker(newer, check_inputs=False)
    assert caught.value.code == 222
    assert "linker understands up to" in caught.value.hint
    assert "Unsupported .version" in caught.value.error_log


def test_verbose(both, guarded) -> None:
    """The info log has exactly what the driver wrote; it stays after close."""
    with both(verbose=True) as link:
        link.link()
    assert "Function properties for 'apply_transform'" in link.get_info_log()
    assert "\0" not in link.get_info_log()
    assert "truncated" not in link.get_info_log()


def test_a_full_log_says_so(device, guarded) -> None:
    """More text than the buffer holds is cut by the driver, and the log tells."""
    kernels = "".join(
        f'extern "C" __global__ void a_kernel_with_a_long_name_{n}(int* x) {{ *x = {n}; }}\n' for n in range(200)
    )
    code = Program(kernels, "c++", ProgramOptions(arch=device, relocatable_device_code=True)).compile("ptx")
    with linker(code, verbose=True) as link:
        link.link()
    assert link.get_info_log().endswith(f"[log truncated: the buffer of {LOG_SIZE} bytes is full]")


OPTIONS = {"max_register_count": 32, "debug": True, "lineinfo": True, "optimization_level": 4}
DEPRECATED = {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": False, "optimize_unused_variables": True}
DEPRECATED["kernels_used"] = ("apply_transform", "other")


@pytest.mark.parametrize(("option", "value"), [*(OPTIONS | DEPRECATED).items(), ("optimization_level", 0)])
def test_options(option: str, value: object, both, guarded) -> None:
    """The driver takes every option, whose arrays of names live as long as the state; deprecated ones warn."""
    warned = pytest.warns(DeprecationWarning, match=option) if option in DEPRECATED else nullcontext()
    with warned, both(**{option: value}) as link:
        assert link.link().artifact.kernels == ("apply_transform",)
    assert len(guarded) == 4 + (option == "kernels_used")
    assert all(block.released for block in guarded)


def test_kernels_used_counts(device) -> None:
    """A kernel that is not in the list goes."""
    source = 'extern "C" __global__ void keep(int* x) { *x = 1; }\nextern "C" __global__ void drop(int* x) { *x = 2; }'
    code = Program(source, "c++", ProgramOptions(arch=device, relocatable_device_code=True)).compile("ptx")
    with pytest.warns(DeprecationWarning, match="kernels_used"), linker(code, kernels_used=["keep"]) as link:
        assert link.link().artifact.kernels == ("keep",)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("elsewhere", [True, False])
def test_garbage_collection(elsewhere: bool, linked: bool, both, guarded) -> None:
    """A dropped linker, or a cycle that never linked, releases all, also in a thread without a current context."""
    box = [both()]
    if linked:
        box[0].link()
    else:
        box[0].itself = box[0]  # type: ignore[attr-defined]

    def drop() -> None:
        box.clear()
        gc.collect()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(drop).result() if elsewhere else drop()
    assert len(guarded) == 4
    assert all(block.released for block in guarded)


def test_threads(both, guarded) -> None:
    """Linkers in several threads do not disturb each other."""

    def work(_: int) -> None:
        for _turn in range(5):
            with both() as link:
                assert link.link().artifact.undefined == ()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert all(block.released for block in guarded)


def test_the_current_context_stays(both) -> None:
    """Without a current context there is none after a link; one that is current is used, and stays."""
    context, current = ctypes.c_void_p(), ctypes.c_void_p()
    libcuda.call("cuInit", 0)
    libcuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    try:
        for used in (None, context.value):
            libcuda.call("cuCtxSetCurrent", ctypes.c_void_p(used))
            with both() as link:
                link.link()
            libcuda.call("cuCtxGetCurrent", ctypes.byref(current))
            assert current.value == used
    finally:
        libcuda.call("cuCtxSetCurrent", None)
        libcuda.call("cuDevicePrimaryCtxRelease_v2", 0)


def test_many_links_do_not_leak(compiled) -> None:
    """Mapped pages go with the linker: a block that stayed would be one mapping more for each link."""
    links = 200

    def mappings() -> int:
        # how the kernel shows shared pages without a file, which ours are; those are never merged into one line
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("/dev/zero")

    before = mappings()
    for _ in range(links):
        linker(compiled["main", "ptx"]).close()
    assert mappings() - before < links


def test_pages_of_a_quiet_link_serve_the_next(both) -> None:
    """Of this process alone, and zeroed: a forked child shares them with its parent."""
    places = []
    for _ in range(2):
        with both() as link:
            link.link()
            places.append(link._state._values_at)
        (pages,) = driver._spare.values()
        assert list(driver._spare) == [os.getpid()]
        assert not any(ctypes.string_at(pages.address, driver._ARRAYS))
    assert places[0] == places[1]


@pytest.mark.parametrize(("units", "options"), [(("main", "user"), {"verbose": True}), (("main",), {})])
def test_pages_with_a_log_are_unmapped(units: tuple[str, ...], options: dict[str, object], both, compiled) -> None:
    """What the driver wrote about one link, or about one that failed, never reaches the logs of another."""
    driver._spare.clear()
    link = linker(*(compiled[unit, "ptx"] for unit in units), **options)
    with suppress(LinkError):
        link.link()
    link.close()
    assert link.get_info_log() or link.get_error_log()
    assert not driver._spare
    with both() as quiet:
        quiet.link()
    assert (quiet.get_info_log(), quiet.get_error_log()) == ("", "")


def test_two_linkers_at_once_have_their_own_pages(compiled) -> None:
    """The second linker maps its own, and one mapping is kept at most."""
    with linker(compiled["main", "ptx"]) as first, linker(compiled["main", "ptx"]) as second:
        assert first._state._values_at != second._state._values_at
    assert len(driver._spare) == 1


def test_forked_child(both) -> None:
    """A forked child has no CUDA: dropping the parent's linker there touches nothing, and the parent goes on."""
    link = both()
    child = os.fork()
    if child == 0:
        link.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert link.link().artifact.undefined == ()
    link.close()


HERE = str(Path(__file__).parent)

EXIT = """
import sys
sys.path.insert(0, sys.argv[1])
from blocks import GuardedBlock
from pytest_cudalink.linker import Linker, LinkerOptions, sample
from pytest_cudalink.linker.backends import OPENERS
from pytest_cudalink.linker.backends.driver import DriverLinkState
from pytest_cudalink.probes import device_arch
OPENERS["driver"] = lambda options: DriverLinkState(options, GuardedBlock)
main, user = sample.compile_modules("ptx", device_arch())
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", EXIT + code, HERE], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kept", ["", "link.me = link"])
@pytest.mark.parametrize("used", ["", "link.link()"])
def test_interpreter_exit(kept: str, used: str) -> None:
    """A linker that is alive at exit is destroyed in order."""
    done = python(f"link = Linker(main, user, backend='driver')\n{kept}\n{used}\nprint('done')")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_the_primary_context_stays() -> None:
    """A link without a current context keeps the primary one for later links: once, also after a reset and a fork."""
    done = python("""
import ctypes, os
from pytest_cudalink.linker import LinkError
from pytest_cudalink.probes import libcuda
cuda = libcuda.library()
def active():
    flags, found = ctypes.c_uint(), ctypes.c_int()
    libcuda.call("cuDevicePrimaryCtxGetState", 0, ctypes.byref(flags), ctypes.byref(found))
    return bool(found.value)
def links():
    with Linker(main, user, backend="driver") as link:
        link.link()
    return active()
assert links() and links() and links()
assert not cuda.cuDevicePrimaryCtxRelease_v2(0) and not active() and cuda.cuDevicePrimaryCtxRelease_v2(0)
assert links() and links()
libcuda.call("cuDevicePrimaryCtxReset_v2", 0)
assert not active()
assert links() and links()
with Linker(main, user, backend="driver") as link:
    link.link()
    if not os.fork():
        try:
            Linker(main, user, backend="driver").link()
        except LinkError:
            os._exit(0)
        os._exit(1)
assert os.wait()[1] == 0
assert links()
print("done")
""")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("block", ["values", "info", "error"])
def test_the_guard_pages_bite(block: str, request: pytest.FixtureRequest) -> None:
    """Releasing one block before complete kills the process: the tests above would notice."""
    lifetimes = request.getfixturevalue("driver_lifetimes") if preload.emulated_driver() else None
    index = {"info": 0, "error": 1, "values": 3}[block]
    done = python(
        f"""
link = Linker(main, options=LinkerOptions(verbose=True), backend='driver')
link._state._blocks[{index}].release()
try:
    link.link()
except Exception:
    pass
"""
    )
    assert done.returncode < 0, done.stderr
    assert lifetimes is None or lifetimes.expect()


def test_wrong_state_options() -> None:
    """A refusal at create names call, code and options, and leaves nothing behind."""
    from pytest_cudalink.linker.options import DriverOption

    with pytest.raises(
        LinkError, match=r"cuLinkCreate_v2 failed: CUDA_ERROR_INVALID_VALUE \(1\)\n  options: nonsense=1"
    ):
        DriverLinkState([DriverOption(9999, "nonsense", 1)])
