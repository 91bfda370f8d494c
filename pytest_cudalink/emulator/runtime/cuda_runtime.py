"""``cuda.bindings.runtime`` on an emulated driver: its Python functions are answered by ``cuda.bindings.driver``.

The CUDA runtime inside cuda-bindings needs undocumented tables of the driver, which an emulated one does not have.
Where the driver API has a function for the same purpose, that one answers; every other function of the runtime answers
as the runtime itself does there, cudaErrorNotSupported, and is counted as refused. Cython code that calls the
runtime's C functions is not reached, nor is a runtime inside another library.
"""

import ctypes
import inspect
import threading
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final

from ...base.tables import read_table
from .cuda_runtime_arrays import Arrays, CallError, RefusedError, address_of, expect

_SUCCESS, _INVALID_VALUE, _NOT_INITIALIZED, _INVALID_DEVICE = 0, 1, 3, 101
_NOT_READY, _NOT_SUPPORTED, _UNKNOWN = 600, 801, 999
_GREEN_WITH_STREAM, _NON_BLOCKING = 1, 1  # CU_GREEN_CTX_DEFAULT_STREAM, CU_STREAM_NON_BLOCKING
_NOTE: Final = "the CUDA runtime does not run on an emulated driver, and the driver API has no function for it"


class Runtime(Arrays):
    """The functions of the CUDA runtime over the driver API.

    `runtime`, `driver`: ``cuda.bindings.runtime`` and ``cuda.bindings.driver``, or modules like these.
    `refuse`: called with name and note of a function that cannot be answered.
    """

    def __init__(self, runtime: Any, driver: Any, refuse: Callable[[str, str], None]) -> None:
        super().__init__(runtime, driver, read_table("emulator/cuda_runtime.toml"))
        self._refuse = refuse
        self._thread = threading.local()
        self._primary: dict[int, Any] = {}
        self._green: dict[int, Any] = {}  # by the number of the execution context, which is what programs have
        self._lock = threading.Lock()
        self._of_runtime: dict[Any, Callable[[Any], Any]] = {driver.CUdeviceptr: int, driver.CUdevice: int}
        self._of_driver: dict[Any, Callable[[Any], Any]] = {}
        # earlier bindings lack some types, with the functions that return them
        for name, theirs in self._table["numbers"].items():
            self._of_runtime[getattr(driver, name, None)] = partial(_numbered, getattr(runtime, theirs, None))
        for name, (theirs, size) in self._table["structures"].items():
            ours, other = getattr(driver, name, None), getattr(runtime, theirs, None)
            self._of_runtime[ours] = partial(_copied, other, size)
            self._of_driver[other] = partial(_copied, ours, size)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return every function of the module that is replaced, by name."""
        replaced = {}
        for name in dir(self._runtime):
            original = getattr(self._runtime, name)
            works = name.removeprefix("cuda") in self._table["works"]
            if name.startswith("cuda") and "function" in type(original).__name__ and not works:
                replaced[name] = self._replacement(name, original)
        return replaced

    def _replacement(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        answer = self._answer(name, original)

        @wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            if named:
                arguments = inspect.signature(original).bind(*arguments, **named).args
            try:
                return answer(*arguments)
            except CallError as failure:
                error = self._failed(*failure.args)
            except RefusedError:
                self._refuse(name, "the driver API has no counterpart for what these arguments ask")
                error = self._failed(_NOT_SUPPORTED)
            # the runtime's own failure has a None for each result
            return (error, *[None] * (len(original(*arguments)) - 1))

        return function

    def _answer(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        short = name.removeprefix("cuda")
        if row := self._table["own"].get(short) or self._table["arrays"].get(short):
            method, *counterparts = row.split()
            return partial(getattr(self, f"_{method}"), *counterparts)
        same, renamed = self._table["same"], self._table["renamed"]
        counterpart = f"cu{short if short in same else renamed.get(short)}"
        if hasattr(self._driver, counterpart):
            return partial(self._forward, counterpart)
        return partial(self._refused, name, original)

    def _refused(self, name: str, original: Callable[..., Any], *arguments: Any) -> Any:
        """Let the runtime answer by itself, which is an error except for functions that need no driver."""
        answer = original(*arguments)
        if isinstance(answer, tuple) and int(answer[0]) == _NOT_SUPPORTED:
            self._refuse(name, _NOTE)
        return answer

    # -- calls and their results

    def _forward(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of the driver in the context of the current device."""
        if function in self._table["without_context"]:
            self._count()
        else:
            self._enter()
        return self._call(function, *arguments)

    def _call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of the driver in whichever context is current."""
        return self._result(*map(self._to_runtime, self._ask(function, *map(self._to_driver, arguments))))

    def _ask(self, function: str, *arguments: Any) -> list[Any]:
        """Return the driver's values of a function that has to succeed."""
        code, *values = getattr(self._driver, function)(*arguments)
        if int(code):
            raise CallError(int(code))
        return list(values)

    def _result(self, *values: Any) -> tuple[Any, ...]:
        """Return the results of a call that succeeds."""
        return (self._error(_SUCCESS), *values)

    def _error(self, code: int) -> Any:
        try:
            return self._runtime.cudaError_t(code)
        except ValueError:
            return self._runtime.cudaError_t(_UNKNOWN)

    def _failed(self, code: int) -> Any:
        if code != _NOT_READY:  # not an error
            self._thread.last = code
        return self._error(code)

    def _to_runtime(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._to_runtime(element) for element in value]
        convert = self._of_runtime.get(type(value))
        return value if convert is None else convert(value)

    def _to_driver(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._to_driver(element) for element in value]
        convert = self._of_driver.get(type(value))
        return value if convert is None else convert(value)

    # -- the current device

    def _enter(self) -> None:
        """Make the primary context of the thread's device current, unless a context is."""
        code, context = self._driver.cuCtxGetCurrent()
        if int(code) == _NOT_INITIALIZED:
            self._ask("cuInit", 0)
            (context,) = self._ask("cuCtxGetCurrent")
        elif int(code):
            raise CallError(int(code))
        if not int(context):
            self._select(getattr(self._thread, "device", 0))

    def _select(self, device: int) -> None:
        with self._lock:
            if device not in self._primary:
                (self._primary[device],) = self._ask("cuDevicePrimaryCtxRetain", device)
        self._ask("cuCtxSetCurrent", self._primary[device])

    def _count(self) -> int:
        self._ask("cuInit", 0)
        (count,) = self._ask("cuDeviceGetCount")
        return int(count)

    def _get_device_count(self) -> tuple[Any, ...]:
        return self._result(self._count())

    def _check(self, device: int) -> None:
        """Refuse a device that is not there."""
        expect(0 <= device < self._count(), _INVALID_DEVICE)

    def _get_device(self) -> tuple[Any, ...]:
        self._count()
        if int(self._driver.cuCtxGetCurrent()[1]):
            return self._call("cuCtxGetDevice")
        return self._result(getattr(self._thread, "device", 0))

    def _set_device(self, device: int) -> tuple[Any, ...]:
        self._check(device)
        self._select(device)
        self._thread.device = device
        return self._result()

    def _init_device(self, device: int, *_flags: int) -> tuple[Any, ...]:
        self._count()
        _, before = self._driver.cuCtxGetCurrent()
        try:
            self._select(device)
        finally:
            self._driver.cuCtxSetCurrent(before)
        return self._result()

    def _get_execution_context(self, device: int) -> tuple[Any, ...]:
        """Return the primary context of a device, which is made if need be; what is current stays so."""
        self._init_device(device)
        return self._result(self._to_runtime(self._primary[device]))

    def _green_ctx_create(self, description: Any, device: int, flags: int) -> tuple[Any, ...]:
        expect(not flags)
        # drivers before 13.3 make none without a default stream, which the runtime has no function to use
        _, green = self._forward("cuGreenCtxCreate", description, device, _GREEN_WITH_STREAM)
        code, context = self._forward("cuCtxFromGreenCtx", green)
        self._green[int(context)] = green
        return code, context

    def _destroy_execution_context(self, context: Any) -> tuple[Any, ...]:
        address = address_of(context)
        expect(address in self._green)
        return self._forward("cuGreenCtxDestroy", self._green[address])

    def _create_stream_in(self, context: Any, flags: int, priority: int) -> tuple[Any, ...]:
        green = self._green.get(address_of(context))
        if green is not None:  # its streams are never blocking, by cudaExecutionCtxStreamCreate's description
            return self._forward("cuGreenCtxStreamCreate", green, flags | _NON_BLOCKING, priority)
        self._count()
        self._ask("cuCtxPushCurrent", context)
        try:
            return self._call("cuStreamCreateWithPriority", flags, priority)
        finally:
            self._driver.cuCtxPopCurrent()

    def _split_multiprocessors(self, count: int, resource: Any, flags: int, groups: Any) -> tuple[Any, ...]:
        """Split multiprocessors; a group that asks for no number of them learns in its structure how many it got.

        Bindings before 13.3 take one structure, later ones a sequence of them.
        """
        ours = self._to_driver(groups)
        answer = self._forward("cuDevSmResourceSplit", count, resource, flags, ours)
        size = self._table["structures"]["CU_DEV_SM_RESOURCE_GROUP_PARAMS"][1]
        for given, made in zip(_sequence(groups), _sequence(ours), strict=True):
            ctypes.memmove(given.getPtr(), made.getPtr(), size)
        return answer

    def _device_reset(self) -> tuple[Any, ...]:
        _, device = self._get_device()
        with self._lock:
            self._primary.pop(device, None)
        answer = self._call("cuDevicePrimaryCtxReset", device)
        self._driver.cuCtxSetCurrent(None)  # the next call makes the context again
        return answer

    def _get_last_error(self) -> tuple[Any, ...]:
        code, self._thread.last = getattr(self._thread, "last", 0), 0
        return (self._error(code),)

    def _peek_at_last_error(self) -> tuple[Any, ...]:
        return (self._error(getattr(self._thread, "last", 0)),)

    def _get_device_properties(self, device: int) -> tuple[Any, ...]:
        self._check(device)
        properties = self._runtime.cudaDeviceProp()
        driver = self._driver
        # cuda-bindings pads it with b" ", which all of CPython shares, and which a program may have overwritten
        name = driver.cuDeviceGetName(256, device)[1].partition(b"\0")[0]
        properties.name = name.ljust(256, b"\0")
        properties.totalGlobalMem = driver.cuDeviceTotalMem(device)[1]
        ctypes.memmove(properties.getPtr() + 256, driver.cuDeviceGetUuid(device)[1].getPtr(), 16)  # uuid, after name
        for name, attributes in self._table["properties"].items():
            if hasattr(properties, name):
                several = [attributes] if isinstance(attributes, str) else attributes
                values = [self._attribute(attribute, device) for attribute in several]
                setattr(properties, name, values[0] if isinstance(attributes, str) else values)
        return self._result(properties)

    def _attribute(self, name: str, device: int) -> int:
        number = getattr(self._runtime.cudaDeviceAttr, f"cudaDevAttr{name}", None)
        code, value = self._driver.cuDeviceGetAttribute(number, device) if number is not None else (_INVALID_VALUE, 0)
        return 0 if int(code) else value

    # -- memory

    def _allocate(self, function: str, size: int, *flags: int) -> tuple[Any, ...]:
        return self._forward(function, size, *flags) if size else self._result(0)

    def _malloc_pitch(self, width: int, height: int) -> tuple[Any, ...]:
        return self._forward("cuMemAllocPitch", width, height, 4)

    def _free(self, pointer: Any) -> tuple[Any, ...]:
        address = address_of(pointer)
        if not address:  # what programs call to initialize the runtime
            self._enter()
            return self._result()
        return self._forward("cuMemFree", address)

    def _free_host(self, pointer: Any) -> tuple[Any, ...]:
        address = address_of(pointer)
        return self._forward("cuMemFreeHost", address) if address else self._result()

    def _memcpy(self, dst: Any, src: Any, count: int, _kind: Any, *stream: Any) -> tuple[Any, ...]:
        if not count:
            self._enter()
            return self._result()
        expect(address_of(dst) and address_of(src))
        function = "cuMemcpyAsync" if stream else "cuMemcpy"
        return self._forward(function, address_of(dst), address_of(src), count, *stream)

    def _memcpy_peer(self, dst: Any, _to: int, src: Any, _origin: int, *rest: Any) -> tuple[Any, ...]:
        function = "cuMemcpyAsync" if len(rest) == 2 else "cuMemcpy"  # one address space
        return self._forward(function, address_of(dst), address_of(src), *rest)

    def _memcpy_2d(self, *arguments: Any) -> tuple[Any, ...]:
        dst, dpitch, src, spitch, width, height, _, *stream = arguments
        box = self._driver.CUDA_MEMCPY2D()
        box.srcMemoryType = box.dstMemoryType = self._driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
        box.srcDevice, box.srcPitch = address_of(src), spitch
        box.dstDevice, box.dstPitch = address_of(dst), dpitch
        box.WidthInBytes, box.Height = width, height
        return self._forward("cuMemcpy2DAsync" if stream else "cuMemcpy2DUnaligned", box, *stream)

    def _memset(self, pointer: Any, value: int, count: int, *stream: Any) -> tuple[Any, ...]:
        function = "cuMemsetD8Async" if stream else "cuMemsetD8"
        return self._forward(function, address_of(pointer), value & 0xFF, count, *stream)

    def _memset_2d(self, pointer: Any, pitch: int, value: int, *rest: Any) -> tuple[Any, ...]:
        function = "cuMemsetD2D8Async" if len(rest) == 3 else "cuMemsetD2D8"
        return self._forward(function, address_of(pointer), pitch, value & 0xFF, *rest)

    def _malloc_3d(self, extent: Any) -> tuple[Any, ...]:
        code, *allocated = self._forward("cuMemAllocPitch", extent.width, extent.height * extent.depth, 4)
        pointer = self._runtime.cudaPitchedPtr()
        pointer.ptr, pointer.pitch = allocated
        pointer.xsize, pointer.ysize = extent.width, extent.height
        return code, pointer

    def _memset_3d(self, pointer: Any, value: int, extent: Any, *stream: Any) -> tuple[Any, ...]:
        slice_size = pointer.pitch * pointer.ysize
        for at in range(extent.depth):
            start = int(pointer.ptr) + at * slice_size
            self._memset_2d(start, pointer.pitch, value, extent.width, extent.height, *stream)
        return self._result()

    # -- streams, events and what else has other arguments

    def _create(self, function: str) -> tuple[Any, ...]:
        return self._forward(function, 0)

    def _graph_conditional_handle_create(self, graph: Any, default: int, flags: int) -> tuple[Any, ...]:
        return self._graph_conditional_handle_create_in(graph, None, default, flags)

    def _graph_conditional_handle_create_in(self, graph: Any, context: Any, *rest: int) -> tuple[Any, ...]:
        self._enter()
        if not address_of(context):
            _, context = self._driver.cuCtxGetCurrent()
        return self._call("cuGraphConditionalHandleCreate", graph, context, *rest)


def _numbered(make: Any, value: Any) -> Any:
    """Return a handle or a member of an enumeration that has the same number."""
    return make(int(value))


def _copied(make: Any, size: int, value: Any) -> Any:
    """Return a new structure with the bytes of one that has the same layout."""
    made = make()
    ctypes.memmove(made.getPtr(), value.getPtr(), size)
    return made


def _sequence(argument: Any) -> Sequence[Any]:
    """Return the structures that were given: several, one or none."""
    if argument is None:
        return ()
    return argument if isinstance(argument, list | tuple) else (argument,)
