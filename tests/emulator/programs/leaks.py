"""Do many times what must leave nothing; print by how much what this process holds has grown.

python leaks.py {driver,direct,losing} ROUNDS LIBNVJITLINK: links, through the driver or on libnvJitLink directly; two
numbers: bytes that malloc did not get back, and bytes by which the link worker has grown

python leaks.py {objects,losing-objects} ROUNDS: objects of the driver; five numbers: bytes that malloc did not get
back, mappings, open files, bytes of shared memory, and bytes that the device has left less; a second line is that of a
process that opens an IPC handle of this one, `python leaks.py opening ROUNDS HANDLE`
"""

import ctypes
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.emulator import cu
from tests.emulator.cu import cuda, get, new, ok
from tests.emulator.memory_calls import POSIX_FILE, Handle, from_pool, give_access, left, new_pool, physical, reserve

# cubins: linking them is quick, and goes through all that PTX does but the compiler
INPUTS = [cu.artifact("13.0/main.cubin"), cu.artifact("13.0/user.cubin")]
UNIT = 2 << 20
WARM_UP = 500
libc = ctypes.CDLL(None)
Actions = list[Callable[[], None]]


def by_driver() -> None:
    """Every third link has an input that is refused, and text in its log."""
    code, image, _ = cu.link([(cu.CUBIN, data) for data in INPUTS])
    assert code == 0
    assert image


def by_driver_failing() -> None:
    """A link that fails leaves nothing either."""
    assert cu.link([(cu.CUBIN, INPUTS[0]), (cu.PTX, b"no PTX\0")])[0] == 200


def by_driver_losing() -> None:
    """A link with one block that is never freed."""
    by_driver()
    libc.malloc(c_size_t(1))


def directly(library: Any) -> Callable[[], None]:
    """The same calls on the library."""

    def link() -> None:
        handle, size = c_void_p(), c_size_t()
        assert library.nvJitLinkCreate(byref(handle), 1, (c_char_p * 1)(b"-arch=sm_90a")) == 0
        for data in INPUTS:
            assert library.nvJitLinkAddData(handle, 1, data, c_size_t(len(data)), b"in") == 0
        assert library.nvJitLinkComplete(handle) == 0
        assert library.nvJitLinkGetLinkedCubinSize(handle, byref(size)) == 0
        image = ctypes.create_string_buffer(size.value)
        assert library.nvJitLinkGetLinkedCubin(handle, image) == 0
        assert library.nvJitLinkDestroy(byref(handle)) == 0

    return link


def own_pages_of_worker() -> int:
    """Bytes that the link worker of this process has written to and shares with no other; 0 without one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"cudalink-link-worker") and command[2] == str(os.getpid()).encode():
                text = (entry / "smaps_rollup").read_text(encoding="ascii")
                return 1024 * int(re.search(r"Private_Dirty: +(\d+) kB", text)[1])
    return 0


def pools() -> None:
    """A pool, an allocation of it that outlives it, and both by way of an export."""
    pool = new_pool(handle_types=POSIX_FILE)
    code, first = from_pool(pool, 1000)
    assert code == 0
    assert from_pool(pool, 1 << 50)[0] == 2
    file = get(cuda.cuMemPoolExportToShareableHandle, c_int, pool, POSIX_FILE, c_uint64(0))
    imported = new(cuda.cuMemPoolImportFromShareableHandle, file, POSIX_FILE, 0)
    shared = new(cuda.cuMemPoolExportPointer, Handle, first)
    ok(cuda.cuMemFreeAsync(get(cuda.cuMemPoolImportPointer, c_uint64, imported, byref(shared)), None))
    ok(cuda.cuMemPoolDestroy(imported))
    ok(cuda.cuMemPoolDestroy(pool))
    ok(cuda.cuMemFreeAsync(first, None))
    os.close(file)


def virtual_memory() -> None:
    """Reserved, mapped, accessible, exported, imported, retained and freed."""
    (_, address), (_, handle), (_, plain) = reserve(2 * UNIT), physical(UNIT, handle_types=POSIX_FILE), physical(UNIT)
    ok(cuda.cuMemMap(address, UNIT, 0, handle, 0))
    ok(cuda.cuMemMap(address + UNIT, UNIT, 0, plain, 0))
    ok(give_access(address, 2 * UNIT))
    ok(cuda.cuMemsetD8_v2(address + UNIT, 1, 4096))
    file = get(cuda.cuMemExportToShareableHandle, c_int, handle, POSIX_FILE, 0)
    imported = get(cuda.cuMemImportFromShareableHandle, c_uint64, file, POSIX_FILE)
    retained = get(cuda.cuMemRetainAllocationHandle, c_uint64, address)
    ok(cuda.cuMemUnmap(address, 2 * UNIT))
    ok(cuda.cuMemAddressFree(address, 2 * UNIT))
    for owner in (handle, plain, imported, retained):
        ok(cuda.cuMemRelease(owner))
    os.close(file)


def ipc_handles() -> None:
    """Memory and an event for other processes."""
    address, event = cu.allocate(10_000), cu.event(6)
    ok(cuda.cuMemsetD8_v2(address, 1, 10_000))
    new(cuda.cuIpcGetMemHandle, Handle, address)
    ok(cuda.cuMemFree_v2(address))
    new(cuda.cuIpcGetEventHandle, Handle, event)
    ok(cuda.cuEventDestroy_v2(event))


def arrays() -> None:
    """An array of 64 x 64 of one byte each."""
    ok(cuda.cuArrayDestroy(new(cuda.cuArray3DCreate_v2, byref((c_uint64 * 5)(64, 64, 0, 1 | 1 << 32, 0)))))


def graphs() -> None:
    """Captured, instantiated, launched and destroyed."""
    stream = cu.stream(1)
    ok(cuda.cuStreamBeginCapture_v2(stream, 0))
    ok(cuda.cuMemFreeAsync(get(cuda.cuMemAllocAsync, c_uint64, 1000, stream), stream))
    graph = new(cuda.cuStreamEndCapture, stream, c_void_p)
    executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuDeviceGraphMemTrim(0))
    ok(cuda.cuStreamDestroy_v2(stream))


def losing() -> None:
    """Physical memory that is never released."""
    physical(UNIT)


def opening(handle: Handle) -> Callable[[], None]:
    """Opens and closes memory of another process."""

    def open_and_close() -> None:
        ok(cuda.cuIpcCloseMemHandle(get(cuda.cuIpcOpenMemHandle_v2, c_uint64, handle, 1)))

    return open_and_close


def held() -> list[int]:
    """What this process holds."""
    files = list(Path("/proc/self/fd").iterdir())
    shared = sum(path.stat().st_blocks for path in files if path.exists() and "memfd:" in str(path.readlink()))
    maps = len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())
    return [cu.allocated_bytes(), maps, len(files), 512 * shared, -left()]


def grown(actions: Actions, rounds: int, measured: Callable[[], list[int]], *, on_driver: bool = True) -> list[int]:
    """What is measured more after some rounds of each action."""
    for _ in range(WARM_UP):
        for action in actions:
            action()
    # the ring of events fills once, and then stays
    while on_driver and len(cu.events()) < 16384:
        for _ in range(4096):
            cuda.cuCtxSynchronize()
    gc.collect()
    before = measured()
    for _ in range(rounds):
        for action in actions:
            action()
    gc.collect()
    return [after - earlier for after, earlier in zip(measured(), before, strict=True)]


def main() -> int:
    """Print what has grown here and, for memory of this process, in another one."""
    way, rounds, given = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if way == "direct":
        print(*grown([directly(ctypes.CDLL(given[0]))], rounds, lambda: [cu.allocated_bytes(), 0], on_driver=False))
        return 0
    cu.start()
    if way in ("driver", "losing"):
        actions: Actions = [by_driver, by_driver, by_driver_failing if way == "driver" else by_driver_losing]
        print(*grown(actions, rounds // 3, lambda: [cu.allocated_bytes(), own_pages_of_worker()]))
        return 0
    if way == "opening":
        print(*grown([opening(Handle.from_buffer_copy(bytes.fromhex(given[0])))], rounds, held))
        return 0
    lost: Actions = [losing] if way == "losing-objects" else []
    print(*grown([pools, virtual_memory, ipc_handles, arrays, graphs, *lost], rounds, held))
    handle = new(cuda.cuIpcGetMemHandle, Handle, cu.allocate(10_000))
    sys.stdout.flush()
    command = [sys.executable, __file__, "opening", str(rounds), bytes(handle).hex()]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
