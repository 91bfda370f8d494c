"""What child programs of these tests share: the driver of the process through ctypes, and small images to load."""

import ctypes
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from pytest_cudalink.emulator import control

ARTIFACTS = Path(__file__).parent.parent / "data" / "artifacts"

#: cuLinkAddData's input types.
CUBIN, PTX, FATBINARY, OBJECT, LIBRARY, NVVM = range(6)

#: A kernel with two parameters and shared memory, a function, a variable and a constant.
SMALL_PTX = """.version {version}
.target {target}
.address_size 64
.visible .global .align 4 .u32 answer = 42;
.visible .const .align 8 .f64 factor = 0d4000000000000000;
.visible .global .align 4 .b8 zeros[1024];
.visible .entry small(.param .u64 out, .param .u32 n)
.maxntid 128, 1, 1
{{
  .shared .align 4 .b8 room[256];
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, room;
  st.shared.u32 [%r2], %r1;
  ld.shared.u32 %r3, [%r2];
  st.global.u32 [%rd1], %r3;
  ret;
}}
.visible .entry other() {{ ret; }}
"""

cuda: Any = ctypes.CDLL("libcuda.so.1")
cuda.cuMemAlloc_v2.argtypes = [c_void_p, c_size_t]
for _name in ("cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpy"):
    getattr(cuda, _name).argtypes = [c_uint64, c_uint64, c_size_t]
for _name in ("cuMemFree_v2", "cuMemFreeHost"):
    getattr(cuda, _name).argtypes = [c_uint64]
for _bits in (8, 16, 32):
    getattr(cuda, f"cuMemsetD{_bits}_v2").argtypes = [c_uint64, ctypes.c_uint, c_size_t]
    getattr(cuda, f"cuMemsetD2D{_bits}_v2").argtypes = [c_uint64, c_size_t, ctypes.c_uint, c_size_t, c_size_t]


def ok(code: int) -> None:
    """Fail on anything but CUDA_SUCCESS."""
    assert code == 0, code


def new(call: Any, *arguments: Any) -> Any:
    """What a call makes where a type stands among its arguments, or else a handle in its first; it must succeed."""
    given = arguments if any(isinstance(argument, type) for argument in arguments) else (c_void_p, *arguments)
    made = [arg.from_buffer_copy(b"?" * ctypes.sizeof(arg)) for arg in given if isinstance(arg, type)]
    places = iter(made)
    ok(call(*(byref(next(places)) if isinstance(arg, type) else arg for arg in given)))
    return made[0] if len(made) == 1 else made


def get(call: Any, *arguments: Any) -> Any:
    """The value, or the values, of what `new` gives."""
    made = new(call, *arguments)
    return tuple(arg.value for arg in made) if isinstance(made, list) else made.value


_PLACE = (("type", c_uint), ("host", c_void_p), ("device", c_uint64), ("array", c_void_p))


def _sides(*fields: tuple[str, type]) -> tuple[tuple[str, type], ...]:
    return tuple((f"{side}{name}", kind) for side in ("from_", "to_") for name, kind in fields)


class Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        *_sides(("x", c_size_t), ("y", c_size_t), *_PLACE, ("pitch", c_size_t)),
        *(("width", c_size_t), ("height", c_size_t)),
    )


class Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER; `rows` is the height of a side."""

    _fields_ = (
        *_sides(
            *((name, c_size_t) for name in ("x", "y", "z", "level")),
            *_PLACE,
            *(("other", c_void_p), ("pitch", c_size_t), ("rows", c_size_t)),
        ),
        *((name, c_size_t) for name in ("width", "height", "depth")),
    )


def elsewhere(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def small_ptx(version: str = "8.0", target: str = "sm_70") -> bytes:
    """`SMALL_PTX` of a PTX ISA version."""
    return SMALL_PTX.format(version=version, target=target).encode()


def artifact(name: str) -> bytes:
    """One of tests/data/artifacts."""
    return (ARTIFACTS / name).read_bytes()


def start(device: int = 0) -> c_void_p:
    """Initialize, and make the primary context current."""
    ok(cuda.cuInit(0))
    context = c_void_p(get(cuda.cuDevicePrimaryCtxRetain, device))
    ok(cuda.cuCtxSetCurrent(context))
    return context


def allocate(size: int) -> int:
    """Address of device memory."""
    address = c_uint64()
    ok(cuda.cuMemAlloc_v2(byref(address), size))
    return address.value


def pinned(size: int = 4096) -> int:
    """Address of memory of the host that the device knows."""
    return int(get(cuda.cuMemHostAlloc, c_size_t(size), 0))


def managed(size: int = 4096) -> int:
    """Address of managed memory."""
    return int(get(cuda.cuMemAllocManaged, c_uint64, c_size_t(size), 1))


def stream(flags: int = 0) -> c_void_p:
    return c_void_p(get(cuda.cuStreamCreate, flags))


def event(flags: int = 0) -> c_void_p:
    return c_void_p(get(cuda.cuEventCreate, flags))


def load(image: bytes) -> tuple[int, c_void_p]:
    """Code and handle of cuModuleLoadData."""
    module = c_void_p()
    return cuda.cuModuleLoadData(byref(module), image), module


def function(module: c_void_p, name: str) -> tuple[int, c_void_p]:
    """Code and handle of cuModuleGetFunction."""
    address = c_void_p()
    return cuda.cuModuleGetFunction(byref(address), module, name.encode()), address


def loaded(image: bytes) -> c_void_p:
    """A module that must be loaded."""
    code, module = load(image)
    ok(code)
    return module


def kernel_of(module: c_void_p, name: str) -> c_void_p:
    """A function that must be in a module."""
    code, address = function(module, name)
    ok(code)
    return address


def link(inputs: Iterable[tuple[int, bytes]], logs: int = 4096) -> tuple[int, bytes, bytes]:
    """Link in a state of its own that is destroyed: the first code that is not 0, the image, the error log."""
    error = ctypes.create_string_buffer(logs)
    keys = (c_int * 2)(5, 6)
    values = (c_void_p * 2)(ctypes.addressof(error), logs)
    state, image, size = c_void_p(), c_void_p(), c_size_t()
    ok(cuda.cuLinkCreate_v2(2, keys, values, byref(state)))
    code, out = 0, b""
    for number, (kind, data) in enumerate(inputs):
        code = code or cuda.cuLinkAddData_v2(
            state, kind, data, c_size_t(len(data)), f"input{number}".encode(), 0, None, None
        )
    if not code:
        code = cuda.cuLinkComplete(state, byref(image), byref(size))
        out = ctypes.string_at(image, size.value) if not code else b""
    ok(cuda.cuLinkDestroy(state))
    return code, out, error.value


def events() -> list[dict[str, Any]]:
    """What this process's driver noted."""
    driver = control.attach(cuda)
    assert driver is not None
    return driver.events()


def last_event() -> dict[str, Any]:
    """The newest one."""
    driver = control.attach(cuda)
    assert driver is not None
    return driver.events(driver.event_count() - 1)[0]


def refused(name: str, *arguments: object) -> str:
    """The note of a call that must answer 801 NOT_SUPPORTED."""
    code = getattr(cuda, name)(*arguments)
    assert code == 801, (name, code)
    event = last_event()
    assert event["call"] == name
    return str(event["note"])


def resident_bytes() -> int:
    """Memory of this process."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc's malloc.h."""

    _fields_ = tuple(
        (name, c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """Bytes that malloc gave out and did not get back; unlike resident memory it does not depend on free lists."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def char_buffer(text: bytes = b"", size: int = 256) -> ctypes.Array[Any]:
    """A buffer that lives as long as the caller keeps it."""
    return ctypes.create_string_buffer(text, size)


def string(pointer: c_char_p) -> str:
    """Text of a pointer that the driver gave."""
    return (pointer.value or b"").decode()


if sys.platform == "win32":
    raise OSError("the emulated driver is for Linux")
