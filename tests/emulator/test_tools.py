"""What profilers, debuggers and checkpointing tools ask a driver."""

from pytest_cudalink.emulator import notes
from tests.emulator.conftest import programs

PROGRAMS = {
    "core_dumps": """
# The settings of the process are those that contexts begin with.
text, size = char_buffer(b"", 1024), c_size_t()

def kept(setting, of="Global", room=1024):
    size.value = {7: 4, 5: room, 6: room}.get(setting, 1)
    code = getattr(cuda, "cuCoredumpGetAttribute" + of)(setting, text, byref(size))
    return text.raw[: size.value] if not code else code

def put(setting, value, of="Global"):
    size.value = len(value)
    return getattr(cuda, "cuCoredumpSetAttribute" + of)(setting, char_buffer(value, len(value)), byref(size))

ok(put(5, b"dumps\\0"))
ok(put(3, b"\\1"))
assert kept(5) == b"dumps\\0" and kept(3) == b"\\1" and kept(7) == b"\\x0f\\0\\0\\0"
ok(put(7, b"\\x20\\0\\0\\0") or put(2, b"\\1"))
assert kept(7) == b"\\x20\\0\\0\\0"
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
# A process can lock itself; what has not initialized the driver is 3, and what does not exist 304.
process, calls = os.getpid(), ("Unlock", "Restore", "Checkpoint", "Lock")
def codes(process, arguments=None):
    return [getattr(cuda, "cuCheckpointProcess" + name)(process, arguments) for name in calls]
def state(process):
    return get(cuda.cuCheckpointProcessGetState, process, c_int)
assert cuda.cuCheckpointProcessGetState(process, byref(c_int())) == 3
start()
ok(cuda.cuMemFree_v2(managed()))  # of which there is no checkpoint
assert state(process) == 0 and codes(process) == [401, 401, 401, 0] and state(process) == 1
assert codes(process) == [0, 401, 401, 0]
for name, after in (("Checkpoint", 2), ("Checkpoint", 2), ("Lock", 2), ("Unlock", 2), ("Restore", 1), ("Restore", 1)):
    code, before = 401 if state(process) == after else 0, state(process)
    assert getattr(cuda, "cuCheckpointProcess" + name)(process, None) == code and state(process) == after
assert codes(process)[0] == 0
assert get(cuda.cuCheckpointProcessGetRestoreThreadId, process, c_int) > 0
assert codes(os.getppid()) == [3] * 4 and codes(1 << 30) == codes(-1) == codes(0) == [304] * 4
for at in (4, 16, 60):
    assert codes(process, char_buffer(bytes(at) + b"x" + bytes(63 - at), 64)) == [1] * 4
assert "devices" in refused("cuCheckpointProcessRestore", process, (c_uint * 16)(0, 0, 1))
assert cuda.cuCheckpointProcessGetState(process, None) == 1
""",
    "logs": """
# There are none: a file becomes empty, and a buffer that has room.
place, size, text = c_uint(7), c_size_t(7), char_buffer(b"text")
for file in (None, b"", b"/no/such/file"):
    assert cuda.cuLogsDumpToFile(byref(place), file, 0) == 1
with tempfile.NamedTemporaryFile() as file:
    file.write(b"text")
    file.flush()
    ok(cuda.cuLogsDumpToFile(byref(place), file.name.encode(), 0))
    assert os.path.getsize(file.name) == 0
for value in (b"", b"text"):
    ok(cuda.cuLogsDumpToMemory(byref(place), text, byref(size), 0))
    assert (text.value, size.value) == (value, 0)
    text[0] = b"t"
""",
    "memory_and_semaphores_of_other_libraries": """
# A semaphore is signaled once for each wait, or counts; nothing is mapped beyond the memory.
start()
def imported(call, kind, *more):
    file = os.memfd_create("shared")
    os.truncate(file, 8192)
    return new(call, (c_uint64 * 13)(kind, file, 0, *more))
def buffer(memory, *values):
    return cuda.cuExternalMemoryGetMappedBuffer(byref(c_uint64()), memory, (c_uint64 * 11)(*values))
memory = imported(cuda.cuImportExternalMemory, 1, 8192)
assert [buffer(memory, at, size) for at, size in ((0, 8192), (1, 8191), (0, 1), (8191, 1))] == [0] * 4
for values in ((0, 0), (0, 8193), (8191, 2), (2**64 - 1, 2), (0, 1, 1), (0, 1, 1 << 32)):
    assert buffer(memory, *values) == 1, values
assert buffer(stream(), 0, 1) == 400
OF_RUNTIMES = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
notes = [refused("cuImportExternalMemory", byref(c_void_p()), (c_uint64 * 13)(2, 1, 0, 8192)),
         *(refused("cuGetExportTable", byref(c_void_p()), table) for table in (b"x" * 16, OF_RUNTIMES))]
assert notes == ["no type of Linux, or of this device", "an emulated driver has no undocumented tables",
                 "the CUDA runtime needs undocumented tables, which an emulated driver lacks"], notes
table = c_void_p()
ok(cuda.cuGetExportTable(byref(table), bytes.fromhex("da9151d33ae6cc41a5c04f26d533e328")))  # nvJitLink 12.0's
assert CFUNCTYPE(c_int)(cast(table, POINTER(c_void_p))[1])() == last_event()["result"] == 801
once, counter = (imported(cuda.cuImportExternalSemaphore, kind) for kind in (1, 9))
def put(semaphore, value=0, call="Signal"):
    return getattr(cuda, f"cu{call}ExternalSemaphoresAsync")(byref(semaphore), (c_uint64 * 18)(value), 1, None)
def wait(semaphore, value=0):
    return put(semaphore, value, "Wait")
assert [wait(once), put(once), put(once), wait(once), wait(once), put(once), wait(once)] == [801, 0, 0, 0, 801, 0, 0]
assert [wait(counter), wait(counter, 2), put(counter, 2), wait(counter, 2), wait(counter, 3)] == [0, 801, 0, 0, 801]
assert [wait(counter, 1), put(counter, 1), wait(counter, 2)] == [0, 0, 801]
assert put(stream()) == wait(stream()) == 400 and put(c_void_p()) == wait(c_void_p()) == 1
""",
}
test_programs = programs(PROGRAMS)


def test_checkpoints(check) -> None:
    """Calls of a locked process wait, a checkpoint gives up its memory, and the lock waits for unfinished work."""
    of_run = notes.Notes("")
    check(
        """
import select
from tests.emulator.memory_calls import MIB, left
start()
LOCK, CHECKPOINT, RESTORE, UNLOCK = (
    getattr(cuda, "cuCheckpointProcess" + name) for name in ("Lock", "Checkpoint", "Restore", "Unlock"))
program = '''
from tests.emulator.cu import *
from ctypes import *
import sys
start()
memory, stream, word, managed = allocate(40 << 20), new(cuda.cuStreamCreate, 1), c_uint(), c_uint64()
ok(cuda.cuMemcpyHtoD_v2(memory, addressof(c_uint(7)), 4))
for line in sys.stdin:
    print(eval(line), flush=True)
'''
other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def send(text):
    print(text, file=other.stdin, flush=True)
def answer():
    return other.stdout.readline().strip()
def ask(text):
    send(text)
    return answer()
def state():
    return get(cuda.cuCheckpointProcessGetState, other.pid, c_int)
read = "(cuda.cuMemcpyDtoH_v2(addressof(word), memory, 4), word.value)"
assert ask(read) == "(0, 7)" and left() == 24 * MIB
ok(LOCK(other.pid, None))
assert state() == 1 and ask("cuda.cuStreamQuery(stream)") == "0" and left() == 24 * MIB
send(read)
ok(CHECKPOINT(other.pid, None))
assert state() == 2 and left() == 64 * MIB
taken = allocate(30 * MIB)
assert RESTORE(other.pid, None) == 2 and state() == 2
ok(cuda.cuMemFree_v2(taken))
ok(RESTORE(other.pid, None))
assert state() == 1 and left() == 24 * MIB and not select.select([other.stdout], [], [], 0.05)[0]
ok(UNLOCK(other.pid, None))
assert answer() == "(0, 7)"
# managed memory
assert ask("cuda.cuMemAllocManaged(byref(managed), 64, 1)") == "0"
assert LOCK(other.pid, None) == 0 and CHECKPOINT(other.pid, None) == 801 and state() == 1
assert UNLOCK(other.pid, None) == 0 and ask("cuda.cuMemFree_v2(managed.value)") == "0"
ok(LOCK(other.pid, None) or CHECKPOINT(other.pid, None) or RESTORE(other.pid, None) or UNLOCK(other.pid, None))
# work that waits
assert ask("cuda.cuStreamWaitValue32_v2(stream, c_uint64(memory), 9, 0)") == "0"
limit = (c_uint * 16)(50)
assert LOCK(other.pid, limit) == 600 and state() == 0
assert ask("cuda.cuStreamQuery(stream)") == "600"
assert ask("cuda.cuMemcpyHtoD_v2(memory, addressof(c_uint(9)), 4)") == "0"
ok(LOCK(other.pid, None))
assert ask("cuda.cuStreamQuery(stream)") == "0"
other.kill()
os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
assert UNLOCK(other.pid, None) == 304 and left() == 64 * MIB
""",
        device="memory=64MiB",
        env={notes.VARIABLE: of_run.path},
    )
