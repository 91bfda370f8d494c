"""Tests that forbid calls which wait, by the table and by gates: the marker, the fixture, and what a finding says."""

import json
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.emulator.no_wait import allowed_symbols, sentences_of_row, violation_of_wait, waits
from pytest_cudalink.plugin import fixtures
from tests.planted import expected

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


def test_planted_waits(check: Callable[..., str]) -> None:
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
