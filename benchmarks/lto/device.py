"""The GPU through ctypes: link, load, launch, and time with events; clocks from NVML."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from .kernels import BLOCK, Problem
from .libraries import Linked, Refused

#: CUDA numbers of the kinds for cuLinkAddData; LTO-IR is CU_JIT_INPUT_NVVM, which CUDA 12 deprecated.
DRIVER_TYPES = {"cubin": 0, "ptx": 1, "whole-ptx": 1, "lto": 5}
#: CUjit_option: info and error log with their sizes.
LOGS = (3, 4, 5, 6)
LOG_SIZE = 16384
#: CUDA_ERROR_NOT_SUPPORTED.
NOT_SUPPORTED = 801
#: CUfunction_attribute, by the names of the figures.
ATTRIBUTES = {"registers": 4, "shared bytes": 1, "local bytes": 3}
#: Bytes that are written between two launches, to empty an L2 cache of at most 60 MiB.
FLUSH = 256 << 20


class Device:
    """Device 0, with its primary context current."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.emulated = hasattr(self.library, "cudalinkEmulatorVersion")
        self.context, device = c_void_p(), c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.number = device
        self.stream, self.events = c_void_p(), (c_void_p(), c_void_p())
        self.call("cuStreamCreate", byref(self.stream), 1)
        for event in self.events:
            self.call("cuEventCreate", byref(event), 0)

    def call(self, function: str, *arguments: object) -> None:
        """Call a driver function; raise `Refused` if it does not return success."""
        code = getattr(self.library, function)(*arguments)
        if code:
            raise Refused(function, code)

    def launch(self, function: str, *arguments: object) -> None:
        """Call a function that launches; an emulated driver answers 801, as it runs no kernels."""
        code = getattr(self.library, function)(*arguments)
        if code and not (self.emulated and code == NOT_SUPPORTED):
            raise Refused(function, code)

    def attribute(self, number: int) -> int:
        """Return an attribute of the device."""
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), number, self.number)
        return value.value

    def name(self) -> str:
        """Return the name of the device."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), self.number)
        return text.value.decode()

    def bus(self) -> str:
        """Return the PCI bus identifier of the device."""
        text = ctypes.create_string_buffer(64)
        self.call("cuDeviceGetPCIBusId", text, len(text), self.number)
        return text.value.decode()

    def link(self, kind: str, units: Sequence[bytes]) -> Linked:
        """Link units of one kind with the driver's linker; raise `Refused` with its log."""
        size, image, state = c_size_t(), c_void_p(), c_void_p()
        logs = [ctypes.create_string_buffer(LOG_SIZE) for _ in range(2)]
        keys = (c_int * 4)(*LOGS)
        values = (c_void_p * 4)(ctypes.addressof(logs[0]), LOG_SIZE, ctypes.addressof(logs[1]), LOG_SIZE)
        start = time.perf_counter()
        self.call("cuLinkCreate_v2", 4, keys, values, byref(state))
        try:
            for number, unit in enumerate(units):
                name, length = f"unit{number}".encode(), c_size_t(len(unit))
                added = (DRIVER_TYPES[kind], c_char_p(unit), length, name, 0, None, None)
                self.call("cuLinkAddData_v2", state, *added)
            self.call("cuLinkComplete", state, byref(image), byref(size))
            linked = ctypes.string_at(image, size.value)
            seconds = time.perf_counter() - start
        except Refused as refused:
            raise Refused(refused.call, refused.code, logs[1].value.decode(errors="replace").strip()) from None
        finally:
            self.call("cuLinkDestroy", state)
        return Linked(linked, seconds)

    def allocate(self, size: int) -> c_uint64:
        """Allocate device memory."""
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer

    def free(self, pointers: Sequence[c_uint64]) -> None:
        """Free device memory."""
        for pointer in pointers:
            self.call("cuMemFree_v2", pointer)

    def to_device(self, pointer: c_uint64, array: Any) -> None:
        """Copy a NumPy array to the device, and wait: the stream does not wait for copies."""
        self.call("cuMemcpyHtoD_v2", pointer, c_void_p(array.ctypes.data), c_size_t(array.nbytes))
        self.wait()

    def from_device(self, array: Any, pointer: c_uint64) -> None:
        """Copy device memory to a NumPy array."""
        self.call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), pointer, c_size_t(array.nbytes))

    def wait(self) -> None:
        """Wait for everything that was launched."""
        self.call("cuCtxSynchronize")

    def between_events(self, enqueue: Any) -> float:
        """Return the seconds between two events around what is enqueued on the stream."""
        milliseconds = c_float()
        self.call("cuEventRecord", self.events[0], self.stream)
        enqueue()
        self.call("cuEventRecord", self.events[1], self.stream)
        self.call("cuEventSynchronize", self.events[1])
        self.call("cuEventElapsedTime", byref(milliseconds), *self.events)
        return max(milliseconds.value, 1e-6) * 1e-3  # nothing takes no time, except on an emulated driver


class Module:
    """A loaded image and its kernel."""

    def __init__(self, device: Device, image: bytes, kernel: str) -> None:
        self.device = device
        self.module, self.function = c_void_p(), c_void_p()
        start = time.perf_counter()
        device.call("cuModuleLoadData", byref(self.module), c_char_p(image))
        device.call("cuModuleGetFunction", byref(self.function), self.module, kernel.encode())
        self.load_seconds = time.perf_counter() - start

    def facts(self) -> dict[str, int]:
        """Return registers, memory and occupancy of the kernel."""
        attributes = {}
        for name, number in ATTRIBUTES.items():
            value = c_int()
            self.device.call("cuFuncGetAttribute", byref(value), number, self.function)
            attributes[name] = value.value
        blocks = c_int()
        size = c_size_t(0)
        self.device.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(blocks), self.function, BLOCK, size)
        return {**attributes, "blocks per multiprocessor": blocks.value}

    def unload(self) -> None:
        """Unload the image."""
        self.device.call("cuModuleUnload", self.module)


class Launches:
    """A number of launches of one kernel on one problem, as a graph: no time passes on the host between them."""

    def __init__(self, module: Module, problem: Problem, pointers: Sequence[c_uint64], count: int) -> None:
        self.device, self.count = module.device, count
        scalars = [c_int(value) for value in problem.scalars]
        self._kept = [*pointers, *scalars]
        self._arguments = (c_void_p * len(self._kept))(*[ctypes.addressof(kept) for kept in self._kept])
        self._function, self._grid = module.function, problem.grid
        self.graph, self.executable = c_void_p(), c_void_p()
        device = self.device
        device.call("cuStreamBeginCapture_v2", device.stream, 2)
        for _ in range(count):
            self.once()
        device.call("cuStreamEndCapture", device.stream, byref(self.graph))
        device.call("cuGraphInstantiateWithFlags", byref(self.executable), self.graph, c_uint64(0))

    def once(self) -> None:
        """Launch the kernel once on the stream."""
        x, y = self._grid
        shape = (x, y, 1, BLOCK, 1, 1, c_uint(0))
        self.device.launch("cuLaunchKernel", self._function, *shape, self.device.stream, self._arguments, None)

    def all(self) -> None:
        """Launch the graph on the stream."""
        self.device.launch("cuGraphLaunch", self.executable, self.device.stream)

    def seconds(self) -> float:
        """Return the seconds of one launch, the mean of the graph's."""
        return self.device.between_events(self.all) / self.count

    def cold_seconds(self, flush: c_uint64, size: int) -> float:
        """Return the seconds of one launch after other data has filled the L2 cache."""
        self.device.call("cuMemsetD8Async", flush, 1, c_size_t(size), self.device.stream)
        return self.device.between_events(self.once)

    def close(self) -> None:
        """Destroy the graph."""
        self.device.call("cuGraphExecDestroy", self.executable)
        self.device.call("cuGraphDestroy", self.graph)


class Clocks:
    """The clocks, temperature and power of a device, from NVML."""

    def __init__(self, bus: str) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), byref(self._device))

    def _call(self, function: str, *arguments: object) -> None:
        code = getattr(self._nvml, function)(*arguments)
        if code:
            raise Refused(function, code)

    def _number(self, function: str, *arguments: object) -> int | None:
        value = c_uint()
        try:
            self._call(function, self._device, *arguments, byref(value))
        except (Refused, AttributeError):
            return None
        return value.value

    def driver(self) -> str:
        """Return the release of the driver, such as ``"580.159.04"``."""
        text = ctypes.create_string_buffer(80)
        self._call("nvmlSystemGetDriverVersion", text, len(text))
        return text.value.decode()

    def read(self) -> dict[str, int | None]:
        """Return the clocks in MHz, the temperature in degrees Celsius, the power in watts, the reasons of slowing."""
        reasons = c_uint64()
        try:
            self._call("nvmlDeviceGetCurrentClocksThrottleReasons", self._device, byref(reasons))
            slowed: int | None = reasons.value
        except (Refused, AttributeError):
            slowed = None
        power = self._number("nvmlDeviceGetPowerUsage")
        return {
            "sm": self._number("nvmlDeviceGetClockInfo", 1),
            "memory": self._number("nvmlDeviceGetClockInfo", 2),
            "temperature": self._number("nvmlDeviceGetTemperature", 0),
            "power": None if power is None else power // 1000,
            "reasons": slowed,
        }

    def most(self) -> dict[str, int | None]:
        """Return the highest clocks in MHz."""
        return {name: self._number("nvmlDeviceGetMaxClockInfo", number) for name, number in (("sm", 1), ("memory", 2))}
