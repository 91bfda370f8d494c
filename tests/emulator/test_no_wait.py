"""What forbids calls that wait: the table, gates as on a GPU, the marker, the fixture, and what a finding says."""

import json
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest

from campaigns.conformance.waits import applies, row_of
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.emulator.no_wait import _row, allowed_symbols, sentences_of_row, violation_of_wait, waits
from pytest_cudalink.plugin import fixtures
from tests.emulator.conftest import programs
from tests.planted import expected

Check = Callable[..., str]


def test_each_wait_names_a_call_that_exists_instead() -> None:
    """What a row suggests can be called, by its name in cuda.h."""
    functions = read_table("emulator/functions.toml")["functions"]
    replaced = {call: row.instead_of(call) for row in waits() for call in row.calls if row.instead}
    assert replaced["cuMemcpy2DUnaligned_v2"] == "cuMemcpy2DAsync"
    assert replaced["cuMemFree_v2"] == "cuMemFreeAsync"
    assert not [name for name in replaced.values() if name not in functions]


def test_what_may_wait_is_not_promised() -> None:
    """A program can rely on a wait only where the documentation says that there is one, not that there may be."""
    answers = {
        (call, *facts.values()): bool(row.promised) and not row.may
        for call, facts in (
            ("cuCtxSynchronize", {}),
            ("cuMemFreeHost", {"memory": "pinned"}),
            ("cuMemFree_v2", {"memory": "device"}),
            ("cuMemcpyDtoH_v2", {"to": "pageable", "source": "device"}),
            ("cuMemcpyDtoHAsync_v2", {"to": "pageable", "source": "device"}),
        )
        if (row := row_of(call, facts))
    }
    assert [*answers.values()] == [True, False, False, True, False]
    assert all(row.may == row.promised.startswith(("may ", "might ", "loading a kernel may ")) for row in waits())


def test_what_a_row_leaves_out() -> None:
    """It promises nothing more than it says, stands in CUDA's section on synchronization, and has no other call."""
    row = {"calls": ["cuMemFree_v2"], "waits_for": "context", "promised": ""}
    bare = _row(row)
    assert (bare.may, bare.loading, bare.holds, bare.source, bare.instead) == (False, "", (), "", "")
    assert bare.instead_of("cuMemFree_v2") == ""
    promised = _row({**row, "promised": "waits", "instead": "cuMemcpyHtoDAsync_v2"})
    assert promised.source == 'CUDA Driver API 13.0, "API synchronization behavior"'
    assert promised.instead_of("cuMemFree_v2") == "cuMemcpyHtoDAsync"
    sourced = _row({**row, "promised": "may wait", "may": True, "source": "a page"})
    assert (sourced.may, sourced.source) == (True, "a page")
    any_size = _row({**row, "given": {"larger_than": 0}})
    sizes = ({}, {"size": 0}, {"size": 1})
    assert [applies(any_size, "cuMemFree_v2", facts) for facts in sizes] == [False, False, True]


#: Lets the check close gates, as on a GPU, although the driver is an emulated one.
GATES = """
from pytest_cudalink.loader import gates
from pytest_cudalink.plugin.watch.no_wait import NoWait

BEGIN = NoWait.__init__
def begin(self, run):
    BEGIN(self, run)
    self._driver = None
NoWait.__init__ = begin
gates._STILL = 0.02
"""
#: What the tests below call.
HEAD = """
import pytest
from tests.planted import hidden_waits
from tests.planted.order_bugs import Pieces, call

def free():
    with Pieces():
        call("cuMemFree_v2", hidden_waits.device())
        call("cuCtxSynchronize")
"""
SUITE = f"""{HEAD}
@pytest.fixture
def memory():
    with Pieces():
        yield hidden_waits.device()

@pytest.mark.cudalink(no_wait=True)
def test_marked(memory):
    call("cuMemFree_v2", memory)

@pytest.mark.cudalink(no_wait=True)
def test_sound():
    pass

@pytest.mark.cudalink(no_wait=["cuMemFree", "cuCtxSynchronize"])
def test_allowed():
    free()

@pytest.mark.cudalink(no_wait=False)
def test_lifted(no_wait):
    free()

def test_block(no_wait):
    hidden_waits.WAITS["stream_drained"](no_wait)

def test_sound_block(no_wait):
    hidden_waits.SOUND["buffer_freed"](no_wait)

def test_allowed_in_a_block(no_wait):
    hidden_waits.WAITS["buffer_freed"](lambda: no_wait(allow=["cuMemFree"]))

@pytest.fixture
def waits():
    free()
    yield
    free()

@pytest.mark.cudalink(no_wait=True)
def test_fixtures_may_wait(waits):
    pass

def test_unknown(no_wait):
    with pytest.raises(ValueError, match="the driver has no function 'cudaFree'; did you mean 'cuMemFree'"):
        no_wait(allow=["cudaFree"])
"""
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:randomly", "--cudalink-driver=13.0")


def lines_of(shown: str, name: str) -> list[str]:
    """The report of one failed test."""
    return shown.partition(f"_ {name} _")[2].partition("\n_____")[0].splitlines()


@pytest.mark.parametrize("conftest", ["", GATES], ids=["table", "gates"])
def test_suite(run_pytest, pytester, toolchain, conftest: str) -> None:
    """A wait within the body or block fails the test with call, site, reason and change; nothing else does."""
    toolchain("13.0")
    pytester.makeconftest(conftest)
    pytester.makepyfile(SUITE)
    result = run_pytest(*OPTIONS, "-rA", "--cudalink-report=found.jsonl")
    result.assert_outcomes(passed=7, failed=2)
    shown = lines_of(result.stdout.str(), "test_marked")
    assert "cudalink: 1 hidden wait during this test's call:" in shown
    assert "cuMemFree waits for unfinished work, which no_wait forbids" in shown
    assert any(line.endswith(" in test_marked") for line in shown), shown
    assert any("libcuda.so.1" in line and line.endswith(" cuMemFree_v2") for line in shown), shown
    assert 'Call cuMemFreeAsync instead, or allow it: no_wait=["cuMemFree"].' in shown
    assert "cuStreamSynchronize waits for" in "\n".join(lines_of(result.stdout.str(), "test_block"))
    records = [json.loads(line) for line in Path("found.jsonl").read_text(encoding="utf-8").splitlines()]
    noted = [record for record in records if record["event"] == "violation"]
    assert [(event["check"], event["call"]) for event in noted] == [
        ("wait", "cuMemFree_v2"),
        ("wait", "cuStreamSynchronize"),
    ]


#: Runs each hidden wait and each twin while no call may wait; prints what was found in each.
PLANTED = """
import json, threading
from tests.planted import hidden_waits
driver = control.attach(cuda)
driver.start_watching()
found = []
for table in (hidden_waits.WAITS, hidden_waits.SOUND):
    found.append({})
    for name, function in table.items():
        function(lambda: driver.no_wait(threading.get_native_id()))
        found[-1][name] = [[one.call, one.python_stack, one.native_stack] for one in driver.violations]
        driver.consume(driver.violations)
driver.stop_watching()
print(json.dumps(found))
"""


def test_planted_waits(check: Check) -> None:
    """The table finds the call of each planted wait, as gates do, and none in the twins."""
    calls, (named, sound) = expected("hidden_waits"), json.loads(check(PLANTED))
    assert {name: [call for call, *_ in waits] for name, waits in named.items()} == {n: [c] for n, c in calls.items()}
    assert sound == {name: [] for name in calls}
    for name, ((_, python, native),) in named.items():
        assert any(line.endswith(f" in {name}") for line in python), python
        assert native[0].startswith("libcuda.so")


def test_handles_of_streams() -> None:
    """A stream is a number, one of ctypes, or has what cuda.core gives other libraries."""
    given = SimpleNamespace(__cuda_stream__=lambda: (0, 7))
    assert [*map(fixtures._handle, (7, c_void_p(7), given, c_void_p()))] == [7, 7, 7, 0]


def test_no_gates(run_pytest, pytester, toolchain) -> None:
    """Where no gate can stand, the tests are skipped with the reason, and counted; none passes."""
    toolchain("13.0")
    pytester.makeconftest(
        f"{GATES}\ndef refuse(*_):\n    raise gates.NoGatesError('cuStreamWaitValue32_v2 answers 801')\n"
        "gates._Driver.close = refuse\n"
    )
    pytester.makepyfile(
        f"{HEAD}\n@pytest.mark.cudalink(no_wait=True)\ndef test_marked(): free()\n"
        "def test_block(no_wait):\n    with no_wait(): free()\n"
    )
    result = run_pytest(*OPTIONS, "-rs", "--cudalink-report=run.jsonl")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*gates in streams*"])
    result.stdout.no_fnmatch_line("*SKIPPED*no_wait.py:*")
    reason = (
        "cudalink: no_wait needs a driver whose streams can wait for a value (found cuStreamWaitValue32_v2 answers 801)"
    )
    assert reason in result.stdout.str()


def test_long_block(run_pytest, pytester, toolchain) -> None:
    """A block that asks for work behind the gates ends, and a warning says that nothing was proven from then on."""
    toolchain("13.0")
    pytester.makeconftest(f"{GATES}\ngates.LONGEST = 0.1\n")
    pytester.makepyfile(f"""{HEAD}
from ctypes import byref, c_void_p
from tests.planted.order_bugs import cuda

def test_it(no_wait):
    with Pieces() as pieces, no_wait():
        event = pieces.event()
        call("cuEventRecord", event, None)
        while cuda.cuEventQuery(event):
            pass
""")
    result = run_pytest(*OPTIONS)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*cudalink: no_wait opened the gates after 0 s, because the block had not ended, and*"]
    )


TASKS = f"""{HEAD}
import asyncio

def both(one, other):
    async def main():
        turn = asyncio.Event()
        await asyncio.gather(one(turn), other(turn))
    asyncio.run(main())

def block(no_wait, *, waits, allow=()):
    async def run(turn):
        with no_wait(allow=allow):
            turn.set()
            await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            if waits:
                free()
    return run

async def without(turn):
    await turn.wait()
    free()

def test_other(no_wait): both(block(no_wait, waits=False), without)
def test_own(no_wait): both(block(no_wait, waits=True), without)
def test_allowed_elsewhere(no_wait):
    both(block(no_wait, waits=True), block(no_wait, waits=False, allow=["cuMemFree", "cuCtxSynchronize"]))
def test_started(no_wait):
    async def main():
        with no_wait():
            await asyncio.create_task(freeing())
    asyncio.run(main())
async def freeing(): free()
def test_around(no_wait):
    with no_wait():
        both(without_turn, without_turn)
async def without_turn(turn): free()
"""


def test_tasks_of_one_thread(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """A block is of the task in which it begins, and of those that it starts; one around all tasks is of all."""
    pytester.makepyfile(TASKS)
    result = run_pytest("--cudalink-driver=13.0")
    result.assert_outcomes(passed=1, failed=4)
    failed = {line.split("::")[1].split(" ")[0] for line in result.outlines if line.startswith("FAILED")}
    assert failed == {"test_own", "test_allowed_elsewhere", "test_started", "test_around"}


def test_allowed_symbols() -> None:
    """A name of cuda.h allows every form of a function, and so does a symbol; nothing else is allowed."""
    forms = {"cuMemcpy", "cuMemcpy_ptds"}
    assert allowed_symbols(["cuMemcpy"]) == forms
    assert allowed_symbols(["cuMemcpy_ptds"]) == forms
    assert allowed_symbols(["cuMemFree_v2"]) == {"cuMemFree", "cuMemFree_v2"}
    assert allowed_symbols([]) == frozenset()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cudaFree", "did you mean 'cuMemFree'?"),
        ("cuMemcpyAsnc", "did you mean 'cuMemcpyAsync'?"),
        ("x", "give a name of cuda.h, such as 'cuMemFree'"),
    ],
)
def test_unknown_names(name: str, hint: str) -> None:
    """A name that the driver does not have is an error with the nearest, also for a name of the runtime."""
    with pytest.raises(ValueError, match="the driver has no function") as caught:
        allowed_symbols(["cuMemFree", name])
    assert str(caught.value) == f"the driver has no function {name!r}; {hint}"


def test_sentences_of_a_row() -> None:
    """They say for what a call waits, what is documented, and to wait behind a copy, or before anything else."""
    rows = waits()
    known = {number: row.calls[0] for number, row in enumerate(rows, 1)}
    free = next(number for number, call in known.items() if call == "cuMemFree_v2")
    copies = [number for number, call in known.items() if call == "cuMemcpy2DAsync_v2"]
    download = next(number for number, row in enumerate(rows, 1) if row.promised.startswith("might be synchronous"))
    assert sentences_of_row(free, "cuMemFree_v2") == (
        "It waits for all streams of the context (an H100, driver 580.159.04).",
        f"CUDA's documentation: {rows[free - 1].promised} (CUDA Driver API 13.0, cuMemFree).",
        "fix  Wait before cuMemFree, by cuStreamSynchronize or by cuEventSynchronize for an event.",
    )
    assert sentences_of_row(free + 1, "cuMemFreeHost")[1] == (
        "CUDA's documentation does not say so: another driver may not wait."
    )
    for number in copies:
        assert sentences_of_row(number, "cuMemcpyAsync")[2] == (
            "fix  Wait behind cuMemcpyAsync, by cuStreamSynchronize or by cuEventSynchronize for an event."
        )
    assert sentences_of_row(0, "cuMemcpyHtoDAsync_v2")[:2] == (
        "It reads pageable memory before it returns (an H100, driver 580.159.04).",
        f"CUDA's documentation: {rows[download - 1].promised} ({rows[download - 1].source}).",
    )


def test_each_row_reads() -> None:
    """Each call of the table has a sentence for what it waits for, what is documented, and a change."""
    for row in waits():
        for call in row.calls:
            violation = violation_of_wait(call, waits_for=row.waits_for)
            why, fix = violation.advice.splitlines()
            assert why.startswith("It waits for ")
            assert "(an H100, driver 580.159.04). CUDA's documentation" in why
            assert fix == violation.fix
            assert fix.endswith(f', or allow it: no_wait=["{call.partition("_v")[0]}"].')


CONTEXT = "all streams of the context"
NOT_SAID = " does not say so: another driver may not wait."
FOR_SOME = " promises this wait for some of its arguments."
#: By call and what it waits for: what is said of that, and of the documentation; the change, and what may be allowed.
ADVICE = {
    ("cuMemFree_v2", "context"): (
        CONTEXT,
        ": may synchronize implicitly, except for memory of cuMemAllocAsync (CUDA Driver API 13.0, cuMemFree).",
        ("Call cuMemFreeAsync instead", "cuMemFree"),
    ),
    ("cuMemFreeHost", "context"): (CONTEXT, NOT_SAID, ("Call it elsewhere", "cuMemFreeHost")),
    ("cuMemcpyDtoH_v2_ptds", ""): (
        "all that new work in the legacy stream would wait for",
        FOR_SOME,
        ("Call cuMemcpyDtoHAsync with pinned memory instead", "cuMemcpyDtoH"),
    ),
    ("cuMemcpyDtoHAsync_v2_ptsz", "stream"): (
        "all that new work in its stream would wait for",
        FOR_SOME,
        ("Copy between pinned memory and the device instead", "cuMemcpyDtoHAsync"),
    ),
    ("cuLaunchKernel", ""): (
        CONTEXT,
        ": loading a kernel may need to synchronize the context (CUDA C++ Programming Guide 13.0, Lazy Loading).",
        ("Call cuKernelGetFunction before, where a wait does no harm", "cuLaunchKernel"),
    ),
    ("cuModuleLoadData", ""): (CONTEXT, NOT_SAID, ("Call cuLibraryLoadData instead", "cuModuleLoadData")),
    ("cuLibraryUnload", "device"): (
        "all streams of all contexts of the device",
        NOT_SAID,
        ("Call it elsewhere", "cuLibraryUnload"),
    ),
    ("", ""): ("work that was not done", NOT_SAID, ("Call it elsewhere", "")),
}


@pytest.mark.parametrize(("call", "waits_for"), ADVICE)
def test_advice(call: str, waits_for: str) -> None:
    """What all rows of a call agree on is said: the promise, and the call that does not wait."""
    violation = violation_of_wait(call, waits_for=waits_for)
    waits, said, (change, allowed) = ADVICE[call, waits_for]
    fix = f'{change}, or allow it: no_wait=["{allowed}"].' if allowed else f"{change}."
    why = f"It waits for {waits} (an H100, driver 580.159.04). CUDA's documentation{said}"
    assert (violation.advice.splitlines(), violation.fix) == ([why, fix], fix)


def test_seen() -> None:
    """What a gate has shown is said instead of a recording."""
    violation = violation_of_wait(
        "cuKernelGetFunction", python_stack=["a.py:1 in f"], native_stack=["x"], number=3, noted=True
    )
    assert violation.advice.startswith(
        "It waits for all streams of the context (it came back when a gate in a stream opened). CUDA's documentation: "
    )
    assert (violation.check, violation.number, violation.rule, violation.call) == (
        "wait",
        3,
        "no_wait",
        "cuKernelGetFunction",
    )
    assert (violation.python_stack, violation.native_stack) == (("a.py:1 in f",), ("x",))
    assert violation.text == "cuKernelGetFunction waits for unfinished work, which no_wait forbids"
    unknown = violation_of_wait("cuLaunchKernelX", noted=True).advice
    assert "On an H100, driver 580.159.04, this call waits only where a stream holds about 1,020 pieces of" in unknown
    assert "1,020" not in violation.advice
    assert "1,020" not in violation_of_wait("cuLaunchKernelX").advice
    assert (violation_of_wait("").number, violation_of_wait("").handle) == (0, 0)
    assert violation_of_wait("cuMemFree_v2").what == "waits for all streams of the context"
    assert violation_of_wait("").text == "a call of the driver waits for unfinished work, which no_wait forbids"


# -- in the driver, by the table

#: Memory, streams and an image, and the calls that a part of a program makes although they would wait.
NO_WAIT = """
driver = control.attach(cuda)
context = start()
pinned, memory, apart = pinned(), allocate(1 << 22), stream(1)
pageable = create_string_buffer(1 << 22)
cuda.cudalinkNoWait.argtypes = [c_int64, POINTER(c_char_p), c_size_t]
driver.start_watching()
seen = []
hook = CFUNCTYPE(None, c_char_p)(lambda event: seen.append(json.loads(event)))
cuda.cudalinkSetViolationHook(hook)
def no_wait(*allowed, thread=0):
    return cuda.cudalinkNoWait(thread, (c_char_p * len(allowed))(*map(str.encode, allowed)), len(allowed))
def found():
    calls = [(one["call"], one["option"]) for one in seen]
    seen.clear()
    return calls
"""
BY_THE_TABLE = {
    "calls_that_would_wait_are_violations": """
# Nothing is pending, and the calls that wait by the table are named all the same; the others are not.
event = new(cuda.cuEventCreate, 0)
other, pooled = allocate(4096), c_uint64()
ok(cuda.cuMemAllocAsync(byref(pooled), c_size_t(4096), apart))
number = no_wait()
assert number == 1
one = c_uint64(memory)
ok(cuda.cuMemcpyHtoD_v2(memory, addressof(pageable), c_size_t(64)))
ok(cuda.cuMemcpyHtoDAsync_v2(one, pageable, c_size_t(1 << 21), apart))
ok(cuda.cuMemcpyHtoDAsync_v2(one, pageable, c_size_t((1 << 21) + 1), apart))
ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(pinned), one, c_size_t(64), apart))
ok(cuda.cuMemcpyDtoHAsync_v2(pageable, one, c_size_t(64), apart))
ok(cuda.cuMemcpyDtoD_v2(memory, memory + 64, c_size_t(64)))
ok(cuda.cuMemsetD8_v2(memory, 0, c_size_t(64)))
ok(cuda.cuMemsetD8_v2(pinned, 0, c_size_t(64)))
ok(cuda.cuPointerSetAttribute(byref(c_uint(1)), 6, c_uint64(other)))
ok(cuda.cuMemcpyDtoD_v2(c_uint64(other), memory, c_size_t(64)))
ok(cuda.cuMemcpyDtoDAsync_v2(c_uint64(other), one, c_size_t(64), apart))
ok(cuda.cuStreamSynchronize(apart))
ok(cuda.cuStreamQuery(apart))
ok(cuda.cuEventSynchronize(event))
ok(cuda.cuMemFree_v2(pooled))
ok(cuda.cuMemFree_v2(0))
ok(cuda.cuMemFree_v2(other))
ok(cuda.cuCtxSetLimit(1, c_size_t(1 << 23)))
ok(cuda.cuCtxSetLimit(0, c_size_t(512)))
ok(cuda.cuCtxSetLimit(0, c_size_t(2048)))
ok(cuda.cuCtxSynchronize())
cuda.cudalinkEndNoWait(number)
ok(cuda.cuCtxSynchronize())
names = found()
assert names == [
    ("cuMemcpyHtoD_v2", "legacy"), ("cuMemcpyHtoDAsync_v2", "stream"), ("cuMemcpyDtoHAsync_v2", "stream"),
    ("cuMemsetD8_v2", "legacy"), ("cuMemcpyDtoD_v2", "legacy"), ("cuStreamSynchronize", "own"),
    ("cuEventSynchronize", "event"), ("cuMemFree_v2", "context"), ("cuCtxSetLimit", "context"),
    ("cuCtxSetLimit", "context"), ("cuCtxSynchronize", "context"),
], names
""",
    "a_call_that_would_wait_is_named_once_for_each_site": """
# A loop has one violation, and a second line another.
number = no_wait()
for _ in range(3):
    ok(cuda.cuCtxSynchronize())
ok(cuda.cuCtxSynchronize())
cuda.cudalinkEndNoWait(number)
assert len(found()) == 2
""",
    "allowed_calls_and_other_threads_may_wait": """
# Of nested ones the innermost of the thread counts; ended in any order, each ends alone.
def in_thread():
    elsewhere(lambda: (ok(cuda.cuCtxSetCurrent(context)), ok(cuda.cuStreamSynchronize(apart))))
outer = no_wait("cuStreamSynchronize", thread=threading.get_native_id())
ok(cuda.cuStreamSynchronize(apart))
in_thread()
assert found() == []
inner = no_wait("cuCtxSynchronize", "there is no such call")
ok(cuda.cuCtxSynchronize())
assert found() == []
ok(cuda.cuStreamSynchronize(apart))
in_thread()
assert found() == [("cuStreamSynchronize", "own")] * 2
cuda.cudalinkEndNoWait(outer)
ok(cuda.cuStreamSynchronize(apart))
assert found() == [("cuStreamSynchronize", "own")]
cuda.cudalinkEndNoWait(inner)
cuda.cudalinkEndNoWait(inner)
ok(cuda.cuStreamSynchronize(apart))
assert found() == []
""",
    "loading_code_waits_where_the_table_says": """
# The first use of a library in a context waits under lazy loading; its loading and its end wait under eager.
image = small_ptx()
library, kernel, out = c_void_p(), c_void_p(), c_void_p()
for mode, expected in {
    "LAZY": [("cuKernelGetFunction", "context"), ("cuLibraryUnload", "context")],
    "EAGER": [("cuLibraryLoadData", "device"), ("cuLibraryUnload", "device")],
}.items():
    os.environ["CUDA_MODULE_LOADING"] = mode
    number = no_wait()
    ok(cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0))
    ok(cuda.cuLibraryGetKernel(byref(kernel), library, b"small"))
    ok(cuda.cuKernelGetFunction(byref(out), kernel))
    ok(cuda.cuKernelGetFunction(byref(out), kernel))
    ok(cuda.cuLibraryGetModule(byref(out), library))
    ok(cuda.cuLibraryUnload(library))
    cuda.cudalinkEndNoWait(number)
    names = found()
    assert names == expected, names
number = no_wait()
ok(cuda.cuModuleLoadData(byref(library), image))
ok(cuda.cuModuleUnload(library))
names = found()
assert names == [("cuModuleLoadData", "context"), ("cuModuleUnload", "context")], names
cuda.cudalinkEndNoWait(number)
""",
    "a_full_stream_is_no_hidden_wait": """
# What waits because a stream is full waits for no unfinished work by itself.
number = no_wait()
word = c_uint.from_address(pinned)
ok(cuda.cuStreamWaitValue32_v2(apart, c_uint64(pinned), 1, 0))
for at in range(1021):
    if at == 1020:
        threading.Timer(0.05, lambda: setattr(word, "value", 1)).start()
    ok(cuda.cuMemsetD8Async(c_uint64(memory), 1, c_size_t(64), apart))
cuda.cudalinkEndNoWait(number)
assert not found()
""",
}
test_by_the_table = programs(BY_THE_TABLE, NO_WAIT)


# -- by gates, as on a GPU

#: A context with memory, and a watch over calls.
READY = """
from pytest_cudalink.loader import gates
ok(cuda.cuInit(0))
made = new(cuda.cuDevicePrimaryCtxRetain, 0)
ok(cuda.cuCtxSetCurrent(made))
memory = new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
other = new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
"""


#: By name: a program, and the calls that it finds.
BY_GATES = {
    "allowed": (
        """
watch = gates.ClosedGates(allowed=["cuMemFree_v2"])
with watch.closed():
    ok(cuda.cuMemFree_v2(memory))
    time.sleep(0.03)
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "holds Python's lock": (
        """
gates._SILENT = 50
watch = gates.ClosedGates()
with watch.closed():
    ok(PyDLL("libcuda.so.1").cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "on a busy machine": (
        """
counted = iter(range(1000))
gates.run_delay = lambda thread: min(next(counted), 4)  # four looks at a thread that gets no processor
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSynchronize())
assert next(counted) > 5  # no earlier look blames the call
""",
        ["cuCtxSynchronize"],
    ),
    "another thread waits": (
        """
def wait():
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuMemFree_v2(memory))
watch = gates.ClosedGates()
with watch.closed():
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
""",
        ["cuMemFree_v2"],
    ),
    "a stream of the program": (
        """
stream = new(cuda.cuStreamCreate, 1)
watch = gates.ClosedGates(streams=[stream.value])
with watch.closed():
    ok(cuda.cuStreamSynchronize(stream))
""",
        ["cuStreamSynchronize"],
    ),
    "the stream of the thread": (
        """
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuStreamSynchronize(c_void_p(2)))
""",
        ["cuStreamSynchronize"],
    ),
    "no context yet": (
        """
ok(cuda.cuCtxSetCurrent(None))
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuDevicePrimaryCtxRetain(byref(made), 0))
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "another context that is active": (
        """
other = new(cuda.cuDevicePrimaryCtxRetain, 1)
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSetCurrent(other))
    ok(cuda.cuCtxSynchronize())
ok(cuda.cuDevicePrimaryCtxRelease_v2(1))
assert get(cuda.cuDevicePrimaryCtxGetState, 1, c_uint, c_int)[1] == 0  # the watch keeps no context
""",
        ["cuCtxSynchronize"],
    ),
    "a destroyed context is current": (
        """
dead, above = new(cuda.cuCtxCreate_v2, 0, 0), new(cuda.cuCtxCreate_v2, 0, 0)
ok(cuda.cuCtxDestroy_v2(dead))
ok(cuda.cuCtxDestroy_v2(above))
assert get(cuda.cuCtxGetCurrent, c_void_p) == dead.value
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "a driver before CUDA 12.0": (
        """
class Old:
    def __getattr__(self, name):
        if name in ("cuCtxGetId", "cuStreamWaitValue32_v2"):
            raise AttributeError(name)
        return getattr(cuda, "cuStreamWaitValue32_v2" if name == "cuStreamWaitValue32" else name)
gates._native()
gates.ctypes.CDLL = lambda _: Old()
own = new(cuda.cuCtxCreate_v2, 0, 0)
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
watch = gates.ClosedGates()
with watch.closed():
    assert get(cuda.cuDevicePrimaryCtxGetState, 0, c_uint, c_int)[1] == 0  # the watch makes no context
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "time that is spent elsewhere": (
        """
watch = gates.ClosedGates()
with watch.closed():
    time.sleep(0.1)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
assert not watch.gave_up
""",
        [],
    ),
    "a loop that asks for the end of work": (
        """
gates.LONGEST = 0.1
event = new(cuda.cuEventCreate, 0)
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuEventRecord(event, None))
    while cuda.cuEventQuery(event):
        pass
assert watch.gave_up
""",
        [],
    ),
    "a loop that asks a stream": (
        """
gates.LONGEST = 0.1
watch = gates.ClosedGates()
with watch.closed():
    while cuda.cuStreamQuery_ptsz(c_void_p(2)):
        pass
assert watch.gave_up
""",
        [],
    ),
    "a call that is slow for another reason": (
        """
gates._RETURNS = 0.001
control.attach(cuda).inject("cuMemAlloc_v2", 0, nth=0, delay=1)
watch = gates.ClosedGates()
with watch.closed():
    while watch._number < 2:  # then the gates are closed again
        new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
        time.sleep(0.02)
    gates._RETURNS = 60
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "a capture": (
        """
stream = new(cuda.cuStreamCreate, 0)
ok(cuda.cuStreamBeginCapture_v2(stream, 0))
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuMemsetD8Async(memory, c_uint(1), c_size_t(64), stream))
graph = new(cuda.cuStreamEndCapture, stream, c_void_p)
""",
        [],
    ),
}


@pytest.mark.parametrize(("program", "calls"), BY_GATES.values(), ids=list(BY_GATES))
def test_by_gates(check: Check, program: str, calls: list[str]) -> None:
    """What waits is named, whatever does not wait is not, and everything ends."""
    shown = check(
        f"{READY}gates._STILL = 0.02\n{program}\nprint(json.dumps([one.call for one in watch.found]))", device="sm_90:2"
    )
    assert json.loads(shown) == calls


def test_leaves_nothing_behind(check: Check) -> None:
    """A second watch makes no further stream or memory, and after it nothing waits."""
    program = """
gates._STILL = 0.02
driver, alive = control.attach(cuda), []
for _ in range(2):
    with gates.ClosedGates().closed():
        ok(cuda.cuMemsetD8Async(memory, c_uint(1), c_size_t(64), None))
        assert "cudalink-gates" in [thread.name for thread in threading.enumerate()]  # in the words of a deadlock
    while len(os.listdir("/proc/self/task")) > 2:  # this one and the driver's; the system ends a joined one late
        time.sleep(0.001)
    alive.append(driver.alive())
assert alive[0] == alive[1], alive
ok(cuda.cuCtxSynchronize())
"""
    check(READY + program)


#: What is done before, and why no gate can stand then.
REFUSED = {
    'gates._DRIVER = "/no/libcuda.so.1"': "no CUDA driver: /no/libcuda.so.1: cannot open",
    'gates._DRIVER = str(emulator.library_folder(absent=True) / "libcuda.so.1")': (
        "no CUDA driver: --cudalink-driver=absent hides it"
    ),
    'gates._DRIVER = "libc.so.6"': "a driver without cuStreamWaitValue32",
    'gates._OURS = Path("/no/library")': "no native library of pytest-cudalink for this platform",
    'driver.inject("cuInit", 100)': "cuInit answers 100",
    'driver.inject("cuStreamWaitValue32_v2", 801, nth=3)': "cuStreamWaitValue32_v2 answers 801",
}


@pytest.mark.parametrize(("before", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_where_no_gate_can_stand(check: Check, before: str, reason: str) -> None:
    """Where no gate can stand this is said, and the program goes on: what was closed is open again."""
    program = f"""
from pytest_cudalink import emulator
driver = control.attach(cuda)
{before}
try:
    with gates.ClosedGates().closed():
        raise AssertionError
except gates.NoGatesError as error:
    print(json.dumps(str(error)))
ok(cuda.cuCtxSynchronize())
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
assert get(cuda.cuDevicePrimaryCtxGetState, 0, c_uint, c_int)[1] == 0
"""
    assert json.loads(check(READY + program)).startswith(reason)
