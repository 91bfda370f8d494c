"""Linking for real through nvJitLink."""

import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudalink import guardrails
from pytest_cudalink.compat.releases import LATEST_KNOWN
from pytest_cudalink.linker import Linker, LinkerOptions, LinkError, ObjectCode, sample
from pytest_cudalink.linker.backends import OPENERS
from pytest_cudalink.versions import CudaVersion

TESTS = Path(__file__).parents[1]
ARCH = "sm_90"
#: The releases whose samples are in tests/data, the newest last.
PRODUCERS = sorted(CudaVersion.parse(path.name) for path in (TESTS / "data" / "artifacts").glob("[0-9]*"))


def link(*codes: ObjectCode, target: str = "cubin", **options) -> ObjectCode:
    with Linker(*codes, options=LinkerOptions(arch=ARCH, **options), backend="nvjitlink") as linker:
        return linker.link(target)


@pytest.mark.parametrize(
    "kinds", [("ptx", "ptx"), ("cubin", "cubin"), ("ptx", "cubin"), ("ltoir", "ltoir"), ("ltoir", "ptx")]
)
def test_links(kinds: tuple[str, str], compiled, toolkit) -> None:
    """Every sound mixture becomes an executable cubin without undefined symbols, made by this toolkit."""
    code = link(compiled["main", kinds[0]], compiled["user", kinds[1]], name="out")
    artifact = code.artifact
    assert (artifact.kind, artifact.relocatable, artifact.undefined, artifact.problems) == ("cubin", False, (), ())
    assert artifact.kernels == ("apply_transform",)
    assert artifact.producer == toolkit
    assert code.name == "out"


def test_lto_inlines(compiled) -> None:
    """LTO leaves one function, a plain link two: the proof of the sample, which fails for the other image."""
    for mode, other, sections in (("ltoir", "ptx", 1), ("ptx", "ltoir", 2)):
        image = link(compiled["main", mode], compiled["user", mode])
        assert len(image.artifact.text_sections) == sections
        assert sample.prove(mode, image).ok
        assert not sample.prove(other, image).ok


def test_ptx_output(compiled, toolkit) -> None:
    """LTO-IR to PTX, which then links like any PTX."""
    code = link(compiled["main", "ltoir"], compiled["user", "ltoir"], target="ptx", ptx=True)
    assert (code.code_type, code.artifact.kernels, code.artifact.producer) == ("ptx", ("apply_transform",), toolkit)
    assert link(code).artifact.kernels == ("apply_transform",)


@pytest.mark.parametrize("kind", ["fatbin", "o", "a"])
def test_containers(kind: str, compiled, sample_code, toolkit) -> None:
    """Fatbins, objects and libraries link where the linker knows their release; LTO-IR in one turns LTO on."""
    codes = compiled["main", "ptx"], sample_code(f"nvcc/user.{kind}")
    optimized = compiled["main", "ltoir"], sample_code("nvcc/user-lto.fatbin")
    if toolkit < (13, 0):
        with pytest.raises(LinkError, match="made for CUDA 13.0, linker understands up to 12.9"):
            link(*codes)
        with pytest.raises(LinkError, match="NVJITLINK_ERROR"):  # packed LTO-IR does not name it: only the library can
            link(*optimized)
    else:
        assert link(*codes).artifact.undefined == ()
        assert link(*optimized).artifact.text_sections == (".text.apply_transform",)


@pytest.fixture
def without_guard_rails() -> Iterator[None]:
    """More works than is documented, and the guard rails of a cell follow the documentation."""
    present = guardrails.installed()
    guardrails.uninstall()
    yield
    if present is not None:
        guardrails.install(present.guard)


def made_later(code: ObjectCode) -> ObjectCode:
    """The same code as a toolkit would make it that is newer than every published one."""
    if code.code_type == "ptx":  # without the comment that names the toolkit
        data = re.sub(rb"\.version (\d+)\.\d", rb".version \1.9", re.sub(rb"//.*", b"", code.code))
    else:  # the version of NVVM IR in the header
        data = code.code[:7] + bytes([code.code[7] + 4]) + code.code[8:]
    return getattr(ObjectCode, f"from_{code.code_type}")(data, name=f"later.{code.code_type}")


@pytest.mark.usefixtures("without_guard_rails")
@pytest.mark.parametrize(
    ("producer", "kind"),
    [
        *((str(producer), kind) for producer in PRODUCERS for kind in ("ptx", "ltoir", "cubin")),
        *(("later", kind) for kind in ("ptx", "ltoir")),
    ],
)
def test_what_other_toolkits_made(producer: str, kind: str, sample_code, toolkit) -> None:
    """Accepted exactly when the producer is not newer than the linker, of the other major too; else both are named.

    Without the provenance check the library refuses, and its error still has both versions and its log.
    """
    known = str(PRODUCERS[-1]) if producer == "later" else producer
    codes = [sample_code(f"{known}/{unit}.{kind}") for unit in ("main", "user")]
    made_by = f"CUDA {producer}"
    if producer == "later":
        made_by, codes = f"a CUDA newer than {LATEST_KNOWN}", [*map(made_later, codes)]
    elif CudaVersion.parse(producer) <= toolkit:
        assert link(*codes).artifact.undefined == link(*codes, check_inputs=False).artifact.undefined == ()
        return
    said = re.escape(f"made by {made_by}, linker understands up to {toolkit}")
    if producer != "later":
        with pytest.raises(LinkError, match=f"{said}: install") as caught:
            link(*codes)
        assert caught.value.call == ""
    if kind == "cubin":  # which nvJitLink may take in silence
        return
    with pytest.raises(LinkError) as caught:
        link(*codes, check_inputs=False)
    error = caught.value
    assert error.call in ("nvJitLinkAddData", "nvJitLinkComplete")
    assert error.code_name.startswith("NVJITLINK_ERROR_")
    assert error.code_name in str(error)
    assert error.error_log.strip().splitlines()[0] in str(error)
    if toolkit <= LATEST_KNOWN:  # of a toolkit that this version does not know, the hint says nothing
        assert re.search(said, str(error))


def test_syntax_error(compiled) -> None:
    """The error names call, code, input, and has ptxas's words."""
    broken = ObjectCode.from_ptx(compiled["main", "ptx"].code.replace(b"\tret;", b"\trett;"), name="broken.ptx")
    with pytest.raises(LinkError) as caught:
        link(broken, compiled["user", "ptx"])
    error = caught.value
    assert (error.call, error.code, error.input_name) == ("nvJitLinkAddData", 4, "broken.ptx")
    assert "NVJITLINK_ERROR_PTX_COMPILE (4)" in str(error)
    assert "Not a name of any known instruction: 'rett'" in str(error)


def test_undefined_symbol(compiled) -> None:
    """A link with an undefined symbol is an error, although an image could be fetched; the logs stay readable."""
    linker = Linker(compiled["main", "ptx"], options=LinkerOptions(arch=ARCH), backend="nvjitlink")
    with pytest.raises(LinkError, match="Undefined reference to 'user_transform'"):
        linker.link()
    linker.close()
    assert "Undefined reference" in linker.get_error_log()


def test_lto_without_ltoir(compiled) -> None:
    """The library's obscure error gets a hint."""
    with pytest.raises(LinkError, match="LTO was requested, but no input is LTO-IR"):
        link(compiled["main", "ptx"], compiled["user", "ptx"], link_time_optimization=True)


def test_unterminated_ptx(compiled) -> None:
    """PTX without its final NUL links as well."""
    texts = [compiled[unit, "ptx"].code.rstrip(b"\0") for unit in ("main", "user")]
    images = [link(*(ObjectCode.from_ptx(text + end) for text in texts)).code for end in (b"", b"\0")]
    assert images[0] == images[1]


def test_logs(compiled) -> None:
    """Verbose or timings fill the info log, and nothing else does; it survives close."""
    for options, word in (({"verbose": True}, "registers"), ({"time": True}, "time"), ({"time": False}, "")):
        given = LinkerOptions(arch=ARCH, **options)
        with Linker(compiled["main", "ptx"], compiled["user", "ptx"], options=given, backend="nvjitlink") as linker:
            linker.link()
        log = linker.get_info_log()
        assert word in log
        assert bool(log) == bool(word)
        assert linker.get_error_log() == ""


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for name, value in {"debug": True, "lineinfo": True, "no_cache": True}.items()),
        *({"optimization_level": level} for level in (0, 3)),
        {"max_register_count": 32},
        {"ftz": True, "prec_div": False, "prec_sqrt": False, "fma": False},
        {"ptxas_options": ("-v", "--warn-on-spills")},
        *({name: 2} for name in ("split_compile", "split_compile_extended")),
        {"kernels_used": ("apply_transform",)},
        {"variables_used": ["a", "b"], "optimize_unused_variables": True},
    ],
)
def test_options_are_accepted(options: dict[str, object], compiled) -> None:
    """Every option is spelled as the library wants it."""
    linked = link(compiled["main", "ltoir"], compiled["user", "ltoir"], **options)
    assert linked.artifact.kernels == ("apply_transform",)


def test_kernels_used_counts() -> None:
    """A kernel that is not in the list goes, whether one gives a tuple or a list."""
    from pytest_cudalink.linker import Program, ProgramOptions

    source = 'extern "C" __global__ void keep(int* x) { *x = 1; }\nextern "C" __global__ void drop(int* x) { *x = 2; }'
    code = Program(source, "c++", ProgramOptions(arch=ARCH, relocatable_device_code=True)).compile("ltoir")
    for names in (("keep",), ["keep"], "keep"):
        assert link(code, kernels_used=names).artifact.kernels == ("keep",)
    assert sorted(link(code).artifact.kernels) == ["drop", "keep"]


def test_incremental(compiled, toolkit) -> None:
    """A relocatable link gives an object that links again; too old a library says what it needs."""
    codes = compiled["main", "cubin"], compiled["user", "cubin"]
    if toolkit < (13, 2):
        with pytest.raises(ValueError, match=f"incremental = True: .* needs nvJitLink 13.2 or newer, found {toolkit}"):
            link(*codes, incremental=True)
        return
    partial = link(*codes, incremental=True)
    assert partial.artifact.relocatable
    assert link(partial).artifact.kernels == ("apply_transform",)


def test_ltoir_output(compiled, toolkit) -> None:
    """link("ltoir") works where library and bindings have it; elsewhere the error says what is missing."""
    codes = compiled["main", "ltoir"], compiled["user", "ltoir"]
    if toolkit < (13, 3):
        with pytest.raises(ValueError, match=rf"link\('ltoir'\) needs nvJitLink 13.3 or newer, found {toolkit}"):
            link(*codes, target="ltoir")
        return
    assert link(link(*codes, target="ltoir")).artifact.text_sections == (".text.apply_transform",)


def test_garbage_collection_closes(compiled, monkeypatch) -> None:
    """A linker that is dropped, also in a cycle, destroys its handle."""
    opened, open_state = [], OPENERS["nvjitlink"]
    monkeypatch.setitem(OPENERS, "nvjitlink", lambda options: opened.append(open_state(options)) or opened[-1])
    linker = Linker(compiled["user", "ptx"], options=LinkerOptions(arch=ARCH), backend="nvjitlink")
    (state,), alive = opened, weakref.ref(linker)
    linker.itself = linker  # type: ignore[attr-defined]
    assert state.handle
    del linker
    gc.collect()
    assert alive() is None
    assert state.handle == 0


def test_undefined_after_a_refused_ptx() -> None:
    """A refused PTX makes later links with an undefined symbol succeed on its thread; the log has the error."""
    main, user = sample.compile_modules("ptx", "sm_90")
    too_new = re.sub(rb"\.version \d+\.\d+", b".version 99.9", user.code)
    caught: list[Exception] = []

    def links() -> None:
        for code in (ObjectCode.from_ptx(too_new), main):
            try:
                Linker(code, options=LinkerOptions(arch="sm_90", check_inputs=False), backend="nvjitlink").link("cubin")
            except LinkError as error:
                caught.append(error)

    thread = threading.Thread(target=links)  # what nvJitLink remembers goes with it
    thread.start()
    thread.join()
    assert len(caught) == 2
    assert "Unsupported .version 99.9" in str(caught[0])
    assert "Undefined reference to 'user_transform'" in str(caught[1])


LINKS_AT_EXIT = """
import threading
from pytest_cudalink.compat.releases import LATEST_KNOWN
from pytest_cudalink.linker import Linker, LinkerOptions, sample

codes = sample.compile_modules("ptx", "sm_90")
linkers = [Linker(*codes, options=LinkerOptions(arch="sm_90"), backend="nvjitlink") for _ in range(100)]
begun = threading.Event()

def links():
    for linker in linkers:
        try:
            linker.link()
        except RuntimeError:  # closed at exit; a daemon thread that prints then is Python's own fatal error
            return
        begun.set()

threading.Thread(target=links, daemon=True).start()
assert begun.wait(300)
"""


def test_the_interpreter_ends_during_a_link() -> None:
    """The end of the process does not destroy the handle of a thread that still links; that would be a signal."""
    done = subprocess.run(
        [sys.executable, "-c", LINKS_AT_EXIT], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("call", ["get_linked_cubin_size", "get_linked_cubin"])
def test_a_failed_fetch_is_named(call: str, compiled, monkeypatch) -> None:
    """The error names the function that failed, not the link before it."""
    from cuda.bindings import nvjitlink

    def fails(*_: object) -> None:
        raise nvjitlink.nvJitLinkError(int(nvjitlink.Result.ERROR_INTERNAL))

    monkeypatch.setattr(nvjitlink, call, fails)
    with pytest.raises(LinkError, match=r"nvJitLinkGetLinkedCubin(Size)? failed: NVJITLINK_ERROR_INTERNAL") as caught:
        link(compiled["main", "ptx"], compiled["user", "ptx"])
    assert caught.value.call == "nvJitLinkGetLinkedCubin" + ("Size" if call.endswith("size") else "")


FATAL = """
import io, struct
from elftools.elf.elffile import ELFFile
from pytest_cudalink.linker import LinkError, sample
from pytest_cudalink.linker.backends import OPENERS

main, user = (bytearray(code.code) for code in sample.compile_modules("cubin", "sm_90"))
elf = ELFFile(io.BytesIO(user))
struct.pack_into("<I", user, elf["e_shoff"] + elf["e_shentsize"] * elf.get_section_index(".debug_frame") + 4, 0xFF)
state = OPENERS["nvjitlink"](["-arch=sm_90"])
try:
    state.add("cubin", bytes(main), "main")
    state.add("cubin", bytes(user), "user")
    print(len(state.complete("cubin")))
except LinkError as error:
    print(error.call, error.code, str(error))
"""


def test_a_fatal_line_is_a_failure() -> None:
    """The inputs' checks refuse this cubin; nvJitLink reads it "with success" and a message."""
    done = subprocess.run([sys.executable, "-c", FATAL], capture_output=True, text=True, check=True)
    line = "fatal   : Internal error: unexpected reloc section"
    assert done.stdout.startswith(
        f"nvJitLinkAddData 0 nvJitLink: nvJitLinkAddData reported success, but it printed '{line}'"
    )
    assert done.stderr == f"{line}\n"


def test_names_outlive_the_call_that_passed_them(compiled) -> None:
    """The library keeps the address of a name and reads it when it completes (measured with 13.0.88)."""
    name = "n" * 200
    code = ObjectCode.from_ptx(compiled["main", "ptx"].code, name=name)
    with Linker(code, options=LinkerOptions(arch="sm_90")) as linker:
        rubbish = [bytes([65 + number % 26]) * 200 for number in range(10_000)]  # takes the memory that is free
        with pytest.raises(LinkError, match=f"Undefined reference to 'user_transform' in '{name}'"):
            linker.link()
    assert len(rubbish) == 10_000


OTHER_THREAD = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

left_to_another, contain = sys.argv[1], sys.argv[2] == "contained"
PTX = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry kernel() { ret; }\\n"
code, options = ObjectCode.from_ptx(PTX), LinkerOptions(arch="sm_90", contain=contain)

def work(_):
    with ThreadPoolExecutor(1) as other:
        for _ in range(50):
            linker = Linker(code, options=options, backend="nvjitlink")
            for step in (linker.link, linker.close):
                yield other.submit(step).result() if step.__name__ == left_to_another else step()

with ThreadPoolExecutor(8) as pool:
    images = [image for made in pool.map(lambda number: [*work(number)], range(8)) for image in made]
linked = [image.code for image in images if image]
assert len(linked) == 400 and len({*linked}) == 1, len(linked)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("step", "where"), [("none", "here"), ("close", "here"), ("link", "contained")])
def test_steps_left_to_another_thread(step: str, where: str) -> None:
    """Threads link at once; another thread may close a linker, and also link if the library is in a link worker.

    In this process nvJitLink crashes or hangs at such a link, see docs/findings.
    """
    command = [sys.executable, "-c", OTHER_THREAD, step, where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
