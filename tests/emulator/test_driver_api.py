"""What the emulated driver answers, function by function, to child programs that talk to it through ctypes."""

import json
import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.base import compiler
from pytest_cudalink.compat.names import EMULATED_DEVICES
from pytest_cudalink.compat.releases import PTX_ISA
from pytest_cudalink.versions import CudaVersion
from tests.emulator.conftest import HEAD, ROOT, programs

DATA = emulator._HERE.parent / "data" / "emulator"


@pytest.mark.parametrize("version", ["12.9", "13.0", "13.2"])
def test_version_and_errors(version, check, toolchain) -> None:
    """The version is there before cuInit, nothing else is; every CUresult of cuda.h has its own name, and a text."""
    header = (toolchain(version) / "include" / "cuda.h").read_text(encoding="utf-8")
    (body,) = re.findall(r"typedef enum cudaError_enum \{(.*?)\} CUresult;", header, re.DOTALL)
    codes = {int(number): name for name, number in re.findall(r"^\s*(CUDA_\w+)\s*=\s*(\d+)", body, re.MULTILINE)}
    assert len(codes) > 90
    out = check(
        f"""
value = c_int()
assert cuda.cuDeviceGetCount(byref(value)) == 3
assert cuda.cuDriverGetVersion(None) == 1
assert get(cuda.cuDriverGetVersion, c_int) == {CudaVersion.parse(version).major * 1000 + int(version[3:]) * 10}
assert cuda.cuInit(1) == 1
ok(cuda.cuInit(0))
ok(cuda.cuInit(0))
assert cuda.cuGetErrorName(917, byref(c_char_p())) == {0 if 917 in codes else 1}
for code, name in {codes}.items():
    assert get(cuda.cuGetErrorName, code, c_char_p) == name.encode(), code
    assert get(cuda.cuGetErrorString, code, c_char_p), code
text = c_char_p(b"set")
assert cuda.cuGetErrorName(12345, byref(text)) == 1 and text.value is None
assert cuda.cuGetErrorString(-1, byref(text)) == 1 and text.value is None
runtimes = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
for uuid, code in ((bytes(16), 1), (bytes(15) + b"1", 801), (runtimes, 801)):
    table = c_void_p(1)
    assert cuda.cuGetExportTable(byref(table), uuid) == code and not table.value
    assert ("unsupported" in last_event()) == ("runtime" in last_event().get("note", "")) == (uuid == runtimes)
print("done")
""",
        version=version,
    )
    assert out == "done\n"


@pytest.mark.parametrize("name", EMULATED_DEVICES)
def test_devices(name, check) -> None:
    """Every attribute of a device is that of its profile; ordinals that do not exist are 101."""
    table = tomllib.loads((DATA / "devices.toml").read_text(encoding="utf-8"))
    device = table["devices"][name]
    major, minor = divmod(device["arch"], 10)
    # of the third device, as cuDeviceGetPCIBusId answers; each is a board of its own
    place = {"pci_bus_id": 3, "pci_device_id": 0, "multi_gpu_board_group_id": 2}
    own = {**device, **place, "compute_capability_major": major, "compute_capability_minor": minor}
    wanted = {number: own.get(name, value) for name, (number, value) in table["base"].items()}
    check(
        f"""
value, name = c_int(), char_buffer()
ok(cuda.cuInit(0))
assert get(cuda.cuDeviceGetCount, c_int) == 3
for number, expected in {wanted}.items():
    assert get(cuda.cuDeviceGetAttribute, c_int, number, 2) == expected, number
assert cuda.cuDeviceGetAttribute(byref(value), 9999, 0) == 1
assert cuda.cuDeviceGetAttribute(byref(value), 1, 3) == 101
assert [cuda.cuDeviceGet(byref(value), device) for device in (3, -1)] == [101, 101]
assert get(cuda.cuDeviceGet, c_int, 2) == 2
assert get(cuda.cuDeviceComputeCapability, c_int, c_int, 0) == ({major}, {minor})
ok(cuda.cuDeviceGetName(name, 256, 0))
assert name.value.decode() == {device["name"]!r}
ok(cuda.cuDeviceGetName(name, 5, 0))
assert len(name.value) == 4
size = get(cuda.cuDeviceTotalMem_v2, c_size_t, 0)
half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
assert size == {device["memory"]} or half - (64 << 20) < size <= half < {device["memory"]}
first, second = char_buffer(), char_buffer()
ok(cuda.cuDeviceGetUuid_v2(first, 0))
ok(cuda.cuDeviceGetUuid_v2(second, 1))
assert first.raw != second.raw
ok(cuda.cuDeviceGetPCIBusId(name, 64, 1))
assert get(cuda.cuDeviceGetByPCIBusId, c_int, name) == 1
assert get(cuda.cuDeviceCanAccessPeer, c_int, 0, 1) == 1
""",
        device=f"{name}:3",
    )


#: Measured on driver 580.159.04 and an H200, sm_90: an option and its value; what loading a module answers; what
#: loading a library answers, then asking it for a kernel and for its module. Others are recorded (jit_options).
LOADED_WITH = [
    ((7, 9), 0, (0, 0, 0)),  # CU_JIT_OPTIMIZATION_LEVEL
    ((9, 0), 200, (0, 200, 200)),  # CU_JIT_TARGET
    ((9, 7), 200, (0, 200, 200)),
    ((9, 75), 300, (0, 0, 300)),
    ((9, 90), 0, (0, 0, 0)),
    ((9, 100), 300, (0, 0, 300)),
    ((35, 1), 1, (1,)),
    ((3, 0), 1, (1,)),  # CU_JIT_INFO_LOG_BUFFER
]


def test_options_of_loading(check, toolchain) -> None:
    """Modules and libraries take, refuse and obey the same options; refused, they leave the caller's memory."""
    toolchain("12.9")  # compiles for targets that CUDA 13 dropped
    check(
        f"""
start()
ptx = small_ptx()
bad, new = ptx.replace(b"ret;", b"rett;"), small_ptx("9.9")
def load_with(image, options, size=512, library_options=()):
    error, info, handle = create_string_buffer(b"?" * 512), create_string_buffer(b"?" * 512), c_void_p()
    options = [*options, (3, addressof(info)), (4, size), (5, addressof(error)), (6, size)]
    keys, count = (c_int * len(options))(*[key for key, _ in options]), len(options)
    own = (c_int * 1)(*library_options), (c_void_p * 1)(), len(library_options)
    answers = []
    for library in (False, True):
        values = (c_void_p * count)(*[value for _, value in options])
        error[0] = b"?"
        if library:
            codes = [cuda.cuLibraryLoadData(byref(handle), image, keys, values, count, *own)]
            if not codes[0]:
                codes.append(cuda.cuLibraryGetKernel(byref(c_void_p()), handle, b"small"))
                codes.append(cuda.cuLibraryGetModule(byref(c_void_p()), handle))
        else:
            codes = [cuda.cuModuleLoadDataEx(byref(handle), image, count, keys, values)]
        if codes[0] == 1:
            assert error.raw[:1] == b"?" and values[count - 1] == size
        else:
            assert (values[count - 1] or 0) == (size if 1 < size == len(error.value) + 1 else len(error.value))
        answers.append((tuple(codes), error.value))
    return answers
for option, module, library in {LOADED_WITH}:
    found = [codes for codes, _ in load_with(ptx, [option])]
    assert found == [(module,), library], (option, found)
# the log of a library is there before its first use says what is wrong
for image, code, word in ((bad, 218, b"rett"), (new, 222, b"Unsupported .version")):
    for codes, text in load_with(image, [(9, 80)] if image is bad else []):
        assert codes in ((code,), (0, code, code)) and word in text
for size, text in ((2, b"p"), (20, b"ptxas application p"), (1, b""), (0, b"")):
    assert [text for _, text in load_with(bad, [], size)] == [text] * 2
# a cubin is not made for a target, but must run on it
for target, code in ((90, 0), (75, 209)):
    image, own = artifact("13.0/linked.cubin"), (c_void_p * 1)(target)
    assert cuda.cuModuleLoadDataEx(byref(c_void_p()), image, 1, (c_int * 1)(9), own) == code
# options of the library itself
ok(load_with(ptx, [], library_options=[1])[1][0][0])
for key in (2, 99):
    assert load_with(ptx, [], library_options=[key])[1][0] == (1,)
# wall time, and the most threads of a block
values = (c_void_p * 2)(None, 7)
ok(cuda.cuModuleLoadDataEx(byref(c_void_p()), ptx, 2, (c_int * 2)(2, 1), values))
assert cast(values, POINTER(c_float))[0] > 0 and values[1] == 32
"""
    )


def test_every_symbol_with_nothing(check) -> None:
    """Every exported function survives a call with nothing but zeros, and what is not implemented names itself."""
    releases = tomllib.loads((DATA / "functions.toml").read_text(encoding="utf-8"))["symbols"]
    symbols = [name for release, names in releases.items() if release.startswith(("12.", "13.0")) for name in names]
    out = check(
        f"""
start()
plain = CDLL("libcuda.so.1")  # without declared arguments
answers = {{}}
for name in {symbols}:
    code = getattr(plain, name)(*[None] * 12)
    answers[name] = code
    if code == 801:
        event = last_event()
        # the per-thread forms are the same functions
        assert event["call"] == name.removesuffix("_ptsz").removesuffix("_ptds"), (name, event)
        assert event["note"] and event["result"] == 801, (name, event)
print(json.dumps(answers))
"""
    )
    answers = json.loads(out)
    unimplemented = {name for name, code in answers.items() if code == 801}
    promised = "cuLink|cuModuleGet|cuModuleLoad|cuLibraryGet|cuMem(Alloc|set)|cuMemCreate$|cuEvent|cuCtxGet"
    assert {name for name in unimplemented if re.match(promised, name)} <= {
        *("cuEventCreateFromEGLSync", "cuLibraryGetUnifiedFunction", "cuModuleGetSurfRef", "cuModuleGetTexRef")
    }


#: What `test_answers` leaves out: what ends or keeps waiting what others need, calls back, or answers by this machine.
APART = re.compile(
    "Destroy|Free|Unload|Reset|Release|Exit|Detach|Pop|Unregister|Unmap|Capture|Checkpoint|Callback|Logs|Ipc|Total|MemGetInfo"
    "|WaitValue|BatchMemOp|cuMemcpy(Async)?$|HostFunc|Potential|Coredump"
)


def declared(header: str) -> dict[str, list[str]]:
    """The types of the parameters of every function of cuda.h, by its symbol; a pointer has a star: ``"size_t*"``."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    symbols = dict(re.findall(r"#define (cu\w+) +(?:__CUDA_API_PT[SD]Z\()?(cu\w+)", text))
    functions = re.findall(r"\bCUresult CUDAAPI (cu\w+)\s*\(([^()]+)\);", text)
    return {  # of two declarations the first counts: the others are of older forms
        symbols.get(name, name): [
            re.sub(r"\b(const|unsigned) |\*", "", word.strip()).split()[0] + "*" * bool({"*", "["} & {*word})
            for word in parameters.split(",")
            if word != "void"
        ]
        for name, parameters in reversed(functions)
    }


def test_answers(check, toolchain, as_kept) -> None:
    """The answers of the API are the kept ones: for live objects, structures and numbers, each in turn another one.

    A line has an answer: its code, what changed in each room for results ("+": an address) and what the event says;
    then the calls that gave it: a number for all numbers, or the place of an argument and which of `ways` stood there.
    Lines of streams that are captured, and of no current context, are those that differ.
    """
    header = (toolchain("13.0") / "include" / "cuda.h").read_text(encoding="utf-8")
    functions = {name: kinds for name, kinds in declared(header).items() if not APART.search(name)}
    assert len(functions) > 300
    out = check(
        f"""
context, graph = start(), new(cuda.cuGraphCreate, 0)
library = new(cuda.cuLibraryLoadData, small_ptx(), None, None, 0, None, None, 0)
module, device = loaded(small_ptx()), allocate(4096)
handles = {{
    "CUstream": stream(), "CUevent": event(), "CUcontext": context, "CUlibrary": library,
    "CUmodule": module, "CUfunction": kernel_of(module, "small"),
    "CUkernel": new(cuda.cuLibraryGetKernel, library, b"small"),
    "CUlinkState": new(cuda.cuLinkCreate_v2, 0, None, None, c_void_p),
    "CUgraph": graph, "CUgraphNode": new(cuda.cuGraphAddEmptyNode, graph, None, c_size_t(0)),
    "CUgraphExec": new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0)),
    "CUarray": new(cuda.cuArrayCreate_v2, (c_uint64 * 3)(8, 8, 1 << 32 | 0x20)),
    "CUmemoryPool": new(cuda.cuDeviceGetMemPool, 0), "CUtexref": new(cuda.cuTexRefCreate),
}}
usual = {{**handles, "CUdeviceptr": c_uint64(device), "CUdevice": 0, "CUmemLocation": c_uint64(1)}}
fill = struct.pack("QQIIQQ", device, 0, 1, 1, 8, 1)
flat, deep = struct.pack("QQI4xQQQQ", 0, 0, 2, 0, device, 0, 64), struct.pack("32xI4x6Q", 2, 0, device, 0, 0, 64, 4)
filled = {{
    "CUDA_ARRAY_DESCRIPTOR*": struct.pack("QQII", 8, 8, 0x20, 1),
    "CUDA_ARRAY3D_DESCRIPTOR*": struct.pack("QQQIII", 8, 8, 2, 0x20, 1, 0),
    "CUDA_MEMSET_NODE_PARAMS*": fill, "CUgraphNodeParams*": struct.pack("I12x", 2) + fill,
    "CUDA_KERNEL_NODE_PARAMS*": struct.pack("Q7I", handles["CUfunction"].value, *[1] * 6, 0),
    "CUDA_RESOURCE_DESC*": struct.pack("QQ", 0, handles["CUarray"].value), "CUDA_TEXTURE_DESC*": bytes(64),
    "CUlaunchConfig*": struct.pack("7I", *[1] * 6, 0),
    **dict.fromkeys(("CUmemAllocationProp*", "CUmemPoolProps*"), struct.pack("IIII24x", 1, 0, 1, 0)),
    "CUDA_MEM_ALLOC_NODE_PARAMS*": struct.pack("IIII72xQQQ", 1, 0, 1, 0, 0, 0, 64),
    "CUmemAccessDesc*": struct.pack("III", 1, 0, 3), "CUmemLocation*": struct.pack("II", 1, 0),
    "CUDA_MEMCPY2D*": flat * 2 + struct.pack("QQ", 16, 2),
    **dict.fromkeys(("CUDA_MEMCPY3D*", "CUDA_MEMCPY3D_PEER*"), deep * 2 + struct.pack("QQQ", 16, 2, 2)),
    "cuuint64_t*": struct.pack("5Q", 64, 64, 64, 64, 64), "cuuint32_t*": struct.pack("5I", 1, 1, 1, 1, 1),
}}
driver, rooms, words = control.attach(cuda), [char_buffer(size=4096) for _ in range(16)], struct.Struct("40Q")
plain = CDLL("libcuda.so.1")  # without declared arguments
common = {{"n", "pid", "thread", "threads", "call", "result", "what", "stack", "python"}}
status = (c_int * 1)()
def prepare(state):
    if state == "captured" and (cuda.cuStreamIsCapturing(handles["CUstream"], status) or status[0] != 1):
        cuda.cuStreamEndCapture(handles["CUstream"], byref(c_void_p()))
        ok(cuda.cuStreamBeginCapture_v2(handles["CUstream"], 2))
    cuda.cuCtxSetCurrent(None if state == "alone" else context)
def shown(word):
    high, low = divmod(word, 1 << 32)
    return "+" if high > 255 or (not high and low > 1 << 23) else f"{{low}}:{{high}}" if high else low
def ways(kinds):
    yield from ((None, number, number, None) for number in (0, 1, 2, 3, 8))
    for place, one in enumerate(kinds):
        others = () if one == "float" else tuple(map(c_uint64, (0, 2, 3, 5, 7, 77, 4097)))
        others = (None, handles["CUevent"]) if one in handles else others
        if one[-1] == "*":
            data = filled.get(one, bytes(32 if re.search("CUDA_|Prop|Attr|Info|Data|Res", one) else 0))
            others = (None, b"", *(data[:at] + struct.pack("I", word) + data[at + 4:]
                                   for at in range(0, len(data), 4) for word in (0, 1, 2, 3, 9)
                                   if shown(int.from_bytes(data[at & -8 : (at & -8) + 8], "little")) != "+"))
        yield from ((place, number, 1, other) for number, other in enumerate(others))
def called(name, kinds, place, number, other):
    given = [usual.get(one, c_float(number) if one == "float" else c_uint64(number)) for one in kinds]
    results = [at for at, one in enumerate(kinds) if one[-1] == "*"]
    for at in results:
        given[at] = rooms[at]
        rooms[at].raw = ((other or b"") if at == place else filled.get(kinds[at], b"")).ljust(4096, b"\\0")
    if place is not None and not isinstance(other, bytes):
        given[place] = other
    before, events = [*map(words.unpack_from, rooms)], driver.event_count()
    code, after = getattr(plain, name)(*given), [*map(words.unpack_from, rooms)]
    changes = (",".join(f"{{word}}={{shown(new)}}" for word, new in enumerate(after[at]) if new != before[at][word])
               for at in results)
    noted = [f"{{key}}={{re.sub('0x[0-9a-f]+', '+', str(value))}}" for one in driver.events(events)
             for key, value in one.items() if key not in common and (not isinstance(value, int) or value < 1 << 32)]
    return " ".join([str(code), *(change or "-" for change in changes), *noted])
kept = {{}}
for state, (name, kinds) in itertools.product(("", "captured", "alone"), {functions}.items()):
    found = {{}}
    for place, way, number, other in ways(kinds):
        prepare(state)
        answer = called(name, kinds, place, number, other)
        if kept.setdefault((name, place, way), answer) != answer or not state:
            found.setdefault(answer, {{}}).setdefault(place, []).append(way)
    for answer, places in found.items():
        calls = (f"{{place}}:{{','.join(map(str, those))}}" for place, those in places.items())
        print(state, name, answer, "<-", *calls)
""",
        device="h100:2,memory=2GiB",  # else it depends on the machine's
    )
    as_kept(ROOT / "tests" / "data" / "cuda_answers.txt", out)


#: What `test_pairs` leaves out: what waits for others, reads a pointer in a structure, or answers by this machine.
NOT_PAIRED = re.compile(
    "Checkpoint|Callback|Logs|Ipc|WaitValue|BatchMemOp|Coredump|Export|HandleForAddress|Import|LinkComplete|LinkAdd"
    "|cuMemcpy(Async)?$|MemGetInfo|Total|cuInit|Profiler|cuParamSetf|PointerGetAttributes|TensorMapEncode|DebugDot"
)


@pytest.mark.slow
def test_pairs(on_driver, toolchain, tmp_path, as_kept) -> None:
    """The answers of the API are the kept ones for values of each two arguments, and of each two words of a structure.

    A line has how often a function gave each code, and a sum of all answers: what changed in each room for results,
    what the event says, and what questions about a context, a stream, a graph and an event answer then.
    """
    header = (toolchain("13.0") / "include" / "cuda.h").read_text(encoding="utf-8")
    functions = {name: kinds for name, kinds in declared(header).items() if not NOT_PAIRED.search(name)}
    here = Path(__file__).parent
    flags, source = ("-fvisibility=default",), here / "native" / "combinations.c"
    library = compiler.build(compiler.SharedLibrary("combinations.so", (source,), flags=flags), tmp_path)
    words = (str(here / "programs" / "pairs.py"), str(library), json.dumps(functions))
    done = on_driver("13.0", *words, device="h100:2,memory=2GiB", lifetime="off")
    assert done.returncode == 0, done.stderr
    as_kept(ROOT / "tests" / "data" / "cuda_pairs.txt", done.stdout)


@pytest.mark.parametrize("version", ["12.9", "13.2"])
def test_names_of_the_headers(version, check, toolchain) -> None:
    """Every name of cuda.h is exported, and cuGetProcAddress_v2 knows each function at each of its versions."""
    include = toolchain(version) / "include"
    header = re.sub(r"/\*.*?\*/|//[^\n]*", "", (include / "cuda.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", header))
    assert len(names) > 450
    defines = dict(re.findall(r"^\s*#\s*define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+_v\d+)\s*$", header, re.MULTILINE))
    defines |= dict(
        re.findall(r"^\s*#\s*define\s+(cu[A-Z]\w+)\s+__CUDA_API_PT[DS][SZ]\((cu[A-Z]\w+_v\d+)\)", header, re.MULTILINE)
    )
    typedefs = (include / "cudaTypedefs.h").read_text(encoding="utf-8")
    forms = sorted({(name, int(number)) for name, number in re.findall(r"\*PFN_(\w+?)_v(\d+)\)\(", typedefs)})
    per_thread = re.findall(r"\*PFN_(\w+?)_v(\d+)_pt[ds][sz]\)\(", typedefs)
    streams = sorted({(name, int(number)) for name, number in per_thread})
    out = check(
        f"""
missing = [name for name in {sorted(names | set(defines.values()))} if not hasattr(cuda, name)]
assert missing == [], missing
answers = []
def ask(name, version, flags):
    address, status = c_void_p(), c_int(-1)
    code = cuda.cuGetProcAddress_v2(name.encode(), byref(address), version, c_uint64(flags), byref(status))
    assert (code, status.value) == (0, 0) and address.value, (name, version, flags, code, status.value)
    return address.value
for name, version in {forms}:
    answers.append((name, version, ask(name, version, 0)))
for name, version in {streams}:
    ask(name, version, 2)
for name, symbol in {defines}.items():
    known = [address for other, _, address in answers if other == name]
    assert not known or cast(getattr(cuda, symbol), c_void_p).value in known, (name, symbol)
print(json.dumps(answers))
""",
        version="13.2",
    )
    answers = json.loads(out)
    assert len(answers) > 450
    for (name, first, address), (other, second, later) in pairwise(answers):
        if name == other:
            assert address != later, (name, first, second)


@pytest.mark.slow
def test_newer_than_the_driver(check, toolchain) -> None:
    """What a driver does not have yet is 500 with VERSION_NOT_SUFFICIENT, and has no symbol."""
    check(
        """
start()
def ask(name, version):
    address, status = c_void_p(1), c_int(-1)
    code = cuda.cuGetProcAddress_v2(name, byref(address), version, c_uint64(0), byref(status))
    return code, status.value, bool(address.value)
assert ask(b"cuLibraryGetKernelCount", 12040) == (500, 2, False)
assert ask(b"cuDevSmResourceSplit", 13010) == (500, 2, False)
assert ask(b"cuLibraryGetKernel", 12000) == (0, 0, True)
assert ask(b"cuLibraryGetKernel", 11000) == (0, 2, False)  # the caller asked as one of before it
assert ask(b"cuNoSuchFunction", 12000) == (0, 1, False)
assert ask(b"cuCtxCreate", 12050) == (0, 0, True)  # the newest form that it has
assert not any(hasattr(cuda, name) for name in ("cuGreenCtxCreate", "cuLibraryGetKernelCount", "cuCtxCreate_v4"))
assert cuda.cuGetProcAddress_v2(None, None, 12000, c_uint64(0), None) == 1
for name, where in ((None, byref(c_void_p())), (b"cuInit", None)):
    assert cuda.cuGetProcAddress(name, where, 12000, c_uint64(0)) == 1
    assert cuda.cuGetProcAddress_v2(name, where, 12000, c_uint64(0), None) == 1
address = new(cuda.cuGetProcAddress, b"cuInit", c_void_p, 2000, c_uint64(0))
assert address.value
""",
        version="12.0",
    )


VERSIONS = [str(version) for version in emulator.supported_versions()]
#: The versions whose toolchains the suite fetches; the session `driver-versions` fetches the others.
LINKED = {"12.0": (pytest.mark.slow,), "12.4": (pytest.mark.slow,), "12.9": (), "13.0": (), "13.2": ()}


@pytest.mark.parametrize("version", VERSIONS)
def test_version_without_a_toolchain(version, monkeypatch, tmp_path) -> None:
    """Each version answers its number, its NVML release and its functions; links need its nvJitLink, and say so."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    planned = emulator.emulation_for(version)
    number = planned.version.major * 1000 + planned.version.minor * 10
    program = f"""
text, number = char_buffer(), {number}
assert get(cuda.cuDriverGetVersion, c_int) == number
nvml = CDLL("libnvidia-ml.so.1")
ok(nvml.nvmlInit_v2())
ok(nvml.nvmlSystemGetDriverVersion(text, 80))
assert text.value.decode() == {emulator.release_of(planned.version)!r}
assert get(nvml.nvmlSystemGetCudaDriverVersion, c_int) == number
address, status = c_void_p(), c_int()
for name, since in (("cuLibraryGetKernelCount", 12040), ("cuDevSmResourceSplit", 13010)):
    code = cuda.cuGetProcAddress_v2(name.encode(), byref(address), since, c_uint64(0), byref(status))
    assert (code == 0) == (since <= number), (name, code)
# A caller of a newer version gets the newest form from drivers of CUDA 12, and 1 from those of CUDA 13.
code = cuda.cuGetProcAddress_v2(b"cuDeviceGetUuid", byref(address), 110400, c_uint64(0), byref(status))
assert code == cuda.cuGetProcAddress(b"cuDeviceGetUuid", byref(address), 110400, c_uint64(0)) == (number >= 13000)
assert code or address.value == cast(cuda.cuDeviceGetUuid_v2, c_void_p).value
start()
if {planned.nvjitlink is None}:
    code, _, log = link([(PTX, small_ptx())])
    assert code == 221 and b"cudalink toolchain add" in log, (code, log)
"""
    environment = {**os.environ, **planned.environment()}
    subprocess.run([sys.executable, "-c", HEAD + program], env=environment, cwd=ROOT, check=True)


@pytest.mark.parametrize("version", [pytest.param(v, marks=LINKED.get(v, (pytest.mark.apart,))) for v in VERSIONS])
def test_newest_ptx_of_a_version(version, check, toolchain) -> None:
    """PTX of the version's own ISA loads and links; the next ISA version is 222, in both.

    An application's own libnvJitLink of that version starts beside it (12.1 to 12.4 ask the driver for a table).
    """
    isa = PTX_ISA[CudaVersion.parse(version)]
    folder = toolchain("12.8" if version == "12.7" else version) / "lib64"
    check(
        f"""
start()
nvjitlink = CDLL({str(folder / "libnvJitLink.so")!r})
names = ["nvJitLinkCreate", *(f"__nvJitLinkCreate_12_{{minor}}" for minor in (2, 1, 0))]
create = next(getattr(nvjitlink, name) for name in names if hasattr(nvjitlink, name))
ok(create(byref(c_void_p()), 1, (c_char_p * 1)(b"-arch=sm_75")))
good, bad = small_ptx("{isa[0]}.{isa[1]}"), small_ptx("{isa[0]}.{isa[1] + 1}")
module = loaded(good)
ok(function(module, "small")[0])
assert load(bad)[0] == 222
code, image, log = link([(PTX, good)])
assert (code, log) == (0, b"") and image[:4] == b"\\x7fELF"
code, image, log = link([(PTX, bad)])
assert code == 222 and b"Unsupported .version {isa[0]}.{isa[1] + 1}" in log and b"'{isa[0]}.{isa[1]}'" in log, log
""",
        version=version,
        device="sm_75",
    )


PROGRAMS = {
    "what_a_compilation_gives_again": """
# PTX that is compiled once has the answers, logs and attributes of PTX that is compiled for every module.
libc = CDLL(None)
start()
text = artifact("13.0/main.ptx")
whole = b'''.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .u32 variable[3] = {1, 2, 3};
.visible .entry kernel(.param .u64 out) .maxntid 64 {
  .reg .u32 %r<4>;
  .reg .u64 %rd1;
  .shared .align 4 .b8 shared[256];
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  st.shared.u32 [shared], %r1;
  ld.shared.u32 %r2, [shared];
  st.global.u32 [%rd1], %r2;
  ret;
}
\\0'''
def answers(image, options):
    found = []
    for library in (False, True):
        info, error = create_string_buffer(4096), create_string_buffer(4096)
        given = [*options, (3, addressof(info)), (4, 4096), (5, addressof(error)), (6, 4096)]
        keys, values = (c_int * len(given))(*dict(given)), (c_void_p * len(given))(*dict(given).values())
        handle, kernel, address, size = c_void_p(), c_void_p(), c_uint64(), c_size_t()
        if library:
            code = cuda.cuLibraryLoadData(byref(handle), image, keys, values, len(given), None, None, 0)
            codes = [code, cuda.cuLibraryGetKernel(byref(kernel), handle, b"kernel")]
            codes.append(cuda.cuLibraryGetGlobal(byref(address), byref(size), handle, b"variable"))
            codes.append(cuda.cuKernelGetFunction(byref(kernel), kernel))
        else:
            codes = [cuda.cuModuleLoadDataEx(byref(handle), image, len(given), keys, values)]
            codes.append(cuda.cuModuleGetFunction(byref(kernel), handle, b"kernel"))
            codes.append(cuda.cuModuleGetGlobal_v2(byref(address), byref(size), handle, b"variable"))
        number = c_int()
        attributes = [(cuda.cuFuncGetAttribute(byref(number), at, kernel), number.value) for at in range(16)]
        assert [values[-3] or 0, values[-1] or 0] == [len(info.value), len(error.value)]
        logs = [re.sub(rb"[0-9.]+ ms", b"", log.value) for log in (info, error)]
        found.append((codes, logs, size.value, attributes))
    return found
for image in (whole, small_ptx(), text, whole.replace(b"ret;", b"rett;"), whole.replace(b"sm_90", b"sm_75")):
    for options in ([], [(12, 1)], [(7, 0)], [(11, 1)], [(0, 16), (12, 1)], [(9, 90)], [(9, 80)]):
        libc.setenv(b"CUDA_CACHE_DISABLE", b"1", 1)
        expected = answers(image, options)
        libc.unsetenv(b"CUDA_CACHE_DISABLE")
        for _ in range(2):
            assert answers(image, options) == expected, (image, options)
""",
    "new_ptx_without_nvjitlink": """
# PTX that is too new answers 222, linked or loaded, where nothing can link; other PTX answers 221.
start()
new = small_ptx("9.0")
code, image, log = link([(PTX, b"//" + bytes([10, 10]) + new)])
assert code == 222 and b"line 3; fatal   : Unsupported .version 9.0; current version is '8.8'" in log, (code, log)
assert load(new)[0] == 222
code, image, log = link([(PTX, small_ptx("8.8"))])
assert code == 221 and b"cudalink toolchain add 12.9" in log, (code, log)
assert load(small_ptx("8.8"))[0] == 221
""",
    "a_device_without_a_compiler_in_13": """
# sm_70 is no target of CUDA 13's own nvJitLink; the driver compiles for it with that of 12.9.
start()
module = loaded(small_ptx("8.0", "sm_70"))
code, image, log = link([(PTX, small_ptx("8.0", "sm_70"))])
assert code == 0, log
assert load(image)[0] == 0
""",
    "no_devices": """
# A machine with a driver and no GPU: cuInit answers 100, the version is still there.
value = c_int()
assert cuda.cuInit(0) == 100
assert cuda.cuDeviceGetCount(byref(value)) == 3
ok(cuda.cuDriverGetVersion(byref(value)))
""",
    "memory": """
# Most of a device costs nothing before it is written to; copies and fillings move bytes, each of which is checked.
from tests.emulator.memory_calls import read, write
start()
address, total, before = c_uint64(), 150109880320, (150109880320, 150109880320)
info = lambda: get(cuda.cuMemGetInfo_v2, c_size_t, c_size_t)
assert info() == before
# most of the device costs nothing before it is written to
ok(cuda.cuMemAlloc_v2(byref(address), 100 << 30))
assert resident_bytes() < 1 << 30 and info() == (total - (100 << 30), total)
assert cuda.cuMemAlloc_v2(byref(c_uint64()), 100 << 30) == 2
ok(cuda.cuMemFree_v2(address.value))
assert info() == before

block, second, data = allocate(64), allocate(64), bytes(range(64))
source, out = create_string_buffer(data, 64), char_buffer(size=64)
here, there = addressof(source), addressof(out)
write(block, data)
assert read(block, 64) == data
ok(cuda.cuMemcpyDtoD_v2(second + 8, block, 56))
ok(cuda.cuMemcpy(there, second, 64))
assert out.raw == bytes(8) + data[:56]
ok(cuda.cuMemcpyHtoDAsync_v2(c_uint64(block), source, c_size_t(64), None))
ok(cuda.cuMemcpyPeer(c_uint64(second), None, c_uint64(block), None, c_size_t(64)))

for bits, value in ((8, 0x12), (16, 0x1234), (32, 0x12345678)):
    fill, fill_rows, size = getattr(cuda, f"cuMemsetD{bits}_v2"), getattr(cuda, f"cuMemsetD2D{bits}_v2"), bits // 8
    ok(fill(block, value, 64 // size))
    filled = value.to_bytes(size, "little") * (64 // size)
    assert read(block, 64) == filled and fill(block, value, 64 // size + 1) == 1
    ok(fill_rows(block, 16, 0, 1, 4))
    assert read(block, 64) == (bytes(size) + filled[: 16 - size]) * 4 and fill_rows(block, 32, 0, 1, 3) == 1
""",
    "damaged_cubins_reach_no_linker": """
# What would kill nvJitLink is refused when it is added or loaded, also as code for another machine.
start()
cubin = bytearray(artifact("13.0/user.cubin"))
assert link([(CUBIN, bytes(cubin))])[0] == 0
cubin[2400:2408] = (0x30).to_bytes(8, "little")  # .nv.info grows over the section behind it
for machine in (190, 62):
    cubin[18] = machine
    code, image, log = link([(CUBIN, bytes(cubin))])
    assert code == 200 and b"is a damaged cubin" in log and b".nv.info and .nv.compat overlap" in log, (code, log)
assert load(bytes(cubin))[0] == 200
""",
    "modules": """
# Images are parsed: what does not fit or is damaged is refused, functions and variables have their real names.
start()
cubin = artifact("13.0/linked.cubin")
module = loaded(cubin)
kernel = kernel_of(module, "apply_transform")
for name, code in (("user_transform", 0), ("apply_transfor", 500), ("apply_transform2", 500), ("", 1)):
    assert function(module, name)[0] == code, name

# refused images
bad = small_ptx().replace(b"ret;", b"rett;")
for name, code in (("13.0/user-sm_100.cubin", 209), ("13.0/main.ltoir", 200), ("nvcc/user.a", 200)):
    assert load(artifact(name))[0] == code, name
for image in (b"not an image at all", b"\\0", cubin[:64] + bytes(len(cubin))):
    assert load(image)[0] == 200, image
assert load(bad.replace(b"8.0", b"9.0"))[0] == 218 and load(small_ptx("9.1"))[0] == 222
assert cuda.cuModuleLoadData(byref(c_void_p()), c_void_p(0x1000)) == 200  # nothing there
# fatbins: the cubin that fits, uncompressed and compressed
fat = loaded(artifact("nvcc/user-plain.fatbin"))
kernel_of(fat, "user_transform")
loaded(artifact("nvcc/user.fatbin"))
assert load(artifact("nvcc/user-lto.fatbin"))[0] == 209

# PTX goes through the linker; attributes come from its image
small = loaded(small_ptx())
kernel = kernel_of(small, "small")
def attribute(number):
    return get(cuda.cuFuncGetAttribute, c_int, number, kernel)
threads, shared, _, local, registers, ptx, binary = map(attribute, range(7))
assert (threads, shared, local, binary) == (128, 256, 0, 90), (threads, shared, local, binary)
assert 0 < registers <= 255

# variables have their memory and their first value
from tests.emulator.memory_calls import read
def variable(name):
    return get(cuda.cuModuleGetGlobal_v2, c_uint64, c_size_t, small, name)
first, size = variable(b"answer")
assert size == 4 and read(first, 4) == bytes([42, 0, 0, 0])
ok(cuda.cuMemsetD32_v2(first, 7, 1))
assert variable(b"answer") == (first, 4)
assert read(variable(b"factor")[0], 8) == struct.pack("d", 2.0) and variable(b"zeros")[1] == 1024
with tempfile.NamedTemporaryFile() as file:
    file.write(cubin)
    file.flush()
    for name, code in ((file.name.encode(), 0), (b"/no/such/file", 301), (b"/", 2)):  # the last is a folder
        assert cuda.cuModuleLoad(byref(module), name) == code, name
""",
    "files_of_libraries": """
# The caller cannot preserve the binary of a file (an H200); a library of one has kernels.
start()
with tempfile.NamedTemporaryFile() as file:
    file.write(small_ptx())
    file.flush()
    for key, code in ((1, 1), (0, 0)):
        option, library = ((c_int * 1)(key), (c_void_p * 1)(), 1), c_void_p()
        name = file.name.encode()
        assert cuda.cuLibraryLoadFromFile(byref(library), name, None, None, 0, *option) == code, key
new(cuda.cuLibraryGetKernel, library, b"small")
""",
    "as_many_names_as_one_likes": """
# Names of kernels to keep are not cut: the last of a hundred is there, and what was not named is dropped.
start()
kernels = [b"kernel_with_quite_a_long_name_%03d" % number for number in range(101)]
ptx = small_ptx().split(b".visible")[0] + b" ".join(b".visible .entry %s() { ret; }" % name for name in kernels)
names = (c_char_p * 100)(*kernels[:100])
values = (c_void_p * 2)(addressof(names), 100)
state, image, size = c_void_p(), c_void_p(), c_size_t()
ok(cuda.cuLinkCreate_v2(2, (c_int * 2)(25, 26), values, byref(state)))
ok(cuda.cuLinkAddData_v2(state, PTX, ptx, c_size_t(len(ptx) + 1), b"in", 0, None, None))
ok(cuda.cuLinkComplete(state, byref(image), byref(size)))
module = loaded(string_at(image, size.value))
ok(function(module, kernels[99].decode())[0])
assert function(module, kernels[100].decode())[0] == 500
ok(cuda.cuLinkDestroy(state))
""",
    "names_in_events": """
# A name that is UTF-8 stands in its event as it is; bytes that are not are escaped one by one.
import codecs
start()
module = loaded(artifact("13.0/linked.cubin"))
def noted(name):
    assert cuda.cuModuleGetFunction(byref(c_void_p()), module, name) == 500
    return last_event()["name"]
# the first and last of each length, and around the surrogates
edges = map(chr, (0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF))
for name in ("größe", "大きさ", "𝒙", "a/ü.ptx", *edges):
    assert noted(name.encode()) == name
codecs.register_error("escaped", lambda error: (error.object[error.start : error.end].decode("latin-1"), error.end))
bounds = bytes.fromhex("0a1f20225c7e7f80818f909fa0bfc1c2dfe0e1ecedeeeff0f1f3f4f5ff")
for name in (bytes(random.Random(seed).choices(bounds, k=6)) for seed in range(4000)):
    assert noted(name) == name.decode("utf-8", "escaped"), name
for _ in range(17_000):  # more events than are kept
    cuda.cuModuleGetFunction(byref(c_void_p()), module, b"early")
assert noted(b"late") == "late"
cut = noted("ü".encode() * 500)  # between two characters, and says so
assert 9 < len(cut) < 500 and cut == "ü" * (len(cut) - 1) + "…", cut
""",
    "lost_device": """
# Whatever needs the device answers that it is lost, links in between and NVML too; what is left can be freed.
start()
state, image, size, device = c_void_p(), c_void_p(), c_size_t(), c_void_p()
ptx = small_ptx()
def add():
    return cuda.cuLinkAddData_v2(state, PTX, ptx, c_size_t(len(ptx)), b"in", 0, None, None)
nvml = CDLL("libnvidia-ml.so.1")
ok(nvml.nvmlInit_v2())
ok(cuda.cuLinkCreate_v2(0, None, None, byref(state)))
cuda.cudalinkLoseDevice(46)
assert add() == 46 and last_event()["device lost"]
assert cuda.cuLinkComplete(state, byref(image), byref(size)) == 46
assert cuda.cuLinkCreate_v2(0, None, None, byref(c_void_p())) == 46
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)) == 15  # GPU is lost
cuda.cudalinkLoseDevice(0)
ok(nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device)))
ok(add())
ok(cuda.cuLinkComplete(state, byref(image), byref(size)))
cuda.cudalinkLoseDevice(46)
assert nvml.nvmlDeviceGetIndex(device, byref(c_uint())) == 15
ok(cuda.cuLinkDestroy(state))
assert cuda.cudalinkLiveStates() == 0
""",
    "graphics_data": """
# It is refused where there is some, and left alone where there is none; shares of multiprocessors are another request.
start()
context, affinity, graphics = c_void_p(), (c_uint * 2)(0, 4), (c_uint64 * 2)(1, 0x1000)
assert cuda.cuCtxGetExecAffinity(None, 0) == 1
both = (c_uint64 * 3)(addressof(affinity), 1, addressof(graphics))
assert cuda.cuCtxCreate_v4(byref(context), both, 0, 0) == 1
both[0] = both[1] = 0
assert "graphics" in refused("cuCtxCreate_v4", byref(context), both, 0, 0)
graphics[1] = 0
assert cuda.cuCtxCreate_v4(byref(context), both, 0, 0) == 1
both[2] = 0
ok(cuda.cuCtxCreate_v4(byref(context), both, 0, 0))
""",
    "without_a_context": """
# A context that was destroyed has no flags, and what needs one says so.
primary = start()
dead = new(cuda.cuCtxCreate_v2, 1, 0)
ok(cuda.cuCtxPushCurrent_v2(dead))
ok(cuda.cuCtxDestroy_v2(dead))
assert (get(cuda.cuCtxGetFlags, c_uint), cuda.cuCtxGetLimit(byref(c_size_t()), 0)) == (0, 709)
ok(cuda.cuCtxPopCurrent_v2(byref(dead))), ok(cuda.cuCtxSetCurrent(None))
assert [cuda.cuCtxGetApiVersion(one, byref(c_int())) for one in (None, primary)] == [201, 0]
""",
    "both_libraries_have_one_driver": """
# A program that opens libcuda.so gets the same driver as one that opens libcuda.so.1.
alias = CDLL("libcuda.so")
ok(alias.cuInit(0))
value = new(cuda.cuDeviceGetCount, c_int)  # initialized through the other name
""",
}
test_programs = programs(
    PROGRAMS,
    no_devices={"device": "none"},
    memory={"device": "memory=150109880320"},
    new_ptx_without_nvjitlink={"version": "12.9", "env": {"CUDALINK_EMULATOR_NVJITLINK": ""}},
    a_device_without_a_compiler_in_13={"device": "sm_70"},
)
