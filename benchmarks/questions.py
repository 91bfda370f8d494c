"""Questions to a CUDA driver and to NVML, each asked in a process of its own by plain ctypes.

``python benchmarks/questions.py FOLDER NAME`` asks the libraries that the loader finds, and prints the answer as one
line of text; without a NAME it asks all questions, each in a forked process. FOLDER has the inputs that `answers.py`
makes. The module imports nothing of this project, so that a driver under test gets exactly the calls that stand here.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any

__all__ = ["GROUPS", "NO_FUNCTION", "NO_LIBRARY", "QUESTIONS", "ask"]

NO_FUNCTION, NO_LIBRARY = "no such function", "no such library"
#: The groups in the order of the page.
GROUPS = ("versions", "device", "link", "load", "memory", "contexts", "launch", "NVML", "Python")

Question = Callable[["Libraries"], str]
#: Each question: its group, what is asked, and the function that asks.
QUESTIONS: dict[str, tuple[str, str, Question]] = {}

PAGE = 1 << 16
UNIT = b".version 8.0\n.target sm_90\n.address_size 64\n"
ADD_ONE = (
    UNIT
    + b""".visible .entry add_one(.param .u64 p) {
 .reg .u64 %a; .reg .u32 %x;
 ld.param.u64 %a, [p]; cvta.to.global.u64 %a, %a;
 ld.global.u32 %x, [%a]; add.u32 %x, %x, 1; st.global.u32 [%a], %x;
 ret; }
"""
)


class Libraries:
    """The driver, NVML and the inputs of the questions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def cu(self) -> Any:
        """The driver."""
        return ctypes.CDLL("libcuda.so.1")

    @property
    def nvml(self) -> Any:
        """NVML, initialized, with a device."""
        library = ctypes.CDLL("libnvidia-ml.so.1")
        code = library.nvmlInit_v2()
        if code:
            raise EarlyAnswerError(f"nvmlInit: {code}")
        return library

    @property
    def ready(self) -> Any:
        """The driver, with the primary context of its first device current."""
        driver, context = self.cu, c_void_p()
        for call, *arguments in (
            (driver.cuInit, 0),
            (driver.cuDevicePrimaryCtxRetain, byref(context), 0),
            (driver.cuCtxSetCurrent, context),
        ):
            code = call(*arguments)
            if code:
                raise EarlyAnswerError(f"{call.__name__}: {code}")
        return driver

    def read(self, name: str) -> bytes:
        """Return an input."""
        return (self.folder / name).read_bytes()


class EarlyAnswerError(Exception):
    """Ends a question early: the answer."""


def question(group: str, text: str) -> Callable[[Question], Question]:
    """Add a question under the name of its function."""

    def add(function: Question) -> Question:
        QUESTIONS[function.__name__] = (group, text, function)
        return function

    return add


# versions


@question("versions", "`cuDriverGetVersion` before `cuInit`")
def version(ask: Libraries) -> str:
    number = c_int()
    code = ask.cu.cuDriverGetVersion(byref(number))
    return f"{code}, {number.value >= 12000}"


@question("versions", "a call before `cuInit`")
def before_init(ask: Libraries) -> str:
    return str(ask.cu.cuDeviceGetCount(byref(c_int())))


@question("versions", "the name of error 222")
def error_name(ask: Libraries) -> str:
    text = c_char_p()
    code = ask.cu.cuGetErrorName(222, byref(text))
    return f"{code}, {(text.value or b'').decode()}"


@question("versions", "the name of error 123456, which does not exist")
def no_error_name(ask: Libraries) -> str:
    return str(ask.cu.cuGetErrorName(123456, byref(c_char_p())))


def _entry(ask: Libraries, name: bytes, version: int) -> str:
    address, status = c_void_p(), c_int(-1)
    code = ask.cu.cuGetProcAddress_v2(name, byref(address), version, c_uint64(0), byref(status))
    return f"{code}, status {status.value}, {'an address' if address.value else 'NULL'}"


@question("versions", "`cuGetProcAddress` for `cuLinkCreate`")
def entry_point(ask: Libraries) -> str:
    return _entry(ask, b"cuLinkCreate", 12000)


@question("versions", "`cuGetProcAddress` for a function that is newer than the version asked for")
def newer_entry_point(ask: Libraries) -> str:
    return _entry(ask, b"cuLibraryLoadData", 11000)


@question("versions", "`cuGetProcAddress` for a name that does not exist")
def no_entry_point(ask: Libraries) -> str:
    return _entry(ask, b"cuNoSuchFunction", 12000)


# device


@question("device", "the number of devices is positive")
def count(ask: Libraries) -> str:
    driver, number = ask.cu, c_int()
    driver.cuInit(0)
    return f"{driver.cuDeviceGetCount(byref(number))}, {'some' if number.value > 0 else number.value}"


@question("device", "`cuDeviceGet` for device 99")
def no_device(ask: Libraries) -> str:
    driver = ask.cu
    driver.cuInit(0)
    return str(driver.cuDeviceGet(byref(c_int()), 99))


@question("device", "the name has “H100” in it")
def name(ask: Libraries) -> str:
    driver, text = ask.cu, create_string_buffer(256)
    driver.cuInit(0)
    code = driver.cuDeviceGetName(text, 256, 0)
    return f"{code}, {b'H100' in text.value}"


def _attribute(ask: Libraries, number: int) -> str:
    driver, value = ask.cu, c_int()
    driver.cuInit(0)
    code = driver.cuDeviceGetAttribute(byref(value), number, 0)
    return f"{code}" if code else f"{code}, {value.value}"


@question("device", "attribute 75, the major of the compute capability")
def capability(ask: Libraries) -> str:
    return _attribute(ask, 75)


@question("device", "attribute 81, shared memory per multiprocessor")
def shared_memory(ask: Libraries) -> str:
    return _attribute(ask, 81)


@question("device", "attribute 97, opt-in shared memory per block")
def opt_in_memory(ask: Libraries) -> str:
    return _attribute(ask, 97)


@question("device", "attribute 9999, which does not exist")
def no_attribute(ask: Libraries) -> str:
    return _attribute(ask, 9999)


# link


def _linker(ask: Libraries) -> tuple[Any, c_void_p, Any, Any]:
    """Make a link state with both logs; returns what must live, too."""
    driver, state = ask.ready, c_void_p()
    log = create_string_buffer(4096)
    keys = (c_int * 2)(5, 6)
    values = (c_void_p * 2)(ctypes.addressof(log), 4096)
    code = driver.cuLinkCreate_v2(2, keys, values, byref(state))
    if code:
        raise EarlyAnswerError(f"cuLinkCreate: {code}")
    return driver, state, log, (keys, values)


def _add(driver: Any, state: c_void_p, code: bytes, kind: int = 1) -> int:
    return int(driver.cuLinkAddData_v2(state, kind, code, c_size_t(len(code)), b"input", 0, None, None))


@question("link", "`cuLinkCreate` without a context")
def link_without_context(ask: Libraries) -> str:
    driver = ask.cu
    driver.cuInit(0)
    return str(driver.cuLinkCreate_v2(0, None, None, byref(c_void_p())))


@question("link", "two PTX modules become one cubin with the kernel in it")
def link_ptx(ask: Libraries) -> str:
    driver, state, _log, _keep = _linker(ask)
    codes = [_add(driver, state, ask.read(f"{name}.ptx")) for name in ("main", "function")]
    image, size = c_void_p(), c_size_t()
    done = driver.cuLinkComplete(state, byref(image), byref(size))
    data = ctypes.string_at(image, size.value) if image.value and size.value else b""
    found = data[:4] == b"\x7fELF" and b".text.apply_transform" in data
    return f"{codes[0]}, {codes[1]}, {done}, {'the kernel' if found else 'no kernel'}"


@question("link", "PTX of a version that is too new for the driver")
def link_new_ptx(ask: Libraries) -> str:
    driver, state, log, _keep = _linker(ask)
    code = _add(driver, state, ADD_ONE.replace(b"8.0", b"99.9") + b"\0")
    return f"{code}, {'with' if b'99.9' in log.value else 'without'} the reason in the log"


@question("link", "PTX with a syntax error")
def link_bad_ptx(ask: Libraries) -> str:
    driver, state, log, _keep = _linker(ask)
    code = _add(driver, state, ADD_ONE.replace(b"ret;", b"rett;") + b"\0")
    return f"{code}, {'with' if b'rett' in log.value else 'without'} the reason in the log"


@question("link", "an undefined function")
def link_undefined(ask: Libraries) -> str:
    driver, state, log, _keep = _linker(ask)
    added = _add(driver, state, ask.read("main.ptx"))
    code = driver.cuLinkComplete(state, byref(c_void_p()), byref(c_size_t()))
    return f"{added}, {code}, {'with' if b'user_transform' in log.value else 'without'} the reason in the log"


@question("link", "the same function twice")
def link_twice(ask: Libraries) -> str:
    driver, state, _log, _keep = _linker(ask)
    codes = [_add(driver, state, ask.read(f"{name}.ptx")) for name in ("main", "function", "function")]
    code = driver.cuLinkComplete(state, byref(c_void_p()), byref(c_size_t()))
    return f"{', '.join(map(str, codes))}, {code}"


@question("link", "an input that is LTO-IR")
def link_ltoir(ask: Libraries) -> str:
    driver, state, _log, _keep = _linker(ask)
    return str(_add(driver, state, ask.read("main.ltoir"), 5))


@question("link", "an input that is no cubin")
def link_garbage(ask: Libraries) -> str:
    driver, state, _log, _keep = _linker(ask)
    return str(_add(driver, state, b"no cubin" * 100, 0))


@question("link", "a kind of input that does not exist")
def link_kind(ask: Libraries) -> str:
    driver, state, _log, _keep = _linker(ask)
    return str(_add(driver, state, ADD_ONE + b"\0", 99))


@question("link", "`cuLinkCreate` with NULL for the state")
def link_null(ask: Libraries) -> str:
    return str(ask.ready.cuLinkCreate_v2(0, None, None, None))


@question("link", "an option that does not exist")
def link_option(ask: Libraries) -> str:
    keys, values = (c_int * 1)(999), (c_void_p * 1)(0)
    return str(ask.ready.cuLinkCreate_v2(1, keys, values, byref(c_void_p())))


# load


def _load(ask: Libraries, image: bytes) -> tuple[Any, int, c_void_p]:
    driver, module = ask.ready, c_void_p()
    return driver, driver.cuModuleLoadData(byref(module), image), module


@question("load", "a linked cubin, and its kernel")
def load_cubin(ask: Libraries) -> str:
    driver, code, module = _load(ask, ask.read("linked.cubin"))
    found = driver.cuModuleGetFunction(byref(c_void_p()), module, b"apply_transform")
    return f"{code}, {found}"


@question("load", "a kernel that the cubin does not have")
def load_no_kernel(ask: Libraries) -> str:
    driver, code, module = _load(ask, ask.read("linked.cubin"))
    return f"{code}, {driver.cuModuleGetFunction(byref(c_void_p()), module, b'missing')}"


@question("load", "a global variable that the cubin does not have")
def load_no_global(ask: Libraries) -> str:
    driver, code, module = _load(ask, ask.read("linked.cubin"))
    return f"{code}, {driver.cuModuleGetGlobal_v2(byref(c_uint64()), byref(c_size_t()), module, b'missing')}"


@question("load", "a cubin for another architecture, sm_80")
def load_other(ask: Libraries) -> str:
    return str(_load(ask, ask.read("other.cubin"))[1])


@question("load", "PTX")
def load_ptx(ask: Libraries) -> str:
    driver, code, module = _load(ask, ADD_ONE + b"\0")
    return f"{code}, {driver.cuModuleGetFunction(byref(c_void_p()), module, b'add_one')}"


@question("load", "PTX of a version that is too new for the driver")
def load_new_ptx(ask: Libraries) -> str:
    return str(_load(ask, ADD_ONE.replace(b"8.0", b"99.9") + b"\0")[1])


@question("load", "PTX for a newer GPU, sm_100")
def load_new_target(ask: Libraries) -> str:
    return str(_load(ask, ADD_ONE.replace(b"8.0", b"8.6").replace(b"sm_90", b"sm_100") + b"\0")[1])


@question("load", "text that is no device code")
def load_garbage(ask: Libraries) -> str:
    return str(_load(ask, b"no device code\0")[1])


@question("load", "`cuLibraryLoadData` and `cuLibraryGetKernel`")
def load_library(ask: Libraries) -> str:
    driver, library = ask.ready, c_void_p()
    image = ask.read("linked.cubin")
    code = driver.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0)
    found = driver.cuLibraryGetKernel(byref(c_void_p()), library, b"apply_transform")
    return f"{code}, {found}"


# memory


def _memory(ask: Libraries, size: int = PAGE) -> tuple[Any, c_uint64]:
    driver, pointer = ask.ready, c_uint64()
    code = driver.cuMemAlloc_v2(byref(pointer), c_size_t(size))
    if code:
        raise EarlyAnswerError(f"cuMemAlloc: {code}")
    return driver, pointer


@question("memory", "bytes that are set and copied back")
def memory_round_trip(ask: Libraries) -> str:
    driver, pointer = _memory(ask)
    back = create_string_buffer(PAGE)
    codes = [
        driver.cuMemsetD8_v2(pointer, 7, c_size_t(PAGE)),
        driver.cuMemcpyDtoH_v2(back, pointer, c_size_t(PAGE)),
        driver.cuMemFree_v2(pointer),
    ]
    return f"{codes}, {'the bytes' if back.raw == bytes([7]) * PAGE else 'other bytes'}"


@question("memory", "memory that is freed twice")
def memory_twice(ask: Libraries) -> str:
    driver, pointer = _memory(ask)
    return f"{driver.cuMemFree_v2(pointer)}, {driver.cuMemFree_v2(pointer)}"


@question("memory", "a copy beyond the end of an allocation, by 4 GiB")
def memory_beyond(ask: Libraries) -> str:
    driver, pointer = _memory(ask)
    return str(driver.cuMemsetD8_v2(pointer, 7, c_size_t(1 << 32)))


@question("memory", "an address that was never allocated")
def memory_address(ask: Libraries) -> str:
    return str(ask.ready.cuMemFree_v2(c_uint64(4096)))


@question("memory", "1 PiB")
def memory_much(ask: Libraries) -> str:
    return str(ask.ready.cuMemAlloc_v2(byref(c_uint64()), c_size_t(1 << 50)))


@question("memory", "0 bytes")
def memory_none(ask: Libraries) -> str:
    return str(ask.ready.cuMemAlloc_v2(byref(c_uint64()), c_size_t(0)))


@question("memory", "free memory is less after an allocation of 1 GiB")
def memory_info(ask: Libraries) -> str:
    driver = ask.ready
    free, after, total, pointer = c_size_t(), c_size_t(), c_size_t(), c_uint64()
    codes = [
        driver.cuMemGetInfo_v2(byref(free), byref(total)),
        driver.cuMemAlloc_v2(byref(pointer), c_size_t(1 << 30)),
        driver.cuMemGetInfo_v2(byref(after), byref(total)),
    ]
    return f"{codes}, {after.value < free.value <= total.value}"


# contexts, streams, events


@question("contexts", "`cuCtxGetDevice` without a context")
def no_context(ask: Libraries) -> str:
    driver = ask.cu
    driver.cuInit(0)
    return str(driver.cuCtxGetDevice(byref(c_int())))


@question("contexts", "`cuCtxPopCurrent` from an empty stack")
def pop_context(ask: Libraries) -> str:
    driver = ask.cu
    driver.cuInit(0)
    return str(driver.cuCtxPopCurrent_v2(byref(c_void_p())))


@question("contexts", "a stream is ready after it was synchronized")
def stream(ask: Libraries) -> str:
    driver, made = ask.ready, c_void_p()
    codes = [driver.cuStreamCreate(byref(made), 1), driver.cuStreamSynchronize(made), driver.cuStreamQuery(made)]
    return str(codes)


@question("contexts", "the time between events that were not recorded")
def event(ask: Libraries) -> str:
    driver, first, second = ask.ready, c_void_p(), c_void_p()
    codes = [driver.cuEventCreate(byref(first), 0), driver.cuEventCreate(byref(second), 0)]
    return str([*codes, driver.cuEventElapsedTime(byref(c_float()), first, second)])


@question("contexts", "a primary context that is released more often than retained")
def primary(ask: Libraries) -> str:
    driver = ask.ready
    return f"{driver.cuDevicePrimaryCtxRelease_v2(0)}, {driver.cuDevicePrimaryCtxRelease_v2(0)}"


# launch


@question("launch", "a kernel that adds one: the number in memory")
def launch(ask: Libraries) -> str:
    driver, pointer = _memory(ask)
    module, function = c_void_p(), c_void_p()
    driver.cuMemsetD8_v2(pointer, 0, c_size_t(PAGE))
    loaded = driver.cuModuleLoadData(byref(module), ADD_ONE + b"\0")
    found = driver.cuModuleGetFunction(byref(function), module, b"add_one")
    arguments = (c_void_p * 1)(ctypes.addressof(pointer))
    code = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
    number = c_uint(99)
    driver.cuCtxSynchronize()
    driver.cuMemcpyDtoH_v2(byref(number), pointer, c_size_t(4))
    return f"{loaded}, {found}, {code}, {number.value}"


@question("launch", "a block of 4,096 threads")
def launch_much(ask: Libraries) -> str:
    driver, pointer = _memory(ask)
    module, function = c_void_p(), c_void_p()
    driver.cuModuleLoadData(byref(module), ADD_ONE + b"\0")
    driver.cuModuleGetFunction(byref(function), module, b"add_one")
    arguments = (c_void_p * 1)(ctypes.addressof(pointer))
    return str(driver.cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, None, arguments, None))


@question("launch", "the CUDA runtime: `cudaGetDeviceCount`, `cudaMalloc`")
def runtime(_ask: Libraries) -> str:
    for path in ("libcudart.so.12", "libcudart.so.13", *(map(str, _wheel_libraries("libcudart.so.1?")))):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        codes = library.cudaGetDeviceCount(byref(c_int())), library.cudaMalloc(byref(c_void_p()), c_size_t(PAGE))
        return f"{codes[0]}, {codes[1]}"
    return NO_LIBRARY


def _wheel_libraries(pattern: str) -> list[Path]:
    return [path for entry in sys.path for path in sorted(Path(entry).glob(f"nvidia/*/lib/{pattern}"))]


# NVML


def _device(ask: Libraries) -> tuple[Any, c_void_p]:
    library, device = ask.nvml, c_void_p()
    code = library.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
    if code:
        raise EarlyAnswerError(f"nvmlDeviceGetHandleByIndex: {code}")
    return library, device


@question("NVML", "the driver's release, and its CUDA version")
def nvml_versions(ask: Libraries) -> str:
    library, text, number = ask.nvml, create_string_buffer(96), c_int()
    codes = library.nvmlSystemGetDriverVersion(text, 96), library.nvmlSystemGetCudaDriverVersion_v2(byref(number))
    return f"{codes[0]}, {codes[1]}, {bool(text.value)}, {number.value >= 12000}"


@question("NVML", "NVML and the driver name the same GPU and CUDA version")
def nvml_agrees(ask: Libraries) -> str:
    library, device = _device(ask)
    theirs, text, number = create_string_buffer(96), create_string_buffer(96), c_int()
    library.nvmlDeviceGetName(device, theirs, 96)
    library.nvmlSystemGetCudaDriverVersion_v2(byref(number))
    driver, version = ask.cu, c_int()
    driver.cuInit(0)
    driver.cuDeviceGetName(text, 96, 0)
    driver.cuDriverGetVersion(byref(version))
    return f"{theirs.value == text.value}, {number.value == version.value}"


@question("NVML", "a call before `nvmlInit`")
def nvml_before(_ask: Libraries) -> str:
    return str(ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetCount_v2(byref(c_uint())))


@question("NVML", "device 99")
def nvml_no_device(ask: Libraries) -> str:
    return str(ask.nvml.nvmlDeviceGetHandleByIndex_v2(99, byref(c_void_p())))


#: What NVML is asked by one call: function, arguments after the device, what is asked.
_FIELDS: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "nvml_uuid": ("nvmlDeviceGetUUID", (96,), "UUID"),
    "nvml_memory": ("nvmlDeviceGetMemoryInfo", (), "memory"),
    "nvml_bar1": ("nvmlDeviceGetBAR1MemoryInfo", (), "BAR1 memory"),
    "nvml_temperature": ("nvmlDeviceGetTemperature", (0,), "temperature"),
    "nvml_power": ("nvmlDeviceGetPowerUsage", (), "power"),
    "nvml_energy": ("nvmlDeviceGetTotalEnergyConsumption", (), "energy"),
    "nvml_utilization": ("nvmlDeviceGetUtilizationRates", (), "utilization"),
    "nvml_clock": ("nvmlDeviceGetClockInfo", (1,), "clocks"),
    "nvml_state": ("nvmlDeviceGetPerformanceState", (), "performance state"),
    "nvml_throttle": ("nvmlDeviceGetCurrentClocksThrottleReasons", (), "reasons of throttling"),
    "nvml_pci": ("nvmlDeviceGetPciInfo_v3", (), "PCI"),
    "nvml_pcie": ("nvmlDeviceGetPcieThroughput", (0,), "throughput of PCIe"),
    "nvml_ecc": ("nvmlDeviceGetTotalEccErrors", (1, 0), "errors of memory"),
    "nvml_mig": ("nvmlDeviceGetMigMode", ("out",), "MIG mode"),
    "nvml_fan": ("nvmlDeviceGetFanSpeed", (), "fan, which an H100 does not have"),
    "nvml_serial": ("nvmlDeviceGetSerial", (96,), "serial number"),
    "nvml_persistence": ("nvmlDeviceGetPersistenceMode", (), "persistence mode"),
    "nvml_remapped": ("nvmlDeviceGetRemappedRows", ("out", "out", "out"), "remapped rows"),
}
#: Functions whose last argument is the output; the output of the others follows the device.
_LAST = {"nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPcieThroughput"}
_LAST.add("nvmlDeviceGetTotalEccErrors")


def _field(function: str, arguments: tuple[Any, ...]) -> Question:
    def one(ask: Libraries) -> str:
        library, device = _device(ask)
        room, more = create_string_buffer(1024), [create_string_buffer(64) for _ in arguments]
        given = [more[at] if one == "out" else c_uint(one) for at, one in enumerate(arguments)]
        inputs = [*given, room] if function in _LAST else [room, *given]
        return str(getattr(library, function)(device, *inputs))

    return one


for _name, (_function, _arguments, _text) in _FIELDS.items():
    QUESTIONS[_name] = ("NVML", _text, _field(_function, _arguments))


# Python


@question("Python", "cuda.bindings: the device and its context")
def bindings(_ask: Libraries) -> str:
    from cuda.bindings import driver

    codes = [driver.cuInit(0)[0]]
    error, device = driver.cuDeviceGet(0)
    codes.append(error)
    error, context = driver.cuDevicePrimaryCtxRetain(device)
    codes += [error, driver.cuCtxSetCurrent(context)[0]]
    return str([int(one) for one in codes])


@question("Python", "cuda.core: compile, link on the driver, load, and find the kernel")
def cuda_core(ask: Libraries) -> str:
    from cuda import core

    device = core.Device(0)
    device.set_current()
    codes = [core.ObjectCode.from_ptx(ask.read(f"{one}.ptx"), name=one) for one in ("main", "function")]
    linked = core.Linker(*codes, options=core.LinkerOptions(arch="sm_90")).link("cubin")
    return f"a kernel with registers: {linked.get_kernel('apply_transform').attributes.num_regs > 0}"


@question("Python", "nvidia-ml-py: what `nvidia-smi` shows")
def pynvml(_ask: Libraries) -> str:
    import pynvml

    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    shown = (
        pynvml.nvmlDeviceGetName(device),
        pynvml.nvmlDeviceGetTemperature(device, 0),
        pynvml.nvmlDeviceGetUtilizationRates(device).gpu,
        pynvml.nvmlDeviceGetPowerUsage(device),
    )
    return f"{len(shown)} fields, {0 <= memory.used <= memory.total}"


def ask(folder: Path, name: str) -> str:
    """Ask one question; return the answer."""
    try:
        return QUESTIONS[name][2](Libraries(folder))
    except EarlyAnswerError as answer:
        return str(answer)
    except AttributeError as error:
        return f"{NO_FUNCTION}: {str(error).rpartition(' ')[2]}" if "undefined symbol" in str(error) else repr(error)
    except OSError as error:
        return NO_LIBRARY if "cannot open shared object" in str(error) else repr(error)
    except Exception as error:  # noqa: BLE001 # what a library of Python raises is its answer
        return f"{type(error).__name__}: {error}".splitlines()[0]


def ask_all(folder: Path) -> None:
    """Print the answer to every question, each from a forked process: quicker, where no library is loaded early."""
    for name in QUESTIONS:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            print(f"{name}: {ask(folder, name)}", flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"{name}: crash: {status}")


if __name__ == "__main__":
    if sys.argv[2:]:
        print(f"\nanswer: {ask(Path(sys.argv[1]), sys.argv[2])}", flush=True)
    else:
        ask_all(Path(sys.argv[1]))
