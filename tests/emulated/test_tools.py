"""What profilers, debuggers and checkpointing tools ask a driver."""

from __future__ import annotations

from tests.emulated.conftest import programs

PROGRAMS = {
    "profiler": """
# Starting and stopping a profile succeeds in a context; a configuration file is not read any more.
ok(cuda.cuInit(0))
assert cuda.cuProfilerStart() == cuda.cuProfilerStop() == 201
start()
ok(cuda.cuProfilerStart())
ok(cuda.cuProfilerStop())
assert "configuration" in refused("cuProfilerInitialize", b"a", b"b", 0)
""",
    "core_dumps": """
# The settings of the process are those that contexts begin with; each has its documented default.
import socket
text, size = char_buffer(b"", 1024), c_size_t()

def kept(setting, of="Global", room=1024):
    size.value = {7: 4, 5: room, 6: room}.get(setting, 1)
    code = getattr(cuda, "cuCoredumpGetAttribute" + of)(setting, text, byref(size))
    return text.raw[: size.value] if not code else code

def put(setting, value, of="Global"):
    size.value = len(value)
    return getattr(cuda, "cuCoredumpSetAttribute" + of)(setting, char_buffer(value, len(value)), byref(size))

name = f"{socket.gethostname()}.{os.getpid()}".encode()
assert [kept(one) for one in range(1, 8)] == [
    b"\\0", b"\\1", b"\\0", b"\\0", b"core.cuda." + name + b"\\0", b"corepipe.cuda." + name + b"\\0", bytes(4)]
for setting, needed in ((1, 1), (5, 1024), (7, 4)):
    assert get(cuda.cuCoredumpGetAttributeGlobal, setting, None, c_size_t) == needed
assert kept(0) == kept(8) == 1
ok(put(5, b"dumps\\0"))
ok(put(3, b"\\1"))
assert kept(5) == b"dumps\\0" and kept(3) == b"\\1" and kept(7) == b"\\x0f\\0\\0\\0"
ok(put(7, b"\\x20\\0\\0\\0"))
assert put(7, b"\\0\\1\\0\\0") == put(7, b"\\0") == put(5, b"x" * 1025) == 1
assert cuda.cuCoredumpGetAttributeGlobal(1, text, None) == 1
ok(cuda.cuInit(0))
assert kept(1, of="") == 201
start()
assert kept(5, of="") == b"dumps\\0"
ok(put(5, b"other\\0", of=""))
assert kept(5, of="") == b"other\\0" and kept(5) == b"dumps\\0"
assert put(6, b"pipe\\0", of="") == kept(6, of="") == kept(4, of="") == 1
""",
    "checkpoints": """
# Every process runs, as none is ever locked; what does not exist is 304.
state = c_int(9)
for process in (os.getpid(), os.getppid()):
    assert get(cuda.cuCheckpointProcessGetState, process, c_int) == 0
assert get(cuda.cuCheckpointProcessGetRestoreThreadId, os.getpid(), c_int) > 0
assert "checkpoints" in refused("cuCheckpointProcessLock", os.getpid(), None)
for name in ("Checkpoint", "Restore", "Unlock"):
    assert getattr(cuda, "cuCheckpointProcess" + name)(os.getpid(), None) == 401
    assert getattr(cuda, "cuCheckpointProcess" + name)(1 << 30, None) == 304
for process in (1 << 30, -1):
    assert cuda.cuCheckpointProcessGetState(process, byref(state)) == 304
assert cuda.cuCheckpointProcessGetState(os.getpid(), None) == 1
""",
}
test_programs = programs(PROGRAMS)


def test_logs_and_notifications(check, tmp_path) -> None:
    """Callbacks can be registered and removed once; the log is empty."""
    check(
        f"""
start()
CALLBACK = CFUNCTYPE(None, c_void_p)
callback, handle, place, size = CALLBACK(lambda _: None), c_void_p(), c_uint(5), c_size_t(64)
ok(cuda.cuLogsRegisterCallback(callback, None, byref(handle)))
assert cuda.cuDeviceUnregisterAsyncNotification(0, handle) == 1  # of the log, not of a device
ok(cuda.cuLogsUnregisterCallback(handle))
assert cuda.cuLogsUnregisterCallback(handle) == cuda.cuLogsRegisterCallback(None, None, byref(handle)) == 1
assert get(cuda.cuLogsCurrent, c_uint, 0) == 0
text = char_buffer(b"full", 64)
ok(cuda.cuLogsDumpToMemory(byref(place), text, byref(size), 0))
assert size.value == 0 and text.value == b""
path = {str(tmp_path / "log")!r}.encode()
ok(cuda.cuLogsDumpToFile(byref(place), path, 0))
assert open(path).read() == ""
assert cuda.cuLogsDumpToFile(byref(place), None, 0) == cuda.cuLogsCurrent(None, 1) == 1
ok(cuda.cuDeviceRegisterAsyncNotification(0, callback, None, byref(handle)))
assert cuda.cuDeviceRegisterAsyncNotification(4, callback, None, byref(handle)) == 101
assert cuda.cuDeviceRegisterAsyncNotification(0, None, None, byref(handle)) == 1
ok(cuda.cuDeviceUnregisterAsyncNotification(0, handle))
assert cuda.cuDeviceUnregisterAsyncNotification(0, handle) == 1
ok(cuda.cuFlushGPUDirectRDMAWrites(0, 100))
assert cuda.cuFlushGPUDirectRDMAWrites(1, 100) == cuda.cuFlushGPUDirectRDMAWrites(0, 0) == 1
assert "NvSci" in refused("cuDeviceGetNvSciSyncAttributes", text, 0, 1)
assert cuda.cuDeviceGetNvSciSyncAttributes(None, 0, 1) == 400
"""
    )
