"""Make and destroy objects of the driver many times; print by how much what this process holds has grown.

Five numbers: bytes that malloc did not get back, mappings, open files, bytes of shared memory, and bytes that the
device has left less.

python object_leaks.py {all,losing} ROUNDS
python object_leaks.py opening ROUNDS HANDLE, with an IPC handle of another process
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.emulated import cu
from tests.emulated.cu import cuda, get, new, ok
from tests.emulated.memory_calls import (
    POSIX_FILE,
    Handle,
    from_pool,
    give_access,
    left,
    new_pool,
    physical,
    reserve,
)

UNIT = 2 << 20
WARM_UP = 500


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
    for one in (handle, plain, imported, retained):
        ok(cuda.cuMemRelease(one))
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


def grown(actions: list[Callable[[], None]], rounds: int) -> list[int]:
    """What is held more after some rounds of each action."""
    for _ in range(WARM_UP):
        for action in actions:
            action()
    # the ring of events fills once, and then stays
    while len(cu.events()) < 16384:
        for _ in range(4096):
            cuda.cuCtxSynchronize()
    gc.collect()
    before = held()
    for _ in range(rounds):
        for action in actions:
            action()
    gc.collect()
    return [after - earlier for after, earlier in zip(held(), before, strict=True)]


def main() -> int:
    """Print what has grown here and, for memory of this process, in another one."""
    way, rounds = sys.argv[1], int(sys.argv[2])
    cu.start()
    if way == "opening":
        print(*grown([opening(Handle.from_buffer_copy(bytes.fromhex(sys.argv[3])))], rounds))
        return 0
    print(*grown([pools, virtual_memory, ipc_handles, arrays, graphs, *([losing] if way == "losing" else [])], rounds))
    handle = new(cuda.cuIpcGetMemHandle, Handle, cu.allocate(10_000))
    sys.stdout.flush()
    command = [sys.executable, __file__, "opening", str(rounds), bytes(handle).hex()]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
