"""The emulated NVML: what it exports, what an idle card answers, and that its clients run on it."""

import ctypes
import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable

import pynvml
import pytest

from native_build.sources import PACKAGE
from pytest_cudalink.compat.names import EMULATED_DEVICES
from tests.emulator.conftest import ROOT, programs
from tools import make_nvml

DATA = PACKAGE / "data" / "emulator"
NAMES = tomllib.loads((DATA / "nvml_names.toml").read_text(encoding="utf-8"))["functions"]
ANSWERS = tomllib.loads((DATA / "nvml.toml").read_text(encoding="utf-8"))
Check = Callable[..., str]
#: What `test_answers` leaves out: addresses, times, and what this machine is.
VARIES = re.compile("Init|Shutdown|Wait|Energy|Affinity|ProcessName|ErrorString|FieldValues|Violation|EventSetCreate")

#: The sizes of versioned structures in nvidia-ml-py 13.615, by their versions.
SIZES = {
    1: (8, 12, 16, 20, 24, 28, 32, 36, 44, 52, 64, 84, 100, 104, 2052, 9632, 11256, 42024),
    2: (12, 32, 36, 40, 44, 136, 152, 1612),
    3: (40,),
}

HEAD = """
import ctypes, pynvml
from pynvml import *

def refused(code, function, *arguments):
    try:
        answer = function(*arguments)
    except NVMLError as error:
        assert error.value == code, error.value
    else:
        raise AssertionError(answer)

nvmlInit()
device = nvmlDeviceGetHandleByIndex(0)
"""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("version", "count"),
    [*(pytest.param(*each, marks=SLOW) for each in (("12.0", 312), ("12.2", 332), ("12.4", 350))), ("13.0", 404)],
)
def test_exports(version, count, check) -> None:
    """A version has as many names as the real library of that version: neither more nor fewer."""
    program = f"import ctypes, json; nvml = ctypes.CDLL('libnvidia-ml.so.1'); names = {[*NAMES, 'nvmlErrorString']}"
    out = check(program + "; print(json.dumps([name for name in names if hasattr(nvml, name)]))", version)
    names = set(json.loads(out))
    assert len(names) == count
    assert ("nvmlDeviceCcuGetStreamState" in names) == (version == "12.0")
    assert ("nvmlSystemGetDriverBranch" in names) == (version == "13.0")


#: Structures of nvidia-ml-py that the data has the words of; None for a number.
STRUCTURES = {
    "nvmlDeviceGetComputeRunningProcesses": None,
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": "c_nvmlMemory_t",
    "nvmlDeviceGetFBCStats": "c_nvmlFBCStats_t",
    "nvmlDeviceGetRowRemapperHistogram": "c_nvmlRowRemapperHistogramValues",
    "nvmlDeviceGetUtilizationRates": "c_nvmlUtilization_t",
    "nvmlSystemGetConfComputeCapabilities": "c_nvmlConfComputeSystemCaps_t",
    "nvmlSystemGetConfComputeState": "c_nvmlConfComputeSystemState_t",
}


def test_data_fits() -> None:
    """The data is of functions that there are, and its words and versions are those of nvidia-ml-py's structures."""
    results = [name for names in ANSWERS["results"].values() for name in names]
    assert len(results) == len(set(results))
    assert NAMES.keys() >= {*ANSWERS["values"], *ANSWERS["structures"], *results}
    for name, values in ANSWERS["values"].items():
        assert len(values) <= NAMES[name][1].count("p"), name
    for name, structure in STRUCTURES.items():
        size = ctypes.sizeof(getattr(pynvml, structure)) if structure else 4
        assert 4 * len(ANSWERS["values"][name][0]) == size, name
    numbers = [number for name, number in vars(pynvml).items() if name.startswith("nvml") and isinstance(number, int)]
    known = {(number & 0xFFFFFF, number >> 24) for number in numbers}
    versions = [(*version, s) for s in ANSWERS["structures"].values() for version in s["versions"]]
    assert sum((size, number) in known for size, number, _ in versions) >= 8
    assert all(size % 4 == 0 and len(s.get("words", ())) < size // 4 for size, _, s in versions)


#: Which arguments may be NULL in functions that list something: the list, when only its length is asked for.
LISTS = ("Processes", "Sessions", "NearestGpus", "Pids")


def test_invalid_arguments(check: Check) -> None:
    """Where a question has an answer, it has none for no device, another's handle, and nowhere to write (nvml.h)."""
    questions = {
        name: forms for name, (_, forms, *_) in NAMES.items() if name.startswith("nvmlDeviceGet") and forms[0] == "d"
    }
    out = check(
        HEAD
        + f"""
nvml, answers = CDLL("libnvidia-ml.so.1"), {{}}
for name, forms in {questions}.items():
    if ask := getattr(nvml, name, None):
        usual = [device, *(create_string_buffer(1 << 16) if one == "p" else 0 for one in forms[1:])]
        if ask(*usual) == 0:
            others = [[device, *(None if at == place else one for at, one in enumerate(usual[1:], 1))]
                      for place in range(1, len(usual)) if forms[place] == "p"]
            answers[name] = [ask(*one) for one in ([None, *usual[1:]], [c_void_p(7), *usual[1:]], *others)]
print(json.dumps(answers))
"""
    )
    answers = json.loads(out)
    assert len(answers) > 90
    for name, codes in answers.items():
        listed = name.partition("_v")[0].endswith(LISTS)
        assert codes == [2] * (len(codes) - listed) + [0] * listed, name


@pytest.mark.parametrize("card", ["h100:2", "rtx-4090"])
def test_answers(card: str, check: Check, as_kept) -> None:
    """Each answer that is the same in each run is the kept one: the code, and the bytes up to the last that changed."""
    versions = [version << 24 | size for version, sizes in SIZES.items() for size in sizes]
    devices = 2 if ":" in card else 1
    out = check(
        f"""
import zlib
nvml, words = CDLL("libnvidia-ml.so.1"), 1 << 9
ok(nvml.nvmlInit_v2())
fills = [b"\\xa5" * 8, bytes(8), b"\\xa5" * 4 + bytes(4), bytes(4) + b"\\xa5" * 4, struct.pack("2I", 1, 1)]
for name, forms in { ({name: forms for name, (_, forms, *_) in NAMES.items() if not VARIES.search(name)}) }.items():
    answers = {{}}
    some = [*range(7), 10, 11, 12, 13][: 5 if forms.count("i") > 1 else None]
    numbers = itertools.product(some, repeat=forms.count("i")) if hasattr(nvml, name) else ()
    each = [(1, fill) for fill in fills] + [(2, fills[0])][: {devices} - 1]
    for (device, fill), number in itertools.product(each, numbers):
        for word in {(4, 1, *versions)}:  # a count or, if it has one, the version of a structure
            before = struct.pack("I", word) + fill * words
            rooms = [char_buffer(before, len(before)) for one in forms if one == "p"]
            places, left = iter(rooms), iter(number)
            given = [c_void_p(device) if one == "d" else next(left if one == "i" else places) for one in forms]
            if (code := getattr(nvml, name)(*given)) not in (13, 25):
                break
        changed = [int.from_bytes(one.raw, "little") ^ int.from_bytes(before, "little") for one in rooms]
        written = (room.raw[: (bits.bit_length() + 7) // 8].hex() for room, bits in zip(rooms, changed))
        answers[device, fill, number, word] = " ".join([str(code), *written]).rstrip()
    if answers:
        print(name, f"{{zlib.crc32(repr(answers).encode()):08x}}", *sorted({{*answers.values()}}), sep="; ")
""",
        device=f"{card},memory=2GiB",  # else it depends on the machine's
    )
    as_kept(ROOT / "tests" / "data" / f"nvml_{card.partition(':')[0]}.txt", out)


def test_cards(check: Check, as_kept) -> None:
    """What each card answers in numbers and words is as kept."""
    names = [name for name in dir(pynvml) if re.match("nvmlDeviceGet(?!HandleBy)", name) and not VARIES.search(name)]
    program = f"""{HEAD}
for name in {[name for name in names if len(inspect.signature(getattr(pynvml, name)).parameters) == 1]}:
    try:
        answer = getattr(pynvml, name)(device)
    except NVMLError as error:
        answer = f"error {{error.value}}"
    if isinstance(answer, (int, str, list)):
        print(name, answer, sep="; ")
"""
    answers = {card: check(program, device=f"{card},memory=2GiB").splitlines() for card in EMULATED_DEVICES}
    counts = Counter(line for lines in answers.values() for line in lines)
    own = (f"{card}; {line}\n" for card, lines in answers.items() for line in lines if counts[line] < len(answers))
    as_kept(ROOT / "tests" / "data" / "nvml_cards.txt", "".join(own))


@pytest.mark.parametrize(("faults", "code"), [("lost=46", 15), ("jit=221", 0), ("cuInit:9=2", 0)])
def test_a_lost_device(faults: str, code: int, on_driver) -> None:
    """Where the process has no libcuda, NVML reads from the environment that the device is lost."""
    program = "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); nvml.nvmlInit_v2()"
    asked = "; exit(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(ctypes.c_void_p())))"
    assert on_driver("13.0", "-c", program + asked, faults=faults).returncode == code


def test_uninitialized(check: Check) -> None:
    """Before init and after as many shutdowns, nothing answers but the library's own version."""
    check(
        """
nvml, word = CDLL("libnvidia-ml.so.1"), create_string_buffer(4096)
functions = [
    nvml.nvmlDeviceGetPersistenceMode, nvml.nvmlDeviceGetVgpuMetadata, nvml.nvmlSystemGetDriverBranch,
    nvml.nvmlEventSetCreate, nvml.nvmlDeviceGetSamples, nvml.nvmlUnitGetCount, nvml.nvmlDeviceSetPersistenceMode,
]
arguments = [c_void_p(1), word, word, word, word]
assert [function(*arguments) for function in functions] == [1] * len(functions)
assert nvml.nvmlSystemGetNVMLVersion(word, 80) == 0
assert nvml.nvmlShutdown() == 1
assert nvml.nvmlInit_v2() == nvml.nvmlInitWithFlags(0) == nvml.nvmlShutdown() == 0
assert nvml.nvmlDeviceGetPersistenceMode(c_void_p(1), word) == 0
assert nvml.nvmlDeviceGetNvLinkState(c_void_p(1), 0, None) == 2
assert nvml.nvmlDeviceGetNvLinkState(c_void_p(1), 0, word) == 3
assert nvml.nvmlShutdown() == 0
assert [function(*arguments) for function in functions] == [1] * len(functions)
"""
    )


PROGRAMS = {
    "identity": """
# A device is found by everything that it says of itself, and libcuda says the same.
import uuid
assert nvmlDeviceGetCount() == 2
cuda, nvml, text = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(64)
assert cuda.cuInit(0) == 0
for index in range(2):
    device = nvmlDeviceGetHandleByIndex(index)
    pci, number = nvmlDeviceGetPciInfo(device), ctypes.c_int()
    finders = {
        nvmlDeviceGetHandleByUUID: nvmlDeviceGetUUID(device),
        nvmlDeviceGetHandleBySerial: nvmlDeviceGetSerial(device),
        nvmlDeviceGetHandleByPciBusId: pci.busId,
    }
    for find, value in finders.items():
        assert nvmlDeviceGetIndex(find(value)) == index
    assert nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(device)[4:])) == index
    for short in (pci.busId[4:], pci.busId[:-2], pci.busId[9:]):
        assert nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId(short)) == index
    assert cuda.cuDeviceGetUuid(text, index) == 0
    assert nvmlDeviceGetUUID(device) == f"GPU-{uuid.UUID(bytes=text.raw[:16])}"
    for kind, value in ((1, nvmlDeviceGetUUID(device).encode()), (2, text.raw[:16])):
        assert nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUIDV(value, kind)) == index
    assert [nvmlDeviceOnSameBoard(device, nvmlDeviceGetHandleByIndex(one)) for one in range(2)] == [not index, index]
    assert cuda.cuDeviceGetPCIBusId(text, 64, index) == 0
    assert pci.busId[4:].lower() == text.value.decode().lower()
    assert cuda.cuDeviceGetAttribute(ctypes.byref(number), 33, index) == 0
    assert (number.value, pci.device, pci.domain) == (pci.bus, 0, 0)
values = (c_nvmlFieldValue_t * 2)()
assert nvml.nvmlDeviceClearFieldValues(device, 1, values) == 0 and [one.nvmlReturn for one in values] == [3, 0]
assert [nvml.nvmlDeviceGetCpuAffinityWithinScope(device, 1, values, scope) for scope in range(3)] == [0, 0, 2]
assert [nvml.nvmlDeviceGetViolationStatus(device, kind, bytes(16)) for kind in (5, 6, 10, 11, 12)] == [0, 2, 0, 0, 2]
refused(6, nvmlDeviceGetHandleByUUID, "GPU-x")
refused(6, nvmlDeviceGetHandleByUUIDV, bytes(16), 2)
refused(2, nvmlDeviceGetHandleByUUIDV, b"", 3)
refused(6, nvmlDeviceGetHandleBySerial, "1")
refused(6, nvmlDeviceGetHandleByPciBusId, "0000:77:00.0")
refused(2, nvmlDeviceGetHandleByPciBusId, "zz")
refused(2, nvmlDeviceGetHandleByIndex, 2)
""",
    "system": """
# Versions, the branch of the driver, and the name of a process.
assert nvmlSystemGetDriverVersion() == "580.95.05"
assert nvmlSystemGetNVMLVersion() == "13.580.95.05"
assert nvmlSystemGetCudaDriverVersion() == nvmlSystemGetCudaDriverVersion_v2() == 13000
branch = nvmlSystemGetDriverBranch()
assert (branch.branch.decode() if isinstance(branch.branch, bytes) else branch.branch).startswith("r580")
assert "python" in nvmlSystemGetProcessName(os.getpid())
refused(6, nvmlSystemGetProcessName, 99999999)
nvml, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(8)
assert nvml.nvmlSystemGetProcessName(os.getpid(), text, 0) == 2
assert nvml.nvmlSystemGetProcessName(os.getpid(), text, 2) == 0 and len(text.value) == 1
assert nvml.nvmlSystemGetDriverBranch(ctypes.create_string_buffer(84), 80) == 25
""",
    "memory": """
# Both forms say the same, and what the configuration says.
memory, newer = nvmlDeviceGetMemoryInfo(device), nvmlDeviceGetMemoryInfo(device, version=nvmlMemory_v2)
assert memory.total == newer.total == memory.free + memory.used == newer.free + newer.used + newer.reserved == 2 << 30
window = nvmlDeviceGetBAR1MemoryInfo(device)
assert window.bar1Total == window.bar1Free + window.bar1Used >= 2 << 30
refused(13, nvmlDeviceGetMemoryInfo, device, 1 << 24 | 8)
cuda = ctypes.CDLL("libcuda.so.1")
assert memory.used == cuda.cudalinkMemoryUsed(-1) == cuda.cudalinkMemoryUsed(1 << 20) == 0
context, block = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)) == 0
assert nvmlDeviceGetMemoryInfo(device).used == cuda.cudalinkMemoryUsed(0) == 1 << 20
assert cuda.cuMemFree_v2(block) == 0
assert nvmlDeviceGetMemoryInfo(device).used == 0
""",
    "idle_card": """
# Clocks, energy and processors of the machine, which no kept answer has.
(memory,) = nvmlDeviceGetSupportedMemoryClocks(device)
clocks = nvmlDeviceGetSupportedGraphicsClocks(device, memory)
assert (len(clocks), clocks[0], clocks[-1]) == (110, 1980, 345)
refused(6, nvmlDeviceGetSupportedGraphicsClocks, device, 77)
before = nvmlDeviceGetTotalEnergyConsumption(device)
time.sleep(0.05)
assert nvmlDeviceGetTotalEnergyConsumption(device) > before
assert sum(bin(one).count("1") for one in nvmlDeviceGetCpuAffinity(device, 16)) == len(os.sched_getaffinity(0))
refused(4, nvmlDeviceDiscoverGpus, nvmlDeviceGetPciInfo(device))  # measured: an H200, as root
""",
    "events_and_fields": """
# A set is waited for until the time is over; a field that there is not is an error of its own.
events = nvmlEventSetCreate()
nvmlDeviceRegisterEvents(device, nvmlEventTypeXidCriticalError, events)
refused(3, nvmlDeviceRegisterEvents, device, 1 << 40, events)
start = time.monotonic()
refused(10, nvmlEventSetWait_v2, events, 50)
assert time.monotonic() - start >= 0.05
register = CDLL("libnvidia-ml.so.1").nvmlSystemRegisterEvents
request = (c_uint64 * 3)(1 << 24 | 24, 0, cast(events, c_void_p).value)
assert register(request) == 0
wait, room = CDLL("libnvidia-ml.so.1").nvmlSystemEventSetWait, create_string_buffer(64)
for where, count, answer in ((addressof(room), 1, 10), (0, 1, 2), (addressof(room), 0, 2)):
    asked = struct.pack("IIPPII", 1 << 24 | 32, 1, cast(events, c_void_p).value, where, count, 7)
    asked = create_string_buffer(asked, 32)
    assert wait(asked) == answer and asked[28] == (b"\\0" if answer == 10 else b"\\7"), (where, count)
made, nvml = (c_uint64 * 2)(1 << 24 | 16), CDLL("libnvidia-ml.so.1")
assert nvml.nvmlSystemEventSetCreate(made) == 0 and made[1]
assert nvml.nvmlSystemEventSetFree(made) == 0 and nvml.nvmlSystemEventSetFree(made) == 2
nvmlEventSetFree(events)
assert register(request) == 2
refused(2, nvmlEventSetFree, events)
refused(2, nvmlEventSetWait_v2, events, 0)
numbers = [NVML_FI_DEV_ECC_CURRENT, NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 100, 300, 0]
values = nvmlDeviceGetFieldValues(device, numbers)
assert [value.nvmlReturn for value in values] == [0, 0, 3, 2, 2]
assert values[0].value.ullVal == 1 and values[1].value.ullVal > 0
powers = [one.value.uiVal for one in nvmlDeviceGetFieldValues(device, [185, 186, 187, 188, 189, 190, 192])]
bounds = nvmlDeviceGetPowerManagementLimitConstraints(device)
assert powers == [*[nvmlDeviceGetPowerUsage(device)] * 2, *bounds, *[bounds[1]] * 3]
""",
    "topology": """
# Two devices hang on one host bridge and reach each other over PCIe.
other = nvmlDeviceGetHandleByIndex(1)
assert nvmlDeviceGetTopologyCommonAncestor(device, other) == NVML_TOPOLOGY_HOSTBRIDGE
for pair in ((None, other), (device, None)):
    refused(2, nvmlDeviceGetTopologyCommonAncestor, *pair)
(near,) = nvmlDeviceGetTopologyNearestGpus(device, NVML_TOPOLOGY_HOSTBRIDGE)
assert nvmlDeviceGetIndex(near) == 1
READ, NVLINK, OK, NOT_SUPPORTED = 0, 2, 0, 5  # those of nvidia-ml-py are tuples
assert nvmlDeviceGetP2PStatus(device, other, READ) == OK
assert nvmlDeviceGetP2PStatus(device, other, NVLINK) == NOT_SUPPORTED
""",
    "errors_have_texts": """
# Every error of nvidia-ml-py has a text; a number that is none has that of the unknown one.
codes = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)}
known = codes - {NVML_ERROR_UNKNOWN}
assert len(known) > 25
texts = {code: nvmlErrorString(code) for code in known}
assert len({text for code, text in texts.items() if code < 31}) == len([code for code in texts if code < 31])
assert nvmlErrorString(1) == "Uninitialized"
assert nvmlErrorString(12345) == nvmlErrorString(NVML_ERROR_UNKNOWN) == "Unknown Error"
""",
}
test_programs = programs(
    PROGRAMS,
    HEAD,
    identity={"device": "h100:2"},
    system={"release": "580.95.05"},
    idle_card={"device": "h100"},
    memory={"device": "memory=2GiB"},
    topology={"device": "t4:2"},
)


@pytest.mark.parametrize("version", [pytest.param("12.0", marks=SLOW), "12.9", "13.2"])
def test_monitors(version, check: Check) -> None:
    """Programs that watch devices start on each version: what nvidia-ml-py does not find, it does without."""
    asked = "print(nvmlDeviceGetName(device), nvmlDeviceGetComputeRunningProcesses(device))"
    assert check(HEAD + asked, version) == "NVIDIA H200 []\n"


def test_make_nvml_names(tmp_path, monkeypatch) -> None:
    """The table of names is what its maker makes of headers and exports."""
    headers, exports = tmp_path / "headers", tmp_path / "exports"
    headers.mkdir()
    exports.mkdir()
    declaration = "nvmlReturn_t DECLDIR {}({});\n"
    old = declaration.format("nvmlA", "nvmlDevice_t device, unsigned int *x") + declaration.format("nvmlB", "void")
    (headers / "nvml-12.0.h").write_text(old, encoding="utf-8")
    (headers / "nvml-13.0.h").write_text(old + declaration.format("nvmlC", "nvmlDevice_t a, nvmlDevice_t b, int c"))
    (exports / "13.0.txt").write_text("nvmlA\nnvmlC\nnvmlErrorString\n", encoding="utf-8")
    monkeypatch.setattr(make_nvml, "OUT", tmp_path / "nvml_names.toml")
    monkeypatch.setattr(sys, "argv", ["make_nvml", str(headers), str(exports)])
    assert make_nvml.main() == 0
    made = tomllib.loads((tmp_path / "nvml_names.toml").read_text(encoding="utf-8"))["functions"]
    assert made == {"nvmlA": ["12.0", "dp"], "nvmlB": ["12.0", "", "13.0"], "nvmlC": ["13.0", "dpi"]}
