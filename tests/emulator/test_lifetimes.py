"""Memory that the driver was given must live until cuLinkDestroy: red where it does not, and no false alarm."""

import fnmatch
import json
import re

import pytest

from campaigns.conformance.waits import RECORDED
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.emulator.recorder.record import load
from tests.compiled import compile_c
from tests.emulator import checkers
from tests.emulator.conftest import ROOT
from tests.nested import ALONE, BOTH, XDIST

PROGRAM = "tests/emulator/programs/mutants.py"
ORDERS = "close,collect,failed"
#: What shows each fault; where all is released early, the other option values may, too, as the heap is used again.
EXPECTED = {
    "logs mapped": ["CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_INFO_LOG_BUFFER"],
    "logs malloc": ["CU_JIT_ERROR_LOG_BUFFER", "CU_JIT_INFO_LOG_BUFFER"],
    "values mapped": ["optionValues"],
    "values malloc": ["CU_JIT_INFO_LOG_BUFFER"],  # the first option value that changed
}


def test_mutants_are_red(on_driver) -> None:
    """Every link of every mutant of the bundled linker is noticed, however the linker ends."""
    done = on_driver("13.0", PROGRAM, "logs,values,early", ORDERS, "mapped,malloc", "2")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {name: red for name, (red, _) in results.items()} == dict.fromkeys(results, 2)
    assert len(results) == 18
    for name, (_, options) in results.items():
        assert set(options) >= set(EXPECTED.get(name.rpartition(" ")[0], ())), (name, options)


@pytest.mark.slow
def test_bundled_linker_is_green(on_driver) -> None:
    """No false alarm over 400 links, and no state is left."""
    done = on_driver("13.0", PROGRAM, "none", ORDERS, "mapped,malloc", "67")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts == {"results": {name: [0, []] for name in facts["results"]}, "alive": 0}
    assert len(facts["results"]) == 6


START = """
context = start()
control = control.attach(cuda)
control.start_watching()

def create(log, values):
    state = c_void_p()
    values[0], values[1] = addressof(log), len(log)
    assert cuda.cuLinkCreate_v2(2, (c_int * 2)(5, 6), values, byref(state)) == 0
    return state

def made():
    log, values = (c_char * 256)(), (c_uint64 * 2)()
    return log, values, create(log, values)

def add(state):
    return cuda.cuLinkAddData_v2(state, 1, b"nonsense", 9, b"x", 0, None, None)

def told():
    found = [(one.rule, one.what, one.call) for one in control.violations]
    print(*(f"{one.rule}: {one.text} {one.fix}" for one in control.violations), sep="\\n")
    control.consume(control.violations)
    return found
"""


USER_OBJECTS = """
destroyed = []
destructor = CFUNCTYPE(None, c_void_p)(destroyed.append)
graph = new(cuda.cuGraphCreate, 0)

def make(references=1):
    made = c_void_p()
    assert cuda.cuUserObjectCreate(byref(made), c_void_p(7), destructor, references, 1) == 0
    return made

def noticed():
    found = [(one.what, one.call, one.text.partition("; ")[2]) for one in control.violations]
    makers = [(one.history[0], one.history[-1].rpartition(" in ")[2]) for one in control.violations]
    assert all(one.rule == "CUuserObject" and one.handle == 0 for one in control.violations)
    control.consume(control.violations)
    return found, makers
"""


def test_references_of_a_user_object(check) -> None:
    """The caller's and each graph's count apart: releasing too many is reported, and dies as on an H200."""
    check(
        START
        + USER_OBJECTS
        + """
def retain(object):
    assert cuda.cuUserObjectRetain(object, 1) == 0

one = make()
assert cuda.cuGraphRetainUserObject(graph, one, 2, 1) == 0 and not destroyed
said = "expected at most 1 reference of the caller, found 2"
assert noticed() == (
    [("moved too often", "cuGraphRetainUserObject", said)],
    [("user object 1 was given its last references by cuUserObjectCreate, called from:", "make")],
)
retain(one)
assert noticed() == ([], [])
assert cuda.cuUserObjectRelease(one, 1) == 0 and not destroyed
said = "expected at most 0 references of the caller, found 1"
assert noticed() == (
    [("released too often", "cuUserObjectRelease", said)],
    [("user object 1 was given its last references by cuUserObjectRetain, called from:", "retain")],
)
assert cuda.cuGraphReleaseUserObject(graph, one, 1) == 0 and destroyed == [7] and noticed() == ([], [])
for code, call, arguments in (
    (0, "cuUserObjectRelease", (one, 1)),
    (0, "cuUserObjectRetain", (one, 1)),
    (0, "cuGraphRetainUserObject", (graph, one, 1, 0)),
    (0, "cuGraphReleaseUserObject", (graph, one, 1)),
):
    assert getattr(cuda, call)(*arguments) == code
    said = "expected a user object that is alive, found the handle of a destroyed one"
    assert noticed()[0] == [("used after cuGraphReleaseUserObject", call, said)]
two = make(3)
assert cuda.cuGraphRetainUserObject(graph, two, 1, 0) == 0 and cuda.cuUserObjectRelease(two, 3) == 0
assert cuda.cuGraphReleaseUserObject(graph, two, 1) == 0 and destroyed == [7, 7]
assert cuda.cuUserObjectRelease(c_void_p(0x1230), 1) == 1 and cuda.cuUserObjectRelease(None, 1) == 1
three = make()
assert cuda.cuGraphReleaseUserObject(graph, three, 1) == 0
assert noticed()[0] == [
    ("released too often", "cuGraphReleaseUserObject", "expected at most 0 references of the graph, found 1")
]
assert destroyed == [7, 7, 7] and cuda.cuUserObjectRelease(three, 1) == 0
"""
    )
    check(
        START
        + USER_OBJECTS
        + "one = make()\nassert (cuda.cuUserObjectRelease(one, 2), cuda.cuUserObjectRelease(one, 1)) == (0, 0)\n"
        "assert noticed() == ([], []) and destroyed == []  # as on an H200: what is below 0 is never 0\n"
        "asking = CFUNCTYPE(None, c_void_p)(lambda data: destroyed.append(cuda.cuDeviceGetCount(byref(c_int()))))\n"
        "ok(cuda.cuUserObjectCreate(byref(one), None, asking, 1, 1))\n"
        "ok(cuda.cuUserObjectRelease(one, 1))\n"
        "assert destroyed == [800] and cuda.cuDeviceGetCount(byref(c_int())) == 0  # a destructor is a host function",
        lifetime="off",
    )


DEAD_HANDLES = """
def noticed():
    found = [(one.rule, one.what, one.call, one.history[0], one.history[-1].rpartition(" in ")[2])
             for one in control.violations]
    control.consume(control.violations)
    return found

def end(one):
    ok(cuda.cuStreamDestroy_v2(one))
"""


def test_a_stream_that_was_destroyed(check) -> None:
    """A call that is given it is named, with who destroyed it, until the address is that of another stream."""
    program = (
        START
        + DEAD_HANDLES
        + """
first = stream()
end(first)
assert (cuda.cuStreamSynchronize(first), cuda.cuStreamSynchronize(c_void_p(0x1230))) == (400, 400)
ended = "stream 1 was destroyed by cuStreamDestroy_v2, called from:", "end"
found = noticed()
assert found == ([("CUstream", "used after cuStreamDestroy_v2", "cuStreamSynchronize", *ended)] if checked else [])
assert cuda.cuMemFreeAsync(c_uint64(get(cuda.cuMemAllocAsync, c_uint64, c_size_t(64), None)), first) == 400
assert [one[2] for one in noticed()] == ["cuMemFreeAsync"] * checked
ended = [stream() for _ in range(40)]
for one in ended:
    end(one)
again = [stream() for _ in range(40)]
assert {one.value for one in again} & {one.value for one in ended}
for one in again:
    ok(cuda.cuStreamSynchronize(one))
assert noticed() == []
"""
    )
    check("checked = True\n" + program)
    check("checked = False\n" + program, lifetime="off")


def test_other_handles_that_were_destroyed(check) -> None:
    """The type and the call that destroyed it are named where a driver works on it; nothing where it says an error."""
    check(
        START
        + DEAD_HANDLES
        + """
ended, graph = event(), c_void_p(get(cuda.cuGraphCreate, 0))
ok(cuda.cuEventDestroy_v2(ended))
assert cuda.cuEventQuery(ended) and cuda.cuEventElapsedTime_v2(byref(c_float()), ended, ended)
node = c_void_p(get(cuda.cuGraphAddEmptyNode, c_void_p, graph, None, c_size_t(0)))
ok(cuda.cuGraphDestroy(graph))
assert cuda.cuGraphNodeGetType(node, byref(c_int())) == 0 and cuda.cuGraphDestroyNode(node) == 1
library, kernel = c_void_p(), c_void_p()
ok(cuda.cuLibraryLoadData(byref(library), small_ptx(), None, None, 0, None, None, 0))
ok(cuda.cuLibraryUnload(library))
assert cuda.cuLibraryGetKernel(byref(kernel), library, b"small") and cuda.cuLibraryUnload(library)
assert [one[:3] for one in noticed()] == [
    ("CUevent", "used after cuEventDestroy_v2", "cuEventQuery"),
    ("CUgraphNode", "used after cuGraphDestroy", "cuGraphNodeGetType"),
    ("CUgraphNode", "used after cuGraphDestroy", "cuGraphDestroyNode"),
    ("CUlibrary", "used after cuLibraryUnload", "cuLibraryGetKernel"),
    ("CUlibrary", "used after cuLibraryUnload", "cuLibraryUnload"),
]
"""
    )


def test_contexts_and_memory_that_ended(check) -> None:
    """A copy that names one is red where a driver dies of it, until the address is given out again."""
    program = (
        START
        + DEAD_HANDLES
        + """
other, current = c_void_p(), c_void_p(get(cuda.cuCtxGetCurrent, 0))
one, two = (get(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64)) for _ in range(2))
ok(cuda.cuCtxCreate_v2(byref(other), 0, 0))
ok(cuda.cuCtxDestroy_v2(other))
size, box = c_size_t(64), (c_uint64 * 25)()
box[4] = box[15] = 2
box[6], box[17], box[8], box[22], box[23], box[24] = one, two, other.value, 64, 1, 1
assert cuda.cuMemcpyPeer(c_uint64(one), other, c_uint64(two), current, size) == 709
assert cuda.cuMemcpyPeerAsync(c_uint64(one), current, c_uint64(two), other, size, None) == 709
assert cuda.cuMemcpy3DPeer(box) == 709 and cuda.cuMemcpy3DPeerAsync(box, None) == 709
ok(cuda.cuMemcpyPeer(c_uint64(one), current, c_uint64(two), current, size))
peers = ("cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync")
expected = [("CUcontext", "used after cuCtxDestroy_v2", name) for name in peers]
assert [one[:3] for one in noticed()] == (expected if checked else [])
ok(cuda.cuMemFree_v2(c_uint64(two)))
assert cuda.cuMemcpyDtoD_v2(c_uint64(one), c_uint64(two), size) == 1 and noticed() == []
assert cuda.cuMemcpy(c_uint64(one), c_uint64(two + 32), c_size_t(8)) == 1
assert cuda.cuMemcpyAsync(c_uint64(two), c_uint64(one), size, None) == 1
expected = [("CUdeviceptr", "used after cuMemFree_v2", name) for name in ("cuMemcpy", "cuMemcpyAsync")]
assert [one[:3] for one in noticed()] == (expected if checked else [])
assert cuda.cuMemcpy(c_uint64(one), c_uint64(two + 64), c_size_t(8)) == 1 and noticed() == []
assert two in (get(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64)) for _ in range(1 << 12))  # all of a slab of 2 MiB
ok(cuda.cuMemcpy(c_uint64(one), c_uint64(two), size))
assert noticed() == []
"""
    )
    check("checked = True\n" + program)
    check("checked = False\n" + program, lifetime="off")


#: Kinds of the recorded questions, as functions.txt names them, and what they are in `dead-handles`.
RECORDED_KINDS = {
    "stream": "handle_stream",
    "lib": "handle_library",
    "pool": "handle_pool",
    "vmh": "handle_physical_memory",
    "arr": "handle_array",
    "mip": "handle_mipmap",
    "texref": "handle_texture_reference",
    "node": "handle_graph_node",
    "node of a graph": "handle_graph_node",
    "dptr": "memory_of_device",
    "ctx": "handle_context",
    "fun": "handle_function",
}


def test_what_a_gpu_died_of_is_watched() -> None:
    """Each recorded death is that of a function in the table, or of a kind that is known not to be looked for."""
    table = read_table("emulator/functions.toml")["dead-handles"]
    died = {
        (" ".join(kind), symbol)
        for key, (_, *answers) in load(RECORDED / "deaths-580.159.04-h200.json.xz")["rows"].items()
        for symbol, wrong, _, *kind in [key.split()]
        if wrong == "dead" and any(answer and str(answer[0]).startswith("SIG") for answer in answers)
    }
    watched = {death for death in died if death[0] in RECORDED_KINDS}
    assert {kind for kind, _ in died - watched} == {"link"}  # a link state is watched by itself
    assert len(watched) > 40
    for kind, symbol in watched:
        assert any(fnmatch.fnmatch(symbol, pattern) for pattern in table[RECORDED_KINDS[kind]]), (kind, symbol)


#: Runs programs of the recording of what an H200 died of, with the calls that ended it.
DEATHS = """
from campaigns.conformance.programs.images import image
from campaigns.conformance.waits import RECORDED
from pytest_cudalink.emulator.recorder.execute import Interpreter
from pytest_cudalink.emulator.recorder.record import load

rows = load(RECORDED / "deaths-580.159.04-h200.json.xz")["rows"]
died, red, keep = set(), set(), []
library = CDLL("libcuda.so.1")  # without types of arguments

def replay(*calls):
    keep.append(Interpreter(library, image, aliases=False))
    *before, (name, *arguments) = calls
    for number, call in enumerate(before):
        keep[-1].call(number, call)
    told()
    return getattr(library, name)(*map(keep[-1].argument, arguments)) if hasattr(library, name) else None
"""
ORPHANS = f"""{DEATHS}
for key, (program, _, answer) in rows.items():
    name, wrong, *_ = key.split()
    if wrong != "orphan" or "Graph" in name:  # a graph is of no context
        continue
    replay(*program)
    if answer[0] == "SIGSEGV":
        died.add(name)
    for rule, what, call in told():
        assert (what, call) == ("used after cuCtxDestroy_v2", name.replace("Green", "")), (key, rule, what)
        red.add(name)
"""


def test_orphans_of_which_a_gpu_died(check) -> None:
    """What a destroyed context leaves is a violation wherever an H200 died of it; not if nothing is looked for."""
    missed = '{"cuMemcpy"}'  # nothing remembers the memory that went with its context
    check(START + ORPHANS + f"assert len(died) == 79 and died - red == {missed} and len(red) == 124, died - red")
    check(START + ORPHANS + "assert died and not red", lifetime="off")


NULL_POINTERS = f"""{DEATHS}
for key, (program, answer, _) in rows.items():
    if key.split()[1] != "null" or len(answer) > 1:  # something failed before the call
        continue
    code = replay(*program)
    if answer == ["SIGSEGV"]:
        died.add(key)
    for rule, what, call in told():
        assert (code, call) == (1, program[-1][0]) and what.startswith("NULL"), (key, code, rule)
        red.add(key)
"""


def test_null_of_which_a_gpu_died(check) -> None:
    """Of all recorded calls with NULL, those are red of which a driver died; and none if nothing is looked for."""
    check(
        START
        + NULL_POINTERS
        + """
fields = {key for key in died if ".accessDescs" in key}  # of a structure: not looked for
assert len(fields) == 2 and len(keep) > 800
assert red == died - fields and len(red) == 15, red ^ died
"""
    )
    check(START + NULL_POINTERS + "assert died and not red", lifetime="off")


def test_null_is_named_with_the_argument(check) -> None:
    """By its number and name, where it must be an address: not where a count says that there is nothing."""
    check(
        START
        + """
library = c_void_p()
assert cuda.cuLibraryLoadData(byref(library), None, None, None, 0, None, None, 0) == 1 and not control.violations
assert cuda.cuLibraryLoadData(byref(library), small_ptx(), None, None, 0, None, byref(c_void_p()), 1) == 1
(one,) = control.violations
assert one.text.startswith("argument 6: libraryOptions: NULL"), one.text
assert (one.check, one.rule, one.call) == ("lifetimes", "libraryOptions", "cuLibraryLoadData")
assert one.fix == "Pass the address of memory as libraryOptions." and "SIGSEGV" in one.advice
control.consume(control.violations)
"""
    )


def test_memory_of_a_pool_that_is_freed_twice(check) -> None:
    """While the first free waits for its stream, the second is refused on whatever way, and both calls are named."""
    check(
        START
        + DEAD_HANDLES
        + """
gate, first, other = pinned(), stream(1), stream(1)
memory = c_uint64(get(cuda.cuMemAllocAsync, c_uint64, c_size_t(64), first))
ok(cuda.cuStreamWaitValue32_v2(first, c_uint64(gate), 1, 0))
def free():
    ok(cuda.cuMemFreeAsync(memory, first))
free()
assert (cuda.cuMemFreeAsync(memory, first), cuda.cuMemFreeAsync(memory, other), cuda.cuMemFree_v2(memory)) == (1, 1, 1)
place = "memory of a pool 2 was freed by cuMemFreeAsync, called from:", "free"
calls = ("cuMemFreeAsync", "cuMemFreeAsync", "cuMemFree_v2")
assert noticed() == [("CUdeviceptr", "used after cuMemFreeAsync", call, *place) for call in calls]
later = c_uint64(get(cuda.cuMemAllocAsync, c_uint64, c_size_t(64), other))
assert later.value != memory.value
c_uint32.from_address(gate).value = 1
ok(cuda.cuStreamSynchronize(first))
ok(cuda.cuMemFreeAsync(later, other))
assert noticed() == []
"""
    )


def test_a_thread_that_python_does_not_know(check, tmp_path) -> None:
    """Its cuLinkCreate does not wait for Python's lock, which the thread that waits for it may hold."""
    library = compile_c(tmp_path / "liblate.so", LATE)
    check(
        START
        + f"""
late = PyDLL({str(library)!r})  # keeps Python's lock
log, keys, state = (c_char * 256)(), (c_int * 2)(5, 6), c_void_p()
values = (c_uint64 * 2)(addressof(log), len(log))
address = cast(cuda.cuLinkCreate_v2, c_void_p)
current = cast(cuda.cuCtxSetCurrent, c_void_p)
assert late.create(address, current, context, keys, values, byref(state)) == 0
values[0] = 7
assert cuda.cuLinkDestroy(state) == 0
(one,) = control.violations
assert any("liblate.so" in line for line in one.history) and "\\n".join(one.history) in one.long_repr
"""
    )


LATE = """
#include <pthread.h>
typedef int Create(unsigned, int *, void **, void **);
typedef int SetCurrent(void *);
static struct { Create *create; SetCurrent *current; void *context; int *keys; void **values, **out; int result; } job;
static void *run(void *unused) {
  (void)unused;
  job.result = job.current(job.context);
  if (!job.result) job.result = job.create(2, job.keys, job.values, job.out);
  return 0;
}
int create(Create *create, SetCurrent *current, void *context, int *keys, void **values, void **out) {
  pthread_t thread;
  job.create = create, job.current = current, job.context = context;
  job.keys = keys, job.values = values, job.out = out;
  if (pthread_create(&thread, 0, run, 0) || pthread_join(thread, 0)) return -1;
  return job.result;
}
"""


PROGRAMS = {
    "every_finding": """
# A changed value, own text overwritten, and memory that a newer state got too: each is told once.
log, values, state = made()
assert add(state) == 200
assert told() == [] and values[1] == len(log.value)
log[0] = b"?"
add(state)
assert re.search(" found [0-9a-f]{2}( [0-9a-f]{2}){15}", control.violations[-1].text)
assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "log text changed", "cuLinkAddData_v2")]
values[0] = 7
add(state)
assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "option value changed", "cuLinkAddData_v2")]
add(state)
assert told() == []  # once is enough
first, second = (c_uint64 * 2)(), (c_uint64 * 2)()
a = create(log, first)
assert told() == []
b = create(log, second)
assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "overlap with a newer state", "cuLinkCreate_v2")]
for one in (state, a, b):
    assert cuda.cuLinkDestroy(one) == 0
""",
    "memory_of_two_states": """
# Each piece that a newer state has in common with a live one is told once, as the older one's; pieces side by side not.
keys, pieces = (c_int * 4)(3, 4, 5, 6), 3  # the logs of information and of errors with their sizes; their values
names = ("optionValues", "CU_JIT_INFO_LOG_BUFFER", "CU_JIT_ERROR_LOG_BUFFER")
def place(starts):
    values = (c_uint64 * 4).from_buffer(starts[0])
    info, error = ((c_char * 32).from_buffer(one) for one in starts[1:])
    values[:] = [addressof(info), 32, addressof(error), 32]
    handle = c_void_p()
    assert cuda.cuLinkCreate_v2(4, keys, values, byref(handle)) == 0
    return handle
for own in range(pieces):
    for its in range(pieces):
        first, second = (memoryview(bytearray(192)) for _ in range(2))
        old, beside, new = ([memory[at:at + 32] for at in range(start, start + 96, 32)]
                            for memory, start in ((first, 0), (first, 96), (second, 0)))
        new[own] = old[its]
        made = [place(old), place(beside)]
        assert told() == []
        made.append(place(new))
        assert told() == [(names[its], "overlap with a newer state", "cuLinkCreate_v2")], (own, its)
        for one in made:
            assert cuda.cuLinkDestroy(one) == 0
        told()
        assert cuda.cuLinkDestroy(place(new)) == 0 and told() == []  # those that ended have no memory
""",
    "a_state_used_after_its_end": """
# Each use of a destroyed state is refused and told; of an address that never was a state it is only refused.
log, values, state = made()
assert cuda.cuLinkDestroy(state) == 0 and told() == []
for call, *arguments in (
    ("cuLinkDestroy", state), ("cuLinkAddData_v2", state, 1, b"nonsense", 9, b"x", 0, None, None),
    ("cuLinkAddFile_v2", state, 1, b"nowhere.ptx", 0, None, None),
    ("cuLinkComplete", state, byref(c_void_p()), byref(c_size_t())),
):
    assert getattr(cuda, call)(*arguments) == 400
    assert told() == [("CUlinkState", "used after cuLinkDestroy", call)]
for handle in (None, c_void_p(0x1230)):
    assert cuda.cuLinkDestroy(handle) == 400 and told() == []
""",
    "both_ends": """
# A violation has the stack of the cuLinkCreate too, of a live state and of one that was destroyed, by Python.
def maker(log, values, deep=0):
    return maker(log, values, deep - 1) if deep else create(log, values)

log, values = (c_char * 256)(), (c_uint64 * 2)()
state = maker(log, values)
values[0] = 7
assert cuda.cuLinkDestroy(state) == 0 and cuda.cuLinkDestroy(state) == 400
changed, used = control.violations
for one in (changed, used):
    assert [line.rpartition(" in ")[2] for line in one.history[1:]] == ["<module>", "maker", "create"]
    assert "\\n".join(one.history) in one.long_repr
assert changed.history[0] == "link state 1 was given its memory by cuLinkCreate, called from:"
assert used.history[0] == "link state 1 was made by cuLinkCreate, called from:"
(event,) = [one for one in control.events() if one.get("call") == "cuLinkCreate_v2"]
assert [line.rpartition(" in ")[2] for line in event["stack"]] == ["create", "maker", "<module>"]
told()

# the 64 innermost lines are kept, and odd names harm nothing
exec(compile("def odd(): return maker(log, values, 100)", "two\\nlines.py", "exec"))
state = odd()
values[0] = 7
assert cuda.cuLinkDestroy(state) == 0
(one,) = control.violations
assert len(one.history) == 65 and one.history[-1].endswith(" in create")
told()

# 64 destroyed states are remembered
oldest = create(log, values)
others = [create(*pair) for pair in [((c_char * 256)(), (c_uint64 * 2)()) for _ in range(70)]]
control.consume(control.violations)  # which are about whatever is there now
assert cuda.cuLinkDestroy(oldest) == 0
for other in others:
    cuda.cuLinkDestroy(other)
control.consume(control.violations)  # which are about whatever is there now
buffer = create_string_buffer(100)
assert control._library.cudalinkCreator(3, buffer, 100) == 0  # forgotten
assert control._library.cudalinkCreator(70, buffer, 100) > 100 and len(buffer.value) == 99  # cut
assert control._library.cudalinkCreator(10 ** 6, buffer, 100) == 0
""",
    "an_error_on_the_way_is_kept": """
# A stack that is noted while Python unwinds leaves its exception alone; without a watch no line is noted.
class Last:
    def __del__(self):
        log, values = (c_char * 256)(), (c_uint64 * 2)()
        assert cuda.cuLinkDestroy(create(log, values)) == 0
def fails():
    last = Last()
    raise KeyError("mine")
try:
    fails()
except KeyError as error:
    assert error.args == ("mine",)
control.stop_watching()
log, values = (c_char * 256)(), (c_uint64 * 2)()
assert cuda.cuLinkDestroy(create(log, values)) == 0
event = [one for one in control.events() if one.get("call") == "cuLinkCreate_v2"][-1]
assert event["stack"][0].endswith(" cuLinkCreate_v2")  # native frames
""",
    "memory_behind_an_empty_log": """
# A free list whose first byte happens to be 0 looks like an empty log, and is told by what follows.
for log in (create_string_buffer(256), (c_char * 8)(), (c_char * 2)()):
    values = (c_uint64 * 2)()
    state = create(log, values)
    log[1] = b"!"
    assert cuda.cuLinkDestroy(state) == 0
    assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "memory behind the log text changed", "cuLinkDestroy")]
""",
    "a_log_whose_end_is_gone": """
# The text of a log lies at its start; the last byte must be there, too.
pages = mmap.mmap(-1, 8192)
log, values = (c_char * 8192).from_buffer(pages), (c_uint64 * 2)()
state = create(log, values)
assert add(state) == 200 and told() == []
ok(CDLL(None).munmap(c_void_p(addressof(log) + 4096), c_size_t(4096)))
assert cuda.cuLinkDestroy(state) == 0
assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "unmapped", "cuLinkDestroy")]
""",
    "a_callers_own_writing_is_no_finding": """
# Not where a buffer is cleared, and not where both logs were given the same one.
log, values = create_string_buffer(b"?" * 255), (c_uint64 * 2)()
state = create(log, values)
memset(log, 0, 256)
assert cuda.cuLinkDestroy(state) == 0
log, values, state = create_string_buffer(256), (c_uint64 * 4)(), c_void_p()
values[0] = values[2] = addressof(log)
values[1] = values[3] = 256
assert cuda.cuLinkCreate_v2(4, (c_int * 4)(3, 4, 5, 6), values, byref(state)) == 0
assert add(state) == 200
assert cuda.cuLinkDestroy(state) == 0
assert told() == []
""",
    "the_hook_may_link": """
# Who is told of a violation may use the same state: nothing of the driver's is locked meanwhile.
log, values = (c_char * 256)(), (c_uint64 * 2)()
state, codes = create(log, values), []
@CFUNCTYPE(None, c_char_p)
def hook(event):
    codes.append(add(state))
cuda.cudalinkSetViolationHook(hook)
values[1] = 7
assert add(state) == 200
assert codes == [200]
cuda.cudalinkSetViolationHook(None)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, check) -> None:
    """It ends without an error, and what is said meanwhile are the kept sentences of this name, without addresses."""
    out = check(START + PROGRAMS[name], fresh=name == "both_ends")
    said = re.sub(
        "0x[0-9a-f]{6,}|(?<=found )[0-9a-f]{2}( [0-9a-f]{2}){15}", "#", "\n".join(filter(None, out.splitlines()))
    )
    kept = (ROOT / "tests" / "data" / "lifetimes_said.txt").read_text(encoding="utf-8")
    assert said == "\n".join(re.findall(f"^{name}: (.*)$", kept, re.MULTILINE))


def test_dead_memory_is_not_written_to(check) -> None:
    """Once known to be dead, memory is left alone; `strict` writes through, as a real driver would."""
    program = """
log, values, state = made()
values[0] = log[0] = 0
memset(values, 0x55, 16)
memset(log, 0x55, 256)
add(state)
print(bytes(values) == b"U" * 16, bytes(log.raw) == b"U" * 256)
"""
    assert check(START + program).split() == ["True", "True"]
    assert check(START + program, lifetime="strict").split() == ["False", "False"]


SECCOMP = """
import errno
libc = CDLL(None, use_errno=True)
NUMBERS = {"x86_64": (310, 311), "aarch64": (270, 271)}[os.uname().machine]
LOAD, EQUAL, RETURN, ALLOW, REFUSE = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000 | errno.EPERM
steps = [(LOAD, 0, 0, 0), (EQUAL, 1, 0, NUMBERS[0]), (EQUAL, 0, 1, NUMBERS[1])]
steps += [(RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
code = create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
filter_ = create_string_buffer(struct.pack("H6xQ", len(steps), addressof(code)))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, byref(filter_)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    print("no seccomp"), sys.exit()
assert libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0) == -1 and get_errno() == errno.EPERM
"""


def test_where_a_sandbox_forbids_to_look(check) -> None:
    """Memory that is gone is told there too, and never touched: container runtimes forbid process_vm_readv."""
    said = check(
        START
        + SECCOMP
        + """
log, values = mmap.mmap(-1, 16384), (c_uint64 * 2)()
state = create((c_char * 16384).from_buffer(log), values)
assert add(state) == 200
assert told() == [] and log[:values[1]].startswith(b"error   : Binary format")
libc.munmap.argtypes = [c_void_p, c_size_t]
libc.munmap(values[0], 16384)
assert cuda.cuLinkDestroy(state) == 0
assert told() == [("CU_JIT_ERROR_LOG_BUFFER", "unmapped", "cuLinkDestroy")]
assert cuda.cuModuleLoadData(byref(c_void_p()), c_void_p(0x1000)) == 200
print("done", flush=True)
os._exit(0)  # the map is not Python's any more
"""
    )
    if said == "no seccomp\n":
        pytest.skip("needs a kernel that lets a process filter its own system calls")
    assert said.endswith("done\n")


SUITE = """
from state import *

gc.disable()  # or a collection by itself comes in one phase of a test or in another

def test_good(emulated_driver):
    state = State()
    assert CU.cuLinkDestroy(state.handle) == 0
    state.handle.value = None

def test_rests(): pass
def test_rests_too(): pass

def test_bad():
    del_me = State()
    del del_me

def test_cycle():
    state = State()
    state.itself = state

def test_after(emulated_driver):
    assert emulated_driver.violations == ()

@pytest.fixture
def state():
    yield State()

def test_fixture(state):
    pass

def test_skips():
    State()
    pytest.skip("hides nothing")

@pytest.mark.xfail(reason="hides nothing")
def test_xfail():
    State()

def test_expected(driver_lifetimes):
    state = State()
    del state
    assert [one.rule for one in driver_lifetimes.expect()] == ["CU_JIT_LOG_VERBOSE"]
"""


@pytest.fixture
def suite(suite):
    """Run the suite above, or another, with arguments."""
    return lambda *arguments, tests=SUITE: suite(*arguments, test_suite=tests)


@pytest.mark.parametrize("workers", [ALONE, XDIST])
def test_violation_fails_its_test(suite, workers) -> None:
    """The test that made it fails, whatever else it does, also when it surfaces in a collection or a fixture."""
    result = suite("-rA", *workers)
    result.assert_outcomes(passed=7, failed=3, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED test_suite.py::test_bad - *cudalink: 1 lifetime*",
            "ERROR test_suite.py::test_cycle - *",
            "ERROR test_suite.py::test_fixture - *",
            "*CU_JIT_LOG_VERBOSE: option value changed, noticed by cuLinkDestroy; expected 0x1, found 0x63",
            "*in __del__",
            "The option values and log buffers given to cuLinkCreate must live until cuLinkDestroy*",
        ]
    )


LOST = """
from state import *

def test_cannot_be_noted(monkeypatch):
    from pytest_cudalink.emulator import control
    def fail(*_): raise MemoryError("no room for a stack")
    monkeypatch.setattr(control.traceback, "extract_stack", fail)
    State()
"""


@pytest.mark.parametrize("workers", [ALONE, BOTH])
def test_a_violation_that_cannot_be_noted(suite, workers) -> None:
    """An error in the callback hides nothing: the driver has counted, and the run fails in every mode."""
    for mode in ("report",) if workers else ("fail", "report"):
        result = suite(*workers, f"--cudalink-checks=lifetimes={mode}", tests=LOST)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(
            ["outside of tests: *1 lifetime violation could not be shown: *", "The run fails *"]
        )


def test_switched_off(suite) -> None:
    """`off` looks at nothing; what asks for the findings is skipped."""
    result = suite("--cudalink-checks=lifetimes=off", "-rs")
    result.assert_outcomes(passed=7, skipped=2, xpassed=1)
    assert "cudalink lifetimes" not in result.stdout.str()
    assert "violation" not in result.stdout.str()


@pytest.mark.apart
@pytest.mark.skipif(bool(checkers.valgrind_missing()), reason=checkers.valgrind_missing())
@pytest.mark.parametrize("order", ORDERS.split(","))
@pytest.mark.parametrize("fault", ["none", "logs", "values", "early"])
def test_valgrind_agrees(fault: str, order: str, tmp_path) -> None:
    """Valgrind sees an invalid write in each order in which the checker is red, and none where it is green."""
    log = tmp_path / "valgrind.txt"
    assert checkers.python_under_valgrind(log, ROOT / PROGRAM, fault, order, "malloc", "1") == 0, log.read_text()[
        -2000:
    ]
    assert ("Invalid write" in log.read_text()) == (fault != "none"), log.read_text()[-2000:]


def test_calls_after_python_has_ended(on_driver, tmp_path) -> None:
    """Destructors of C++ release contexts when Python is gone: the driver asks it for no lines, watched or not."""
    script = tmp_path / "ends.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from ctypes import CDLL, c_void_p, cast
from tests.emulator.cu import *
from pytest_cudalink.emulator import control

start()
control.attach(cuda).start_watching()
event = c_void_p()
assert cuda.cuEventCreate(byref(event), 0) == 0
at_exit = CDLL(None)["__cxa_atexit"]
at_exit(cast(cuda.cuDevicePrimaryCtxRelease_v2, c_void_p), c_void_p(0), None)
at_exit(cast(cuda.cuEventDestroy_v2, c_void_p), event, None)
"""
    )
    done = on_driver("13.0", str(script))
    assert done.returncode == 0, done.stderr
