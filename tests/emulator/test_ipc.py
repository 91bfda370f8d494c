"""What processes share on the emulated driver: memory, pools and events by handles, and the memory of a device."""

from pathlib import Path

import pytest

from pytest_cudalink.emulator import notes
from tests.emulator.conftest import programs

HEAD = """from tests.emulator.memory_calls import *
start()
def child(program, *values, files=()):
    head = "from tests.emulator.cu import *\\nfrom ctypes import *\\nfrom tests.emulator.memory_calls import *\\n"
    done = subprocess.run([sys.executable, "-c", head + "import sys\\nstart()\\n" + program, *map(str, values)],
                          pass_fds=files, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
def text_of(handle):
    return bytes(handle).hex()
"""


def test_processes_of_a_run_share_a_device(check) -> None:
    """What one has taken the others lack, until it gives that back or ends; a device of another size is another one."""
    of_run = notes.Notes("")
    check(
        HEAD
        + """
NVML = CDLL("libnvidia-ml.so.1")
def used():
    device, memory = c_void_p(), (c_uint64 * 3)()
    ok(NVML.nvmlInit_v2() or NVML.nvmlDeviceGetHandleByIndex_v2(0, byref(device)))
    ok(NVML.nvmlDeviceGetMemoryInfo(device, memory))
    return memory[2]
TAKE = "take = lambda size: cuda.cuMemAlloc_v2(byref(c_uint64()), size)\\n"
first = allocate(40 * MIB)
child(TAKE + "assert (left(), take(40 * MIB), take(20 * MIB), left()) == (24 * MIB, 2, 0, 4 * MIB)")
assert left() == 24 * MIB and used() == 40 * MIB
# however it ends, and whether or not its parent has waited for it
program = "from tests.emulator.cu import *; from tests.emulator.memory_calls import *; start(); allocate(20 * MIB)"
taker = subprocess.Popen([sys.executable, "-c", program + "; print(flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
taker.stdout.readline()
assert left() == 4 * MIB and used() == 60 * MIB and cuda.cuMemAlloc_v2(byref(c_uint64()), 5 * MIB) == 2
taker.kill()
os.waitid(os.P_PID, taker.pid, os.WEXITED | os.WNOWAIT)
second = allocate(24 * MIB)
ok(cuda.cuMemFree_v2(second))
# a forked process cannot use the driver, and takes nothing
pid = os.fork() or os._exit(used() != 40 * MIB)
assert os.waitpid(pid, 0)[1] == 0 and left() == 24 * MIB
# physical memory counts, and the segments of pools; what another program has taken under this number does not
child('''
import os
if "AGAIN" not in os.environ:
    assert from_pool(new_pool(), 1)[0] == 2 and physical(10 * MIB)[0] == 0 and left() == 14 * MIB
    os.execve(sys.executable, sys.orig_argv, {**os.environ, "AGAIN": "1"})
assert left() == 24 * MIB
''')
os.environ["CUDALINK_EMULATOR_DEVICE_MEMORY"] = str(128 * MIB)
child(TAKE + "assert (left(), take(40 * MIB), left()) == (128 * MIB, 0, 88 * MIB)")
ok(cuda.cuMemFree_v2(first))
assert left() == 64 * MIB
""",
        device="memory=64MiB",
        env={notes.VARIABLE: of_run.path},
    )
    assert of_run.end() == []


AT_ONCE = """
import pathlib, time
import pytest
from tests.emulator.cu import byref, c_uint64, cuda, start

@pytest.mark.parametrize("number", [0, 1])
def test(number):
    start()
    pathlib.Path(f"code-{number}").write_text(str(cuda.cuMemAlloc_v2(byref(c_uint64()), 40 << 20)))
    until = time.monotonic() + 20
    while time.monotonic() < until and len(list(pathlib.Path().glob("code-*"))) < 2: time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("ways", "codes"), [((), "02"), (("--cudalink-processes=isolated",), "00")])
def test_workers(pytester, run_pytest, ways, codes) -> None:
    """Workers of pytest-xdist share a device as on hardware; an isolated test has it for itself."""
    pytester.makepyfile(test_it=AT_ONCE)
    run_pytest("--cudalink-driver=13.0", "--cudalink-device=memory=64MiB", "-n2", *ways).assert_outcomes(passed=2)
    assert "".join(sorted(file.read_text() for file in pytester.path.glob("code-*"))) == codes


def names() -> set[str]:
    """The names in /dev/shm but those of Python's semaphores: other tests have processes."""
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.mp-")}


def test_nothing_stays(check) -> None:
    """Freed memory goes back to the machine, also what others could open, and no name is left in /dev/shm."""
    before = names()
    check(
        HEAD
        + """
address, pool = allocate(8 * MIB), new_pool(handle_types=POSIX_FILE)
write(address, b"x" * (8 * MIB))
ok(cuda.cuIpcGetMemHandle(byref(Handle()), address))
ok(cuda.cuMemFree_v2(address))
# a pool's file is for programs that the process starts, too (H200)
assert os.get_inheritable(get(cuda.cuMemPoolExportToShareableHandle, c_int, pool, POSIX_FILE, c_uint64(0)))
ok(cuda.cuMemFree_v2(from_pool(pool, 64)[1]) or cuda.cuMemPoolDestroy(pool))
files = [file for file in Path("/proc/self/fd").iterdir() if file.exists() and "cudalink" in str(file.readlink())]
assert sum(file.stat().st_blocks for file in files) * 512 < MIB
"""
    )
    assert names() <= before


PROGRAMS = {
    "memory_of_a_device_with_another_number": """
# Processes that number the devices differently mean the same one by a handle.
start(1)
handle = Handle()
ok(cuda.cuIpcGetMemHandle(byref(handle), allocate(4096)))
os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"
child('''
handle, address, number = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), c_uint64(), c_int(7)
cuda.cuCtxSetCurrent(start(1))
import os; os.close(0)  # the driver may get this number for its file
ok(cuda.cuIpcOpenMemHandle_v2(byref(address), handle, 1))
assert get(cuda.cuPointerGetAttribute, c_int, 9, address) == 0
''', text_of(handle))
""",
    "memory_that_its_process_freed_first": """
# Both processes are named where the other one uses or closes it; it cannot be opened any more.
handle, address = Handle(), allocate(4096)
ok(cuda.cuIpcGetMemHandle(byref(handle), address))
pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
child = subprocess.Popen([sys.executable, "-c", '''
import sys
from ctypes import *
from tests.emulator.cu import *
from tests.emulator.memory_calls import *
start()
control = control.attach(cuda)
control.start_watching()
handle, address = Handle.from_buffer_copy(bytes.fromhex(sys.argv[1])), c_uint64()
ok(cuda.cuIpcOpenMemHandle_v2(byref(address), handle, 1))
ok(cuda.cuMemsetD8_v2(address, 7, 64))
assert control.violations == ()
print(flush=True)
input()
ok(cuda.cuMemsetD8_v2(address, 7, 64))
ok(cuda.cuIpcCloseMemHandle(address))
for one, call in zip(control.violations, ("cuMemsetD8_v2", "cuIpcCloseMemHandle"), strict=True):
    assert (one.rule, one.what, one.call) == ("CUdeviceptr", "used after cuMemFree_v2", call)
    said = "expected memory of another process that is allocated, found an address of freed memory"
    assert one.text.startswith("memory of another process 1: ") and said in one.text, one
    assert "after the other process has called cuIpcCloseMemHandle" in one.fix
    assert one.history[0] == "memory of another process 1 was freed by cuMemFree_v2, called from:"
    assert any(line.startswith(f"  process {sys.argv[2]}: ") and line.endswith("in give_up") for line in one.history)
assert cuda.cuIpcOpenMemHandle_v2(byref(address), handle, 1) == 1
''', text_of(handle), str(os.getpid())], text=True, **pipes)
child.stdout.readline()
def give_up():
    ok(cuda.cuMemFree_v2(address))
control.attach(cuda).start_watching()
give_up()
_, said = child.communicate("\\n")
assert child.returncode == 0, said
""",
}
test_programs = programs(PROGRAMS, HEAD, memory_of_a_device_with_another_number={"device": "sm_90:2"})
