"""Processes on one emulated driver: their children, forks and events."""

import subprocess
import sys

from pytest_cudalink import cli
from tests.emulator.conftest import HEAD, ROOT, programs


def test_command_of_a_child(toolchain, tmp_path) -> None:
    """`cudalink driver run` is seen by the program's own children, and events of all go to one file, a line each."""
    toolchain("13.0")
    events = tmp_path / "events.jsonl"
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    child = HEAD + "start(); print(link([(PTX, small_ptx())])[0], flush=True); os._exit(0)"
    command = [sys.executable, "-m", cli.__name__, "driver", "run", "--version", "13.0", "--events", str(events)]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", program, child], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    lines = events.read_text(encoding="utf-8").splitlines()
    assert any('"call":"cuLinkComplete","result":0' in line for line in lines)  # though it ended without cleaning up


PROGRAMS = {
    "fork": """
# A child forked before cuInit has a driver of its own; one forked after it answers 3, and the parent goes on.
def child(function):
    pid = os.fork()
    if not pid:
        try:
            os._exit(0 if function() else 1)
        except BaseException as error:
            print(error, flush=True)
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

inputs = [(PTX, artifact("13.0/main.ptx") + b"\\0"), (PTX, artifact("13.0/user.ptx") + b"\\0")]

def works():
    start()
    return link(inputs)[0] == 0
child(works)
child(works)
start()
address, state, image = c_uint64(), c_void_p(), c_void_p()
code = inputs[0][1]
ok(cuda.cuLinkCreate_v2(0, None, None, byref(state)))

def refused():
    version = new(cuda.cuDriverGetVersion, c_int)
    answers = [
        cuda.cuInit(0),
        cuda.cuCtxSynchronize(),
        cuda.cuMemAlloc_v2(byref(address), 16),
        cuda.cuLinkCreate_v2(0, None, None, byref(c_void_p())),
        cuda.cuLinkAddData_v2(state, PTX, code, c_size_t(len(code)), b"in", 0, None, None),
        cuda.cuLinkComplete(state, byref(image), byref(c_size_t())),
        cuda.cuLinkDestroy(state),
        load(small_ptx())[0],
    ]
    print(answers, flush=True)
    return set(answers) == {3}
child(refused)

# other threads are in the middle of calls, with locks held, while children are made
stop = threading.Event()
def busy():
    start()
    while not stop.is_set():
        ok(cuda.cuMemFree_v2(allocate(64)))
        link([(PTX, b"broken" + bytes(1))])
threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20): child(refused)
stop.set()
for thread in threads: thread.join()
ok(cuda.cuLinkDestroy(state))
assert link(inputs)[0] == 0
""",
    "events_are_json_lines": """
# Each event is a JSON object whatever the arguments hold: quotes, odd bytes, names beyond any measure.
start()
long = b'"quoted\\\\' + bytes(range(1, 256)) * 8
answers = []
module = loaded(small_ptx())
assert cuda.cuModuleGetFunction(byref(c_void_p()), module, long) == 500
assert cuda.cuGetProcAddress_v2(long, byref(c_void_p()), 99000, c_uint64(0), byref(c_int())) == 1
assert last_event()["version"] == 99000
assert cuda.cuGetProcAddress(long, byref(c_void_p()), 12000, c_uint64(0)) == 500
many = 500
keys, values = (c_int * many)(*[7] * many), (c_void_p * many)(*[3] * many)
state = new(cuda.cuLinkCreate_v2, many, keys, values, c_void_p)
assert cuda.cuLinkAddData_v2(state, PTX, b"x" + bytes(1), c_size_t(2), long, 0, None, None) == 200
assert cuda.cuLinkAddFile_v2(state, PTX, long, 0, None, None) == 301
ok(cuda.cuLinkDestroy(state))
names = [event["call"] for event in events() if "call" in event]
assert names[-1] == "cuLinkDestroy"
assert json.dumps(events())
""",
}
test_programs = programs(PROGRAMS)
