"""Use the cudart stub on a GPU: memory, streams, events and a graph, instantiated by both generations of callers.

usage: runtime_stub.py STUB
"""

import ctypes
import json
import sys

BYTES = 1 << 20
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
FIRST_FIELDS = {"cudaGetDeviceProperties": 384, "cudaGetDeviceProperties_v2": 388}
MULTIPROCESSOR_COUNT = 16  # cudaDevAttrMultiProcessorCount


def main(path: str) -> None:  # noqa: PLR0915 (one use after the other)
    """Everything that must be 0 is checked at once; the rest is printed as JSON."""
    stub = ctypes.CDLL(path)
    stub.cudaGetErrorString.restype = stub.stub_cudart_describe.restype = ctypes.c_char_p
    size = ctypes.c_size_t

    def ok(name: str, *arguments: object) -> None:
        result = getattr(stub, name)(*arguments)
        assert result == 0, f"{name}: {result} {stub.cudaGetErrorString(result)!r}"

    count, device = ctypes.c_int(-1), ctypes.c_int(-1)
    ok("cudaGetDeviceCount", ctypes.byref(count))
    ok("cudaSetDevice", 0)
    ok("cudaGetDevice", ctypes.byref(device))
    attribute = ctypes.c_int()
    ok("cudaDeviceGetAttribute", ctypes.byref(attribute), MULTIPROCESSOR_COUNT, 0)
    processors = {}
    for name, offset in FIRST_FIELDS.items():
        room = ctypes.create_string_buffer(4096)
        ok(name, room, 0)
        processors[name] = int.from_bytes(room.raw[offset : offset + 4], "little")

    memory, two = ctypes.c_void_p(), ctypes.c_void_p()
    ok("cudaMalloc", ctypes.byref(memory), size(BYTES))
    ok("cudaMalloc", ctypes.byref(two), size(BYTES))
    source = (ctypes.c_ubyte * BYTES)(*[n * 7 % 256 for n in range(256)] * (BYTES // 256))
    back = (ctypes.c_ubyte * BYTES)()
    ok("cudaMemcpy", memory, source, size(BYTES), HOST_TO_DEVICE)
    ok("cudaMemcpy", back, memory, size(BYTES), DEVICE_TO_HOST)
    copied = bytes(back) == bytes(source)

    stream, start, stop = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    ok("cudaStreamCreateWithFlags", ctypes.byref(stream), 1)
    ok("cudaEventCreate", ctypes.byref(start))
    ok("cudaEventCreate", ctypes.byref(stop))
    ok("cudaEventRecord", start, stream)
    ok("cudaMemcpyAsync", two, memory, size(BYTES), 3, stream)
    ok("cudaEventRecord", stop, stream)
    ok("cudaStreamWaitEvent", stream, stop, 0)
    ok("cudaEventSynchronize", stop)
    elapsed = ctypes.c_float(-1)
    ok("cudaEventElapsedTime", ctypes.byref(elapsed), start, stop)

    graphs = {}
    for generation in (3, 5):
        graph, executable, node = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(1)
        log = ctypes.create_string_buffer(b"?" * 63, 64)
        ok("cudaMemset", two, 0, size(BYTES))
        ok("cudaStreamBeginCapture", stream, 0)
        ok("cudaMemsetAsync", two, 0x40 + generation, size(BYTES), stream)
        ok("cudaMemsetAsync", two, 0x50 + generation, size(BYTES // 2), stream)
        ok("cudaStreamEndCapture", stream, ctypes.byref(graph))
        if generation == 3:
            ok("cudaGraphInstantiate", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        else:
            ok("cudaGraphInstantiate", ctypes.byref(executable), graph, ctypes.byref(node), log, size(64))
        ok("cudaGraphLaunch", executable, stream)
        ok("cudaStreamSynchronize", stream)
        ok("cudaMemcpy", back, two, size(BYTES), DEVICE_TO_HOST)
        graphs[str(generation)] = [back[0], back[BYTES - 1], node.value if generation == 5 else None]
        ok("cudaGraphExecDestroy", executable)
        ok("cudaGraphDestroy", graph)

    free, total = size(), size()
    ok("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    ok("cudaEventDestroy", start)
    ok("cudaEventDestroy", stop)
    ok("cudaStreamDestroy", stream)
    ok("cudaFree", memory)
    ok("cudaFree", two)
    ok("cudaDeviceSynchronize")
    description = json.loads(stub.stub_cudart_describe())
    description |= {
        "count": count.value,
        "device": device.value,
        "attribute": attribute.value,
        "processors": processors,
        "copied": copied,
        "elapsed": elapsed.value,
        "graphs": graphs,
        "memory": [free.value, total.value],
        "invalid": stub.cudaSetDevice(12345),
        "last": [stub.cudaPeekAtLastError(), stub.cudaGetLastError(), stub.cudaGetLastError()],
    }
    print(json.dumps(description))


if __name__ == "__main__":
    main(*sys.argv[1:])
