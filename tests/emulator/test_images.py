"""Which images a driver takes, and what it finds in them: child programs load what NVRTC compiled for them."""

import struct

import pytest

from pytest_cudalink.linker import Program, ProgramOptions
from tests.emulator.conftest import ROOT, programs

#: Kernels that print, assert and allocate: they call what is not in the image.
PROVIDED = """
extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
extern "C" __global__ void prints(int n) { printf("%d\\n", n); }
extern "C" __global__ void asserts(int n) { if (!n) __assertfail("n", "file", 1, "kernel", 1); }
extern "C" __global__ void allocates(char **out) { *out = (char *)malloc(8); }
extern "C" __global__ void frees(char *block) { free(block); }
"""
#: A function that neither the image nor the driver has.
LACKING = 'extern "C" __device__ int vprint(int);\nextern "C" __global__ void kernel(int *n) { *n = vprint(1); }'


def compiled(source: str, **options: object) -> bytes:
    """Compile a program into a cubin."""
    with Program(source, "c++", ProgramOptions(arch="sm_90", **options)) as program:
        return program.compile("cubin").code


def test_what_the_driver_provides_is_not_undefined(check) -> None:
    """Kernels that call it are found, as functions and as kernels of a library; what nobody has stops every look-up."""
    image = compiled(PROVIDED)
    for name in (b"vprintf", b"__assertfail", b"malloc", b"free"):
        assert name + b"\0" in image
    check(
        f"""
start()
image = {image!r}
module, library = loaded(image), new(cuda.cuLibraryLoadData, image, None, None, 0, None, None, 0)
for name in ("prints", "asserts", "allocates", "frees"):
    kernel_of(module, name)
    new(cuda.cuKernelGetFunction, new(cuda.cuLibraryGetKernel, library, name.encode()))
assert function(loaded({compiled(LACKING, relocatable_device_code=True)!r}), "kernel")[0] == 500
"""
    )


#: Program that gives the answers to one image: as a module, and as a library at its first look-up.
ANSWERS = """
start()
def answers(image):
    library = new(cuda.cuLibraryLoadData, image, None, None, 0, None, None, 0)
    return load(image)[0], cuda.cuLibraryGetModule(byref(c_void_p()), library)
"""


@pytest.mark.parametrize(
    ("driver", "release", "code"),
    [
        pytest.param("12.0", "12.9", 0, marks=pytest.mark.slow),
        ("12.9", "12.9", 0),
        pytest.param("12.0", "13.0", 209, marks=pytest.mark.slow),
        ("12.9", "13.0", 209),
        ("12.9", "13.5", 209),
        ("13.0", "12.9", 0),
        ("13.0", "13.5", 0),
    ],
)
def test_cubins_of_a_newer_major_release(check, driver: str, release: str, code: int) -> None:
    """A driver of CUDA 12 does not take the cubins of CUDA 13; minor releases do not matter."""
    check(ANSWERS + f"assert answers(artifact('{release}/linked.cubin')) == ({code}, {code})", driver, device="sm_90")


def fatbin(*entries: tuple[str, int, bytes]) -> bytes:
    """A fatbin of images: of PTX or cubins for architectures, not packed."""
    body = b""
    for kind, arch, image in entries:
        payload = image + bytes(-len(image) % 8)
        numbers = (1 if kind == "ptx" else 2, 0x101, 64, len(payload), 0, 9 << 16, arch, 0, 0, 0x11)
        body += struct.pack("<HHIQQIIIIQ", *numbers).ljust(64, b"\0") + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


PROGRAMS = {
    "headers_that_a_driver_takes": """
# The OSABI decides, at load; with a library at its first use. Nothing else in the header does (a real 13.0).
OSABI, ABI_VERSION, VERSION = 7, 8, 20
for release, place, values, code in (
    ("13.0", ABI_VERSION, (7, 8, 9, 255), 0), ("12.9", ABI_VERSION, (6, 7, 8, 9), 0),
    ("13.0", VERSION, (2, 0x79, 0x91), 0), ("13.0", OSABI, (66, 0, 51), 209),
):
    for value in values:
        image = bytearray(artifact(f"{release}/linked.cubin"))
        image[place] = value
        assert answers(bytes(image)) == (code, code), (release, place, value)
""",
    "old_ptx": """
# PTX from ISA 2.3 on is compiled, as by a real 13.0; 1.4 is not.
body = "kernel(.param .u64 out) { .reg .u64 %rd1; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd1; exit; }"
for version, target, code in ((2.3, 20, 0), (3.0, 20, 0), (3.0, 30, 0), (3.1, 20, 0), (4.0, 20, 0), (1.4, 10, 218)):
    text = f".version {version}\\n.target sm_{target}\\n.address_size 64\\n.visible .entry {body}\\n"
    assert load(text.encode())[0] == code, (version, target)
""",
    "the_image_that_a_fatbin_yields": """
# A cubin that the driver does not know is taken all the same, if it is the first (recorded with OSABI 66).
from tests.emulator.test_images import fatbin
newer, older = (("cubin", 90, artifact(f"{release}/linked.cubin")) for release in ("13.0", "12.9"))
ptx = ("ptx", 80, small_ptx(target="sm_80"))
assert load(fatbin(newer, ptx))[0] == load(fatbin(newer, older, ptx))[0] == 200
module = loaded(fatbin(older, newer, ptx))
assert [function(module, name)[0] for name in ("apply_transform", "small")] == [0, 500]
""",
    "a_long_fatbin_is_described_as_far_as_an_event_goes": """
# The line of an event has its limit: what does not fit is left out, and said to be there.
from campaigns.conformance.fatbin_record import fatbin
assert load(fatbin(" ".join(["ptx100"] * 200)))[0] == 209
image = last_event()["image"]
assert (image[0], image[-1]) == ("fatbin", "more") and 10 < len(image) < 50
""",
    "events_describe_what_was_refused": """
# The event of a refused image has a line for it and for all in it; of a fatbin, what the driver chose in it.
from campaigns.conformance.fatbin_record import fatbin
def words(image):
    code, _ = load(image)
    event = last_event()
    assert event["result"] == code
    return code, event.get("for"), event.get("image")

cut = artifact("12.9/linked.cubin")
for image, expected in (
    (artifact("13.0/linked.cubin"), (209, 90, ["cubin sm_90 13.0 linked"])),
    (small_ptx("9.0", "sm_90a"), (222, 90, ["ptx sm_90a - 9.0"])),
    (artifact("13.0/main.ltoir"), (200, 90, ["ltoir damaged"])),
    (fatbin("cubin80 ptx100"), (209, 90, ["fatbin", "cubin sm_80 13.0 linked", "ptx sm_100 - 9.0"])),
    (b"no image", (200, 90, ["unknown damaged"])),
    (small_ptx().replace(b"ret", b"rat"), (218, 90, ["ptx sm_70 - 8.0"])),
    (small_ptx(), (0, None, None)),
    (cut[:18] + bytes(2) + cut[20:-64], (200, 90, ["cubin damaged"])),
):
    assert words(image) == expected

library, kernel = c_void_p(), c_void_p()
ok(cuda.cuLibraryLoadData(byref(library), small_ptx("9.0"), None, None, 0, None, None, 0))
assert "image" not in last_event()
for _ in range(2):
    assert cuda.cuLibraryGetKernel(byref(kernel), library, b"small") == 222
    assert (last_event()["call"], last_event()["image"]) == ("cuLibraryGetKernel", ["ptx sm_70 - 9.0"])
ok(cuda.cuLibraryUnload(library))
assert cuda.cuLibraryGetKernel(byref(kernel), library, b"small") == 400
assert "image" not in last_event()
whole = fatbin("cubin90")
place = whole.index(b"\\x7fELF") + 8  # its ABI's version
whole = whole[:place] + b"c" + whole[place + 1:]
assert cuda.cuLibraryLoadData(byref(library), whole, None, None, 0, None, None, 0) == 200
assert last_event()["image"] == ["fatbin", "cubin sm_90 13.0 linked"]

assert link([(CUBIN, artifact("13.0/main.cubin"))])[0] == 209
assert [one["image"] for one in events() if "image" in one][-1] == ["cubin sm_90 13.0 relocatable"]

state = new(cuda.cuLinkCreate_v2, 0, None, None, c_void_p)
def add(kind, data, size):
    code = cuda.cuLinkAddData_v2(state, kind, data, c_size_t(size), b"input", 0, None, None)
    return code, last_event().get("image")
ptx = small_ptx("9.0")
assert add(PTX, ptx, 1 << 40) == (222, ["ptx sm_70 - 9.0"])
assert add(NVVM, artifact("12.9/main.ltoir"), 1 << 40) == (221, None)
""",
    "ptx_of_a_whole_program": """
# A pragma that is for whole programs is taken when a program is loaded, and refused when a part is linked.
text = small_ptx("9.0", "sm_90").replace(b"{\\n", b'{\\n  .pragma "enable_smem_spilling";\\n', 1)
assert b"pragma" in text
code, module = load(text)
assert (code, function(module, "small")[0]) == (0, 0)
assert link([(PTX, text)])[0] == 218
""",
    "parameters_of_a_kernel_need_a_context": """
# A kernel of a library tells its parameters where a context is current, as cuda.core's suite expects.
library, kernel, offset, size, popped = c_void_p(), c_void_p(), c_size_t(), c_size_t(), c_void_p()
number = c_size_t(0)
image = artifact("13.0/linked.cubin")
ok(cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0))
ok(cuda.cuLibraryGetKernel(byref(kernel), library, b"apply_transform"))
ok(cuda.cuKernelGetParamCount(kernel, byref(number)))
ok(cuda.cuKernelGetParamInfo(kernel, c_size_t(number.value - 1), byref(offset), byref(size)))
assert cuda.cuKernelGetParamInfo(kernel, number, byref(offset), byref(size)) == 1
ok(cuda.cuCtxPopCurrent_v2(byref(popped)))
assert cuda.cuKernelGetParamInfo(kernel, c_size_t(0), byref(offset), byref(size)) == 201
assert cuda.cuKernelGetParamCount(kernel, byref(number)) == 201
""",
}
OF_12 = {"version": "12.9"}
test_programs = programs(
    PROGRAMS,
    ANSWERS,
    the_image_that_a_fatbin_yields=OF_12,
    events_describe_what_was_refused=OF_12,
    parameters_of_a_kernel_need_a_context={"version": "13.2"},
)


def test_answers(check, as_kept) -> None:
    """What is in modules of whole, cut and changed images, and how these are refused, is kept.

    A line has how often, the way of loading, its code and its event; then the kernels: name, attributes, parameters.
    """
    out = check(
        """
import collections
start()
driver, found = control.attach(cuda), collections.Counter()
common = {"n", "pid", "thread", "threads", "call", "result", "what", "stack", "python", "ms"}
libc = CDLL(None)
libc.mmap.restype = c_void_p  # what is only read counts against no limit of memory
room = libc.mmap(None, c_size_t(1 << 33), mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, c_long())
ok(libc.mprotect(c_void_p(room), c_size_t(1 << 20), mmap.PROT_READ | mmap.PROT_WRITE))
whole = c_void_p(room)  # an image, and zeros behind it as far as any number in it leads
directives = (".maxntid 128, 1, 1", ".maxntid 16, 2", ".reqntid 32, 2, 1", ".reqntid 8, 8, 2", ".maxnreg 24",
              ".minnctapersm 2", ".explicitcluster", ".reqnctapercluster 2, 1, 1", ".maxclusterrank 4", "")
def asked(call, kind, *words):
    value = kind()
    code = call(byref(value), *words)
    return f"!{code}" if code else value.value
def kernels(module):
    offset, size = c_size_t(), c_size_t()
    many = (c_void_p * asked(cuda.cuModuleGetFunctionCount, c_uint, module))()
    ok(cuda.cuModuleEnumerateFunctions(many, len(many), module))
    for kernel in map(c_void_p, many):
        yield ascii(asked(cuda.cuFuncGetName, c_char_p, kernel))
        yield ",".join(str(asked(cuda.cuFuncGetAttribute, c_int, number, kernel)) for number in range(18))
        for index in map(c_size_t, range(9)):
            if not cuda.cuFuncGetParamInfo(kernel, index, byref(offset), byref(size)):
                yield f"{offset.value}+{size.value}"
    for name in (b"answer", b"factor", b"zeros", b"small"):
        yield f"{cuda.cuModuleGetGlobal_v2(None, byref(size), module, name)}:{size.value}"
def note(way, image):
    made, before = c_void_p(), driver.event_count()
    memmove(whole, image + bytes(1 << 14), len(image) + (1 << 14))
    if way == "file":
        with tempfile.NamedTemporaryFile() as file:
            file.write(image), file.flush()
            code = cuda.cuModuleLoad(byref(made), file.name.encode())
    elif way == "library":
        code = cuda.cuLibraryLoadData(byref(made), whole, None, None, 0, None, None, 0)
    else:
        code = getattr(cuda, way)(byref(made), whole)
    noted = [f"{key}={value}" for one in driver.events(before)[-1:] for key, value in one.items() if key not in common]
    answer = [way, code, *(re.sub("/[^ ]*tmp[^ ]*", "FILE", text) for text in noted)]
    if way == "library" and not code:
        answer.append(asked(cuda.cuLibraryGetKernelCount, c_uint, made))
        answer.append(cuda.cuLibraryGetModule(byref(made), made))
    found[*answer, *(kernels(made) if made and answer[-1] == 0 or way != "library" and not code else ())] += 1
for name in ("linked.cubin", "user.cubin", "user-sm_100.cubin", "main.ptx", "user.ptx", "user.ltoir"):
    for release, way in itertools.product(("12.9", "13.0", "13.2"), ("cuModuleLoadData", "file", "library")):
        note(way, artifact(f"{release}/{name}"))
for name in ("nvcc/user-plain.fatbin", "nvcc/user.fatbin", "nvcc/user-lto.fatbin", "tile/add.fatbin", "nvcc/user.a"):
    for way in ("cuModuleLoadData", "cuModuleLoadFatBinary", "file", "library"):
        note(way, artifact(name))
for one, target in itertools.product(directives, ("sm_70", "sm_90")):
    note("cuModuleLoadData", small_ptx("8.0", target).replace(b".maxntid 128, 1, 1", one.encode()))
for name, step in (("13.0/linked.cubin", 1), ("tile/add.cubin", 2), ("nvcc/user.fatbin", 8), ("13.0/user.ptx", 40)):
    data = artifact(name)
    for at, bit in itertools.product(range(0, min(len(data), 600), step), (1, 128)):
        note("cuModuleLoadData", data[:at] + bytes([data[at] ^ bit]) + data[at + 1:])
    for at in range(0, len(data), len(data) // 20):
        note("file", data[:at])
for answer, count in sorted(found.items(), key=str):
    print(count, *answer)
assert len(os.listdir("/proc/self/fd")) < 20  # no file stays open
"""
    )
    as_kept(ROOT / "tests" / "data" / "image_answers.txt", out)
