"""``cuda.bindings.runtime`` on an emulated driver: its Python functions are answered through ``cuda.bindings.driver``.

The CUDA runtime inside cuda-bindings needs undocumented tables of the driver, which an emulated one does not have. Where
the driver API has a function for the same purpose, that one answers; every other function of the runtime answers as the
runtime itself does there, cudaErrorNotSupported, and is counted as refused. Cython code that calls the runtime's C
functions is not reached, nor is a runtime inside another library.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from .imports import ImportWatch

if TYPE_CHECKING:
    from ..emulator.control import DriverControl

__all__ = ["RENAMED", "SAME", "Runtime", "serve"]

_MODULE: Final = "cuda.bindings.runtime"
_SUCCESS, _INVALID_VALUE, _INVALID_DIRECTION, _INVALID_DEVICE = 0, 1, 21, 101
_NOT_READY, _NOT_SUPPORTED, _UNKNOWN = 600, 801, 999
_NOTE: Final = "the CUDA runtime does not run on an emulated driver, and the driver API has no function for it"
#: Answers without a driver, or passes the driver's own answer on.
_WORKS: Final = frozenset(
    {
        "cudaCreateChannelDesc",
        "cudaDriverGetVersion",
        "cudaGetErrorName",
        "cudaGetErrorString",
        "cudaRuntimeGetVersion",
    }
)
#: Functions whose namesake in the driver API takes the same arguments and gives the same results.
SAME: Final = """
ArrayGetPlane CtxResetPersistingL2Cache DeviceCanAccessPeer DeviceGetAttribute DeviceGetByPCIBusId
DeviceGetDefaultMemPool DeviceGetGraphMemAttribute DeviceGetMemPool DeviceGetP2PAttribute DeviceGetPCIBusId
DeviceGraphMemTrim DeviceSetGraphMemAttribute DeviceSetMemPool EventDestroy EventElapsedTime EventQuery EventRecord
EventRecordWithFlags EventSynchronize GraphAddChildGraphNode GraphAddDependencies GraphAddEmptyNode
GraphAddEventRecordNode GraphAddEventWaitNode GraphAddHostNode GraphAddMemFreeNode GraphChildGraphNodeGetGraph
GraphClone GraphCreate GraphDebugDotPrint GraphDestroy GraphDestroyNode GraphEventRecordNodeGetEvent
GraphEventRecordNodeSetEvent GraphEventWaitNodeGetEvent GraphEventWaitNodeSetEvent GraphExecChildGraphNodeSetParams
GraphExecDestroy GraphExecEventRecordNodeSetEvent GraphExecEventWaitNodeSetEvent GraphExecGetFlags
GraphExecHostNodeSetParams GraphGetEdges GraphGetNodes GraphGetRootNodes GraphHostNodeGetParams GraphHostNodeSetParams
GraphInstantiate GraphLaunch GraphMemFreeNodeGetParams GraphNodeFindInClone GraphNodeGetDependencies
GraphNodeGetDependentNodes GraphNodeGetEnabled GraphNodeGetType GraphNodeSetEnabled GraphReleaseUserObject
GraphRemoveDependencies GraphRetainUserObject GraphUpload IpcCloseMemHandle IpcGetEventHandle IpcGetMemHandle
IpcOpenEventHandle IpcOpenMemHandle LaunchHostFunc LibraryGetGlobal LibraryGetKernel LibraryGetKernelCount
LibraryGetManaged LibraryUnload MemAdvise MemGetDefaultMemPool MemGetInfo MemGetMemPool MemPoolCreate MemPoolDestroy
MemPoolExportPointer MemPoolExportToShareableHandle MemPoolGetAccess MemPoolGetAttribute
MemPoolImportFromShareableHandle MemPoolImportPointer MemPoolSetAccess MemPoolSetAttribute MemPoolTrimTo
MemPrefetchAsync MemSetMemPool OccupancyAvailableDynamicSMemPerBlock OccupancyMaxActiveBlocksPerMultiprocessor
OccupancyMaxActiveBlocksPerMultiprocessorWithFlags ProfilerStart ProfilerStop StreamAddCallback StreamAttachMemAsync
StreamBeginCapture StreamBeginCaptureToGraph StreamCopyAttributes StreamCreateWithPriority StreamDestroy
StreamEndCapture StreamGetCaptureInfo StreamGetDevice StreamGetFlags StreamGetId StreamGetPriority StreamIsCapturing
StreamQuery StreamSynchronize StreamUpdateCaptureDependencies StreamWaitEvent ThreadExchangeStreamCaptureMode
UserObjectRelease UserObjectRetain
""".split()
#: Functions whose driver function has another name, and takes the same arguments.
RENAMED: Final = {
    "DeviceGetCacheConfig": "CtxGetCacheConfig",
    "DeviceGetLimit": "CtxGetLimit",
    "DeviceGetStreamPriorityRange": "CtxGetStreamPriorityRange",
    "DeviceSetCacheConfig": "CtxSetCacheConfig",
    "DeviceSetLimit": "CtxSetLimit",
    "DeviceSynchronize": "CtxSynchronize",
    "EventCreateWithFlags": "EventCreate",
    "FreeArray": "ArrayDestroy",
    "FreeAsync": "MemFreeAsync",
    "FreeMipmappedArray": "MipmappedArrayDestroy",
    "GetMipmappedArrayLevel": "MipmappedArrayGetLevel",
    "GraphInstantiateWithFlags": "GraphInstantiate",
    "HostGetDevicePointer": "MemHostGetDevicePointer",
    "HostGetFlags": "MemHostGetFlags",
    "HostRegister": "MemHostRegister",
    "HostUnregister": "MemHostUnregister",
    "MallocAsync": "MemAllocAsync",
    "MallocFromPoolAsync": "MemAllocFromPoolAsync",
    "StreamCreateWithFlags": "StreamCreate",
}
#: Types of the runtime by those of the driver. A structure with a size has the same layout in both.
_HANDLES: Final = {
    "CUarray": "cudaArray_t",
    "CUevent": "cudaEvent_t",
    "CUgraph": "cudaGraph_t",
    "CUgraphExec": "cudaGraphExec_t",
    "CUgraphNode": "cudaGraphNode_t",
    "CUkernel": "cudaKernel_t",
    "CUlibrary": "cudaLibrary_t",
    "CUmemoryPool": "cudaMemPool_t",
    "CUmipmappedArray": "cudaMipmappedArray_t",
    "CUstream": "cudaStream_t",
    "CUuserObject": "cudaUserObject_t",
}
_ENUMS: Final = {
    "CUfunc_cache": "cudaFuncCache",
    "CUgraphNodeType": "cudaGraphNodeType",
    "CUstreamCaptureMode": "cudaStreamCaptureMode",
    "CUstreamCaptureStatus": "cudaStreamCaptureStatus",
}
_STRUCTURES: Final = {
    "CUDA_HOST_NODE_PARAMS": ("cudaHostNodeParams", 16),
    "CUgraphEdgeData": ("cudaGraphEdgeData", 8),
    "CUipcEventHandle": ("cudaIpcEventHandle_t", 64),
    "CUipcMemHandle": ("cudaIpcMemHandle_t", 64),
    "CUmemAccessDesc": ("cudaMemAccessDesc", 12),
    "CUmemLocation": ("cudaMemLocation", 8),
    "CUmemPoolProps": ("cudaMemPoolProps", 88),
    "CUmemPoolPtrExportData": ("cudaMemPoolPtrExportData", 64),
}


class _Buffer(ctypes.Structure):
    """Py_buffer, as Python's stable ABI has it."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _address(given: Any) -> int:
    """Return the address that an argument means: a number, a pointer of cuda-bindings, or an object with a buffer."""
    if given is None:
        return 0
    try:
        return int(given)
    except (TypeError, ValueError):
        buffer = _Buffer()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(given), ctypes.byref(buffer), 0)
        address = buffer.buf or 0
        # the caller holds the object while the call lasts
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
        return int(address)


class Runtime:
    """The functions of the CUDA runtime over the driver API.

    Parameters
    ----------
    runtime, driver : module
        ``cuda.bindings.runtime`` and ``cuda.bindings.driver``, or modules like these.
    refuse : callable
        Called with name and note of a function that cannot be answered.
    """

    def __init__(self, runtime: Any, driver: Any, refuse: Callable[[str, str], None]) -> None:
        self._runtime, self._driver, self._refuse = runtime, driver, refuse
        self._thread = threading.local()
        self._primary: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._of_runtime = self._converters()
        self._of_driver = {
            getattr(runtime, theirs): (getattr(driver, name), size)
            for name, (theirs, size) in _STRUCTURES.items()
            if hasattr(runtime, theirs) and hasattr(driver, name)
        }

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return every function of the module that is replaced, by name."""
        found = {}
        for name in dir(self._runtime):
            original = getattr(self._runtime, name)
            if name.startswith("cuda") and "function" in type(original).__name__ and name not in _WORKS:
                found[name] = self._replacement(name, original)
        return found

    def _replacement(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        answer = self._answer(name, original)

        @wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            result = answer(*arguments, **named)
            if isinstance(result, tuple) and len(result) == 1 and int(result[0]):
                # the runtime's own failure has a None for each result
                values = len(original(*arguments, **named)) - 1
                return (result[0], *[None] * values)
            return result

        return function

    def _answer(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        short = name.removeprefix("cuda")
        own = getattr(self, f"_{short}", None)
        if own is not None:
            return own  # type: ignore[no-any-return]
        counterpart = f"cu{short if short in SAME else RENAMED.get(short, '')}"
        if hasattr(self._driver, counterpart):
            return partial(self._forward, counterpart)
        return partial(self._refused, name, original)

    def _refused(self, name: str, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Let the runtime answer by itself, which is an error except for functions that need no driver."""
        answer = original(*arguments, **named)
        if isinstance(answer, tuple) and int(answer[0]) == _NOT_SUPPORTED:
            self._refuse(name, _NOTE)
        return answer

    # -- calls and their results

    def _forward(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a function of the driver in the context of the current device."""
        error = self._enter()
        if error:
            return self._failed(error)
        return self._call(function, *arguments)

    def _call(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        code, *values = getattr(self._driver, function)(*map(self._to_driver, arguments))
        if int(code):
            return self._failed(int(code))
        return (self._error(_SUCCESS), *map(self._to_runtime, values))

    def _error(self, code: int) -> Any:
        try:
            return self._runtime.cudaError_t(code)
        except ValueError:
            return self._runtime.cudaError_t(_UNKNOWN)

    def _failed(self, code: int) -> tuple[Any, ...]:
        if code != _NOT_READY:  # not an error
            self._thread.last = code
        return (self._error(code),)

    def _converters(self) -> dict[type, Callable[[Any], Any]]:
        runtime, driver = self._runtime, self._driver
        found: dict[type, Callable[[Any], Any]] = {}
        for name, theirs in _HANDLES.items():
            if hasattr(driver, name) and hasattr(runtime, theirs):
                found[getattr(driver, name)] = lambda value, make=getattr(runtime, theirs): make(int(value))
        for name, theirs in _ENUMS.items():
            if hasattr(driver, name) and hasattr(runtime, theirs):
                found[getattr(driver, name)] = lambda value, make=getattr(runtime, theirs): make(int(value))
        for name, (theirs, size) in _STRUCTURES.items():
            if hasattr(driver, name) and hasattr(runtime, theirs):
                found[getattr(driver, name)] = partial(_copied, getattr(runtime, theirs), size)
        if hasattr(driver, "CUdeviceptr"):
            found[driver.CUdeviceptr] = int
        if hasattr(driver, "CUdevice"):
            found[driver.CUdevice] = int
        return found

    def _to_runtime(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._to_runtime(one) for one in value]
        convert = self._of_runtime.get(type(value))
        return value if convert is None else convert(value)

    def _to_driver(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._to_driver(one) for one in value]
        known = self._of_driver.get(type(value))
        if known is not None:
            return _copied(*known, value)
        return value

    # -- the current device

    def _enter(self) -> int:
        """Make the primary context of the thread's device current, unless a context is."""
        code, context = self._driver.cuCtxGetCurrent()
        if int(code) == 3:  # not initialized yet
            (code,) = self._driver.cuInit(0)
            if int(code):
                return int(code)
            code, context = self._driver.cuCtxGetCurrent()
        if int(code) or int(context):
            return int(code)
        return self._select(getattr(self._thread, "device", 0))

    def _select(self, device: int) -> int:
        with self._lock:
            if device not in self._primary:
                code, context = self._driver.cuDevicePrimaryCtxRetain(device)
                if int(code):
                    return int(code)
                self._primary[device] = context
        (code,) = self._driver.cuCtxSetCurrent(self._primary[device])
        return int(code)

    def _count(self) -> tuple[int, int]:
        (code,) = self._driver.cuInit(0)
        if int(code):
            return int(code), 0
        code, count = self._driver.cuDeviceGetCount()
        return int(code), count

    def _GetDeviceCount(self) -> tuple[Any, ...]:
        code, count = self._count()
        return self._failed(code) if code else (self._error(_SUCCESS), count)

    def _GetDevice(self) -> tuple[Any, ...]:
        code, _ = self._count()
        if code:
            return self._failed(code)
        _, context = self._driver.cuCtxGetCurrent()
        if int(context):
            return self._call("cuCtxGetDevice")
        return self._error(_SUCCESS), getattr(self._thread, "device", 0)

    def _SetDevice(self, device: int) -> tuple[Any, ...]:
        code, count = self._count()
        if not code and not 0 <= device < count:
            code = _INVALID_DEVICE
        code = code or self._select(device)
        if code:
            return self._failed(code)
        self._thread.device = device
        return (self._error(_SUCCESS),)

    def _InitDevice(self, device: int, flags: int = 0, initFlags: int = 0) -> tuple[Any, ...]:  # noqa: N803, ARG002
        before = self._driver.cuCtxGetCurrent()[1] if not self._count()[0] else None
        code = self._select(device)
        if before is not None:
            self._driver.cuCtxSetCurrent(before)
        return self._failed(code) if code else (self._error(_SUCCESS),)

    def _DeviceReset(self) -> tuple[Any, ...]:
        code, device = self._GetDevice()
        if int(code):
            return (code,)
        with self._lock:
            self._primary.pop(device, None)
        answer = self._call("cuDevicePrimaryCtxReset", device)
        self._driver.cuCtxSetCurrent(None)  # the next call makes the context again
        return answer

    def _GetDeviceFlags(self) -> tuple[Any, ...]:
        return self._forward("cuCtxGetFlags")

    def _GetLastError(self) -> tuple[Any, ...]:
        code, self._thread.last = getattr(self._thread, "last", 0), 0
        return (self._error(code),)

    def _PeekAtLastError(self) -> tuple[Any, ...]:
        return (self._error(getattr(self._thread, "last", 0)),)

    def _GetDeviceProperties(self, device: int) -> tuple[Any, ...]:
        code, count = self._count()
        if not code and not 0 <= device < count:
            code = _INVALID_DEVICE
        if code:
            return self._failed(code)
        properties = self._runtime.cudaDeviceProp()
        driver = self._driver
        properties.name = driver.cuDeviceGetName(256, device)[1].rstrip(b"\0")
        properties.totalGlobalMem = driver.cuDeviceTotalMem(device)[1]
        ctypes.memmove(properties.getPtr() + 256, driver.cuDeviceGetUuid(device)[1].getPtr(), 16)  # uuid, after name
        for name, attribute in _PROPERTIES.items():
            if hasattr(properties, name) and hasattr(self._runtime.cudaDeviceAttr, attribute):
                numbers = [getattr(self._runtime.cudaDeviceAttr, one) for one in (attribute,)]
                setattr(properties, name, driver.cuDeviceGetAttribute(numbers[0], device)[1])
        for name, attributes in _PROPERTY_LISTS.items():
            numbers = [getattr(self._runtime.cudaDeviceAttr, one) for one in attributes]
            setattr(properties, name, [driver.cuDeviceGetAttribute(one, device)[1] for one in numbers])
        return self._error(_SUCCESS), properties

    # -- memory

    def _Malloc(self, size: int) -> tuple[Any, ...]:
        return self._forward("cuMemAlloc", size) if size else (self._error(_SUCCESS), 0)

    def _MallocHost(self, size: int) -> tuple[Any, ...]:
        return self._forward("cuMemAllocHost", size) if size else (self._error(_SUCCESS), 0)

    def _HostAlloc(self, size: int, flags: int) -> tuple[Any, ...]:
        return self._forward("cuMemHostAlloc", size, flags) if size else (self._error(_SUCCESS), 0)

    def _MallocManaged(self, size: int, flags: int) -> tuple[Any, ...]:
        return self._forward("cuMemAllocManaged", size, flags)

    def _MallocPitch(self, width: int, height: int) -> tuple[Any, ...]:
        return self._forward("cuMemAllocPitch", width, height, 4)

    def _Free(self, pointer: Any) -> tuple[Any, ...]:
        address = _address(pointer)
        if not address:  # what programs call to initialize the runtime
            code = self._enter()
            return self._failed(code) if code else (self._error(_SUCCESS),)
        return self._forward("cuMemFree", address)

    def _FreeHost(self, pointer: Any) -> tuple[Any, ...]:
        address = _address(pointer)
        return self._forward("cuMemFreeHost", address) if address else (self._error(_SUCCESS),)

    def _Memcpy(self, dst: Any, src: Any, count: int, kind: Any) -> tuple[Any, ...]:
        return self._copy("cuMemcpy", dst, src, count, kind)

    def _MemcpyAsync(self, dst: Any, src: Any, count: int, kind: Any, stream: Any) -> tuple[Any, ...]:
        return self._copy("cuMemcpyAsync", dst, src, count, kind, stream)

    def _copy(self, function: str, dst: Any, src: Any, count: int, kind: Any, *stream: Any) -> tuple[Any, ...]:
        if not 0 <= int(kind) <= 4:
            return self._failed(_INVALID_DIRECTION)
        if not count:
            code = self._enter()
            return self._failed(code) if code else (self._error(_SUCCESS),)
        if not (_address(dst) and _address(src)):
            return self._failed(_INVALID_VALUE)
        return self._forward(function, _address(dst), _address(src), count, *stream)

    def _MemcpyPeer(self, dst: Any, to: int, src: Any, origin: int, count: int) -> tuple[Any, ...]:
        del to, origin  # one address space
        return self._forward("cuMemcpy", _address(dst), _address(src), count)

    def _MemcpyPeerAsync(self, dst: Any, to: int, src: Any, origin: int, count: int, stream: Any) -> tuple[Any, ...]:
        del to, origin
        return self._forward("cuMemcpyAsync", _address(dst), _address(src), count, stream)

    def _Memcpy2D(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any, *stream: Any
    ) -> tuple[Any, ...]:
        if not 0 <= int(kind) <= 4:
            return self._failed(_INVALID_DIRECTION)
        box = self._driver.CUDA_MEMCPY2D()
        box.srcMemoryType = box.dstMemoryType = self._driver.CUmemorytype.CU_MEMORYTYPE_UNIFIED
        box.srcDevice, box.srcPitch = _address(src), spitch
        box.dstDevice, box.dstPitch = _address(dst), dpitch
        box.WidthInBytes, box.Height = width, height
        return self._forward("cuMemcpy2DAsync" if stream else "cuMemcpy2DUnaligned", box, *stream)

    _Memcpy2DAsync = _Memcpy2D

    def _Memset(self, pointer: Any, value: int, count: int) -> tuple[Any, ...]:
        return self._forward("cuMemsetD8", _address(pointer), value & 0xFF, count)

    def _MemsetAsync(self, pointer: Any, value: int, count: int, stream: Any) -> tuple[Any, ...]:
        return self._forward("cuMemsetD8Async", _address(pointer), value & 0xFF, count, stream)

    def _Memset2D(self, pointer: Any, pitch: int, value: int, width: int, height: int) -> tuple[Any, ...]:
        return self._forward("cuMemsetD2D8", _address(pointer), pitch, value & 0xFF, width, height)

    def _Memset2DAsync(
        self, pointer: Any, pitch: int, value: int, width: int, height: int, stream: Any
    ) -> tuple[Any, ...]:
        return self._forward("cuMemsetD2D8Async", _address(pointer), pitch, value & 0xFF, width, height, stream)

    # -- streams, events and what else has other arguments

    def _StreamCreate(self) -> tuple[Any, ...]:
        return self._forward("cuStreamCreate", 0)

    def _EventCreate(self) -> tuple[Any, ...]:
        return self._forward("cuEventCreate", 0)

    def _GraphConditionalHandleCreate(self, graph: Any, default: int, flags: int) -> tuple[Any, ...]:
        code = self._enter()
        if code:
            return self._failed(code)
        _, context = self._driver.cuCtxGetCurrent()
        return self._call("cuGraphConditionalHandleCreate", graph, context, default, flags)


def _copied(make: Callable[[], Any], size: int, value: Any) -> Any:
    """Return a new structure with the bytes of one that has the same layout."""
    made = make()
    ctypes.memmove(made.getPtr(), value.getPtr(), size)
    return made


#: Members of cudaDeviceProp and the names of their attributes in cudaDeviceAttr.
_PROPERTIES: Final = {
    "major": "cudaDevAttrComputeCapabilityMajor",
    "minor": "cudaDevAttrComputeCapabilityMinor",
    "ECCEnabled": "cudaDevAttrEccEnabled",
    "regsPerBlock": "cudaDevAttrMaxRegistersPerBlock",
    "regsPerMultiprocessor": "cudaDevAttrMaxRegistersPerMultiprocessor",
    "sharedMemPerBlock": "cudaDevAttrMaxSharedMemoryPerBlock",
    "sharedMemPerBlockOptin": "cudaDevAttrMaxSharedMemoryPerBlockOptin",
    "sharedMemPerMultiprocessor": "cudaDevAttrMaxSharedMemoryPerMultiprocessor",
    "reservedSharedMemPerBlock": "cudaDevAttrReservedSharedMemoryPerBlock",
    "totalConstMem": "cudaDevAttrTotalConstantMemory",
    "memPitch": "cudaDevAttrMaxPitch",
    "memoryBusWidth": "cudaDevAttrGlobalMemoryBusWidth",
    "multiProcessorCount": "cudaDevAttrMultiProcessorCount",
    "persistingL2CacheMaxSize": "cudaDevAttrMaxPersistingL2CacheSize",
    "streamPrioritiesSupported": "cudaDevAttrStreamPrioritiesSupported",
    "pciBusID": "cudaDevAttrPciBusId",
    "pciDeviceID": "cudaDevAttrPciDeviceId",
    "pciDomainID": "cudaDevAttrPciDomainId",
    **{
        name: f"cudaDevAttr{name[0].upper()}{name[1:]}"
        for name in (
            *("accessPolicyMaxWindowSize", "asyncEngineCount", "canMapHostMemory", "canUseHostPointerForRegisteredMem"),
            *("clusterLaunch", "computePreemptionSupported", "concurrentKernels", "concurrentManagedAccess"),
            *("cooperativeLaunch", "directManagedMemAccessFromHost", "globalL1CacheSupported", "hostNumaId"),
            *("hostNativeAtomicSupported", "hostRegisterReadOnlySupported", "hostRegisterSupported", "integrated"),
            *("ipcEventSupported", "isMultiGpuBoard", "l2CacheSize", "localL1CacheSupported", "managedMemory"),
            *("maxBlocksPerMultiProcessor", "maxThreadsPerBlock", "maxThreadsPerMultiProcessor", "memoryPoolsSupported"),
            *("multiGpuBoardGroupID", "pageableMemoryAccess", "pageableMemoryAccessUsesHostPageTables"),
            *("sparseCudaArraySupported", "surfaceAlignment", "tccDriver", "textureAlignment", "texturePitchAlignment"),
            *("timelineSemaphoreInteropSupported", "unifiedAddressing", "unifiedFunctionPointers", "warpSize"),
        )
    },
}
_PROPERTY_LISTS: Final = {
    "maxThreadsDim": ("cudaDevAttrMaxBlockDimX", "cudaDevAttrMaxBlockDimY", "cudaDevAttrMaxBlockDimZ"),
    "maxGridSize": ("cudaDevAttrMaxGridDimX", "cudaDevAttrMaxGridDimY", "cudaDevAttrMaxGridDimZ"),
}


def serve(control: DriverControl) -> Callable[[], None]:
    """Answer the functions of ``cuda.bindings.runtime`` from now on, imported already or later; returns what undoes it."""
    before: dict[str, Any] = {}
    served: list[ModuleType] = []

    def replace(module: ModuleType) -> None:
        try:
            from cuda.bindings import driver  # part of the same package
        except ImportError:
            return
        served.append(module)
        for name, function in Runtime(module, driver, control.refuse).functions().items():
            before[name] = getattr(module, name)
            setattr(module, name, function)

    def undo() -> None:
        imports.stop()
        for module in served:
            for name, function in before.items():
                setattr(module, name, function)

    imports = ImportWatch(replace)
    imports.watch([_MODULE])
    return undo
